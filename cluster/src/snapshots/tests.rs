use std::sync::Arc;

use store::{Durability, Event, Op, Precondition, Revision, Sink, Template, Write};

use super::*;

struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: &[Event]) {}
    fn progress(&self, _: Revision) {}
}

async fn store(dir: &Path) -> Arc<dyn Store> {
    let store = store::embedded::open_dir(dir, Arc::new(Ignore)).expect("a store");
    for number in 0..100 {
        let bytes = vec![b'x'; 1000];
        let write = Write {
            key: format!("/registry/a/{number}"),
            op: Op::Put(Template { bytes, hole: None }),
            expect: Precondition::Absent,
            durability: Durability::Relaxed,
            ttl: None,
            cause: Vec::new(),
        };
        store.commit(vec![write]).await.expect("written");
    }
    Arc::new(store)
}

fn settings(schedule: &str) -> Settings {
    Settings { schedule: Some(schedule.to_string()), ..Settings::default() }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

#[test]
fn settings_are_checked_together() {
    let refused = |settings: Settings, data_dir: Option<&Path>| {
        settings.check(data_dir).err().map(|error| error.describe()).unwrap_or_default()
    };
    let dir = Some(Path::new("/data"));
    assert!(Settings::default().check(dir).expect("fine").is_none());
    let lone = Settings { retention: Some(3), ..Settings::default() };
    assert_eq!(refused(lone, dir), "--snapshot-retention needs --snapshot-schedule");
    assert!(refused(settings("0 * * * *"), None).contains("embedded store"));
    assert!(refused(settings("61 * * * *"), dir).starts_with("--snapshot-schedule: "));
    assert!(refused(Settings { retention: Some(0), ..settings("@hourly") }, dir).contains("at least 1"));
    let endpoint = Settings { s3_endpoint: Some("http://a".into()), ..settings("@hourly") };
    assert!(refused(endpoint, dir).contains("s3://BUCKET/PREFIX"));
    let snapshots = settings("30 4 * * *").check(dir).expect("fine").expect("snapshots");
    assert_eq!(snapshots.schedule.next(0), Some(4 * 3600 + 30 * 60));
}

#[tokio::test]
async fn keeps_checked_snapshots_and_no_partial_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(&dir.path().join("store")).await;
    let wanted = Settings { retention: Some(2), ..settings("@hourly") };
    let snapshots = wanted.check(Some(dir.path())).expect("fine").expect("snapshots");
    let target = dir.path().join("snapshots");
    let mut taken = Vec::new();
    for seconds in [100, 200, 300] {
        taken.push(snapshots.take(&*store, at(seconds)).await.expect("saved"));
    }
    assert_eq!(names(&target), taken[1..]);
    let contents = offline::read_snapshot(&target.join(&taken[2])).expect("it reads");
    assert_eq!(contents.entries.len(), 100);
    // What cannot be written changes nothing.
    store.close().await.expect("closed");
    snapshots.take(&*store, at(400)).await.expect_err("the store is closed");
    assert_eq!(names(&target), taken[1..]);
}

/// A file system of its own that is too small for another snapshot.
#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(&dir.path().join("store")).await;
    let target = dir.path().join("small");
    std::fs::create_dir(&target).expect("a directory");
    let mount = |arguments: &[&str]| std::process::Command::new(arguments[0]).args(&arguments[1..]).status();
    let path = target.to_string_lossy().into_owned();
    let mounted = mount(&["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", &path]).expect("mount runs");
    assert!(mounted.success(), "the tests need root");
    let wanted = Settings { dir: Some(path.clone()), retention: Some(1), ..settings("@hourly") };
    let snapshots = wanted.check(Some(dir.path())).expect("fine").expect("snapshots");
    let first = snapshots.take(&*store, at(100)).await;
    let second = snapshots.take(&*store, at(200)).await;
    let left = names(&target);
    let is_readable = first.as_ref().is_ok_and(|name| offline::read_snapshot(&target.join(name)).is_ok());
    mount(&["umount", &path]).expect("umount runs");
    let error = second.expect_err("the disk is full");
    assert!(stdx::error::chain(&error).contains("no space left"), "{error:?}");
    assert_eq!((left, is_readable), (vec![first.expect("the first fits")], true));
}
