//! The behavior that every engine must have, tested on each.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use store::{Error, Precondition, Range, WatchResponse, Write};
use support::{Fixture, collect, delete, everything, next_events, prefix_range, put, relaxed, within};

macro_rules! on_every_engine {
    ($($name:ident),* $(,)?) => {
        on_every_engine!(@engine memory, crate::support::memory, $($name),*);
        on_every_engine!(@engine disk, crate::support::disk, $($name),*);
        on_every_engine!(@engine etcd, crate::support::etcd::fixture, $($name),*);
    };
    (@engine $engine:ident, $open:path, $($name:ident),*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let fixture = $open().await;
                    super::$name(fixture).await;
                }
            )*
        }
    };
}

on_every_engine!(
    a_write_is_read_back,
    expectations_are_judged,
    a_conflict_changes_nothing,
    a_transaction_is_all_or_nothing,
    a_key_is_written_once_in_a_transaction,
    deleting_nothing_is_no_write,
    a_check_writes_nothing_and_refuses_all,
    ranges_have_limits_and_revisions,
    a_watch_sees_everything_after_its_revision,
    a_watch_reports_progress,
    a_watch_starts_in_the_past,
    compaction_forgets,
    the_sink_sees_a_write_before_its_writer,
    all_see_one_order,
    an_entry_expires,
    any_bytes_are_a_value,
    load_and_events_have_no_gap,
    a_closed_store_says_so,
    large_values,
    one_key_has_one_winner,
);

async fn a_write_is_read_back(fixture: Fixture) {
    let store = &fixture.store;
    let before = store.revision().await.unwrap();
    let first = store.commit(vec![put("/a", "1", Precondition::Absent)]).await.unwrap().remove(0);
    assert!(first.revision > before && first.previous.is_none());
    let entry = store.get("/a").await.unwrap().expect("the entry");
    assert_eq!(entry.revision, first.revision);
    assert_eq!(std::str::from_utf8(&entry.value).unwrap(), fixture.value("1", first.revision));
    assert_eq!(first.entry.as_deref(), Some(&*entry));
    let second = store.commit(vec![put("/a", "2", Precondition::Anything)]).await.unwrap().remove(0);
    assert_eq!(second.previous.as_deref(), Some(&*entry));
    let third = store.commit(vec![delete("/a", Precondition::Anything)]).await.unwrap().remove(0);
    assert_eq!((third.entry, third.previous), (None, second.entry));
    assert!(third.revision > second.revision);
    assert_eq!(store.get("/a").await.unwrap(), None);
    assert_eq!(store.revision().await.unwrap(), third.revision);
}

async fn expectations_are_judged(fixture: Fixture) {
    let revision = fixture.put("/here", "1").await;
    for (write, holds) in [
        (put("/here", "x", Precondition::Absent), false),
        (put("/here", "x", Precondition::Revision(revision - 1)), false),
        (put("/gone", "x", Precondition::Revision(revision)), false),
        (delete("/here", Precondition::Revision(revision - 1)), false),
        (delete("/gone", Precondition::Revision(revision)), false),
        (put("/here", "x", Precondition::Revision(revision)), true),
        (put("/gone", "x", Precondition::Absent), true),
    ] {
        let result = fixture.store.commit(vec![write.clone()]).await;
        match (holds, result) {
            (true, Ok(_)) | (false, Err(Error::Conflict { write: 0, .. })) => {}
            (_, other) => panic!("{write:?} gave {other:?}"),
        }
    }
}

async fn a_conflict_changes_nothing(fixture: Fixture) {
    let revision = fixture.put("/a", "1").await;
    let result = fixture.store.commit(vec![put("/a", "2", Precondition::Absent)]).await;
    let Err(Error::Conflict { write: 0, current: Some(current) }) = result else { panic!("{result:?}") };
    assert_eq!(current.revision, revision);
    assert_eq!(std::str::from_utf8(&current.value).unwrap(), fixture.value("1", revision));
    assert_eq!(fixture.store.revision().await.unwrap(), revision);
    let result = fixture.store.commit(vec![put("/b", "2", Precondition::Revision(revision))]).await;
    assert!(matches!(result, Err(Error::Conflict { write: 0, current: None })), "{result:?}");
}

