//! Power failures while 64 writers write. Every acknowledged write survives, no batch is partial, and no revision
//! decreases or repeats. `TIPHYS_SEEDS=5000` runs more seeds.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stdx::sync::Mutex;
use store::embedded::{self, Config, EmbeddedStore};
use store::{Content, Durability, Op, Precondition, Revision, Store, VersionQuery, Write};
use support::sim::{Random, SimDisk};
use support::{Recorder, delete, put};

const WRITERS: u64 = 64;
const LIVES: u64 = 3;

/// A write of a key, from the point of view of its writer.
#[derive(Debug, Clone)]
struct Step {
    /// None for a deletion.
    value: Option<String>,
    /// None if there was no response.
    revision: Option<Revision>,
    durable: bool,
}

/// The expectations of the writers, over all lives.
#[derive(Default)]
struct Model {
    /// The writes of each key in order. Each key has one writer.
    keys: BTreeMap<String, Vec<Step>>,
    /// The acknowledged durable changes of each key, of all lives.
    past: BTreeMap<String, Vec<(Revision, Option<String>)>>,
    /// The newest acknowledged revision.
    newest: Revision,
    /// Something was acknowledged since the last start.
    acknowledged: bool,
}

fn config() -> Config {
    Config {
        // Small, so that files are rotated and compacted all the time.
        segment_bytes: 16 << 10,
        allocate_bytes: 4 << 10,
        compact_bytes: 24 << 10,
        reserve: 20,
        relaxed_delay: std::time::Duration::from_millis(1),
        // A power failure looks like a failed sync.
        fatal: Arc::new(|_| {}),
        ..Config::new("/data")
    }
}

fn run_seed(seed: u64, syncs: bool) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let disk = if syncs { disk } else { disk.without_sync() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut random = Random::new(seed ^ 0xabcd);
    let model = Arc::new(Mutex::new(Model::default()));
    for life in 0..LIVES {
        // Also during the start and during a compaction.
        disk.cut_power_after(random.below(if life == 0 { 300 } else { 120 }));
        let opened = embedded::open(config(), Arc::new(disk.clone()), Recorder::new());
        if let Ok(store) = opened {
            let store = Arc::new(store);
            runtime.block_on(write_until_dark(&store, &model, random.next(), life));
            drop(store);
        }
        disk.reboot();
        let store = embedded::open(config(), Arc::new(disk.clone()), Recorder::new());
        let store = store.map_err(|error| format!("life {life}: the store does not open: {error}"))?;
        runtime.block_on(check(&store, &mut model.lock())).map_err(|what| format!("life {life}: {what}"))?;
        drop(store);
    }
    Ok(())
}

