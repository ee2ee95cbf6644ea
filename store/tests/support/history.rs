//! A history checker. Clients write by compare-and-swap, list and watch during faults; afterwards all their
//! observations must be consistent with the order of the sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stdx::sync::Mutex;
use store::{Entry, Error, Event, Precondition, Revision, Store, WatchResponse};

use super::{DEADLINE, Recorder, everything, put};

const KEYS: u64 = 6;
const WRITERS: u64 = 8;
const WATCHERS: usize = 4;

/// The observations of the clients.
#[derive(Default)]
struct Observations {
    /// Key and revision of every acknowledged write.
    writes: Mutex<Vec<(String, Revision)>>,
    /// Every list, with its revision.
    lists: Mutex<Vec<(Revision, Vec<Arc<Entry>>)>>,
    /// Every watch: its start revision and its events.
    watches: Mutex<Vec<(Revision, Vec<Event>)>>,
    /// The newest acknowledged revision: a read that starts now must not be older.
    newest: AtomicU64,
}

impl Observations {
    fn acknowledge(&self, key: &str, revision: Revision) {
        self.writes.lock().push((key.to_owned(), revision));
        self.newest.fetch_max(revision, Ordering::SeqCst);
    }
}

/// Runs clients during `faults`, and checks. Each writer ends after `rounds` successes.
pub async fn exercise(store: Arc<dyn Store>, sink: Arc<Recorder>, rounds: u64, faults: impl Future<Output = ()>) {
    exercise_all(vec![(store, sink)], rounds, faults).await;
}

/// The same with several servers of one store: the clients use all of them, and all servers see one order.
pub async fn exercise_all(
    servers: Vec<(Arc<dyn Store>, Arc<Recorder>)>,
    rounds: u64,
    faults: impl Future<Output = ()>,
) {
    let observed = Arc::new(Observations::default());
    let (before, start) = until_ok(|| servers[0].0.load()).await;
    let done = tokio::sync::watch::Sender::new(false);
    let server = |number: usize| servers[number % servers.len()].0.clone();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(server(writer as usize), observed.clone(), writer, rounds)))
        .collect();
    let watchers: Vec<_> = (0..WATCHERS.max(servers.len()))
        .map(|number| tokio::spawn(list_and_watch(server(number), observed.clone(), done.subscribe())))
        .collect();
    faults.await;
    for writer in writers {
        in_time("the end of a writer", writer).await.unwrap();
    }
    done.send_replace(true);
    // Wakes the watchers for the last time.
    let last = until_ok(|| servers[0].0.commit(vec![put("/last", "", Precondition::Anything)])).await[0].revision;
    for watcher in watchers {
        in_time("the end of a watcher", watcher).await.unwrap();
    }
    let seen_by = |sink: &Recorder| {
        let events = sink.events().into_iter().filter(|event| event.revision > start);
        events.map(|event| (event.revision, event.key.clone())).collect::<Vec<_>>()
    };
    for (store, sink) in &servers {
        until_ok(|| store.revision()).await;
        assert!(sink.newest() >= last);
        assert_eq!(seen_by(sink), seen_by(&servers[0].1), "two servers saw different orders");
    }
    check(&before, start, &servers[0].1.events(), &observed);
}

/// Several elections may be necessary meanwhile.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE * 6, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {:?}", DEADLINE * 6),
    }
}

