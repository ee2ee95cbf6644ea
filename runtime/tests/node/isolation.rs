//! The user of a container, the files of pods on the host, and the loss of the pause process.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use cri::{
    ContainerEventType, ContainerState, GetEventsRequest, Int64Value, Mount, NamespaceMode, NamespaceOption,
    PodSandboxState, PodSandboxStatusRequest, RuntimeService, SELinuxOption, StopContainerRequest,
};
use tokio_stream::StreamExt;

use crate::harness::{Node, container, secured, wait_for};

fn process_named(node: &Node, name: &str) -> i32 {
    let comm = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    node.processes().into_iter().find(|pid| comm(pid).trim() == name).expect("the process")
}

#[tokio::test]
async fn a_numeric_user_is_never_a_name() {
    let node = Node::start().await;
    let files = [("passwd", "root:x:0:0::/:/bin/sh\n1000:x:0:0::/:/bin/sh\n"), ("group", "root:x:0:\n1000:x:0:\n")];
    let mounts = files.map(|(name, text)| {
        fs::write(node.path(name), text).unwrap();
        let host_path = node.path(name).to_string_lossy().into_owned();
        Mount { host_path, container_path: format!("/etc/{name}"), ..Default::default() }
    });
    let pod = node.sandbox_config("numbers");
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("main", "sleep 1000");
    config.mounts = mounts.to_vec();
    secured(&mut config).run_as_user = Some(Int64Value { value: 1000 });
    let id = node.run(&sandbox, config, &pod).await;
    let user = node.status(&id).await.user.and_then(|user| user.linux).unwrap();
    assert_eq!((user.uid, user.gid), (1000, 0));
    assert_eq!(node.exec(&id, "id -u").await, (0, "1000\n".into()), "an exec runs as the same user");
    let mut config = container("group", "id -g; grep ^Groups /proc/self/status");
    config.mounts = mounts.to_vec();
    secured(&mut config).run_as_username = "1000:1000".into();
    let (_, output) = node.shell_in(&sandbox, &pod, config).await;
    assert_eq!(output.lines().next(), Some("1000"), "{output}");
    node.end().await;
}

#[tokio::test]
async fn refuses_ids_above_the_limit() {
    let node = Node::start().await;
    let pod = node.sandbox_config("high");
    let sandbox = node.run_sandbox(&pod).await;
    for (name, user, refused_by) in [("none", "4294967295", "start"), ("high", "0:2147483648", "start")] {
        let mut config = container(name, "id");
        secured(&mut config).run_as_username = user.into();
        let id = node.create(&sandbox, config, &pod).await.unwrap();
        let error = node.start_container(&id).await.unwrap_err();
        assert!(error.message().contains("above 2147483647"), "{refused_by} {user}: {error}");
    }
    for value in [i64::from(u32::MAX), 1 << 31, -1, 1 << 32] {
        let mut config = container(&format!("number{value}"), "id");
        secured(&mut config).run_as_user = Some(Int64Value { value });
        let error = node.create(&sandbox, config, &pod).await.unwrap_err();
        assert!(error.message().contains("run_as_user") && error.message().contains("2147483647"), "{value}: {error}");
        let mut config = container(&format!("group{value}"), "id");
        secured(&mut config).supplemental_groups = vec![value];
        let error = node.create(&sandbox, config, &pod).await.unwrap_err();
        assert!(error.message().contains("supplemental_groups"), "{value}: {error}");
    }
    node.end().await;
}

/// Everything below a directory that users other than root have access to.
fn open_to_others(directory: &Path) -> Vec<String> {
    let mut open = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        if meta.is_dir() {
            open.extend(open_to_others(&path));
        }
        if (meta.is_dir() || meta.is_file()) && meta.mode() & 0o077 != 0 {
            open.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    open.sort();
    open
}

#[tokio::test]
async fn only_root_has_access_to_the_state() {
    let mut node = Node::start().await;
    let pod = node.sandbox_config("secret");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    let ended = node.run(&sandbox, container("ends", "exit 3"), &pod).await;
    node.wait_exit(&ended).await;
    let state = node.path("state");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&state), 0o700);
    // These two are mounted into containers; on the host, only root can enter their directory.
    assert_eq!(open_to_others(&state), ["hostname", "resolv.conf"]);

    node.kill_runtime();
    let directory = state.join("sandboxes").join(&sandbox);
    let earlier = [state.clone(), state.join("sandboxes"), directory.clone(), directory.join(&id)];
    for path in earlier.iter().chain(&[directory.join("record"), directory.join(&id).join("spec.json")]) {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    node.start_runtime(&[]).await;
    assert_eq!(mode(&state), 0o700);
    assert_eq!(open_to_others(&state), ["hostname", "resolv.conf"], "an earlier version left them open");
    assert_eq!(node.exec(&id, "cat /etc/hostname").await.0, 0);
    node.end().await;
}

#[tokio::test]
async fn reports_a_killed_pause_process_at_once() {
    let node = Node::start().await;
    let pod = node.sandbox_config("pauseless");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    let mut events = node.runtime.get_container_events(GetEventsRequest {}).await.unwrap();
    // The stream is only open after its first event.
    let other = node.run(&sandbox, container("other", "true"), &pod).await;
    node.wait_exit(&other).await;
    let pause = process_named(&node, "tiphys: pause");
    rustix::process::kill_process(rustix::process::Pid::from_raw(pause).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    let sandbox_event = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.container_id == sandbox {
                break event;
            }
        }
    };
    let event = tokio::time::timeout(Duration::from_secs(30), sandbox_event).await.expect("an event of the sandbox");
    assert_eq!(event.container_event_type(), ContainerEventType::Stopped);
    assert_eq!(event.pod_sandbox_status.unwrap().state(), PodSandboxState::Notready);
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = node.runtime.pod_sandbox_status(request).await.unwrap().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::Notready);
    assert_eq!(node.status(&id).await.state(), ContainerState::Running, "its client ends it");
    node.end().await;
}

