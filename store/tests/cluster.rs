//! The etcd engine on clusters of real members: partitions, lost and replaced members, compaction meanwhile, members that
//! stall, TLS; and the history checker over several servers with faults from a seed.
#![allow(clippy::unwrap_used)]

#[path = "shared/members.rs"]
mod members;
#[path = "shared/slow_disk.rs"]
mod slow_disk;
mod support;

use std::sync::Arc;
use std::time::Duration;

use members::{CLIENT, Members, PATIENCE, Version};
use slow_disk::SlowDisks;
use store::etcd::{self, Config, Etcd, maintenance};
use store::{Error, Precondition, Store};
use support::history::until_ok;
use support::sim::Random;
use support::{Recorder, everything, put};

/// In the network of the test: threads of the runtime are started after the thread has entered it.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

fn config(endpoints: Vec<String>) -> Config {
    Config {
        prefix: "/registry".to_owned(),
        compact_interval: None,
        timeout: Duration::from_secs(5),
        progress_interval: Duration::from_millis(50),
        ..Config::new(endpoints)
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {PATIENCE:?}"),
    }
}

/// Retries until the cluster has a leader.
async fn connect(endpoints: Vec<String>) -> (Arc<Etcd>, Arc<Recorder>) {
    let sink = Recorder::new();
    let connect = async || etcd::connect(config(endpoints.clone()), sink.clone()).await;
    (Arc::new(stdx::wait::until_ok_await("etcd has a leader", PATIENCE, connect).await), sink)
}

async fn write(store: &Arc<Etcd>, key: &str, value: &str) -> u64 {
    let commit = || store.commit(vec![put(key, value, Precondition::Anything)]);
    within("a write", until_ok(commit)).await[0].revision
}

async fn agree(members: &Members, stores: &[&Arc<Etcd>]) {
    let hashes = async || {
        let (revision, hashes) = maintenance::Members::new(&config(members.endpoints()))?.hashes().await?;
        let first = hashes[0].hash;
        let same = hashes.iter().all(|member| member.hash == first);
        if same { Ok(revision) } else { Err(Error::Unavailable(format!("{hashes:?}"))) }
    };
    stdx::wait::until_ok_await("all members have the same state", PATIENCE, hashes).await;
    let mut all = Vec::new();
    for store in stores {
        all.push(within("a list", until_ok(|| store.range(everything()))).await.entries);
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "every server reads the same");
}

fn a_minority_neither_writes_nor_reads(version: Version, count: u32) {
    let members = Members::start(version, count, 0);
    let minority: Vec<u32> = (1..=count / 2).collect();
    let majority: Vec<u32> = (count / 2 + 1..=count).collect();
    block_on(async {
        let (cut_off, _) = connect(vec![members.endpoint(1)]).await;
        let (other, _) = connect(majority.iter().map(|&host| members.endpoint(host)).collect()).await;
        write(&cut_off, "/a", "1").await;
        members.network.partition(&minority, &majority);
        write(&other, "/a", "2").await;
        let refused = cut_off.commit(vec![put("/a", "3", Precondition::Anything)]).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        for _ in 0..2 {
            let read = cut_off.get("/a").await;
            assert!(matches!(read, Err(Error::Unavailable(_))), "a stale read: {read:?}");
            let revision = cut_off.revision().await;
            assert!(matches!(revision, Err(Error::Unavailable(_))), "a stale revision: {revision:?}");
        }
        members.network.unite(&minority, &majority);
        agree(&members, &[&cut_off, &other]).await;
        write(&cut_off, "/b", "1").await;
    });
}

#[test]
fn a_minority_of_three_neither_writes_nor_reads() {
    a_minority_neither_writes_nor_reads(Version::V3_4, 3);
}

#[test]
fn a_minority_of_five_neither_writes_nor_reads() {
    a_minority_neither_writes_nor_reads(Version::V3_5, 5);
}

/// One member after the other fails, in each way that the client can see.
fn clients_leave_failed_members(version: Version) {
    let mut members = Members::start(version, 3, 0);
    block_on(async {
        let (store, sink) = connect(members.endpoints()).await;
        for host in 1..=3 {
            members.kill(host);
            let revision = write(&store, "/a", &format!("without {host}")).await;
            within("the watch", async {
                stdx::wait::until_await("it", PATIENCE, async || sink.newest() >= revision).await
            })
            .await;
            members.run(host);
            write(&store, "/a", "again").await;
            members.network.cut(CLIENT, host);
            let started = std::time::Instant::now();
            write(&store, "/a", &format!("not through {host}")).await;
            assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
            members.network.heal(CLIENT, host);
            agree(&members, &[&store]).await;
        }
    });
}

