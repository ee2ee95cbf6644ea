//! The past of a store: versions and ranges at old revisions agree with a model, whatever was compacted, lost in a crash
//! or restarted in between; and it is bounded.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stdx::clock::{Clock, ManualClock};
use store::disk::{Disk, MemoryDisk};
use store::embedded::{self, Config, EmbeddedStore, Retention};
use store::{Content, Durability, Error, Precondition, Range, Revision, Store, Version, VersionQuery, Write};
use support::{Recorder, delete, everything, put, until};

const KEYS: u64 = 7;

struct Machine {
    disk: MemoryDisk,
    clock: Arc<ManualClock>,
    config: Config,
    store: Option<EmbeddedStore>,
    /// Every write: its key and value by revision.
    written: BTreeMap<Revision, (String, Option<String>)>,
    random: u64,
}

impl Machine {
    fn new(seed: u64, retention: Retention) -> Machine {
        let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
        let config = Config {
            compact_bytes: 8 << 10,
            segment_bytes: 4 << 10,
            allocate_bytes: 1 << 10,
            history: store::HistoryLimits { events: 5, bytes: 1 << 20 },
            retention,
            clock: clock.clone(),
            ..Config::new("/data")
        };
        let mut machine = Machine {
            disk: MemoryDisk::default(),
            clock,
            config,
            store: None,
            written: BTreeMap::new(),
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        machine.open();
        machine
    }

    fn open(&mut self) {
        let disk = Arc::new(self.disk.clone());
        self.store = Some(embedded::open(self.config.clone(), disk, Recorder::new()).unwrap());
    }

    fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().unwrap()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    async fn write(&mut self) {
        let key = format!("/{}", self.below(KEYS));
        let length = self.below(200) as usize;
        let text = format!("{}-{}", self.random, "x".repeat(length));
        let is_delete = self.below(5) == 0;
        let write =
            if is_delete { delete(&key, Precondition::Anything) } else { put(&key, &text, Precondition::Anything) };
        let existed = self.store().get(&key).await.unwrap().is_some();
        let write = Write { cause: format!("why {key}").into_bytes(), ..write };
        let committed = self.store().commit(vec![write]).await.unwrap().remove(0);
        if existed || !is_delete {
            let value = committed.entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap());
            self.written.insert(committed.revision, (key, value));
        }
    }

    async fn run(&mut self, writes: u64) {
        for _ in 0..writes {
            self.write().await;
            self.clock.advance(Duration::from_millis(10));
            if self.below(100) == 0 {
                self.store.take().unwrap().close().await.unwrap();
                self.open();
            }
        }
    }

    fn history_files(&self) -> Vec<String> {
        let mut names = self.disk.list(Path::new("/data")).unwrap();
        names.retain(|name| name.starts_with("history-") && !name.ends_with(".tmp"));
        names.sort();
        names
    }

    fn history_bytes(&self) -> u64 {
        let size = |name: &String| self.disk.open(&Path::new("/data").join(name)).unwrap().size().unwrap();
        self.history_files().iter().map(size).sum()
    }

    async fn versions(&self, key: &str) -> (Vec<Version>, Revision) {
        let query = VersionQuery { key: key.to_owned(), ..VersionQuery::default() };
        let found = self.store().versions(query).await.unwrap();
        (found.versions, found.floor)
    }

