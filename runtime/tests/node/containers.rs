//! Sandboxes and containers: lifecycle, logs and limits.

use std::fs;
use std::path::Path;

use cri::{
    Code, ContainerConfig, ContainerEventType, ContainerState, ContainerStatsRequest, ExecSyncRequest,
    GetEventsRequest, LinuxContainerResources, ListContainersRequest, NamespaceMode, NamespaceOption, PodSandboxState,
    PodSandboxStatusRequest, ReopenContainerLogRequest, RuntimeService, StopContainerRequest, StopPodSandboxRequest,
    UpdateContainerResourcesRequest,
};

use crate::harness::{Node, container, options, secured, text, unified, wait_for};

#[tokio::test]
async fn a_pod_from_start_to_end() {
    let node = Node::start().await;
    let pod = node.sandbox_config("web");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "echo out; echo err >&2; exec sleep 1000"), &pod).await;
    let status = node.status(&id).await;
    assert_eq!(status.state(), ContainerState::Running);
    assert!(status.started_at >= status.created_at && status.created_at > 0);
    let log = status.log_path.clone();
    wait_for("both lines", || text(Path::new(&log)).lines().count() == 2);
    let lines = fs::read_to_string(&log).unwrap();
    assert!(lines.contains(" stdout F out\n") && lines.contains(" stderr F err\n"), "{lines}");
    assert_eq!(node.exec(&id, "echo $FROM_IMAGE; exit 3").await, (3, "yes\n".into()));

    let listed = node.runtime.list_containers(ListContainersRequest::default()).await.unwrap().containers;
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].state()), (1, id.as_str(), ContainerState::Running));
    let stop = StopContainerRequest { container_id: id.clone(), timeout: 0 };
    node.runtime.stop_container(stop.clone()).await.unwrap();
    let status = node.status(&id).await;
    assert_eq!((status.state(), status.exit_code, status.reason.as_str()), (ContainerState::Exited, 137, "Error"));
    node.runtime.stop_container(stop).await.unwrap();

    let stop = StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    node.runtime.stop_pod_sandbox(stop).await.unwrap();
    let status = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = node.runtime.pod_sandbox_status(status).await.unwrap().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::Notready);
    let error = node.exec_sync(&id, "true", 0).await.unwrap_err();
    assert!(error.message().contains("CONTAINER_EXITED"), "{error}");
    node.end().await;
}

