//! A history checker over three API servers on three members of etcd: clients write by compare-and-swap, list and watch
//! through all servers, while links are cut, packets are lost, processes are killed and stalled, and clocks jump, from a
//! seed. Afterwards everything that they have seen must be consistent with the history that etcd has kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Tree, json};
use http_body_util::BodyExt;
use stdx::sync::Mutex;
use stdx::wait::until_ok_await;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::clocks::ShiftedClocks;
use crate::etcd_servers::{SERVERS, Servers};
use crate::members::{PATIENCE, Version};
use crate::support::{Client, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LABEL: &str = "labelSelector=history%3Dyes";
const PREFIX: &str = "/registry/configmaps/default/key-";
const KEYS: u64 = 5;
const WRITERS: u64 = 6;
/// A request through a server that is cut off is given up after this.
const TIMEOUT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(20);
const MEMBERS: [u32; 3] = [1, 2, 3];

/// Name and resource version.
type Change = (String, u64);

/// A list, and the events of the watch that began there.
struct Segment {
    listed: u64,
    items: BTreeMap<String, u64>,
    events: Vec<Change>,
}

/// What the clients have seen.
#[derive(Default)]
struct Observations {
    /// Name, the version that was replaced (0 for none), and the acknowledged version.
    writes: Mutex<Vec<(String, u64, u64)>>,
    segments: Mutex<Vec<Segment>>,
    /// The newest acknowledged version: a read that starts later must not be older.
    newest: AtomicU64,
}

impl Observations {
    fn newest_of(&self, name: &str) -> u64 {
        let writes = self.writes.lock();
        writes.iter().filter(|(of, ..)| of == name).map(|&(.., version)| version).max().unwrap_or(0)
    }
}

fn version(object: &Tree) -> u64 {
    object.str("metadata.resourceVersion").parse().unwrap_or(0)
}

/// A client of all servers, which opens connections when it needs them.
struct Clients {
    pki: PathBuf,
    open: BTreeMap<u32, Client>,
}

impl Clients {
    fn new(pki: &Path) -> Clients {
        Clients { pki: pki.to_path_buf(), open: BTreeMap::new() }
    }

    /// The code and the object; None without a response: the request may have been executed.
    async fn call(&mut self, host: u32, method: &str, path: &str, body: &str) -> Option<(u16, Tree)> {
        let mut client = match self.open.remove(&host) {
            Some(client) => client,
            None => {
                let address = SocketAddr::from(([10, 9, 0, host as u8], 6443));
                timeout(TIMEOUT, Client::try_at(&self.pki, address)).await.ok()??
            }
        };
        let (code, body) = timeout(TIMEOUT, client.call(method, path, body)).await.ok()?.ok()?;
        self.open.insert(host, client);
        Some((code, json::decode(&body).unwrap_or_default()))
    }
}

/// Reads a key through one server, and replaces it through another.
async fn write(pki: PathBuf, number: u64, observed: Arc<Observations>, done: watch::Receiver<bool>) {
    let mut clients = Clients::new(&pki);
    let mut turn = number;
    while !*done.borrow() {
        turn += 1;
        let name = format!("key-{}", (turn * 7 + number) % KEYS);
        let (reads, writes) = (SERVERS[(turn % 3) as usize], SERVERS[((turn / 3 + number) % 3) as usize]);
        let floor = observed.newest_of(&name);
        let path = format!("{MAPS}/{name}");
        let Some((code, object)) = clients.call(reads, "GET", &path, "").await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let found = if code == 200 { version(&object) } else { 0 };
        if code == 200 || code == 404 {
            assert!(found >= floor, "{name} read at {found} through {reads} after {floor} was acknowledged");
        } else {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let expected = if found == 0 { String::new() } else { format!(r#""resourceVersion":"{found}","#) };
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{{expected}"name":"{name}","labels":{{"history":"yes"}}}},"data":{{"by":"{number}.{turn}"}}}}"#
        );
        let written = match found {
            0 => clients.call(writes, "POST", MAPS, &body).await,
            _ => clients.call(writes, "PUT", &path, &body).await,
        };
        if let Some((200 | 201, object)) = written {
            let acknowledged = version(&object);
            observed.writes.lock().push((name, found, acknowledged));
            observed.newest.fetch_max(acknowledged, Ordering::SeqCst);
        }
    }
}

/// Lists through one server, watches from there, and begins again when the watch ends.
async fn list_and_watch(pki: PathBuf, host: u32, observed: Arc<Observations>, done: watch::Receiver<bool>) {
    let mut clients = Clients::new(&pki);
    while !*done.borrow() {
        let floor = observed.newest.load(Ordering::SeqCst);
        let Some((200, list)) = clients.call(host, "GET", &format!("{MAPS}?{LABEL}"), "").await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let listed = version(&list);
        assert!(listed >= floor, "a list of {listed} through {host} after {floor} was acknowledged");
        let named = |item: &Tree| (item.str("metadata.name").to_string(), version(item));
        let items = list.list("items").iter().map(named).collect();
        let mut segment = Segment { listed, items, events: Vec::new() };
        follow(&pki, host, &mut segment, done.clone()).await;
        observed.segments.lock().push(segment);
    }
}