    /// The keys and values at a revision, by the model.
    fn model_at(&self, at: Revision) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        for (key, value) in self.written.range(..=at).map(|(_, write)| write) {
            match value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(key)),
            }
        }
        state
    }

    async fn state_at(&self, at: Revision) -> Result<BTreeMap<String, String>, Error> {
        let page = self.store().past_range(Range { revision: at, ..everything() }).await?;
        let text = |entry: &Arc<store::Entry>| String::from_utf8(entry.value.to_vec()).unwrap();
        Ok(page.entries.iter().map(|entry| (entry.key.to_string(), text(entry))).collect())
    }

    /// Every version above the floor, and every state since, is that of the model.
    async fn check(&self) -> Revision {
        let mut floor = 0;
        for key in (0..KEYS).map(|number| format!("/{number}")) {
            let (versions, known) = self.versions(&key).await;
            floor = known;
            let of_key = |write: &(&Revision, &(String, Option<String>))| write.1.0 == key;
            let expected: Vec<_> =
                self.written.range(known + 1..).filter(of_key).map(|(&at, (_, value))| (at, value.clone())).collect();
            let found: Vec<_> = versions.iter().filter(|version| version.revision > known).collect();
            assert_eq!(found.iter().map(|&version| (version.revision, text(version))).collect::<Vec<_>>(), expected);
            assert!(found.iter().all(|version| version.cause == format!("why {key}") && !version.time.is_zero()));
        }
        let revisions: Vec<Revision> = self.written.range(floor..).map(|(&at, _)| at).collect();
        for &at in revisions.iter().step_by(revisions.len() / 20 + 1) {
            match self.state_at(at).await {
                // A compaction may have ended in between.
                Err(Error::Compacted { oldest, .. }) if oldest > floor && at < oldest => {}
                state => assert_eq!(state.unwrap(), self.model_at(at), "at {at}, floor {floor}"),
            }
        }
        // The newest events are in memory too.
        let oldest = floor.min(self.store().compacted());
        if let Some((&before, _)) = self.written.range(..oldest).next_back() {
            assert!(matches!(self.state_at(before).await, Err(Error::Compacted { .. })), "{before} is before {floor}");
        }
        floor
    }
}

fn text(version: &Version) -> Option<String> {
    match &version.content {
        Content::Value(value) => Some(String::from_utf8(value.to_vec()).unwrap()),
        _ => None,
    }
}

#[tokio::test]
async fn the_past_is_that_of_the_model() {
    for seed in 1..=8 {
        let mut machine = Machine::new(seed, Retention { bytes: 1 << 20, age: Duration::from_secs(3600) });
        machine.run(600).await;
        assert_eq!(machine.check().await, 1, "seed {seed}: nothing is lost within the retention");
        until("a compaction", || !machine.history_files().is_empty());
        machine.run(300).await;
        machine.check().await;
    }
}

#[tokio::test]
async fn history_is_bounded_in_bytes() {
    for seed in 1..=4 {
        let bytes = 24 << 10;
        let mut machine = Machine::new(seed, Retention { bytes, age: Duration::from_secs(3600) });
        machine.run(1500).await;
        machine.store().compact(1).await.unwrap();
        assert!(machine.history_bytes() <= bytes, "{}", machine.history_bytes());
        assert!(machine.check().await > 1, "seed {seed}: old versions were removed");
    }
}

#[tokio::test]
async fn history_is_bounded_in_time() {
    let mut machine = Machine::new(5, Retention { bytes: 1 << 20, age: Duration::from_secs(3) });
    machine.run(1500).await;
    until("a compaction", || !machine.history_files().is_empty());
    let floor = machine.check().await;
    let last = *machine.written.keys().next_back().unwrap();
    assert!(floor > 1 && floor < last, "{floor} of {last}");
    machine.clock.advance(Duration::from_secs(10));
    machine.store().compact(1).await.unwrap();
    assert_eq!(machine.history_files(), [""; 0], "all of them are too old");
    machine.check().await;
}

#[tokio::test]
async fn without_retention_nothing_is_kept() {
    let mut machine = Machine::new(6, Retention::default());
    machine.run(600).await;
    until("a compaction", || !machine.history_files().is_empty());
    machine.store.take().unwrap().close().await.unwrap();
    machine.config.retention = Retention::OFF;
    machine.open();
    assert_eq!(machine.history_files(), [""; 0]);
    let query = VersionQuery { key: "/1".to_owned(), ..VersionQuery::default() };
    assert!(matches!(machine.store().versions(query).await, Err(Error::NoHistory)));
}

#[tokio::test]
async fn revisions_are_found_by_time() {
    let mut machine = Machine::new(7, Retention::default());
    machine.run(300).await;
    let now = machine.clock.since_epoch();
    let middle = now - Duration::from_millis(10 * 150);
    let at = machine.store().revision_at(middle).await.unwrap();
    let (versions, _) = machine.versions("/1").await;
    assert!(versions.iter().all(|version| (version.revision <= at) == (version.time <= middle)), "at {at}");
    let newest = *machine.written.keys().next_back().unwrap();
    assert_eq!(machine.store().revision_at(now).await.unwrap(), newest);
    let before = machine.store().revision_at(Duration::from_secs(1)).await;
    assert!(matches!(before, Err(Error::Compacted { .. })));
}

