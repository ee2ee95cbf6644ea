//! Data directories and snapshots that are read, checked, created and compacted without a server.
#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{self, Config, offline};
use store::{Error, Precondition, Store};
use support::{Recorder, delete, put, relaxed, within};

fn open(dir: &Path) -> Arc<embedded::EmbeddedStore> {
    Arc::new(embedded::open_dir(dir, Recorder::new()).unwrap())
}

async fn fill(store: &dyn Store, count: u32) {
    for number in 0..count {
        store.commit(vec![put(&format!("/key/{number}"), "1", Precondition::Anything)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_a_directory_while_a_server_writes() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        Config { segment_bytes: 32 << 10, allocate_bytes: 4 << 10, compact_bytes: 48 << 10, ..Config::new(dir.path()) };
    let store = Arc::new(embedded::open(config, Arc::new(store::disk::RealDisk), Recorder::new()).unwrap());
    let (writer, stop) = (store.clone(), tokio::sync::watch::Sender::new(false));
    let stopped = stop.subscribe();
    let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let newest = acknowledged.clone();
    let writes = tokio::spawn(async move {
        let mut number = 0u64;
        while !*stopped.borrow() {
            let write = put(&format!("/key/{}", number % 50), &"x".repeat(400), Precondition::Anything);
            let revision = writer.commit(vec![write]).await.unwrap()[0].revision;
            newest.store(revision, std::sync::atomic::Ordering::SeqCst);
            number += 1;
        }
    });
    let path = dir.path().to_owned();
    for _ in 0..30 {
        let floor = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
        let path = path.clone();
        let contents = tokio::task::spawn_blocking(move || offline::read(&path)).await.unwrap().unwrap();
        assert!(contents.revision >= floor, "{} has less than {floor}, which was acknowledged", contents.revision);
    }
    stop.send_replace(true);
    within("the writer", writes).await.unwrap();
    assert!(matches!(offline::DirectoryLock::take(&path), Err(Error::Io { what, .. }) if what.contains("in use")));
    assert!(offline::status(&path).unwrap().is_locked);
}

#[tokio::test]
async fn created_directories_keep_revisions() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(source.path());
    fill(&*store, 20).await;
    store.commit(vec![delete("/key/3", Precondition::Anything)]).await.unwrap();
    store.close().await.unwrap();
    let contents = offline::read(source.path()).unwrap();
    assert_eq!((contents.entries.len(), contents.revision), (19, 22));
    // A creation that was interrupted leaves a state file without a version.
    std::fs::write(target.path().join("state-0000000000000001"), "torn").unwrap();
    offline::create(target.path(), &contents).unwrap();
    let again = offline::create(target.path(), &contents).unwrap_err();
    assert!(again.to_string().contains("cannot write a store into"), "{again}");
    let copy = open(target.path());
    assert_eq!(copy.revision().await.unwrap(), 22);
    assert_eq!(copy.get("/key/7").await.unwrap(), store::Contents::clone(&contents).entries.get("/key/7").cloned());
    assert!(matches!(copy.watch("/", 21), Err(Error::Compacted { .. })), "older versions are too old, not unknown");
    fill(&*copy, 1).await;
    assert_eq!(copy.revision().await.unwrap(), 23);
}

#[tokio::test]
async fn compaction_keeps_everything_but_history() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for _ in 0..20 {
        fill(&*store, 10).await;
    }
    store.commit(vec![relaxed(put("/late", "1", Precondition::Anything))]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let before = offline::read(dir.path()).unwrap();
    let (was, is) = offline::DirectoryLock::take(dir.path()).unwrap().compact().unwrap();
    assert!(is < was, "{was} to {is}");
    let status = offline::status(dir.path()).unwrap();
    assert_eq!((status.entries, status.files.len(), status.is_locked), (11, 1, false));
    let after = offline::read(dir.path()).unwrap();
    assert_eq!((after.revision, after.digest()), (before.revision, before.digest()));
    let store = open(dir.path());
    assert!(store.revision().await.unwrap() >= before.revision);
    fill(&*store, 1).await;
    store.close().await.unwrap();
    drop(store);
    assert_eq!(offline::read(dir.path()).unwrap().entries.len(), 11);
}

#[tokio::test]
async fn damage_is_found_with_its_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&*store, 50).await;
    store.close().await.unwrap();
    drop(store);
    let snapshot = dir.path().join("snapshot");
    offline::write_snapshot(&snapshot, &offline::read(dir.path()).unwrap()).unwrap();
    assert_eq!(offline::read_snapshot(&snapshot).unwrap().digest(), offline::read(dir.path()).unwrap().digest());
    for path in [snapshot.clone(), dir.path().join("log-0000000000000001")] {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 600).unwrap();
        file.write_at(&[byte[0] ^ 1], 600).unwrap();
    }
    let check = |error: Error| match error {
        Error::Damaged { file, offset, .. } => {
            assert!(offset == 512 && file.contains('-') || file.ends_with("snapshot"))
        }
        other => panic!("{other:?}"),
    };
    check(offline::read_snapshot(&snapshot).err().unwrap());
    let started = std::time::Instant::now();
    check(offline::read(dir.path()).err().unwrap());
    assert!(started.elapsed() < Duration::from_secs(10), "without a writer nothing is repeated");
}
