//! Hours of a cluster in simulated time, from seeds: faults of requests, killed controllers and schedulers, and lost
//! nodes. Once the faults end, the cluster must reach its desired state.

/// Twenty seeds of a scenario, or those of `TIPHYS_SEEDS`, in four tests that can run concurrently.
macro_rules! in_quarters {
    ($nodes:literal, $scenario:path) => {
        fn run_quarter(quarter: u64) {
            for seed in testkit::sim::seeds(20).filter(|seed| seed % 4 == quarter) {
                testkit::sim::run_twice(seed, $nodes, $scenario);
            }
        }

        #[test]
        fn first_quarter() {
            run_quarter(0);
        }

        #[test]
        fn second_quarter() {
            run_quarter(1);
        }

        #[test]
        fn third_quarter() {
            run_quarter(2);
        }

        #[test]
        fn last_quarter() {
            run_quarter(3);
        }
    };
}
use in_quarters;

mod crowd_loss;
mod garbage;
mod jobs;
mod node_loss;
mod rollout;
mod scheduling;

use std::time::Duration;

use api::Tree;
use testkit::sim::{Simulation, run_twice, seeds};

const MINUTE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

async fn nodes_come_up(simulation: &Simulation) {
    let all = async |simulation: &Simulation| simulation.ready_nodes() == simulation.node_count as usize;
    simulation.until("all nodes are ready", MINUTE, all).await;
    // Pods need their service account.
    let account = async |simulation: &Simulation| !simulation.objects("serviceaccounts", NAMESPACE).is_empty();
    simulation.until("the account of pods", MINUTE, account).await;
}

/// A time of troubles: requests fail, controllers and the scheduler are killed, nodes are lost and found.
async fn disturb(simulation: &mut Simulation, until: Duration) {
    let end = tokio::time::Instant::now() + until;
    simulation.faults.set(true);
    while tokio::time::Instant::now() < end {
        simulation.pass(simulation.random.seconds(5, 90)).await;
        match simulation.random.below(4) {
            0 => simulation.restart_controllers(simulation.random.seconds(0, 30)).await,
            2 => simulation.restart_scheduler(simulation.random.seconds(0, 30)).await,
            1 => {
                let node = simulation.random.below(simulation.node_count.into()) as u32;
                simulation.set_node_down(node, true).await;
                simulation.pass(simulation.random.seconds(5, 120)).await;
                simulation.set_node_down(node, false).await;
            }
            _ => {}
        }
    }
    simulation.faults.set(false);
}

fn json(text: &str) -> Tree {
    api::json::decode(text.as_bytes()).expect("JSON")
}

#[test]
fn an_idle_hour_has_nothing_but_heartbeats() {
    let idle = async |simulation: &mut Simulation| {
        nodes_come_up(simulation).await;
        simulation.pass(2 * MINUTE).await;
        let before = simulation.trace.len();
        simulation.pass(60 * MINUTE).await;
        let leases = simulation.trace.count("kube-node-lease");
        assert!(leases > 3 * 300, "{leases} renewals");
        let outcome = simulation.trace.outcome();
        let heartbeat = |line: &&String| line.contains("/leases/") || line.contains("/api/v1/nodes/fake-");
        let others: Vec<&String> = outcome.writes[before..].iter().filter(|line| !heartbeat(line)).collect();
        assert!(others.is_empty(), "{others:#?}");
    };
    for seed in seeds(1) {
        run_twice(seed, 3, idle);
    }
}

#[test]
fn another_seed_is_another_run() {
    let short = async |simulation: &mut Simulation| nodes_come_up(simulation).await;
    assert_ne!(run_twice(1, 1, short).hash, run_twice(2, 1, short).hash);
}
