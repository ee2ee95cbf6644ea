//! Features of the embedded engine only: reopening the log, expiries, snapshots, compaction.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use stdx::clock::ManualClock;
use store::disk::MemoryDisk;
use store::embedded::{self, Config};
use store::{Error, HistoryLimits, Precondition, Range, Store, WatchResponse, Write};
use support::{Recorder, collect, delete, everything, open_memory, open_real, put, relaxed, until, within};

#[tokio::test]
async fn reopened_stores_continue() {
    let disk = MemoryDisk::default();
    let store = open_memory(&disk, Config::new("/d")).unwrap();
    let mut revisions = Vec::new();
    for number in 0..10 {
        let write = put(&format!("/{}", number % 3), &number.to_string(), Precondition::Anything);
        revisions.push(store.commit(vec![write]).await.unwrap()[0].revision);
    }
    store.commit(vec![delete("/0", Precondition::Anything)]).await.unwrap();
    store.compact(revisions[4]).await.unwrap();
    let before = store.range(everything()).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = open_memory(&disk, Config::new("/d")).unwrap();
    let after = store.range(everything()).await.unwrap();
    assert_eq!((before.entries, before.revision), (after.entries, after.revision));
    assert_eq!(store.compacted(), revisions[4], "nothing was lost, so that watches go on");
    let mut watch = store.watch("/", revisions[4]).unwrap();
    let events = collect(&mut watch, 6).await;
    assert_eq!(events[0].revision, revisions[5]);
    assert!(events[5].entry.is_none() && events[5].previous.is_some());
    let old = store.range(Range { revision: revisions[6], ..everything() }).await.unwrap();
    assert!(old.entries.iter().any(|entry| entry.revision == revisions[6]));
    assert!(matches!(store.watch("/", revisions[3]), Err(Error::Compacted { .. })));
}

#[tokio::test]
async fn entries_expire_once() {
    let clock = ManualClock::at(Duration::from_secs(1000));
    let disk = MemoryDisk::default();
    let config = Config { clock: clock.clone(), ..Config::new("/d") };
    let sink = Recorder::new();
    let store = embedded::open(config.clone(), Arc::new(disk.clone()), sink.clone()).unwrap();
    let brief =
        |key: &str, seconds| Write { ttl: Some(Duration::from_secs(seconds)), ..put(key, "1", Precondition::Anything) };
    for (key, seconds) in [("/ten", 10), ("/twenty", 20), ("/renewed", 10), ("/kept", 10), ("/forty", 40)] {
        store.commit(vec![brief(key, seconds)]).await.unwrap();
    }
    let renewed = store.commit(vec![brief("/renewed", 30)]).await.unwrap().remove(0);
    assert_eq!(renewed.entry.unwrap().expires, 1030);
    store.commit(vec![put("/kept", "2", Precondition::Anything)]).await.unwrap();
    clock.advance(Duration::from_secs(10));
    sink.wait("the first expiry", |event| &*event.key == "/ten" && event.entry.is_none()).await;
    clock.advance(Duration::from_secs(10));
    sink.wait("the second expiry", |event| &*event.key == "/twenty" && event.entry.is_none()).await;
    let keys = |page: store::Page| page.entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>();
    assert_eq!(keys(store.range(everything()).await.unwrap()), ["/forty", "/kept", "/renewed"]);
    // The rest expires while the store is closed.
    store.close().await.unwrap();
    clock.advance(Duration::from_secs(10));
    let sink = Recorder::new();
    let store = embedded::open(config, Arc::new(disk), sink.clone()).unwrap();
    sink.wait("the expiry after the start", |event| &*event.key == "/renewed" && event.entry.is_none()).await;
    assert_eq!(keys(store.range(everything()).await.unwrap()), ["/forty", "/kept"]);
}

