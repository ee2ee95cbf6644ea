//! Eviction in simulated time: node conditions, evicted pods, and recovery. The server, the controllers and the kubelet
//! are real; the machine and its runtime are fake.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use api::{list, tree};
use client::Metrics;
use http_body_util::BodyExt;
use kubelet::server::{KubeletHost, KubeletServer, Settings as ServerSettings};
use testkit::sim::{self, Simulation};

use super::scene::{MINUTE, PODS, make, pod, start, told, until_phase};

fn node_has(simulation: &Simulation, condition: &str, taint: &str, holds: bool) -> bool {
    let Some(node) = simulation.objects("minions", "").into_iter().next() else { return false };
    let conditions = node.list("status.conditions");
    let status = conditions.iter().find(|one| one.str("type") == condition).map(|one| one.str("status"));
    let tainted = node.list("spec.taints").iter().any(|one| one.str("key") == taint);
    status == Some(if holds { "True" } else { "False" }) && tainted == holds
}

#[test]
fn evicts_pods_under_memory_pressure_and_recovers() {
    sim::run(1, 0, async |simulation| {
        let scene = start(simulation).await;
        let admin = simulation.admin.clone();
        make(&admin, "large", tree! {}).await;
        make(&admin, "small", tree! {}).await;
        make(&admin, "critical", tree! { "priorityClassName" => "system-node-critical" }).await;
        for name in ["large", "small", "critical"] {
            until_phase(simulation, name, "Running").await;
        }
        {
            let mut state = scene.runtime.state();
            state.memory.insert("large".to_string(), 300 << 20);
            state.memory.insert("critical".to_string(), 650 << 20);
        }
        let large = until_phase(simulation, "large", "Failed").await;
        let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 49Mi. \
                       Container c was using 300Mi, request is 0, has larger consumption of memory. ";
        assert_eq!((large.str("status.reason"), large.str("status.message")), ("Evicted", message));
        let conditions = large.list("status.conditions");
        let target = conditions.iter().find(|one| one.str("type") == "DisruptionTarget").expect("a condition");
        assert_eq!((target.str("reason"), target.str("message")), ("TerminationByKubelet", message));
        let (memory, taint) = ("MemoryPressure", "node.kubernetes.io/memory-pressure");
        simulation.until("the taint", MINUTE, async |world| node_has(world, memory, taint, true)).await;
        simulation
            .until("the events", MINUTE, async |world| {
                told(world, "Evicted", message) && told(world, "EvictionThresholdMet", "Attempting to reclaim memory")
            })
            .await;
        // Enough is free now: no other pod is evicted, and none is admitted.
        make(&admin, "late", tree! {}).await;
        let late = until_phase(simulation, "late", "Failed").await;
        let refused = "Pod was rejected: The node had condition: [MemoryPressure]. ";
        assert_eq!((late.str("status.reason"), late.str("status.message")), ("Evicted", refused));
        let began = tokio::time::Instant::now();
        simulation.until("no taint", 10 * MINUTE, async |world| node_has(world, memory, taint, false)).await;
        assert!(began.elapsed() > 3 * MINUTE, "it does not forget so soon: {:?}", began.elapsed());
        for name in ["small", "critical"] {
            assert_eq!(pod(simulation, name).str("status.phase"), "Running", "{name}");
        }
        scene.running.stop().await;
    });
}

