//! The embedded engine with a full, failing or damaged disk.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stdx::sync::Mutex;
use store::disk::Disk;
use store::embedded::{self, Config, EmbeddedStore};
use store::{Error, Op, Precondition, Revision, Store, Template, Write};
use support::sim::{Fault, SimDisk};
use support::{Recorder, delete, put, relaxed, until};

fn open(disk: &SimDisk, config: Config) -> store::Result<EmbeddedStore> {
    embedded::open(config, Arc::new(disk.clone()), Recorder::new())
}

fn small() -> Config {
    Config { segment_bytes: 16 << 10, allocate_bytes: 4 << 10, ..Config::new("/data") }
}

fn sized(key: &str, bytes: usize) -> Write {
    let template = Template { bytes: vec![b'x'; bytes], hole: None };
    Write { op: Op::Put(template), ..put(key, "", Precondition::Anything) }
}

async fn write(store: &EmbeddedStore, write: Write) -> store::Result<Revision> {
    Ok(store.commit(vec![write]).await?[0].revision)
}

fn log_file(disk: &SimDisk, place: usize) -> PathBuf {
    let is_log = |path: &PathBuf| path.to_string_lossy().contains("/log-");
    disk.names().into_iter().filter(is_log).nth(place).expect("a log")
}

#[tokio::test]
async fn full_disk_is_reported_without_loss() {
    let disk = SimDisk::new(1);
    let store = open(&disk, small()).unwrap();
    write(&store, put("/before", "1", Precondition::Absent)).await.unwrap();
    disk.set_free(0);
    let mut revision = 0;
    let full = loop {
        match write(&store, sized(&format!("/fill/{revision}"), 1000)).await {
            Ok(written) => revision = written,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full(_)), "{full:?}");
    assert_eq!(store.revision().await.unwrap(), revision, "what was refused is not seen");
    let lost = write(&store, relaxed(sized("/relaxed", 1000))).await;
    assert!(matches!(lost, Err(Error::Full(_))), "nothing is promised that the disk cannot take: {lost:?}");
    assert!(store.get("/relaxed").await.unwrap().is_none());
    assert!(store.get("/before").await.unwrap().is_some());
    disk.set_free(u64::MAX);
    let after = write(&store, put("/after", "1", Precondition::Absent)).await.unwrap();
    assert_eq!(after, revision + 1);
    drop(store);
    disk.reboot();
    let store = open(&disk, small()).unwrap();
    assert_eq!(store.get("/after").await.unwrap().unwrap().revision, after);
    assert!(store.get("/before").await.unwrap().is_some());
}

#[tokio::test]
async fn failed_writes_are_reported_and_the_next_succeeds() {
    let disk = SimDisk::new(2);
    let store = open(&disk, small()).unwrap();
    let first = write(&store, put("/a", "1", Precondition::Absent)).await.unwrap();
    disk.fail(Fault::Write, 1);
    let failed = write(&store, sized("/b", 3000)).await;
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    assert!(store.get("/b").await.unwrap().is_none());
    let second = write(&store, put("/c", "1", Precondition::Absent)).await.unwrap();
    assert_eq!(second, first + 1);
    drop(store);
    disk.reboot();
    let store = open(&disk, small()).unwrap();
    let page = store.range(support::everything()).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["/a", "/c"]);
}

#[tokio::test]
async fn failed_sync_is_fatal() {
    for fault in [Fault::Sync, Fault::SyncDir] {
        let disk = SimDisk::new(3);
        let reasons = Arc::new(Mutex::new(Vec::new()));
        let remember = reasons.clone();
        let fatal = Arc::new(move |reason: &str| remember.lock().push(reason.to_owned()));
        let store = open(&disk, Config { fatal, ..small() }).unwrap();
        if fault == Fault::Sync {
            write(&store, put("/a", "1", Precondition::Absent)).await.unwrap();
        }
        disk.fail(fault, 1);
        let failed = write(&store, put("/b", "1", Precondition::Absent)).await;
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        assert_eq!(reasons.lock().len(), 1, "the process would have ended");
        assert!(store.get("/b").await.unwrap().is_none(), "what may not be on disk is not shown");
        let operations = disk.operations();
        for durable in [true, false] {
            let write_ = put("/c", "1", Precondition::Absent);
            let later = write(&store, if durable { write_ } else { relaxed(write_) }).await;
            assert!(matches!(later, Err(Error::Io { .. })), "{later:?}");
        }
        drop(store);
        assert_eq!(disk.operations(), operations, "nothing is written after a failed sync");
    }
}