#[tokio::test]
async fn process_titles_contain_the_pod() {
    let node = Node::start().await;
    let pod = node.sandbox_config("named");
    node.run_sandbox(&pod).await;
    for (comm, expected) in
        [("tiphys: shim", "tiphys: shim default/named"), ("tiphys: pause", "tiphys: pause default/named")]
    {
        let pid = process_named(&node, comm);
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert_eq!(String::from_utf8_lossy(&line).trim_end_matches('\0'), expected);
    }
    node.end().await;
}

#[tokio::test]
async fn resolves_a_target_container_when_the_container_starts() {
    let node = Node::start().await;
    let pod = node.sandbox_config("debugged");
    let sandbox = node.run_sandbox(&pod).await;
    let target = node.run(&sandbox, container("main", "sleep 1000"), &pod).await;
    let debugger = |name: &str, target: &str| {
        let mut config = container(name, "cat /proc/1/comm");
        secured(&mut config).namespace_options = Some(NamespaceOption {
            network: NamespaceMode::Node.into(),
            pid: NamespaceMode::Target.into(),
            target_id: target.into(),
            ..Default::default()
        });
        config
    };
    let (code, output) = node.shell_in(&sandbox, &pod, debugger("sees", &target)).await;
    assert_eq!((code, output.as_str()), (0, "sleep\n"));
    let late = node.create(&sandbox, debugger("late", &target), &pod).await.unwrap();
    node.runtime.stop_container(StopContainerRequest { container_id: target.clone(), timeout: 0 }).await.unwrap();
    let error = node.start_container(&late).await.unwrap_err();
    assert!(error.message().contains("is not running"), "its pid may be another's: {error}");

    let other = node.sandbox_config("other");
    let other_sandbox = node.run_sandbox(&other).await;
    let stranger = node.run(&other_sandbox, container("main", "sleep 1000"), &other).await;
    let error = node.create(&sandbox, debugger("stranger", &stranger), &pod).await.unwrap_err();
    assert!(error.message().contains("not running in this pod"), "{error}");
    node.end().await;
}

#[tokio::test]
async fn never_writes_a_log_through_a_symlink() {
    let node = Node::start().await;
    let pod = node.sandbox_config("linked");
    let sandbox = node.run_sandbox(&pod).await;
    let victim = node.path("victim");
    fs::write(&victim, "kept\n").unwrap();
    let config = container("main", "echo overwritten");
    symlink(&victim, Path::new(&pod.log_directory).join(&config.log_path)).unwrap();
    let id = node.create(&sandbox, config, &pod).await.unwrap();
    let error = node.start_container(&id).await.unwrap_err();
    assert!(error.message().contains("opening the log"), "{error}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept\n");
    // An administrator may have moved the log directory.
    let moved = node.path("moved");
    fs::create_dir(&moved).unwrap();
    symlink(&moved, node.path("var-log")).unwrap();
    let mut pod = node.sandbox_config("moved");
    pod.log_directory = node.path("var-log/pod").to_string_lossy().into_owned();
    fs::create_dir(&pod.log_directory).unwrap();
    let sandbox = node.run_sandbox(&pod).await;
    let (code, output) = node.shell_in(&sandbox, &pod, container("main", "echo hello")).await;
    assert_eq!((code, output.as_str()), (0, "hello\n"));
    node.end().await;
}

#[tokio::test]
async fn low_ports_need_no_capability_in_the_pods_network() {
    let node = Node::start().await;
    node.network().await;
    let show = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range";
    let mut pod = node.networked_config("ports");
    let sandbox = node.run_sandbox(&pod).await;
    let (_, output) = node.shell_in(&sandbox, &pod, container("main", show)).await;
    assert_eq!(output.split_whitespace().collect::<Vec<_>>(), ["0", "0", "2147483647"]);
    pod = node.networked_config("own");
    let sysctls = [("net.ipv4.ip_unprivileged_port_start", "80"), ("net.ipv4.ping_group_range", "1 0")];
    pod.linux.as_mut().unwrap().sysctls = sysctls.map(|(key, value)| (key.to_string(), value.to_string())).into();
    let sandbox = node.run_sandbox(&pod).await;
    let (_, output) = node.shell_in(&sandbox, &pod, container("main", show)).await;
    assert_eq!(output.split_whitespace().collect::<Vec<_>>(), ["80", "1", "0"], "what a pod asks for counts");
    node.end().await;
}

#[tokio::test]
async fn ignores_selinux_labels_without_selinux() {
    if Path::new("/sys/fs/selinux/enforce").exists() {
        return;
    }
    let node = Node::start().await;
    for name in ["first", "second"] {
        let mut config = container(name, "echo runs");
        let level = SELinuxOption { level: "s0:c0,c1".into(), ..Default::default() };
        secured(&mut config).selinux_options = Some(level);
        assert_eq!(node.shell(config).await, (0, "runs\n".into()));
    }
    wait_for("the warning", || node.log().contains("seLinuxOptions"));
    assert_eq!(node.log().matches("seLinuxOptions").count(), 1, "it is said once");
    let lines = node.log().lines().filter(|line| line.contains("oom_score_adj")).count();
    assert!(lines <= 1, "as is what the machine does not permit");
    node.end().await;
}