/// Watches until the connection ends, or long enough.
async fn follow(pki: &Path, host: u32, segment: &mut Segment, mut done: watch::Receiver<bool>) -> Option<()> {
    let address = SocketAddr::from(([10, 9, 0, host as u8], 6443));
    let mut client = timeout(TIMEOUT, Client::try_at(pki, address)).await.ok()??;
    let path = format!("{MAPS}?{LABEL}&watch=true&resourceVersion={}&timeoutSeconds=6", segment.listed);
    let response = timeout(TIMEOUT, client.send(request("GET", &path, ""))).await.ok()?.ok()?;
    if response.status() != 200 {
        return None;
    }
    let mut body = response.into_body();
    let mut buffer = Vec::new();
    loop {
        let frame = tokio::select! {
            _ = done.wait_for(|done| *done) => return Some(()),
            frame = timeout(TIMEOUT * 2, body.frame()) => frame.ok()??.ok()?,
        };
        buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event: Tree = json::decode(&line).expect("an event");
            match event.str("type") {
                "ADDED" | "MODIFIED" => {
                    let object = event.at("object");
                    segment.events.push((object.str("metadata.name").to_string(), version(object)));
                }
                "BOOKMARK" => {}
                _ => return None,
            }
        }
    }
}

/// A generator whose numbers follow from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One fault after the other: a majority of members and one server remain.
async fn fail(servers: &mut Servers, random: &mut Random, count: u64) {
    for _ in 0..count {
        let (server, member) = (SERVERS[random.below(3) as usize], MEMBERS[random.below(3) as usize]);
        let others: Vec<u32> = MEMBERS.into_iter().filter(|other| *other != member).collect();
        let pause = Duration::from_millis(500 + random.below(1500));
        let kind = random.below(9);
        println!("fault {kind}, server {server}, member {member}, {pause:?}");
        match kind {
            0 => {
                servers.members.network.partition(&[server], &MEMBERS);
                tokio::time::sleep(pause).await;
                servers.members.network.unite(&[server], &MEMBERS);
            }
            // The server hears etcd no longer, and etcd hears the server.
            1 => {
                MEMBERS.iter().for_each(|member| servers.members.network.cut(*member, server));
                tokio::time::sleep(pause).await;
                MEMBERS.iter().for_each(|member| servers.members.network.heal(*member, server));
            }
            2 => {
                servers.members.network.partition(&[member], &others);
                tokio::time::sleep(pause).await;
                servers.members.network.unite(&[member], &others);
            }
            3 => {
                servers.signal(server, "-KILL");
                servers.wait(server);
                tokio::time::sleep(pause).await;
                let is_up = servers.spawn(server);
                stdx::wait::until_await("the server is back", PATIENCE, async || is_up()).await;
            }
            4 => {
                servers.members.kill(member);
                tokio::time::sleep(pause).await;
                servers.members.run(member);
            }
            5 => {
                (1..=6).for_each(|host| servers.members.network.lose(host, 10));
                tokio::time::sleep(pause).await;
                (1..=6).for_each(|host| servers.members.network.lose(host, 0));
            }
            6 => {
                servers.signal(server, "-STOP");
                tokio::time::sleep(pause).await;
                servers.signal(server, "-CONT");
            }
            7 => {
                servers.shift_clock(server, 3600);
                tokio::time::sleep(pause).await;
                servers.shift_clock(server, 0);
            }
            _ => {
                servers.shift_clock(server, -1800);
                tokio::time::sleep(pause).await;
                servers.shift_clock(server, 0);
            }
        }
    }
}

/// All changes of the keys, as etcd has kept them: version and name, in their order.
fn history(servers: &Servers, first: u64) -> Vec<Change> {
    let (endpoint, revision) = (servers.members.endpoint(1), format!("--rev={first}"));
    let mut command = std::process::Command::new("timeout");
    command.env("ETCDCTL_API", "3").args(["3", "etcdctl", "--endpoints", &endpoint, "watch", "--prefix", PREFIX]);
    let output = command.args([&revision, "--write-out=json"]).output().expect("etcdctl is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all = Vec::new();
    for line in text.lines() {
        let response: Tree = json::decode(line.as_bytes()).expect("JSON");
        for event in response.list("Events") {
            let key = api::base64::decode(event.at("kv").str("key")).expect("a key");
            let key = String::from_utf8(key).expect("text");
            let revision =
                event.at("kv").int("mod_revision").and_then(|at| u64::try_from(at).ok()).expect("a revision");
            all.push((key.rsplit('/').next().unwrap_or_default().to_string(), revision));
        }
    }
    assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].1), "etcd has one order");
    all
}