#[test]
fn clients_leave_failed_members_3_4() {
    clients_leave_failed_members(Version::V3_4);
}

#[test]
fn clients_leave_failed_members_3_5() {
    clients_leave_failed_members(Version::V3_5);
}

#[test]
fn a_lost_member_is_replaced() {
    let mut members = Members::start(Version::V3_5, 3, 0);
    block_on(async {
        let (store, _) = connect(members.endpoints()).await;
        for number in 0..50 {
            write(&store, &format!("/{number}"), "1").await;
        }
        members.replace(3, 1);
        write(&store, "/after", "1").await;
        let (through_new, _) = connect(vec![members.endpoint(3)]).await;
        agree(&members, &[&store, &through_new]).await;
        assert_eq!(through_new.range(everything()).await.unwrap().entries.len(), 51);
    });
}

#[test]
fn compaction_during_a_partition_is_survived() {
    let members = Members::start(Version::V3_4, 3, 0);
    block_on(async {
        let (cut_off, sink) = connect(vec![members.endpoint(1)]).await;
        let (other, _) = connect(vec![members.endpoint(2), members.endpoint(3)]).await;
        write(&other, "/changed", "1").await;
        write(&other, "/deleted", "1").await;
        within("the watch", until_ok(|| cut_off.revision())).await;
        members.network.partition(&[1], &[2, 3]);
        write(&other, "/changed", "2").await;
        let delete = || other.commit(vec![support::delete("/deleted", Precondition::Anything)]);
        within("a deletion", until_ok(delete)).await;
        let last = write(&other, "/new", "1").await;
        within("the compaction", until_ok(|| other.compact(last))).await;
        members.network.unite(&[1], &[2, 3]);
        within("the revision", until_ok(|| cut_off.revision())).await;
        agree(&members, &[&cut_off, &other]).await;
        let events = sink.events();
        let of = |key: &str| events.iter().rev().find(|event| &*event.key == key).unwrap();
        assert!(of("/deleted").entry.is_none() && of("/new").entry.is_some());
    });
}

/// A stalled leader holds everything up only until another one is elected; a stalled follower holds up nothing.
#[test]
fn a_member_that_stalls_is_left() {
    let members = Members::start(Version::V3_5, 3, 0);
    block_on(async {
        let (store, _) = connect(members.endpoints()).await;
        write(&store, "/a", "1").await;
        for host in 1..=3 {
            members.signal(host, "-STOP");
            write(&store, "/a", &format!("while {host} is stalled")).await;
            members.signal(host, "-CONT");
            agree(&members, &[&store]).await;
        }
    });
}

/// A member whose disk is full ends; the others go on, and it follows again when there is space.
#[test]
fn a_full_disk_stops_one_member_only() {
    let mut members = Members::start(Version::V3_5, 3, 0);
    block_on(async {
        let (store, sink) = connect(members.endpoints()).await;
        write(&store, "/before", "1").await;
        members.kill(3);
        members.give_disk(3, "200m");
        members.run(3);
        agree(&members, &[&store]).await;
        let fill = format!("cat /dev/zero > {}/fill || true", members.data(3).display());
        members.network.script(&fill);
        let value = "x".repeat(200_000);
        let mut count = 0;
        while !members.has_ended(3) {
            count += 1;
            assert!(count < 1000, "the member does not notice its full disk");
            write(&store, &format!("/full/{}", count % 50), &value).await;
        }
        let revision = write(&store, "/after", "1").await;
        within("the watch", stdx::wait::until_await("it", PATIENCE, async || sink.newest() >= revision)).await;
        members.network.script(&format!("rm {}/fill", members.data(3).display()));
        members.kill(3);
        members.run(3);
        agree(&members, &[&store]).await;
    });
}

