//! Registries, hooks and sockets that hang: each blocks only the pods that wait for it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::world::{PODS, World, condition};
use super::{noting_pod, pod_path, shell_pod};

/// A registry that accepts every connection and never responds.
#[test]
fn hanging_registry_blocks_only_its_pods() {
    let (world, _up) = World::up(1, &[]);
    let silent = TcpListener::bind("192.0.2.10:5000").expect("a port");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in silent.incoming().map_while(Result::ok) {
            held.push(stream);
        }
    });
    for at in 0..5 {
        let pod = noting_pod(&format!("waits-{at}")).replace("tiphys.local/hello", "192.0.2.10:5000/none:1");
        world.create(PODS, &pod);
    }
    world.until("the pull", "/api/v1/namespaces/default/events", |events| {
        events.list("items").iter().any(|event| event.str("reason") == "Pulling")
    });
    world.create(PODS, &noting_pod("runs"));
    world.until_ready("runs");
    let waits = world.get(&pod_path("waits-0"));
    assert_eq!(waits.str("status.phase"), "Pending");
    let begun = Instant::now();
    for at in 0..5 {
        world.delete(&pod_path(&format!("waits-{at}")));
    }
    for at in 0..5 {
        world.until_gone(&format!("waits-{at}"));
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "a pod that waits for its image goes at once");
    assert_eq!(condition(&world.get("/api/v1/nodes/node"), "Ready"), "True");
}

#[test]
fn hanging_hooks_end_with_the_grace_period() {
    let (world, _up) = World::up(1, &[]);
    let script = "trap 'exit 0' TERM; /host/busybox sleep 1000000 & wait";
    let forever = r#"exec: {command: [/host/busybox, sleep, "100000"]}"#;
    world.create(PODS, &shell_pod("begins", script, &format!("lifecycle: {{postStart: {{{forever}}}}}")));
    world.create(PODS, &shell_pod("ends", script, &format!("lifecycle: {{preStop: {{{forever}}}}}")));
    world.until_ready("ends");
    // The container runs, but is not ready while its hook runs.
    world.until("a start", "/api/v1/namespaces/default/events", |events| {
        let is_start =
            |event: &api::Tree| event.str("reason") == "Started" && event.str("involvedObject.name") == "begins";
        events.list("items").iter().any(is_start)
    });
    assert_ne!(condition(&world.get(&pod_path("begins")), "Ready"), "True");
    let begun = Instant::now();
    world.delete(&pod_path("begins"));
    world.delete(&pod_path("ends"));
    world.until_gone("begins");
    world.until_gone("ends");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(3) && took < Duration::from_secs(30), "{took:?}");
    world.create(PODS, &noting_pod("after"));
    world.until_ready("after");
}

/// Directories of pods on a full disk: running pods keep running, a pod that cannot start has an error, and starts once
/// the disk has space.
#[test]
fn full_disk_stops_no_running_pod() {
    let world = World::new(1);
    world.shell("mkdir -p small && mount -t tmpfs -o size=4m none small");
    // Without eviction, which other tests cover.
    std::fs::write(world.path("kubelet.yaml"), super::UNDEFENDED).expect("a file");
    let _up = world.start_up(&["--root-dir", &world.path("small"), "--kubelet-config", &world.path("kubelet.yaml")]);
    world.until_ready_node();
    let script = "trap 'exit 0' TERM; /host/busybox sleep 1000000 & wait";
    world.create(PODS, &shell_pod("before", script, ""));
    let before = world.until_ready("before");
    world.shell("dd if=/dev/zero of=small/filler bs=1k count=100000 2>/dev/null; true");
    world.create(PODS, &shell_pod("during", script, ""));
    world.until("what is wrong", "/api/v1/namespaces/default/events", |events| {
        events.list("items").iter().any(|event| {
            event.str("involvedObject.name") == "during" && event.str("message").contains("No space left on device")
        })
    });
    assert_ne!(condition(&world.get(&pod_path("during")), "Ready"), "True");
    world.shell("rm small/filler");
    world.until_ready("during");
    let after = world.until_ready("before");
    let id = |pod: &api::Tree| pod.list("status.containerStatuses")[0].str("containerID").to_string();
    assert_eq!(id(&before), id(&after));
    world.delete(&pod_path("during"));
    world.until_gone("during");
}