async fn a_transaction_is_all_or_nothing(fixture: Fixture) {
    let store = &fixture.store;
    fixture.put("/taken", "1").await;
    let writes = vec![put("/new", "1", Precondition::Absent), put("/taken", "2", Precondition::Absent)];
    let result = store.commit(writes).await;
    assert!(matches!(result, Err(Error::Conflict { write: 1, current: Some(_) })), "{result:?}");
    assert_eq!(fixture.keys(everything()).await, ["/taken"]);
    let writes = vec![
        put("/a", "1", Precondition::Absent),
        delete("/taken", Precondition::Anything),
        put("/b", "1", Precondition::Absent),
    ];
    let committed = store.commit(writes).await.unwrap();
    let step = u64::from(fixture.splits);
    assert_eq!(committed[1].revision, committed[0].revision + step);
    assert_eq!(committed[2].revision, committed[1].revision + step);
    assert!(committed[1].previous.is_some());
    assert_eq!(fixture.keys(everything()).await, ["/a", "/b"]);
}

async fn a_key_is_written_once_in_a_transaction(fixture: Fixture) {
    let writes = vec![put("/a", "1", Precondition::Anything), delete("/a", Precondition::Anything)];
    assert!(matches!(fixture.store.commit(writes).await, Err(Error::Io { .. })));
    assert_eq!(fixture.keys(everything()).await, Vec::<String>::new());
}

async fn deleting_nothing_is_no_write(fixture: Fixture) {
    let revision = fixture.put("/a", "1").await;
    let committed = fixture.store.commit(vec![delete("/b", Precondition::Anything)]).await.unwrap().remove(0);
    assert_eq!((committed.revision, committed.previous), (revision, None));
    assert_eq!(fixture.put("/a", "2").await, revision + 1);
}

async fn a_check_writes_nothing_and_refuses_all(fixture: Fixture) {
    let store = &fixture.store;
    let seen = fixture.put("/lease", "1").await;
    let check = |expect| Write { op: store::Op::Check, ..put("/lease", "", expect) };
    let committed =
        store.commit(vec![check(Precondition::Revision(seen)), put("/a", "1", Precondition::Absent)]).await.unwrap();
    assert_eq!((committed.len(), committed[0].entry.is_none()), (2, true));
    assert_eq!(committed[1].revision, seen + 1, "nothing but the write has a revision");
    assert_eq!(store.get("/lease").await.unwrap().expect("the entry").revision, seen);
    fixture.put("/lease", "2").await;
    let result = store.commit(vec![check(Precondition::Revision(seen)), put("/b", "1", Precondition::Absent)]).await;
    assert!(matches!(result, Err(Error::Conflict { write: 0, current: Some(_) })), "{result:?}");
    assert_eq!(fixture.keys(everything()).await, ["/a", "/lease"]);
}

async fn ranges_have_limits_and_revisions(fixture: Fixture) {
    for key in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        fixture.put(key, "1").await;
    }
    let store = &fixture.store;
    let page = store.range(Range { limit: 2, ..prefix_range("/a/") }).await.unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!((keys.as_slice(), page.remaining), (["/a/1", "/a/2"].as_slice(), 1));
    let then = page.revision;
    fixture.delete("/a/3").await;
    fixture.put("/a/25", "1").await;
    let changed = fixture.put("/a/1", "2").await;
    assert_eq!(fixture.keys(prefix_range("/a/")).await, ["/a/1", "/a/2", "/a/25"]);
    let rest = Range { start: "/a/2\0".to_owned(), revision: then, ..prefix_range("/a/") };
    assert_eq!(fixture.keys(rest).await, ["/a/3"]);
    let old = store.range(Range { revision: then, ..prefix_range("/a/") }).await.unwrap();
    assert!(old.revision == then && old.entries.iter().all(|entry| entry.revision <= then));
    assert_eq!(old.entries.len(), 3);
    assert_eq!(fixture.keys(everything()).await.len(), 4);
    assert_eq!(fixture.keys(Range { start: "/b".into(), end: "/a".into(), ..Range::default() }).await.len(), 0);
    let future = store.range(Range { revision: changed + 1000, ..everything() }).await;
    assert!(matches!(future, Err(Error::Future { .. })), "{future:?}");
}