#[tokio::test]
async fn limits_keep_the_newest_versions() {
    let mut machine = Machine::new(8, Retention::default());
    machine.run(300).await;
    let (all, _) = machine.versions("/1").await;
    let (from, until) = (all[1].revision, all[6].revision);
    let query = VersionQuery { key: "/1".to_owned(), after: from, until, limit: 3 };
    let found = machine.store().versions(query).await.unwrap();
    assert_eq!((&found.versions[..], found.is_limited), (&all[4..=6], true));
}

#[tokio::test]
async fn expiring_entries_and_superseded_relaxed_writes_are_not_kept() {
    let mut machine = Machine::new(9, Retention::default());
    let once = |write: Write, ttl| Write { ttl, ..write };
    let event = once(put("/event", "1", Precondition::Anything), Some(Duration::from_secs(10_000)));
    machine.store().commit(vec![event]).await.unwrap();
    for number in 0..5 {
        let lease = put("/lease", &number.to_string(), Precondition::Anything);
        machine.store().commit(vec![Write { durability: Durability::Relaxed, ..lease }]).await.unwrap();
    }
    while machine.history_files().is_empty() {
        machine.run(50).await;
    }
    let (events, leases) = (machine.versions("/event").await.0, machine.versions("/lease").await.0);
    assert_eq!(events.iter().filter(|version| !version.cause.is_empty()).count(), 0, "{events:?}");
    assert_eq!(leases.len(), 1);
    assert!(text(&leases[0]).unwrap().contains("\"4\""));
}

/// A crash between any two steps of a compaction: the store opens, and what it knows of the past is right.
#[tokio::test]
async fn interrupted_compactions_leave_a_usable_past() {
    let mut machine = Machine::new(10, Retention::default());
    machine.run(400).await;
    machine.store.take().unwrap().close().await.unwrap();
    let names = machine.disk.list(Path::new("/data")).unwrap();
    let newest = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).max().cloned();
    let (state, history) = (newest("state-").unwrap(), newest("history-").unwrap());
    // History that ends after the state file: the crash was before the state file had its name.
    let path = |name: &str| Path::new("/data").join(name);
    let copy = copy_of(&machine.disk);
    let later = format!("history-{:016x}", u64::from_str_radix(&history[8..], 16).unwrap() + 100);
    move_end(&copy, &path(&history), &path(&later));
    let (before, disk) = (machine.written.clone(), std::mem::replace(&mut machine.disk, copy));
    machine.open();
    assert!(!machine.history_files().contains(&later));
    machine.check().await;
    machine.store.take().unwrap().close().await.unwrap();
    // A history file is missing, as if an earlier version had compacted the log: the past begins after the gap.
    machine.disk = disk;
    assert_eq!(machine.written, before);
    machine.disk.remove(&path(&history)).unwrap();
    machine.open();
    assert!(machine.check().await > 1, "{state} is the base");
    assert_eq!(machine.history_files(), [""; 0]);
}

fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    for name in disk.list(Path::new("/data")).unwrap() {
        copy_file(disk, &copy, &Path::new("/data").join(&name), &Path::new("/data").join(&name));
    }
    copy
}

fn copy_file(from: &MemoryDisk, to: &MemoryDisk, source: &Path, target: &Path) {
    let file = from.open(source).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    let count = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count, bytes.len());
    to.create(target).unwrap().write_at(&bytes, 0).unwrap();
}

/// A copy of a history file whose header says that it ends much later.
fn move_end(disk: &MemoryDisk, source: &Path, target: &Path) {
    copy_file(disk, disk, source, target);
    let file = disk.open(target).unwrap();
    let mut header = [0; 512];
    file.read_at(&mut header, 0).unwrap();
    // The header: magic, checksum, version, kind, id, sequence, revision, and at 44 the end.
    header[44..52].copy_from_slice(&u64::from(u32::MAX).to_le_bytes());
    let crc = crc32c::crc32c(&header[12..68]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&header, 0).unwrap();
}