async fn write_until_dark(store: &Arc<EmbeddedStore>, model: &Arc<Mutex<Model>>, seed: u64, life: u64) {
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, model) = (store.clone(), model.clone());
            tokio::spawn(async move {
                let mut random = Random::new(seed ^ writer);
                for number in 0.. {
                    let writes = choose(writer, &format!("{life}.{writer}.{number}"), &mut random);
                    if !commit(&store, &model, writes).await {
                        break;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// A single write, a deletion, or a pair that must stay equal.
fn choose(writer: u64, value: &str, random: &mut Random) -> Vec<Write> {
    let filler = "x".repeat(random.below(900) as usize);
    let value = format!("{value}.{filler}");
    let key = format!("/single/{writer}/{}", random.below(3));
    let durability = if random.below(4) == 0 { Durability::Relaxed } else { Durability::Durable };
    let writes = match random.below(6) {
        0 => vec![delete(&key, Precondition::Anything)],
        1 | 2 => ["a", "b"].map(|half| put(&format!("/pair/{writer}/{half}"), &value, Precondition::Anything)).into(),
        _ => vec![put(&key, &value, Precondition::Anything)],
    };
    writes.into_iter().map(|write| Write { durability, ..write }).collect()
}

async fn commit(store: &EmbeddedStore, model: &Mutex<Model>, writes: Vec<Write>) -> bool {
    let steps: Vec<(String, Step)> = writes
        .iter()
        .map(|write| {
            let value = match &write.op {
                Op::Put(template) => Some(String::from_utf8(template.bytes.clone()).unwrap()),
                Op::Delete => None,
                Op::Check => unreachable!("it is not made here"),
            };
            let durable = write.durability == Durability::Durable;
            (write.key.clone(), Step { value, revision: None, durable })
        })
        .collect();
    for (key, step) in &steps {
        model.lock().keys.entry(key.clone()).or_default().push(step.clone());
    }
    let Ok(committed) = store.commit(writes).await else {
        return false;
    };
    let mut model = model.lock();
    for ((key, step), committed) in steps.iter().zip(committed) {
        let changes = committed.entry.is_some() || committed.previous.is_some();
        if step.durable && changes {
            let change = (committed.revision, step.value.clone());
            model.past.entry(key.clone()).or_default().push(change);
        }
        model.newest = model.newest.max(committed.revision);
        model.acknowledged |= committed.entry.is_some() || committed.previous.is_some();
        model.keys.get_mut(key).unwrap().last_mut().unwrap().revision = Some(committed.revision);
    }
    true
}

/// The state after a start must be consistent with what was acknowledged, and becomes the new baseline.
async fn check(store: &EmbeddedStore, model: &mut Model) -> Result<(), String> {
    let revision = store.revision().await.map_err(|error| error.to_string())?;
    if revision < model.newest {
        return Err(format!("the revision went back from {} to {revision}", model.newest));
    }
    // A life without acknowledgements may end like the previous one: closed.
    if model.acknowledged && store.compacted() != revision {
        return Err(format!("history from {} on is offered after a crash", store.compacted()));
    }
    let mut seen = BTreeMap::new();
    for (key, steps) in &mut model.keys {
        let entry = store.get(key).await.map_err(|error| error.to_string())?;
        if let Some(entry) = &entry
            && let Some(other) = seen.insert(entry.revision, key.clone())
        {
            return Err(format!("{key} and {other} have the revision {}", entry.revision));
        }
        let value = entry.as_ref().map(|entry| emptied(&entry.value));
        check_key(key, steps, value.as_deref(), entry.map(|entry| entry.revision))?;
        *steps = vec![Step { value, revision: Some(revision), durable: true }];
    }
    check_past(store, model).await?;
    for writer in 0..WRITERS {
        let half = |half: &str| format!("/pair/{writer}/{half}");
        let values = [half("a"), half("b")].map(|key| model.keys.get(&key).map(|steps| steps[0].value.clone()));
        if values[0] != values[1] {
            return Err(format!("half of a transaction of writer {writer} is there: {values:?}"));
        }
    }
    let committed =
        store.commit(vec![put("/next", "", Precondition::Anything)]).await.map_err(|error| error.to_string())?;
    if committed[0].revision <= model.newest || committed[0].revision <= revision {
        return Err(format!("the revision {} comes twice", committed[0].revision));
    }
    model.newest = committed[0].revision;
    model.acknowledged = false;
    Ok(())
}

/// Every acknowledged version of some keys is in their history, whatever a compaction was doing.
async fn check_past(store: &EmbeddedStore, model: &Model) -> Result<(), String> {
    let step = model.past.len() / 4 + 1;
    for (key, changes) in model.past.iter().step_by(step) {
        let query = VersionQuery { key: key.clone(), ..VersionQuery::default() };
        let found = store.versions(query).await.map_err(|error| error.to_string())?;
        if found.floor > 1 {
            return Err(format!("the history begins only at {}", found.floor));
        }
        let value = |content: &Content| match content {
            Content::Value(value) => Some(emptied(value)),
            _ => None,
        };
        for (revision, expected) in changes {
            let version = found.versions.iter().find(|version| version.revision == *revision);
            if version.map(|version| value(&version.content)).as_ref() != Some(expected) {
                return Err(format!("the history of {key} lacks its version {revision}"));
            }
        }
    }
    Ok(())
}

/// The value without the revision.
fn emptied(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).unwrap();
    let rest = text.strip_prefix(r#"{"rv":""#).unwrap();
    format!(r#"{{"rv":"{}"#, &rest[rest.find('"').unwrap()..])
}

fn check_key(key: &str, steps: &[Step], value: Option<&str>, revision: Option<Revision>) -> Result<(), String> {
    let kept = steps.iter().rposition(|step| step.durable && step.revision.is_some());
    let possible = &steps[kept.unwrap_or(0)..];
    let mut fits = kept.is_none() && value.is_none();
    for step in possible {
        fits |= step.value.as_deref() == value;
    }
    if !fits {
        let steps: Vec<_> = possible
            .iter()
            .map(|step| (step.value.as_ref().map(|value| &value[..24.min(value.len())]), step.revision, step.durable))
            .collect();
        return Err(format!(
            "{key} is {:?} at {revision:?}, but was {steps:?}",
            value.map(|value| &value[..24.min(value.len())])
        ));
    }
    Ok(())
}

fn seeds(usual: u64) -> u64 {
    std::env::var("TIPHYS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Runs seeds on all cores and returns the first failure.
fn first_failure(seeds: u64, syncs: bool) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while failure.lock().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if let Err(what) = run_seed(seed, syncs) {
                        *failure.lock() = Some((seed, what));
                    }
                }
            });
        }
    });
    failure.into_inner()
}

#[test]
fn acknowledged_writes_survive() {
    if let Some((seed, what)) = first_failure(seeds(300), true) {
        panic!("seed {seed}: {what}");
    }
}

/// The checker is effective: without syncs it soon finds losses.
#[test]
fn checker_finds_losses_without_syncs() {
    assert!(first_failure(200, false).is_some(), "syncs were removed and not detected");
}