#[tokio::test]
async fn reports_exits_with_their_reasons() {
    let node = Node::start().await;
    let pod = node.sandbox_config("exits");
    let sandbox = node.run_sandbox(&pod).await;
    for (name, command, code, reason) in [("good", "exit 0", 0, "Completed"), ("bad", "exit 7", 7, "Error")] {
        let id = node.run(&sandbox, container(name, command), &pod).await;
        let status = node.wait_exit(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{name}");
        assert!(status.finished_at >= status.started_at);
    }
    let mut greedy = container("greedy", "exec tail -c 200m /dev/zero");
    greedy.linux.as_mut().unwrap().resources =
        Some(LinuxContainerResources { memory_limit_in_bytes: 20 << 20, ..Default::default() });
    let id = node.run(&sandbox, greedy, &pod).await;
    let status = node.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    node.end().await;
}

#[tokio::test]
async fn reports_why_a_container_cannot_start() {
    let node = Node::start().await;
    let pod = node.sandbox_config("broken");
    let sandbox = node.run_sandbox(&pod).await;
    let with = |name: &str, change: &dyn Fn(&mut ContainerConfig)| {
        let mut config = container(name, "true");
        change(&mut config);
        config
    };
    let table: [(ContainerConfig, &str); 5] = [
        (with("a", &|c| c.command = vec!["nothing".into()]), "exec: \"nothing\": executable file not found in $PATH"),
        (
            with("b", &|c| c.command = vec!["/bin/none".into()]),
            "exec: \"/bin/none\": stat /bin/none: no such file or directory",
        ),
        (with("c", &|c| c.command = vec!["/etc/passwd".into()]), "exec: \"/etc/passwd\": permission denied"),
        (with("d", &|c| c.working_dir = "relative".into()), "the working directory \"relative\" is not absolute"),
        (with("e", &|c| secured(c).run_as_username = "nobody-here".into()), "unable to find user nobody-here"),
    ];
    for (config, expected) in table {
        let id = node.create(&sandbox, config, &pod).await.unwrap();
        let error = node.start_container(&id).await.unwrap_err();
        assert!(error.message().contains(expected), "{expected}: {error}");
        let status = node.status(&id).await;
        assert_eq!((status.state(), status.exit_code), (ContainerState::Exited, 128));
        assert_eq!(status.reason, "StartError");
        assert!(status.message.contains(expected), "{}", status.message);
    }
    node.end().await;
}

#[tokio::test]
async fn rotates_logs_without_losing_lines() {
    let node = Node::start().await;
    let pod = node.sandbox_config("logs");
    let sandbox = node.run_sandbox(&pod).await;
    let command =
        "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; head -c 40000 /dev/zero | tr '\\0' x; echo";
    let id = node.run(&sandbox, container("main", command), &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("the first lines", || text(Path::new(&log)).lines().count() > 10);
    let rotated = format!("{log}.1");
    fs::rename(&log, &rotated).unwrap();
    let reopened = node.runtime.reopen_container_log(ReopenContainerLogRequest { container_id: id.clone() }).await;
    let ended = reopened.is_err();
    node.wait_exit(&id).await;
    let whole = text(Path::new(&rotated)) + &text(Path::new(&log));
    let numbers: Vec<_> = whole.lines().filter(|l| l.starts_with("line ")).collect();
    assert_eq!(numbers.len(), 3000, "reopened too late: {ended}");
    assert!(numbers.iter().enumerate().all(|(n, line)| *line == format!("line {n}")));
    let parts: Vec<_> = whole.lines().filter(|l| l.starts_with('x')).map(str::len).collect();
    assert_eq!(parts.iter().sum::<usize>(), 40_000);
    assert!(parts.iter().all(|length| *length <= 16 << 10), "{parts:?}");
    node.end().await;
}

#[tokio::test]
async fn stop_sends_the_stop_signal_and_then_kills() {
    let node = Node::start().await;
    let pod = node.sandbox_config("stop");
    let sandbox = node.run_sandbox(&pod).await;
    let polite = node
        .run(
            &sandbox,
            container("polite", "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.01; done"),
            &pod,
        )
        .await;
    let deaf = node.run(&sandbox, container("deaf", "trap '' TERM; echo up; while :; do sleep 0.01; done"), &pod).await;
    for id in [&polite, &deaf] {
        let log = node.status(id).await.log_path;
        wait_for("it to be up", || text(Path::new(&log)).contains("up"));
    }
    node.runtime.stop_container(StopContainerRequest { container_id: polite.clone(), timeout: 20 }).await.unwrap();
    assert_eq!(node.status(&polite).await.exit_code, 5);
    node.runtime.stop_container(StopContainerRequest { container_id: deaf.clone(), timeout: 1 }).await.unwrap();
    assert_eq!(node.status(&deaf).await.exit_code, 137);
    node.end().await;
}

#[tokio::test]
async fn pid_namespace_modes() {
    let node = Node::start().await;
    for (mode, expected) in [(NamespaceMode::Pod, "tiphys: pause"), (NamespaceMode::Container, "sh")] {
        let mut pod = node.sandbox_config(&format!("pid{}", mode as i32));
        let security = pod.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options = Some(options(NamespaceMode::Node, mode));
        let sandbox = node.run_sandbox(&pod).await;
        let mut config = container("main", "cat /proc/1/comm; exec sleep 1000");
        secured(&mut config).namespace_options = Some(options(NamespaceMode::Node, mode));
        let id = node.run(&sandbox, config, &pod).await;
        let log = node.status(&id).await.log_path;
        wait_for("the name", || !text(Path::new(&log)).is_empty());
        assert_eq!(text(Path::new(&log)).trim(), expected);
        let mut other = container("other", "cat /proc/1/comm");
        secured(&mut other).namespace_options =
            Some(NamespaceOption { target_id: id.clone(), ..options(NamespaceMode::Node, NamespaceMode::Target) });
        let (code, seen) = node.shell_in(&sandbox, &pod, other).await;
        let expected = if mode == NamespaceMode::Pod { "tiphys: pause" } else { "sleep" };
        assert_eq!((code, seen.trim()), (0, expected));
    }
    node.end().await;
}

#[tokio::test]
async fn sets_and_updates_limits() {
    let node = Node::start().await;
    let pod = node.sandbox_config("limits");
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "sleep 1000");
    config.linux.as_mut().unwrap().resources = Some(LinuxContainerResources {
        cpu_shares: 512,
        cpu_quota: 20_000,
        cpu_period: 100_000,
        memory_limit_in_bytes: 64 << 20,
        ..Default::default()
    });
    let id = node.run(&sandbox, config, &pod).await;
    let limit = |memory: i64| LinuxContainerResources { memory_limit_in_bytes: memory, ..Default::default() };
    // As seen in the container.
    let (read, cpu) = match unified() {
        true => ("cd /sys/fs/cgroup; cat memory.max cpu.weight cpu.max", "20\n20000 100000\n"),
        false => {
            ("cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.shares cpu/cpu.cfs_quota_us", "512\n20000\n")
        }
    };
    assert_eq!(node.exec(&id, read).await.1, format!("{}\n{cpu}", 64 << 20));
    for memory in [128i64 << 20, 32 << 20] {
        let request = UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(limit(memory)),
            ..Default::default()
        };
        node.runtime.update_container_resources(request).await.unwrap();
        assert_eq!(node.exec(&id, read).await.1, format!("{memory}\n{cpu}"));
        let shown = node.status(&id).await.resources.unwrap().linux.unwrap();
        assert_eq!((shown.memory_limit_in_bytes, shown.cpu_shares), (memory, 512));
    }
    let stats = node.runtime.container_stats(ContainerStatsRequest { container_id: id.clone() }).await.unwrap();
    let stats = stats.stats.unwrap();
    assert!(stats.memory.unwrap().usage_bytes.unwrap().value > 0);
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    node.end().await;
}

