//! Restarts of the kubelet in simulated time: the status of pods is kept, also for containers that the runtime has
//! forgotten.

use api::{Tree, list, tree};
use testkit::sim::{self, Simulation};

use super::scene::{MINUTE, make, pod, start, until_phase};

const PODS: client::Resource = client::Resource::core("pods");

fn last_word(simulation: &Simulation, name: &str) -> [String; 3] {
    let pod = pod(simulation, name);
    ["phase", "reason", "message"].map(|field| pod.at("status").str(field).to_string())
}

fn container(pod: &Tree, name: &str) -> Tree {
    let statuses = pod.list("status.containerStatuses");
    statuses.iter().find(|status| status.str("name") == name).cloned().unwrap_or_default()
}

#[test]
fn terminated_status_is_kept() {
    sim::run(4, 0, async |simulation| {
        let scene = start(simulation).await;
        let admin = simulation.admin.clone();
        make(&admin, "evicted", tree! {}).await;
        make(&admin, "late", tree! { "activeDeadlineSeconds" => 5 }).await;
        make(&admin, "refused", tree! { "nodeSelector" => tree! { "no" => "where" } }).await;
        until_phase(simulation, "evicted", "Running").await;
        for name in ["late", "refused"] {
            until_phase(simulation, name, "Failed").await;
        }
        scene.runtime.state().memory.insert("evicted".to_string(), 950 << 20);
        until_phase(simulation, "evicted", "Failed").await;
        let names = ["evicted", "late", "refused"];
        let before = names.map(|name| last_word(simulation, name));
        assert_eq!(before.each_ref().map(|word| word[1].as_str()), ["Evicted", "DeadlineExceeded", "NodeAffinity"]);

        let scene = scene.restart(simulation, |_| {}).await;
        simulation.pass(MINUTE).await;
        assert_eq!(names.map(|name| last_word(simulation, name)), before);
        assert_eq!(scene.runtime.running(), Vec::<String>::new(), "nothing of them runs again");
        // And of a runtime that forgot them.
        let scene = scene.restart(simulation, |runtime| runtime.forget()).await;
        simulation.pass(MINUTE).await;
        assert_eq!(names.map(|name| last_word(simulation, name)), before);
        assert_eq!(scene.runtime.order(), Vec::<String>::new());
        for name in names {
            admin.delete(PODS, "default", name, Default::default()).await.expect("it is there");
            let is_gone = async |simulation: &Simulation| pod(simulation, name).is_null();
            simulation.until(&format!("{name} was deleted"), MINUTE, is_gone).await;
        }
        scene.running.stop().await;
    });
}

#[test]
fn forgotten_containers_are_not_restarted() {
    sim::run(5, 0, async |simulation| {
        let scene = start(simulation).await;
        let admin = simulation.admin.clone();
        let named = |name: &str| tree! { "name" => name, "image" => "i:1" };
        make(&admin, "always", tree! { "containers" => list![named("steady")] }).await;
        make(&admin, "never", tree! { "restartPolicy" => "Never", "containers" => list![named("once")] }).await;
        let both = list![named("done"), named("goes-on")];
        make(&admin, "on-failure", tree! { "restartPolicy" => "OnFailure", "containers" => both }).await;
        for name in ["always", "never", "on-failure"] {
            until_phase(simulation, name, "Running").await;
        }
        scene.runtime.exit("done", 0);
        let is_said = async |simulation: &Simulation| {
            container(&pod(simulation, "on-failure"), "done").at("state").has("terminated")
        };
        simulation.until("one is done", MINUTE, is_said).await;

        let scene = scene.restart(simulation, |runtime| runtime.forget()).await;
        let never = until_phase(simulation, "never", "Failed").await;
        let ended = container(&never, "once").at("state.terminated").clone();
        assert_eq!((ended.int("exitCode"), ended.str("reason")), (Some(137), "ContainerStatusUnknown"));
        let runs_again = |name: &'static str, of: &'static str| {
            async move |simulation: &Simulation| {
                let status = container(&pod(simulation, of), name);
                status.at("state").has("running") && status.int("restartCount") == Some(1)
            }
        };
        simulation.until("it goes on", MINUTE, runs_again("steady", "always")).await;
        simulation.until("they go on", MINUTE, runs_again("goes-on", "on-failure")).await;
        let mut order = scene.runtime.order();
        order.sort();
        assert_eq!(order, ["+goes-on", "+steady"], "no other container is started");
        assert!(scene.runtime.state().log("always").ends_with("1.log"), "the log of before is left alone");
        assert_eq!(container(&pod(simulation, "on-failure"), "done").at("state.terminated").int("exitCode"), Some(0));
        assert_eq!(pod(simulation, "on-failure").str("status.phase"), "Running");
        scene.running.stop().await;
    });
}
