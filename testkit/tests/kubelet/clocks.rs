//! Clock jumps and slow operations, in simulated time.

use std::time::Duration;

use api::{Tree, tree};
use testkit::sim::{self, Simulation};

use super::scene::{MINUTE, PODS, make, pod, start, told, until_phase};

const DAY: i64 = 86400;

fn restarts(simulation: &Simulation, name: &str) -> Option<i64> {
    pod(simulation, name).list("status.containerStatuses").first()?.int("restartCount")
}

fn heartbeat(simulation: &Simulation) -> String {
    let leases = simulation.objects("leases", "kube-node-lease");
    leases.first().map(|lease| lease.str("spec.renewTime").to_string()).unwrap_or_default()
}

/// However the clock is set: running pods continue, waiting pods do not wait longer, new pods are accepted, and the node
/// stays ready.
#[test]
fn clock_jumps_stop_and_block_no_pod() {
    for (seed, jump) in [(1, DAY), (2, -DAY), (3, 400 * DAY), (4, -400 * DAY)] {
        sim::run(seed, 0, async |simulation| {
            let scene = start(simulation).await;
            let admin = simulation.admin.clone();
            make(&admin, "steady", tree! {}).await;
            let before = until_phase(simulation, "steady", "Running").await;
            make(&admin, "crashes", tree! {}).await;
            until_phase(simulation, "crashes", "Running").await;
            // After its second exit the container waits.
            for count in 1..=2 {
                scene.runtime.crash("crashes");
                let is_back = async |simulation: &Simulation| restarts(simulation, "crashes") == Some(count);
                if count == 2 {
                    scene.clock.jump(jump);
                }
                simulation.until("the container is started again", 2 * MINUTE, is_back).await;
            }
            let beat = heartbeat(simulation);
            make(&admin, "after", tree! {}).await;
            until_phase(simulation, "after", "Running").await;
            simulation.pass(10 * MINUTE).await;
            assert_ne!(heartbeat(simulation), beat, "the lease is renewed");
            assert_eq!(simulation.ready_nodes(), 1);
            let id = |pod: &Tree| pod.list("status.containerStatuses")[0].str("containerID").to_string();
            assert_eq!(id(&pod(simulation, "steady")), id(&before));
            assert_eq!(restarts(simulation, "steady"), Some(0));
            admin.delete(PODS, "default", "steady", Default::default()).await.expect("it is deleted");
            let is_gone = async |simulation: &Simulation| pod(simulation, "steady").is_null();
            simulation.until("the pod is deleted", 2 * MINUTE, is_gone).await;
            scene.running.stop().await;
        });
    }
}

#[test]
fn long_pulls_are_reported() {
    sim::run(5, 0, async |simulation| {
        let scene = start(simulation).await;
        {
            let mut state = scene.runtime.state();
            (state.pull, state.progress) = (Duration::from_secs(80), Some("1.0 of 9.0 MB".to_string()));
        }
        make(&simulation.admin.clone(), "waits", tree! {}).await;
        simulation.pass(Duration::from_secs(35)).await;
        scene.runtime.state().progress = Some("5.0 of 9.0 MB".to_string());
        until_phase(simulation, "waits", "Running").await;
        for text in ["Pulling image \"i:1\": 1.0 of 9.0 MB", "Pulling image \"i:1\": 5.0 of 9.0 MB"] {
            simulation.until(text, MINUTE, async |world| told(world, "Pulling", text)).await;
        }
        let pulling = |event: &&Tree| event.str("reason") == "Pulling";
        let events = simulation.objects("events", "default");
        let texts: Vec<&str> = events.iter().filter(pulling).map(|event| event.str("message")).collect();
        assert_eq!(texts.len(), 3, "told once where nothing has changed: {texts:?}");
        scene.running.stop().await;
    });
}