#[tokio::test]
async fn exec_has_a_timeout() {
    let node = Node::start().await;
    let pod = node.sandbox_config("exec");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    let error = node.exec_sync(&id, "sleep 500", 1).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let (_, left) = node.exec(&id, "ps | grep -c '[s]leep 500'").await;
    assert_eq!(left.trim(), "0");
    let error =
        node.runtime.exec_sync(ExecSyncRequest { container_id: id.clone(), cmd: vec!["/none".into()], timeout: 0 });
    let error = error.await.unwrap_err();
    assert!(error.message().contains("no such file or directory"), "{error}");
    let (_, output) = node.exec(&id, "head -c 300000 /dev/zero | tr '\\0' y | wc -c; echo e >&2").await;
    assert_eq!(output, "300000\ne\n");
    node.end().await;
}

#[tokio::test]
async fn publishes_events_of_a_container() {
    use tokio_stream::StreamExt;
    let node = Node::start().await;
    let mut events = node.runtime.get_container_events(GetEventsRequest {}).await.unwrap();
    let pod = node.sandbox_config("events");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "exit 4"), &pod).await;
    node.wait_exit(&id).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&(id.clone(), ContainerEventType::Stopped)) {
        let event = events.next().await.unwrap().unwrap();
        seen.push((event.container_id.clone(), event.container_event_type()));
    }
    use ContainerEventType::{Created, Started, Stopped};
    let expected = [(&sandbox, Created), (&sandbox, Started), (&id, Created), (&id, Started), (&id, Stopped)]
        .map(|(i, k)| (i.clone(), k));
    assert_eq!(seen, expected);
    node.end().await;
}

/// The memory that a pod needs in addition to its own processes.
#[tokio::test]
async fn a_shim_and_its_pause_are_small() {
    let node = Node::start().await;
    let pod = node.sandbox_config("small");
    let sandbox = node.run_sandbox(&pod).await;
    node.run(&sandbox, container("main", "echo hello; exec sleep 1000"), &pod).await;
    let mut dirty = 0;
    let mut seen = Vec::new();
    for pid in node.processes() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        if ["tiphys: shim", "tiphys: pause"].contains(&name.trim()) {
            let sizes = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
            let line = sizes.lines().find_map(|l| l.strip_prefix("Private_Dirty:")).unwrap();
            dirty += line.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            seen.push(name.trim().to_string());
        }
    }
    seen.sort();
    assert_eq!(seen, ["tiphys: pause", "tiphys: shim"]);
    println!("shim and pause: {dirty} KiB private");
    assert!(dirty < 1024, "{dirty} KiB");
    node.end().await;
}
