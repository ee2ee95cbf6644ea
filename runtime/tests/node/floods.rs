//! Containers that use as much as they can, and that do not exit.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cri::{
    ContainerStatsRequest, LinuxContainerResources, ReopenContainerLogRequest, RuntimeService, StopContainerRequest,
};

use crate::harness::{Node, container, text, wait_for};
use crate::leaks;

fn stop(id: &str, timeout: i64) -> StopContainerRequest {
    StopContainerRequest { container_id: id.into(), timeout }
}

/// The kubelet limits the number of processes in the pod's cgroup, which bounds the cgroups below.
#[tokio::test]
async fn a_fork_bomb_is_limited_and_killed() {
    let node = Node::start().await;
    let before = leaks::count(&node);
    let pod = node.sandbox_config("bomb");
    let sandbox = node.run_sandbox(&pod).await;
    let quiet = node.run(&sandbox, container("quiet", "exec sleep 1000"), &pod).await;
    // Its own cgroup, so that the shim and the pause process are not limited with it.
    let begin = "until [ -e /begin ]; do sleep 0.01; done";
    // A shell that cannot fork exits; its children stay as long as the init process.
    let fork = "sh -c 'while :; do sleep 1000 & setsid sleep 1000 & done' 2>/dev/null";
    let bomb = container("bomb", &format!("{begin}; {fork}; exec sleep 1000"));
    let bomb = node.create(&sandbox, bomb, &pod).await.unwrap();
    node.start_container(&bomb).await.unwrap();
    node.set_cgroup_file(&bomb, "pids", "pids.max", "60");
    // Only after it is limited.
    assert_eq!(node.exec(&bomb, "touch /begin").await.0, 0);
    let current = || node.cgroup_file(&bomb, "pids", "pids.current", "pids.current").parse::<u32>().unwrap();
    wait_for("the limit to be reached", || current() >= 55);
    assert!(current() <= 60, "more than the limit");
    node.runtime.stop_container(stop(&bomb, 0)).await.unwrap();
    wait_for("the whole tree to end", || current() == 0);
    assert_eq!(node.exec(&quiet, "echo here").await, (0, "here\n".into()), "its neighbour lives");
    node.remove_all().await;
    wait_for("nothing to be left", || leaks::count(&node) == before);
    node.end().await;
}

/// A client rotates the log by its size. The memory of the shim does not grow with it.
#[tokio::test]
async fn a_flooded_log_is_bounded_by_rotation() {
    let node = Node::start().await;
    let pod = node.sandbox_config("flood");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exec yes"), &pod).await;
    let log = node.status(&id).await.log_path;
    let shim = node.processes().into_iter().find(|pid| comm(*pid) == "tiphys: shim").unwrap();
    for _ in 0..3 {
        wait_for("a megabyte", || fs::metadata(&log).is_ok_and(|data| data.len() > 1 << 20));
        fs::rename(&log, format!("{log}.1")).unwrap();
        let reopen = ReopenContainerLogRequest { container_id: id.clone() };
        node.runtime.reopen_container_log(reopen).await.unwrap();
        assert!(resident_kib(shim) < 8 << 10, "the shim keeps {} KiB", resident_kib(shim));
    }
    node.runtime.stop_container(stop(&id, 0)).await.unwrap();
    let lines = text(Path::new(&log));
    assert!(!lines.is_empty() && lines.lines().all(|line| line == "y"));
    node.end().await;
}

fn comm(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}

/// The private memory of a process.
fn resident_kib(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn reports_the_usage_of_the_writable_layer() {
    let node = Node::start().await;
    let pod = node.sandbox_config("writer");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exec sleep 1000"), &pod).await;
    node.exec(&id, "dd if=/dev/zero of=/big bs=1M count=5; for n in 1 2 3; do touch /many$n; done").await;
    let stats = node.runtime.container_stats(ContainerStatsRequest { container_id: id }).await.unwrap().stats.unwrap();
    let layer = stats.writable_layer.unwrap();
    assert!(layer.used_bytes.unwrap().value >= 5 << 20);
    assert!(layer.inodes_used.unwrap().value >= 4);
    node.end().await;
}

#[tokio::test]
async fn exec_in_a_dying_container_returns() {
    let node = Node::start().await;
    let before = leaks::count(&node);
    let pod = node.sandbox_config("dying");
    let sandbox = node.run_sandbox(&pod).await;
    for attempt in 0..10 {
        let id = node.run(&sandbox, container(&format!("c{attempt}"), "exec sleep 1000"), &pod).await;
        let began = Instant::now();
        let (stopped, executed) =
            tokio::join!(node.runtime.stop_container(stop(&id, 0)), node.exec_sync(&id, "sleep 1000", 20),);
        stopped.unwrap();
        // The command was killed with its container, or started too late; neither waits for the timeout.
        if let Ok(answer) = executed {
            assert_eq!(answer.exit_code, 137);
        }
        assert!(began.elapsed() < Duration::from_secs(15), "it hung");
        let error = node.exec_sync(&id, "true", 1).await.unwrap_err();
        assert!(error.message().contains("CONTAINER_EXITED"), "{error}");
    }
    node.remove_all().await;
    wait_for("nothing to be left", || leaks::count(&node) == before);
    node.end().await;
}

#[tokio::test]
async fn the_oom_killer_kills_only_the_offender() {
    let node = Node::start().await;
    let pod = node.sandbox_config("memory");
    let sandbox = node.run_sandbox(&pod).await;
    let quiet = node.run(&sandbox, container("quiet", "exec sleep 1000"), &pod).await;
    // The init process survives: one of its children exceeds the limit.
    let mut greedy = container("greedy", "tail -c 200m /dev/zero; echo ended with $?; exec sleep 1000");
    greedy.linux.as_mut().unwrap().resources =
        Some(LinuxContainerResources { memory_limit_in_bytes: 20 << 20, ..Default::default() });
    let id = node.run(&sandbox, greedy, &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("its child to be killed", || text(Path::new(&log)).contains("ended with 137"));
    assert_eq!(node.exec(&quiet, "echo here").await.1, "here\n");
    node.end().await;
}
