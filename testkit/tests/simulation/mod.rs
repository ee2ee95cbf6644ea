//! An hour in the life of a cluster, from seeds.

use std::time::Duration;

use testkit::sim::{Simulation, run_twice, seeds};

const MINUTE: Duration = Duration::from_secs(60);

async fn nodes_come_up(simulation: &Simulation) {
    let all = async |simulation: &Simulation| simulation.ready_nodes() == simulation.node_count as usize;
    simulation.until("all nodes are ready", MINUTE, all).await;
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
    for seed in seeds(2) {
        run_twice(seed, 3, idle);
    }
}