async fn a_watch_sees_everything_after_its_revision(fixture: Fixture) {
    fixture.put("/w/before", "1").await;
    let start = fixture.store.revision().await.unwrap();
    let mut watch = fixture.store.watch("/w/", start).unwrap();
    let created = fixture.put("/w/a", "1").await;
    fixture.put("/other", "1").await;
    let updated = fixture.put("/w/a", "2").await;
    let deleted = fixture.delete("/w/a").await;
    let events = collect(&mut watch, 3).await;
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [created, updated, deleted]);
    assert!(events.iter().all(|event| &*event.key == "/w/a"));
    assert!(events[0].previous.is_none() && events[0].entry.is_some());
    assert_eq!(events[1].previous, events[0].entry);
    assert_eq!(events[2].previous, events[1].entry);
    assert!(events[2].entry.is_none());
}

async fn a_watch_reports_progress(fixture: Fixture) {
    let revision = fixture.put("/elsewhere", "1").await;
    let mut watch = fixture.store.watch("/w/", revision).unwrap();
    loop {
        match within("progress", watch.next()).await.unwrap() {
            WatchResponse::Progress(progress) if progress >= revision => break,
            WatchResponse::Progress(_) => {}
            WatchResponse::Events(events) => panic!("{events:?}"),
        }
    }
}

async fn a_watch_starts_in_the_past(fixture: Fixture) {
    let start = fixture.store.revision().await.unwrap();
    let mut revisions = Vec::new();
    for number in 0..50 {
        revisions.push(fixture.put(&format!("/w/{}", number % 7), &number.to_string()).await);
    }
    for skip in [0, 20, 49] {
        let after = if skip == 0 { start } else { revisions[skip - 1] };
        let mut watch = fixture.store.watch("/w/", after).unwrap();
        let events = collect(&mut watch, 50 - skip).await;
        assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), revisions[skip..]);
    }
}

async fn compaction_forgets(fixture: Fixture) {
    let store = &fixture.store;
    let first = fixture.put("/a", "1").await;
    let second = fixture.put("/a", "2").await;
    let third = fixture.put("/a", "3").await;
    store.compact(second).await.unwrap();
    assert_eq!(store.compacted(), second);
    let old = store.range(Range { revision: first, ..everything() }).await;
    assert!(matches!(old, Err(Error::Compacted { .. })), "{old:?}");
    assert!(matches!(store.watch("/", first), Err(Error::Compacted { .. })));
    let page = store.range(Range { revision: second, ..everything() }).await.unwrap();
    assert_eq!(page.entries[0].revision, second);
    let mut watch = store.watch("/", second).unwrap();
    assert_eq!(next_events(&mut watch).await[0].revision, third);
    assert_eq!(store.get("/a").await.unwrap().unwrap().revision, third);
}

async fn the_sink_sees_a_write_before_its_writer(fixture: Fixture) {
    for number in 0..20 {
        let write = put("/a", &number.to_string(), Precondition::Anything);
        let write = if number % 2 == 0 { relaxed(write) } else { write };
        let revision = fixture.store.commit(vec![write]).await.unwrap()[0].revision;
        assert!(fixture.sink.newest() >= revision, "the sink has not seen {revision}");
        assert_eq!(fixture.store.get("/a").await.unwrap().unwrap().revision, revision);
    }
}

