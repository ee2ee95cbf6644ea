//! With faults, everything that clients observe is linearizable.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use store::embedded::{self, Config};
use support::sim::{Fault, Random, SimDisk};
use support::{Recorder, etcd, history};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_on_a_failing_disk() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let sink = Recorder::new();
        let config = Config {
            segment_bytes: 32 << 10,
            allocate_bytes: 4 << 10,
            compact_bytes: 48 << 10,
            ..Config::new("/data")
        };
        let store = Arc::new(embedded::open(config, Arc::new(disk.clone()), sink.clone()).unwrap());
        let faults = async move {
            let mut random = Random::new(seed);
            for _ in 0..20 {
                match random.below(2) {
                    0 => disk.fail(Fault::Write, 1 + random.below(3) as u32),
                    _ => disk.set_free(random.below(2000)),
                }
                tokio::time::sleep(Duration::from_millis(random.below(5))).await;
                disk.set_free(u64::MAX);
            }
        };
        history::exercise(store, sink, 100, faults).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_is_killed() {
    let mut server = etcd::Server::start();
    let sink = Recorder::new();
    let config = store::etcd::Config { timeout: Duration::from_secs(10), ..server.config("/registry") };
    let store = Arc::new(server.connect(config, sink.clone()).await);
    // Another server of the same etcd, and a client that writes outside the prefix.
    let other = server.connect(server.config("/other"), Recorder::new()).await;
    let faults = async {
        for number in 0..3 {
            let aside = support::put(&format!("/{number}"), "1", store::Precondition::Anything);
            // Once it responds to this, it has responded to others as well.
            history::until_ok(|| store::Store::commit(&other, vec![aside.clone()])).await;
            server.kill();
            server.run();
        }
    };
    history::exercise(store, sink.clone(), 30, faults).await;
}