#[tokio::test]
async fn history_is_bounded() {
    let history = HistoryLimits { events: 10, bytes: 1 << 20 };
    let store = open_memory(&MemoryDisk::default(), Config { history, ..Config::new("/d") }).unwrap();
    let start = store.revision().await.unwrap();
    let mut slow = store.watch("/", start).unwrap();
    for _ in 0..30 {
        store.commit(vec![put("/a", "1", Precondition::Anything)]).await.unwrap();
    }
    let newest = store.revision().await.unwrap();
    assert_eq!(store.compacted(), newest - 10);
    assert!(matches!(within("the end", slow.next()).await, Err(Error::Lagging)));
    assert!(matches!(store.watch("/", newest - 11), Err(Error::Compacted { .. })));
    assert!(matches!(store.watch("/", newest + 1), Err(Error::Future { .. })));
    assert_eq!(collect(&mut store.watch("/", newest - 10).unwrap(), 10).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn idle_watches_report_progress() {
    let store = open_memory(&MemoryDisk::default(), Config::new("/d")).unwrap();
    let mut watch = store.watch("/mine", store.revision().await.unwrap()).unwrap();
    assert!(matches!(watch.next().await, Ok(WatchResponse::Progress(_))), "at once at the start");
    let revision = store.commit(vec![put("/other", "1", Precondition::Anything)]).await.unwrap()[0].revision;
    let before = tokio::time::Instant::now();
    assert!(matches!(watch.next().await, Ok(WatchResponse::Progress(progress)) if progress == revision));
    assert_eq!(before.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn restored_stores_start_above_every_revision() {
    let dir = tempfile::tempdir().unwrap();
    let (snapshot, restored) = (dir.path().join("snapshot"), dir.path().join("restored"));
    let store = open_real(&dir.path().join("first"), Recorder::new());
    for number in 0..100 {
        store.commit(vec![put(&format!("/{number}"), &"v".repeat(number * 100), Precondition::Absent)]).await.unwrap();
    }
    let revision = store.snapshot(&snapshot).await.unwrap();
    assert_eq!(revision, store.revision().await.unwrap());
    let before = store.range(everything()).await.unwrap();
    let later = store.commit(vec![put("/later", "1", Precondition::Absent)]).await.unwrap()[0].revision;
    let start = embedded::restore(&snapshot, &restored).unwrap();
    assert!(start > later);
    let again = embedded::restore(&snapshot, &restored).expect_err("there is a store");
    assert!(again.to_string().starts_with("cannot restore into"), "{again}");
    let store = open_real(&restored, Recorder::new());
    let after = store.range(everything()).await.unwrap();
    assert_eq!(after.entries, before.entries);
    assert_eq!(after.revision, start);
    assert!(store.commit(vec![put("/new", "1", Precondition::Absent)]).await.unwrap()[0].revision > start);
}

#[tokio::test]
async fn refuses_damaged_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = dir.path().join("snapshot");
    let store = open_memory(&MemoryDisk::default(), Config::new("/d")).unwrap();
    for number in 0..20 {
        store.commit(vec![put(&format!("/{number}"), "value", Precondition::Absent)]).await.unwrap();
    }
    store.snapshot(&snapshot).await.unwrap();
    let bytes = std::fs::read(&snapshot).unwrap();
    let mut damaged = bytes.clone();
    damaged[700] ^= 1;
    for (bad, place) in [(damaged.as_slice(), 512), (&bytes[..bytes.len() - 512], bytes.len() as u64 - 512)] {
        std::fs::write(&snapshot, bad).unwrap();
        let result = embedded::restore(&snapshot, &dir.path().join("restored"));
        let Err(Error::Damaged { file, offset, .. }) = result else { panic!("{result:?}") };
        assert_eq!((file.as_str(), offset), (snapshot.to_str().unwrap(), place));
    }
}

#[tokio::test]
async fn compaction_removes_garbage() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        segment_bytes: 256 << 10,
        allocate_bytes: 64 << 10,
        compact_bytes: 512 << 10,
        retention: embedded::Retention::OFF,
        ..Config::new(dir.path())
    };
    let disk = Arc::new(store::disk::RealDisk);
    let store = embedded::open(config.clone(), disk.clone(), Recorder::new()).unwrap();
    let value = "x".repeat(4000);
    for number in 0..2000 {
        store.commit(vec![put(&format!("/{}", number % 20), &value, Precondition::Anything)]).await.unwrap();
    }
    let size = || -> u64 {
        std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().map_or(0, |data| data.len())).sum()
    };
    until("the compaction", || size() < 2 << 20);
    assert!(store.bytes_written() > 8 << 20);
    let before = store.range(everything()).await.unwrap();
    let write = Write { cause: b"because".to_vec(), ..put("/last", "1", Precondition::Absent) };
    let last = store.commit(vec![write]).await.unwrap()[0].revision;
    store.close().await.unwrap();
    let mut causes = Vec::new();
    embedded::history(dir.path(), &mut |record| causes.push((record.revision, record.cause.to_vec()))).unwrap();
    assert_eq!(causes.last(), Some(&(last, b"because".to_vec())));
    assert!(causes.len() < 1000);
    let store = embedded::open(config, disk, Recorder::new()).unwrap();
    let after = store.range(Range { end: "/last".into(), ..everything() }).await.unwrap();
    assert_eq!(before.entries, after.entries);
}