/// Retries during a fault.
pub async fn until_ok<T, F: Future<Output = store::Result<T>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(value) => return value,
            Err(Error::Unavailable(_) | Error::Io { .. } | Error::Full(_)) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn write(store: Arc<dyn Store>, observed: Arc<Observations>, writer: u64, rounds: u64) {
    for round in 0..rounds {
        let key = format!("/key/{}", (writer + round) % KEYS);
        loop {
            let floor = observed.newest.load(Ordering::SeqCst);
            let current = until_ok(|| store.get(&key)).await;
            let seen = observed
                .writes
                .lock()
                .iter()
                .filter(|(of, _)| *of == key)
                .map(|&(_, at)| at)
                .filter(|&at| at <= floor)
                .max();
            let revision = current.map(|entry| entry.revision);
            assert!(revision >= seen, "{key} read at {revision:?} after {seen:?} was acknowledged");
            let expect = revision.map_or(Precondition::Absent, Precondition::Revision);
            match store.commit(vec![put(&key, &format!("{writer}.{round}"), expect)]).await {
                Ok(committed) => {
                    assert_eq!(committed[0].previous.as_ref().map(|entry| entry.revision), revision);
                    observed.acknowledge(&key, committed[0].revision);
                    break;
                }
                Err(Error::Conflict { current, .. }) => {
                    assert!(current.map(|entry| entry.revision) > revision, "a conflict with what was read");
                }
                // The write may have been executed nevertheless: the next turn reads it.
                Err(Error::Unavailable(_) | Error::Io { .. } | Error::Full(_)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Lists, watches from there for a while, and starts again.
async fn list_and_watch(store: Arc<dyn Store>, observed: Arc<Observations>, done: tokio::sync::watch::Receiver<bool>) {
    while !*done.borrow() {
        let floor = observed.newest.load(Ordering::SeqCst);
        let page = until_ok(|| store.range(everything())).await;
        assert!(page.revision >= floor, "a list of {} after {floor} was acknowledged", page.revision);
        let revision = page.revision;
        observed.lists.lock().push((revision, page.entries));
        // The list may be ahead of the watch on etcd: the store's revision waits for it.
        until_ok(|| store.revision()).await;
        let Ok(mut watch) = store.watch("/", revision) else {
            continue;
        };
        let mut seen = Vec::new();
        while seen.len() < 40 && !*done.borrow() {
            match in_time("a notice", watch.next()).await {
                Ok(WatchResponse::Events(events)) => seen.extend(events),
                Ok(WatchResponse::Progress(_)) => {}
                Err(Error::Lagging | Error::Compacted { .. }) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        observed.watches.lock().push((revision, seen));
    }
}

fn check(before: &[Arc<Entry>], start: Revision, events: &[Event], observed: &Observations) {
    let events: Vec<&Event> = events.iter().filter(|event| event.revision > start).collect();
    let mut states: BTreeMap<Revision, BTreeMap<Box<str>, Revision>> = BTreeMap::new();
    let mut state: BTreeMap<_, _> = before.iter().map(|entry| (entry.key.clone(), entry.revision)).collect();
    let mut newest = start;
    states.insert(start, state.clone());
    for event in &events {
        assert!(event.revision >= newest, "{} after {newest}", event.revision);
        newest = event.revision;
        let previous = event.previous.as_ref().map(|entry| entry.revision);
        let was = match &event.entry {
            Some(entry) => state.insert(event.key.clone(), entry.revision),
            None => state.remove(&event.key),
        };
        assert_eq!(previous, was, "{} at {} does not follow what was there", event.key, event.revision);
        states.insert(newest, state.clone());
    }
    for (key, revision) in &*observed.writes.lock() {
        let found =
            events.iter().find(|event| event.revision == *revision).expect("an acknowledged write has an event");
        assert_eq!(&*found.key, key);
    }
    for (revision, entries) in &*observed.lists.lock() {
        let (_, then) = states.range(..=revision).next_back().expect("a state");
        let listed: BTreeMap<_, _> = entries.iter().map(|entry| (entry.key.clone(), entry.revision)).collect();
        assert_eq!(&listed, then, "the list at {revision} is not the state of that revision");
    }
    for (after, seen) in &*observed.watches.lock() {
        let expected = events.iter().filter(|event| event.revision > *after).take(seen.len());
        let expected: Vec<_> = expected.map(|event| (event.revision, event.key.clone())).collect();
        let seen: Vec<_> = seen.iter().map(|event| (event.revision, event.key.clone())).collect();
        assert_eq!(seen, expected, "the watch after {after} saw another order");
    }
    assert!(!observed.watches.lock().is_empty() && !observed.lists.lock().is_empty());
}