/// Nothing waits for the disk of one member: a majority has other disks, and a leader whose disk takes longer than the
/// election timeout is replaced.
#[test]
fn a_slow_disk_delays_nothing_for_long() {
    let disks = Arc::new(SlowDisks::build());
    let starter = disks.clone();
    let members =
        Members::start_by(Version::V3_5, 3, Box::new(move |host| vec![starter.program(), starter.file(host)]));
    block_on(async {
        let (store, _) = connect(members.endpoints()).await;
        write(&store, "/slow/first", "1").await;
        for (host, time) in [(1, 300), (2, 300), (3, 300), (1, 3000), (2, 3000), (3, 3000)] {
            disks.delay(host, Duration::from_millis(time));
            for number in 0..5 {
                write(&store, &format!("/slow/{host}-{time}-{number}"), "1").await;
            }
            disks.delay(host, Duration::ZERO);
        }
        agree(&members, &[&store]).await;
        // All of them: every write waits for a sync.
        (1..=3).for_each(|host| disks.delay(host, Duration::from_millis(200)));
        let started = std::time::Instant::now();
        write(&store, "/slow/everywhere", "1").await;
        assert!(started.elapsed() >= Duration::from_millis(200), "the delay reaches etcd");
        (1..=3).for_each(|host| disks.delay(host, Duration::ZERO));
        agree(&members, &[&store]).await;
        let page = within("a list", until_ok(|| store.range(everything()))).await;
        assert_eq!(page.entries.iter().filter(|entry| entry.key.starts_with("/slow/")).count(), 32);
    });
}

/// A member that stalls again and again.
#[test]
fn a_slow_member_delays_nothing_for_long() {
    let members = Members::start(Version::V3_4, 3, 0);
    block_on(async {
        let (store, _) = connect(members.endpoints()).await;
        for host in 1..=3 {
            let slow = async {
                for _ in 0..6 {
                    members.signal(host, "-STOP");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    members.signal(host, "-CONT");
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            };
            let writes = async {
                for number in 0..5 {
                    write(&store, &format!("/slow/{number}"), "1").await;
                }
            };
            tokio::join!(slow, writes);
        }
        agree(&members, &[&store]).await;
    });
}

/// Packets are lost everywhere: the cluster is slower, and every acknowledged write is there.
#[test]
fn lost_packets_lose_no_write() {
    let members = Members::start(Version::V3_5, 3, 0);
    block_on(async {
        let (store, _) = connect(members.endpoints()).await;
        (1..=3).for_each(|host| members.network.lose(host, 15));
        for number in 0..20 {
            write(&store, &format!("/lossy/{number}"), "1").await;
        }
        (1..=3).for_each(|host| members.network.lose(host, 0));
        agree(&members, &[&store]).await;
        let page = within("a list", until_ok(|| store.range(everything()))).await;
        assert_eq!(page.entries.iter().filter(|entry| entry.key.starts_with("/lossy/")).count(), 20);
    });
}

/// The number of seeds: `TIPHYS_SEEDS` of CONTRIBUTING.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("TIPHYS_SEEDS").unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().ok();
    match text.split_once("..").map(|(first, end)| (number(first), number(end))) {
        Some((Some(first), Some(end))) => first..end,
        _ => 0..number(&text).unwrap_or(1),
    }
}

/// Cuts, kills and stalls members for a while, one at a time: a majority remains.
async fn fail(members: &mut Members, random: &mut Random) {
    for _ in 0..4 {
        let host = 1 + random.below(3) as u32;
        let others: Vec<u32> = (1..=3).filter(|&other| other != host).collect();
        let pause = Duration::from_millis(500 + random.below(2500));
        match random.below(5) {
            0 => {
                members.network.partition(&[host], &others);
                tokio::time::sleep(pause).await;
                members.network.unite(&[host], &others);
            }
            // Packets to the member are lost, those from it are not.
            1 => {
                others.iter().for_each(|&other| members.network.cut(other, host));
                tokio::time::sleep(pause).await;
                others.iter().for_each(|&other| members.network.heal(other, host));
            }
            2 => {
                members.kill(host);
                tokio::time::sleep(pause).await;
                members.run(host);
            }
            3 => {
                members.signal(host, "-STOP");
                tokio::time::sleep(pause).await;
                members.signal(host, "-CONT");
            }
            _ => {
                members.network.cut(CLIENT, host);
                tokio::time::sleep(pause).await;
                members.network.heal(CLIENT, host);
            }
        }
    }
}

#[test]
fn histories_of_three_servers_are_linearizable() {
    for seed in seeds() {
        println!("seed {seed}");
        let version = if seed % 2 == 0 { Version::V3_5 } else { Version::V3_4 };
        let mut members = Members::start(version, 3, 0);
        block_on(async {
            let mut servers = Vec::new();
            for first in 0..3 {
                // Each server starts with another member.
                let mut endpoints = members.endpoints();
                endpoints.rotate_left(first);
                let (store, sink) = connect(endpoints).await;
                servers.push((store as Arc<dyn Store>, sink));
            }
            let mut random = Random::new(seed);
            support::history::exercise_all(servers, 25, fail(&mut members, &mut random)).await;
        });
    }
}