#[tokio::test]
async fn relaxed_writes_are_batched() {
    let store = open_memory(&MemoryDisk::default(), Config::new("/d")).unwrap();
    store.commit(vec![relaxed(put("/lease", "0", Precondition::Absent))]).await.unwrap();
    let before = store.bytes_written();
    for number in 0..100 {
        store.commit(vec![relaxed(put("/lease", &number.to_string(), Precondition::Anything))]).await.unwrap();
    }
    assert_eq!(store.bytes_written(), before, "a relaxed write waits for the next batch");
}

/// An hour of a store in memory passes in no time, and runs on the test's thread only.
#[tokio::test(start_paused = true)]
async fn memory_store_follows_simulated_time() {
    let sink = Recorder::new();
    let store = store::memory::open(sink.clone()).unwrap();
    let start = tokio::time::Instant::now();
    for (key, seconds) in [("/long", 3600), ("/short", 60)] {
        let write = Write { ttl: Some(Duration::from_secs(seconds)), ..put(key, "1", Precondition::Absent) };
        store.commit(vec![write]).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "a write waits for nothing");
    let mut watch = store.watch("/", store.revision().await.unwrap()).unwrap();
    for (key, seconds) in [("/short", 60), ("/long", 3600)] {
        let event = loop {
            if let WatchResponse::Events(mut events) = watch.next().await.unwrap() {
                break events.remove(0);
            }
        };
        assert_eq!((&*event.key, event.entry.is_none()), (key, true));
        let elapsed = start.elapsed().as_secs();
        assert!((seconds..=seconds + 1).contains(&elapsed), "{key} expired after {elapsed} s");
    }
}

/// The expiry task holds the writer for a moment: it must execute a concurrent write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_write_in_memory_is_not_lost() {
    for _ in 0..2000 {
        let store = store::memory::open(Recorder::new()).unwrap();
        within("the first write", store.commit(vec![put("/a", "1", Precondition::Absent)])).await.unwrap();
    }
}

/// Repeatedly kills a real process and checks what it acknowledged. The process is this program, called with a
/// directory in its environment.
#[tokio::test]
async fn acknowledged_writes_survive_kill() {
    if let Ok(dir) = std::env::var(VICTIM) {
        return write_forever(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for _ in 0..5 {
        let acknowledged = kill_after(dir.path(), 200);
        let store = open_real(dir.path(), Recorder::new());
        for (key, revision) in acknowledged {
            assert!(revision > last, "{key} has a revision of an earlier round");
            let entry = store.get(&key).await.unwrap().expect("what was acknowledged");
            assert_eq!(entry.revision, revision);
        }
        last = store.revision().await.unwrap();
    }
}

const VICTIM: &str = "STORE_TEST_WRITE_FOREVER";

/// Lets the process write `count` times, kills it and returns what it acknowledged.
fn kill_after(dir: &Path, count: usize) -> Vec<(String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "acknowledged_writes_survive_kill", "--nocapture"])
        .env(VICTIM, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let Some((key, revision)) = line.strip_prefix("written ").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        acknowledged.push((key.to_owned(), revision.parse().unwrap()));
        if acknowledged.len() == count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= count, "it ended too early");
    acknowledged
}

fn write_forever(dir: &Path) {
    let store = open_real(dir, Recorder::new());
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for number in 0.. {
                    let key = format!("/{}/{writer}/{number}", std::process::id());
                    let write = put(&key, &"x".repeat(500), Precondition::Absent);
                    let revision = runtime.block_on(store.commit(vec![write])).unwrap()[0].revision;
                    // One call: the reader must not see a partial line that is valid by chance.
                    std::io::stdout().write_all(format!("written {key} {revision}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}