async fn three_batches(disk: &SimDisk, close: bool) {
    let store = open(disk, small()).unwrap();
    for number in 0..3 {
        write(&store, put(&format!("/{number}"), "value", Precondition::Absent)).await.unwrap();
    }
    if close {
        store.close().await.unwrap();
    } else {
        disk.cut_power_after(0);
    }
    drop(store);
    disk.reboot();
}

/// Batches are one sector each, after the header sector.
const FIRST_BATCH: usize = 512;

#[tokio::test]
async fn damage_is_reported() {
    for (place, close, offset, what) in [
        (20, true, 0, "header checksum mismatch"),
        (FIRST_BATCH + 100, true, 512, "the checksum of a batch does not match"),
        (FIRST_BATCH + 512 + 5, true, 1024, "the checksum of a batch does not match"),
        (FIRST_BATCH + 1024 + 60, true, 1536, "the checksum of a batch does not match"),
        (FIRST_BATCH + 100, false, 512, "the checksum of a batch does not match"),
    ] {
        let disk = SimDisk::new(4);
        three_batches(&disk, close).await;
        let path = log_file(&disk, 0);
        disk.edit(&path, |content| content[place] ^= 1);
        let Err(Error::Damaged { file, offset: at, what: why }) = open(&disk, small()) else {
            panic!("byte {place} was changed and not detected");
        };
        assert_eq!((Path::new(&file), at, why.as_str()), (path.as_path(), offset, what), "byte {place}");
    }
}

#[tokio::test]
async fn only_a_torn_end_is_truncated() {
    let disk = SimDisk::new(5);
    three_batches(&disk, false).await;
    disk.edit(&log_file(&disk, 0), |content| content[FIRST_BATCH + 1024 + 60] ^= 1);
    let store = open(&disk, small()).expect("the last batch could have been torn");
    assert_eq!(store.state().0.len(), 2);
    drop(store);
    let store = open(&disk, small()).expect("and it opens again");
    assert_eq!(store.state().0.len(), 2);
}

#[tokio::test]
async fn missing_files_are_reported() {
    let disk = SimDisk::new(6);
    let store = open(&disk, small()).unwrap();
    for number in 0..40 {
        write(&store, sized(&format!("/{number}"), 1000)).await.unwrap();
    }
    drop(store);
    let second = log_file(&disk, 1);
    let third = log_file(&disk, 2);
    let bytes = disk.content(&second);
    disk.remove(&second).unwrap();
    let Err(Error::Damaged { file, .. }) = open(&disk, small()) else { panic!("a log was missing") };
    assert_eq!(Path::new(&file), third);
    // A log that ends too early is detected as well.
    disk.create(&second).unwrap().write_at(&bytes[..bytes.len() - 1536], 0).unwrap();
    let Err(Error::Damaged { .. }) = open(&disk, small()) else { panic!("a log was cut") };
}

#[tokio::test]
async fn refuses_other_versions() {
    let disk = SimDisk::new(7);
    three_batches(&disk, true).await;
    let version = Path::new("/data/VERSION");
    let text = String::from_utf8(disk.content(version)).unwrap();
    assert!(text.starts_with("tiphys-store 1\n"), "{text}");
    disk.edit(version, |content| content[13] = b'2');
    let error = open(&disk, small()).err().expect("another version").to_string();
    assert_eq!(error, "/data/VERSION has data format 2; this version reads format 1");
    disk.remove(version).unwrap();
    assert!(matches!(open(&disk, small()), Err(Error::Damaged { .. })));
}

#[tokio::test]
async fn directories_are_locked() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::open_dir(dir.path(), Recorder::new()).unwrap();
    let second = embedded::open_dir(dir.path(), Recorder::new()).err().expect("it is in use");
    assert!(second.to_string().ends_with("is in use by another process"), "{second}");
    store.close().await.unwrap();
    embedded::open_dir(dir.path(), Recorder::new()).expect("it is free again");
}

#[tokio::test]
async fn idle_stores_write_nothing() {
    let disk = SimDisk::new(8);
    drop(open(&disk, small()).unwrap());
    let operations = disk.operations();
    let store = open(&disk, small()).unwrap();
    assert_eq!(store.bytes_written(), 0);
    store.close().await.unwrap();
    assert_eq!(disk.operations(), operations, "opening and closing wrote something");
}