#[test]
fn removes_images_first_and_evicts_pods_over_their_limit() {
    sim::run(2, 0, async |simulation| {
        let scene = start(simulation).await;
        let admin = simulation.admin.clone();
        let volume = tree! { "name" => "v", "emptyDir" => tree! { "sizeLimit" => "1Mi" } };
        make(&admin, "limited", tree! { "volumes" => list![volume] }).await;
        let limited = until_phase(simulation, "limited", "Running").await;
        assert_eq!(scene.runtime.state().images.len(), 2, "there is room for them");
        scene.runtime.state().disk = 11;
        simulation.until("no images", 2 * MINUTE, async |_| scene.runtime.state().images.is_empty()).await;
        let (disk, taint) = ("DiskPressure", "node.kubernetes.io/disk-pressure");
        simulation.until("the taint", MINUTE, async |world| node_has(world, disk, taint, true)).await;
        simulation.pass(MINUTE).await;
        assert_eq!(pod(simulation, "limited").str("status.phase"), "Running", "that was enough");

        let dir = scene.dir.path().join("kubelet/pods").join(limited.str("metadata.uid"));
        let file = dir.join("volumes/kubernetes.io~empty-dir/v/file");
        std::fs::write(file, vec![1; 2 << 20]).expect("a file");
        let limited = until_phase(simulation, "limited", "Failed").await;
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        assert_eq!((limited.str("status.reason"), limited.str("status.message")), ("Evicted", message));
        scene.running.stop().await;
    });
}

#[test]
fn no_line_is_lost_when_logs_are_rotated() {
    sim::run(3, 0, async |simulation| {
        let scene = start(simulation).await;
        make(&simulation.admin.clone(), "talks", tree! {}).await;
        until_phase(simulation, "talks", "Running").await;
        let log = scene.runtime.state().log("talks");
        let mut wanted = String::new();
        for number in 0..60 {
            let line = format!("line {number}\n");
            let mut file = std::fs::File::options().append(true).open(&log).expect("the log");
            write!(file, "2026-01-01T00:00:00.{number:09}Z stdout F {line}").expect("a line");
            wanted.push_str(&line);
            simulation.pass(Duration::from_secs(2)).await;
        }
        let directory = std::fs::read_dir(log.parent().expect("a directory")).expect("a directory");
        let mut names: Vec<String> =
            directory.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[1].ends_with(".gz") && !names[2].ends_with(".gz"), "{names:?}");
        let read = async |query: &str| read(&scene.running, &format!("/containerLogs/default/talks/c{query}")).await;
        assert_eq!(read("").await, wanted);
        let tail: String = wanted.split_inclusive('\n').skip(15).collect();
        assert_eq!(read("?tailLines=45").await, tail);
        scene.running.stop().await;
    });
}

async fn read(running: &kubelet::Kubelet, path: &str) -> String {
    let host = Arc::new(KubeletHost::new(running, Metrics::default(), tree! {}));
    let node = KubeletServer::new(host, ServerSettings::default());
    let request = http::Request::get(path).body(()).expect("a request");
    let answer = node.respond(request).await;
    assert_eq!(answer.status(), 200, "{path}");
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn hanging_calls_time_out() {
    sim::run(1, 0, async |simulation| {
        let scene = start(simulation).await;
        let admin = simulation.admin.clone();
        scene.runtime.state().hangs = vec!["run_pod_sandbox", "create_container", "list_containers"];
        make(&admin, "held", tree! {}).await;
        let runs = async |simulation: &Simulation| pod(simulation, "held").str("status.phase") == "Running";
        simulation.until("held runs all the same", 15 * MINUTE, runs).await;
        assert!(scene.runtime.state().hangs.is_empty(), "each of them was called");
        scene.runtime.state().hangs = vec!["stop_container", "list_containers"];
        admin.delete(PODS, "default", "held", client::DeleteOptions::default()).await.expect("deleted");
        let gone = async |simulation: &Simulation| pod(simulation, "held").is_null();
        simulation.until("held is deleted nevertheless", 15 * MINUTE, gone).await;
        assert!(scene.runtime.state().hangs.is_empty(), "each of them was called");
        scene.running.stop().await;
    });
}

#[test]
fn not_ready_nodes_do_not_poll_more_often() {
    sim::run(1, 0, async |simulation| {
        let scene = start(simulation).await;
        scene.runtime.state().is_unready = true;
        simulation.until("the node reports it", MINUTE, async |simulation| simulation.ready_nodes() == 0).await;
        scene.runtime.state().looks = 0;
        simulation.pass(10 * MINUTE).await;
        let looks = scene.runtime.state().looks;
        assert!((30..200).contains(&looks), "{looks} looks in ten minutes");
        scene.running.stop().await;
    });
}
