//! Graceful node shutdown: pods stop in their order, and their status is reported before the machine is off.

use std::fs;

use super::world::{PODS, World, condition, signal};
use super::{pod_path, shell_pod, start_kubelet};

/// A pod that waits for a file before it exits, and records its exit.
fn noting_its_end(world: &World, name: &str, leave: &str, more: &str) -> String {
    let end =
        format!("until [ -e /notes/{leave} ]; do /host/busybox sleep 0.05; done; echo {name} >> /notes/ended; exit 0");
    let script = format!("trap '{end}' TERM; echo {name} >> /notes/begun; /host/busybox sleep 1000000 & wait");
    let pod = shell_pod(name, &script, "");
    let pod = pod.replace("name: data, mountPath: /data", "name: notes, mountPath: /notes");
    let volume = format!("name: notes, hostPath: {{path: {}}}", world.path("notes"));
    let pod = pod.replace("name: data, emptyDir: {}", &volume);
    pod.replace("terminationGracePeriodSeconds: 3", &format!("terminationGracePeriodSeconds: 60\n  {more}"))
}

#[test]
fn pods_stop_by_priority_before_shutdown() {
    let world = World::new(1);
    let _server = world.start_up(&["--disable-agent"]);
    fs::create_dir_all(world.path("notes")).expect("a directory");
    let mut agent = start_kubelet(&world, "shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 10s\n");
    world.create(PODS, &noting_its_end(&world, "plain", "leave", ""));
    world.create(PODS, &noting_its_end(&world, "critical", "ended", "priorityClassName: system-node-critical"));
    for name in ["plain", "critical"] {
        world.until_ready(name);
    }

    signal("-PWR", &agent.pid());
    let node = world.until("the node", "/api/v1/nodes/node", |node| condition(node, "Ready") == "False");
    let ready = node.list("status.conditions").iter().find(|one| one.str("type") == "Ready").expect("a condition");
    assert_eq!(ready.str("message"), "node is shutting down");
    // The reason of the termination is reported before the pod has terminated.
    let plain = world.until("plain", &pod_path("plain"), |pod| condition(pod, "DisruptionTarget") == "True");
    assert_eq!(plain.str("status.phase"), "Running");
    let late = shell_pod("late", "true", "").replace("spec:", "spec:\n  nodeName: node");
    world.create(PODS, &late);
    let late = world.until("late", &pod_path("late"), |pod| pod.str("status.phase") == "Failed");
    assert_eq!(late.str("status.reason"), "NodeShutdown");
    assert_eq!(condition(&world.get(&pod_path("critical")), "DisruptionTarget"), "", "its turn comes later");

    fs::write(world.path("notes/leave"), "").expect("a file");
    assert!(agent.until_ended(), "{}", world.log());
    assert_eq!(fs::read_to_string(world.path("notes/ended")).expect("a file"), "plain\ncritical\n");
    for name in ["plain", "critical"] {
        // No kubelet is left that could report the status later.
        let pod = world.get(&pod_path(name));
        let status = pod.at("status");
        assert_eq!((status.str("phase"), status.str("reason")), ("Failed", "Terminated"), "{name}");
        assert_eq!(status.str("message"), "Pod was terminated in response to imminent node shutdown.");
        assert_eq!(condition(&pod, "DisruptionTarget"), "True");
        assert!(status.list("containerStatuses")[0].at("state").has("terminated"), "{name}");
    }
    let events =
        world.get("/api/v1/namespaces/default/events?fieldSelector=reason%3DNodeShutdown,involvedObject.kind%3DNode");
    let texts: Vec<&str> = events.list("items").iter().map(|event| event.str("message")).collect();
    assert_eq!(texts, ["Shutdown manager detected shutdown event"]);
}