#[tokio::test]
async fn relaxed_writes_are_flushed() {
    let disk = SimDisk::new(9);
    let store = open(&disk, Config { relaxed_delay: Duration::from_millis(5), ..small() }).unwrap();
    write(&store, relaxed(put("/first", "1", Precondition::Absent))).await.unwrap();
    let reserved = disk.operations();
    write(&store, relaxed(put("/second", "1", Precondition::Absent))).await.unwrap();
    until("the flush", || disk.operations() > reserved);
    disk.cut_power_after(0);
    // The flush is one write and one sync; it may be between them.
    drop(store);
    disk.reboot();
    let store = open(&disk, small()).unwrap();
    assert!(store.get("/first").await.unwrap().is_some(), "it was written to reserve revisions");
}

#[tokio::test]
async fn lost_relaxed_writes_do_not_reuse_revisions() {
    let disk = SimDisk::new(10);
    let config = Config { relaxed_delay: Duration::from_secs(3600), ..small() };
    let store = open(&disk, config.clone()).unwrap();
    write(&store, relaxed(put("/kept", "1", Precondition::Absent))).await.unwrap();
    let lost = write(&store, relaxed(put("/lost", "1", Precondition::Absent))).await.unwrap();
    disk.cut_power_after(0);
    drop(store);
    disk.reboot();
    let store = open(&disk, config).unwrap();
    assert!(store.get("/lost").await.unwrap().is_none());
    let revision = store.revision().await.unwrap();
    assert!(revision > lost, "{revision} may have been seen with another state");
    assert!(matches!(store.watch("/", lost), Err(Error::Compacted { .. })));
    assert_eq!(write(&store, put("/new", "1", Precondition::Absent)).await.unwrap(), revision + 1);
}

/// A durable deletion of a key that a relaxed write has deleted already changes nothing, but promises the same.
#[tokio::test]
async fn durable_deletions_make_relaxed_ones_durable() {
    let disk = SimDisk::new(8);
    let config = Config { relaxed_delay: Duration::from_secs(3600), fatal: Arc::new(|_| {}), ..small() };
    let store = open(&disk, config.clone()).unwrap();
    write(&store, put("/key", "1", Precondition::Absent)).await.unwrap();
    // The first relaxed write reserves revisions on disk; the second stays in memory.
    write(&store, relaxed(put("/other", "1", Precondition::Absent))).await.unwrap();
    write(&store, relaxed(delete("/key", Precondition::Anything))).await.unwrap();
    write(&store, delete("/key", Precondition::Anything)).await.unwrap();
    disk.cut_power_after(0);
    drop(store);
    disk.reboot();
    let store = open(&disk, config).unwrap();
    assert!(store.get("/key").await.unwrap().is_none(), "the acknowledged deletion is lost");
}

#[tokio::test]
async fn close_flushes_relaxed_writes() {
    let disk = SimDisk::new(11);
    let config = Config { relaxed_delay: Duration::from_secs(3600), ..small() };
    let store = open(&disk, config.clone()).unwrap();
    write(&store, put("/a", "1", Precondition::Absent)).await.unwrap();
    write(&store, relaxed(put("/b", "1", Precondition::Absent))).await.unwrap();
    let last = write(&store, relaxed(put("/c", "1", Precondition::Absent))).await.unwrap();
    store.close().await.unwrap();
    disk.reboot();
    let store = open(&disk, config).unwrap();
    assert_eq!(store.revision().await.unwrap(), last);
    assert!(store.get("/c").await.unwrap().is_some());
}

#[test]
fn failed_compactions_are_retried() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let disk = SimDisk::new(12);
    let config = Config { compact_bytes: 32 << 10, ..small() };
    let store = open(&disk, config.clone()).unwrap();
    disk.fail(Fault::Rename, 1);
    let mut last = 0;
    until("a compaction", || {
        last = runtime.block_on(write(&store, sized("/same", 2000))).unwrap();
        disk.names().iter().any(|path| path.to_string_lossy().contains("/state-0"))
    });
    drop(store);
    disk.reboot();
    let store = open(&disk, config).unwrap();
    let entry = runtime.block_on(store.get("/same")).unwrap();
    assert_eq!(entry.unwrap().revision, last);
}

#[tokio::test]
async fn reports_directory_errors() {
    let error = embedded::open_dir("/proc/nothing", Recorder::new()).err().expect("no directory there");
    assert_eq!(error.to_string(), "cannot create /proc/nothing");
}