async fn all_see_one_order(fixture: Fixture) {
    let start = fixture.store.revision().await.unwrap();
    let mut first = fixture.store.watch("", start).unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                for number in 0..25 {
                    let write = put(&format!("/{}", (writer + number) % 5), "x", Precondition::Anything);
                    store.commit(vec![write]).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut second = fixture.store.watch("", start).unwrap();
    let of =
        |events: Vec<store::Event>| events.iter().map(|event| (event.revision, event.key.clone())).collect::<Vec<_>>();
    let (first, second) = (of(collect(&mut first, 200).await), of(collect(&mut second, 200).await));
    assert_eq!(first, second);
    assert_eq!(of(fixture.sink.events()), second);
    assert!(first.is_sorted());
}

async fn an_entry_expires(fixture: Fixture) {
    let write = Write { ttl: Some(Duration::from_secs(1)), ..put("/short", "1", Precondition::Absent) };
    let committed = fixture.store.commit(vec![write]).await.unwrap();
    assert!(committed[0].entry.as_ref().unwrap().expires > 0);
    fixture.put("/long", "1").await;
    let gone = fixture.sink.wait("the expiry", |event| event.entry.is_none()).await;
    assert_eq!((&*gone.key, gone.previous.is_some()), ("/short", true));
    assert_eq!(fixture.store.get("/short").await.unwrap(), None);
    assert!(fixture.store.get("/long").await.unwrap().is_some());
}

async fn any_bytes_are_a_value(fixture: Fixture) {
    let bytes: Vec<u8> = (0..=255).chain(*b"\0BTCH\xff").collect();
    let template = store::Template { bytes: bytes.clone(), hole: None };
    let write = Write { op: store::Op::Put(template), ..put("/bytes", "", Precondition::Absent) };
    fixture.store.commit(vec![write]).await.unwrap();
    assert_eq!(fixture.store.get("/bytes").await.unwrap().unwrap().value, bytes);
    let empty = store::Template { bytes: Vec::new(), hole: None };
    let write = Write { op: store::Op::Put(empty), ..put("/bytes", "", Precondition::Anything) };
    fixture.store.commit(vec![write]).await.unwrap();
    assert!(fixture.store.get("/bytes").await.unwrap().unwrap().value.is_empty());
}

async fn load_and_events_have_no_gap(fixture: Fixture) {
    let writer = tokio::spawn({
        let store = fixture.store.clone();
        async move {
            for number in 0..200 {
                let write = put(&format!("/{}", number % 10), &number.to_string(), Precondition::Anything);
                store.commit(vec![write]).await.unwrap();
            }
        }
    });
    fixture.sink.wait("some writes", |event| &*event.key == "/3").await;
    let (entries, revision) = fixture.store.load().await.unwrap();
    writer.await.unwrap();
    let mut state: std::collections::BTreeMap<_, _> =
        entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    for event in fixture.sink.events().into_iter().filter(|event| event.revision > revision) {
        let previous = state.insert(event.key.clone(), event.entry.unwrap());
        assert_eq!(previous.map(|entry| entry.revision), event.previous.map(|entry| entry.revision));
    }
    let page = fixture.store.range(everything()).await.unwrap();
    assert_eq!(state.into_values().collect::<Vec<_>>(), page.entries);
}

async fn a_closed_store_says_so(fixture: Fixture) {
    fixture.put("/a", "1").await;
    let mut watch = fixture.store.watch("/", fixture.store.revision().await.unwrap()).unwrap();
    fixture.store.close().await.unwrap();
    assert!(matches!(fixture.store.get("/a").await, Err(Error::Closed)));
    assert!(matches!(fixture.store.revision().await, Err(Error::Closed)));
    assert!(matches!(fixture.store.commit(vec![put("/b", "1", Precondition::Anything)]).await, Err(Error::Closed)));
    let ended = async {
        loop {
            if let Err(error) = watch.next().await {
                break error;
            }
        }
    };
    assert!(matches!(within("the end of the watch", ended).await, Error::Closed));
    assert!(matches!(fixture.store.close().await, Err(Error::Closed)));
}

async fn large_values(fixture: Fixture) {
    // etcd's request limit is 1.5 MiB; a list of several exceeds gRPC's default of 4 MiB.
    let value = "x".repeat(1 << 20);
    for number in 0..6 {
        fixture.put(&format!("/large/{number}"), &value).await;
    }
    let page = fixture.store.range(prefix_range("/large/")).await.unwrap();
    assert_eq!(page.entries.len(), 6);
    assert!(page.entries.iter().all(|entry| entry.value.len() > 1 << 20));
    let template = store::Template { bytes: vec![0; 32 << 20], hole: None };
    let write = Write { op: store::Op::Put(template), ..put("/large/9", "", Precondition::Anything) };
    let result = fixture.store.commit(vec![write]).await;
    assert!(matches!(result, Err(Error::TooLarge { .. })), "{:?}", result.map(|_| ()));
    assert_eq!(fixture.sink.events().len(), 6);
}

async fn one_key_has_one_winner(fixture: Fixture) {
    let tasks: Vec<_> = (0..16)
        .map(|number| {
            let store = fixture.store.clone();
            tokio::spawn(
                async move { store.commit(vec![put("/one", &number.to_string(), Precondition::Absent)]).await },
            )
        })
        .collect();
    let mut winners = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => winners += 1,
            Err(Error::Conflict { current: Some(current), .. }) => assert_eq!(&*current.key, "/one"),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(winners, 1);
}

/// During the first writes of a store in memory its expiries are checked: a concurrent write must not be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_are_not_lost() {
    for _ in 0..3000 {
        let store = store::memory::open(support::Recorder::new()).unwrap();
        within("the write", store::Store::commit(&store, vec![put("/a", "1", Precondition::Absent)])).await.unwrap();
    }
}
