//! Copies between data directories and a real etcd.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use stdx::sync::Mutex;
use store::etcd::maintenance::{Members, verify_snapshot};
use store::etcd::transfer::{self, CopyProgress, RevisionPolicy};
use store::{Contents, Entry, Error, Precondition, Store};
use support::etcd::Server;
use support::{Recorder, put, within};

fn contents(count: u64, revision: u64) -> Contents {
    let mut contents = Contents { revision, ..Contents::default() };
    for number in 0..count {
        let key = format!("/things/{number:05}").into();
        let value = format!("value {number}").into_bytes().into();
        contents.entries.insert(Arc::new(Entry { key, value, revision: revision - number, expires: 0 }));
    }
    contents
}

fn in_an_hour() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3600
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_keep_order_and_raise_the_revision() {
    let server = Server::start();
    let config = server.config("/registry");
    let mut source = contents(1050, 5000);
    let event = Entry { key: "/events/a".into(), value: "x".into(), revision: 4000, expires: in_an_hour() };
    let expired = Entry { key: "/events/b".into(), value: "x".into(), revision: 4000, expires: 1 };
    source.entries.insert(Arc::new(event));
    source.entries.insert(Arc::new(expired));
    let steps = Mutex::new(Vec::new());
    let progress = |step: CopyProgress| steps.lock().push(step);
    let report =
        within("the copy", transfer::write(&config, &source, "a", RevisionPolicy::Above, &progress)).await.unwrap();
    assert!(report.revision > 5000 && report.kept == 0 && report.digest.matches(&source.digest()), "{report:?}");
    assert!(steps.lock().contains(&CopyProgress::Written { entries: 1052, of: 1052 }));
    let back = transfer::read(&config, &|_| {}).await.unwrap();
    assert_eq!((back.entries.len(), back.digest()), (1051, report.digest.clone()));
    let of = |key: &str| back.entries.get(key).unwrap().revision;
    assert!(of("/things/00900") > 5000, "no object has a version that a client has seen");
    assert!(of("/things/00900") < of("/things/00500") && of("/things/00500") < of("/things/00000"));
    let left = i64::try_from(back.entries.get("/events/a").unwrap().expires).unwrap() - in_an_hour() as i64;
    assert!((-60..=61).contains(&left), "{left}");
    assert!(!transfer::has_changed(&config, &back).await.unwrap());
    let store = server.connect(config.clone(), Recorder::new()).await;
    assert!(matches!(store.watch("/", 5000), Err(Error::Compacted { .. })), "a client with an old version lists again");
    store.commit(vec![put("/new", "1", Precondition::Absent)]).await.unwrap();
    assert!(transfer::has_changed(&config, &back).await.unwrap());
    let again = transfer::write(&config, &source, "a", RevisionPolicy::Above, &|_| {}).await.unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_copies_continue_and_keep_servers_out() {
    let server = Server::start();
    let config = server.config("/registry");
    let source = contents(2000, 2500);
    let seen = Arc::new(tokio::sync::Notify::new());
    let notify = seen.clone();
    let progress = move |step: CopyProgress| {
        if matches!(step, CopyProgress::Written { entries, .. } if entries >= 500) {
            notify.notify_one();
        }
    };
    tokio::select! {
        done = transfer::write(&config, &source, "a", RevisionPolicy::Above, &progress) => panic!("{done:?}"),
        () = seen.notified() => {}
    }
    let refused = store::etcd::connect(config.clone(), Recorder::new()).await.err().unwrap();
    assert!(refused.to_string().contains("incomplete copy"), "{refused}");
    assert!(transfer::read(&config, &|_| {}).await.is_err());
    let other = transfer::write(&config, &source, "b", RevisionPolicy::Above, &|_| {}).await.unwrap_err();
    assert!(other.to_string().contains("etcdctl del"), "{other}");
    // The source has changed since: its newest state is copied.
    let mut changed = contents(1990, 2600);
    changed.entries.remove("/things/00001");
    let report = transfer::write(&config, &changed, "a", RevisionPolicy::Above, &|_| {}).await.unwrap();
    assert!(report.kept >= 400, "{report:?}");
    assert!(transfer::read(&config, &|_| {}).await.unwrap().digest().matches(&changed.digest()));
    server.connect(config, Recorder::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lower_revisions_are_a_decision() {
    let server = Server::start();
    let config = server.config("/registry");
    let source = contents(10, 1 << 40);
    let refused = transfer::write(&config, &source, "a", RevisionPolicy::Above, &|_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("--revisions restart"), "{refused}");
    let report = transfer::write(&config, &source, "a", RevisionPolicy::Restart, &|_| {}).await.unwrap();
    assert!(report.revision < 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_maintained() {
    let server = Server::start();
    let config = server.config("/registry");
    let store = server.connect(config.clone(), Recorder::new()).await;
    for number in 0..200 {
        store
            .commit(vec![put("/a", &format!("{number}{}", "x".repeat(20_000)), Precondition::Anything)])
            .await
            .unwrap();
    }
    let members = Members::new(&config).unwrap();
    let status = || async { members.status().await.remove(0).1.unwrap() };
    let before = status().await;
    assert!(before.version.starts_with("3.") && before.is_leader && before.errors.is_empty(), "{before:?}");
    let revision = members.compact(None).await.unwrap();
    assert_eq!(revision, store.revision().await.unwrap());
    assert!(matches!(members.compact(Some(revision + 100)).await, Err(Error::Future { .. })));
    let order = members.defragmentation_order().await.unwrap();
    assert_eq!(order, [server.endpoint()]);
    members.defragment(&order[0]).await.unwrap();
    let after = status().await;
    assert!(after.size < before.size, "{} to {}", before.size, after.size);
    assert_eq!(members.hashes().await.unwrap().1.len(), 1);
    assert!(members.alarms().await.unwrap().is_empty());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshot.db");
    store.snapshot(&path).await.unwrap();
    assert!(verify_snapshot(&path).unwrap() > 0);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"damage", 5000).unwrap();
    assert!(matches!(verify_snapshot(&path), Err(Error::Damaged { .. })));
    file.set_len(5000).unwrap();
    assert!(matches!(verify_snapshot(&path), Err(Error::Damaged { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exceeded_space_is_explained_and_recovers() {
    let server = Server::start_with("http", |_| vec!["--quota-backend-bytes".to_owned(), (1 << 20).to_string()]);
    let config = server.config("/registry");
    let store = server.connect(config.clone(), Recorder::new()).await;
    let value = "x".repeat(50_000);
    let full = loop {
        match store.commit(vec![put("/a", &value, Precondition::Anything)]).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(&full, Error::Full(why) if why.to_string().contains("tiphys store compact")), "{full:?}");
    let members = Members::new(&config).unwrap();
    assert_eq!(members.alarms().await.unwrap()[0].name, "NOSPACE");
    assert!(!members.status().await[0].1.as_ref().unwrap().errors.is_empty());
    assert!(store.get("/a").await.unwrap().is_some(), "reads go on");
    members.compact(None).await.unwrap();
    members.defragment(&server.endpoint()).await.unwrap();
    assert_eq!(members.disarm().await.unwrap().len(), 1);
    within("the write", support::history::until_ok(|| store.commit(vec![put("/a", "1", Precondition::Anything)])))
        .await;
    assert!(members.alarms().await.unwrap().is_empty());
}