fn check(history: &[Change], observed: &Observations) {
    let (writes, segments) = (observed.writes.lock(), observed.segments.lock());
    for (name, replaced, version) in writes.iter() {
        let at = history.iter().position(|event| event == &(name.clone(), *version));
        let at = at.unwrap_or_else(|| panic!("the acknowledged write of {name} at {version} is lost"));
        let before = history[..at].iter().rev().find(|event| event.0 == *name).map_or(0, |event| event.1);
        assert_eq!(before, *replaced, "{name} at {version} has replaced another version than the one that was read");
    }
    for segment in segments.iter() {
        let before = history.iter().filter(|event| event.1 <= segment.listed);
        let then: BTreeMap<String, u64> = before.cloned().collect();
        assert_eq!(segment.items, then, "the list at {} is not the state of that version", segment.listed);
        let after = history.iter().filter(|event| event.1 > segment.listed).take(segment.events.len());
        assert_eq!(segment.events, after.cloned().collect::<Vec<_>>(), "the watch after {}", segment.listed);
    }
}

/// Enough was seen to be worth a check.
fn check_amount(observed: &Observations) {
    let (writes, segments) = (observed.writes.lock(), observed.segments.lock());
    let events: usize = segments.iter().map(|segment| segment.events.len()).sum();
    println!("{} writes, {} lists, {events} events", writes.len(), segments.len());
    assert!(writes.len() > 20 && events > 20);
}

/// Each kind of violation is seen.
#[test]
fn the_checker_refuses_wrong_histories() {
    let change = |name: &str, version: u64| (name.to_string(), version);
    let history = [change("a", 2), change("b", 3), change("a", 5)];
    let items = |all: &[(&str, u64)]| all.iter().map(|(name, version)| change(name, *version)).collect();
    let passes = |write: (&str, u64, u64), listed: u64, list: &[(&str, u64)], events: &[(&str, u64)]| {
        let observed = Observations::default();
        observed.writes.lock().push((write.0.to_string(), write.1, write.2));
        let events = events.iter().map(|(name, version)| change(name, *version)).collect();
        observed.segments.lock().push(Segment { listed, items: items(list), events });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&history, &observed))).is_ok()
    };
    let (write, list, events) = (("a", 2, 5), [("a", 2)], [("b", 3), ("a", 5)]);
    assert!(passes(write, 2, &list, &events));
    assert!(!passes(("a", 2, 4), 2, &list, &events), "a lost write");
    assert!(!passes(("a", 0, 5), 2, &list, &events), "a write over another one than the one that was read");
    assert!(!passes(write, 3, &list, &events[1..]), "an old list");
    assert!(!passes(write, 2, &list, &events[1..]), "a gap between list and watch");
    assert!(!passes(write, 2, &list, &[("a", 5), ("b", 3)]), "another order");
}

/// The seeds of `TIPHYS_SEEDS`: a count, or `FROM..TO`; one by default.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("TIPHYS_SEEDS").unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().ok();
    match text.split_once("..").map(|(first, end)| (number(first), number(end))) {
        Some((Some(first), Some(end))) => first..end,
        _ => 0..number(&text).unwrap_or(1),
    }
}

async fn run(seed: u64, servers: &mut Servers) {
    let observed = Arc::new(Observations::default());
    let pki = servers.pki();
    let first = async || match Clients::new(&pki).call(SERVERS[0], "GET", MAPS, "").await {
        Some((200, list)) => Ok(version(&list)),
        other => Err(format!("{:?}", other.map(|(code, _)| code))),
    };
    let first = until_ok_await("a first list", PATIENCE, first).await;
    let (stop, done) = watch::channel(false);
    let writers = (0..WRITERS).map(|number| tokio::spawn(write(pki.clone(), number, observed.clone(), done.clone())));
    let watchers = SERVERS.map(|host| tokio::spawn(list_and_watch(pki.clone(), host, observed.clone(), done.clone())));
    let clients: Vec<_> = writers.chain(watchers).collect();
    let faults = if std::env::var_os("TIPHYS_SEEDS").is_some() { 12 } else { 4 };
    fail(servers, &mut Random(seed.wrapping_add(1)), faults).await;
    // Every server serves again.
    for host in SERVERS {
        let serves = async || match Clients::new(&pki).call(host, "GET", MAPS, "").await {
            Some((200, _)) => Ok(()),
            other => Err(format!("{:?}", other.map(|(code, _)| code))),
        };
        until_ok_await("a server serves again", PATIENCE, serves).await;
    }
    stop.send_replace(true);
    for client in clients {
        timeout(PATIENCE, client).await.expect("it ends").expect("what it saw was right");
    }
    check(&history(servers, first + 1), &observed);
    check_amount(&observed);
}

#[test]
fn histories_of_three_api_servers_are_linearizable() {
    for seed in seeds() {
        println!("seed {seed}");
        let version = if seed % 2 == 0 { Version::V3_4 } else { Version::V3_5 };
        let mut servers = Servers::start_with(version, Some(ShiftedClocks::build()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(run(seed, &mut servers));
    }
}
