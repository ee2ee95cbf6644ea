//! Calls about containers, except for their streams.

use std::path::Path;
use std::sync::Arc;

use cri::{
    ContainerConfig, ContainerFilter, ContainerState, ContainerStateValue, ContainerStatus, ContainerStatusRequest,
    LinuxContainerResources, ListContainersRequest, RemoveContainerRequest, ReopenContainerLogRequest, RuntimeService,
    StopContainerRequest, StopPodSandboxRequest, StreamContainersRequest, UpdateContainerResourcesRequest,
};
use tokio_stream::StreamExt;

use super::{Suite, cases, code, until};
use crate::harness::{secured, text};

const UNKNOWN: &str = "0123456789abcdef";

cases! {
    "CreateContainer: exists and is not running" => created, "Created, started 0, exit 0, log main.log";
    "CreateContainer: a name is taken once" => a_name_twice, "Unknown, another attempt ok";
    "CreateContainer: in a sandbox that does not exist" => no_sandbox, "NotFound";
    "CreateContainer: in a sandbox that was stopped" => stopped_sandbox, "Unknown";
    "CreateContainer: from an image that does not exist" => no_image, "NotFound";
    "CreateContainer: without metadata" => no_metadata, "Unknown";
    "StartContainer: uses the image's defaults" => as_the_image_says, "33 34 /tmp yes";
    "StartContainer: the request overrides the image" => as_asked, "7 0 /etc no";
    "StartContainer: twice" => start_twice, "Unknown, Running";
    "StartContainer: unknown ID" => start_unknown, "NotFound";
    "StartContainer: a program that does not exist" => no_program, "Unknown, Exited 128 StartError";
    "StartContainer: the sandbox was stopped" => start_late, "Unknown";
    "StopContainer: sends the stop signal" => stop_polite, "ok, Exited 5 Error";
    "StopContainer: kills after the timeout" => stop_deaf, "ok, Exited 137 Error";
    "StopContainer: kills at once without a timeout" => stop_now, "ok, Exited 137 Error";
    "StopContainer: twice, and before the start" => stop_twice, "ok, ok, created ok, Created";
    "StopContainer: unknown ID" => stop_unknown, "ok";
    "RemoveContainer: a running one, twice" => remove_twice, "ok, ok, NotFound";
    "RemoveContainer: one that was never started" => remove_created, "ok";
    "RemoveContainer: unknown ID" => remove_unknown, "ok";
    "RemoveContainer: its log stays" => log_stays, "kept";
    "ContainerStatus: codes and reasons" => codes, "0 Completed, 7 Error, 137 Error, 143 Error";
    "ContainerStatus: OOM killed" => out_of_memory, "137 OOMKilled";
    "ContainerStatus: reflects its config" => shown, "main 3 a=1 note=two; mount /data ro; image as asked; ref by digest";
    "ContainerStatus: by a prefix of its ID" => short_id, "the same";
    "ContainerStatus: unknown ID" => status_unknown, "NotFound";
    "ContainerStatus: more with verbose" => verbose, "0, some";
    "ListContainers: by id, pod, label and state" => filtered, "id 1, short id 1, pod 3, label 2, running 1, created 1, exited 1, other 0";
    "StreamContainers: streams the list" => streamed, "1";
    "UpdateContainerResources: running" => update_running, "64 MiB 512, then 128 MiB 512, shown 134217728";
    "UpdateContainerResources: not started" => update_created, "ok, 96 MiB";
    "UpdateContainerResources: exited" => update_exited, "Unknown";
    "UpdateContainerResources: unknown ID" => update_unknown, "NotFound";
    "ReopenContainerLog: lines go to the new file" => reopen, "ok, old file, new file";
    "ReopenContainerLog: exited" => reopen_exited, "Unknown";
    "ReopenContainerLog: unknown ID" => reopen_unknown, "NotFound";
    "ReopenContainerLog: lines have a time, a stream and a tag" => log_format, "stdout F out, stderr F err, stdout P part of 16384, stdout F rest, stdout P without an end";
}

fn describe(status: &ContainerStatus) -> String {
    format!("{:?} {} {}", status.state(), status.exit_code, status.reason)
}

async fn created(suite: Arc<Suite>) -> String {
    let pod = suite.pod("created").await;
    let id = suite.create(&pod, suite.container("main", "sleep 1000")).await;
    let status = suite.node.status(&id).await;
    let log = Path::new(&status.log_path).strip_prefix(&pod.config.log_directory).unwrap().display().to_string();
    format!("{:?}, started {}, exit {}, log {log}", status.state(), status.started_at, status.exit_code)
}

async fn a_name_twice(suite: Arc<Suite>) -> String {
    let pod = suite.pod("same-name").await;
    suite.create(&pod, suite.container("main", "true")).await;
    let mut config = suite.container("main", "true");
    let second = code(&suite.node.create(&pod.id, config.clone(), &pod.config).await);
    config.metadata.as_mut().unwrap().attempt = 1;
    format!("{second}, another attempt {}", code(&suite.node.create(&pod.id, config, &pod.config).await))
}

async fn no_sandbox(suite: Arc<Suite>) -> String {
    let pod = suite.node.sandbox_config("none");
    code(&suite.node.create(UNKNOWN, suite.container("main", "true"), &pod).await)
}

async fn stop_pod(suite: &Suite, id: &str) {
    suite.node.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id.into() }).await.unwrap();
}

async fn stopped_sandbox(suite: Arc<Suite>) -> String {
    let pod = suite.pod("stopped").await;
    stop_pod(&suite, &pod.id).await;
    code(&suite.node.create(&pod.id, suite.container("main", "true"), &pod.config).await)
}

async fn no_image(suite: Arc<Suite>) -> String {
    let pod = suite.pod("no-image").await;
    let mut config = suite.container("main", "true");
    config.image.as_mut().unwrap().image = suite.registry.name("test/nothing:1");
    code(&suite.node.create(&pod.id, config, &pod.config).await)
}

async fn no_metadata(suite: Arc<Suite>) -> String {
    let pod = suite.pod("nameless").await;
    let config = ContainerConfig { metadata: None, ..suite.container("main", "true") };
    code(&suite.node.create(&pod.id, config, &pod.config).await)
}

const WHO: &str = "echo $(id -u) $(id -g) $(pwd) $FROM_IMAGE";

async fn as_the_image_says(suite: Arc<Suite>) -> String {
    let pod = suite.pod("image-user").await;
    let id = suite.run(&pod, suite.container("main", WHO)).await;
    text(Path::new(&suite.node.wait_exit(&id).await.log_path)).trim().into()
}

async fn as_asked(suite: Arc<Suite>) -> String {
    let pod = suite.pod("asked-user").await;
    let mut config = suite.container("main", WHO);
    secured(&mut config).run_as_user = Some(cri::Int64Value { value: 7 });
    config.working_dir = "/etc".into();
    config.envs = vec![cri::KeyValue { key: "FROM_IMAGE".into(), value: "no".into() }];
    let id = suite.run(&pod, config).await;
    text(Path::new(&suite.node.wait_exit(&id).await.log_path)).trim().into()
}

async fn start_twice(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("start-twice", "sleep 1000").await;
    let second = code(&suite.node.start_container(&id).await);
    format!("{second}, {:?}", suite.node.status(&id).await.state())
}

async fn start_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.start_container(UNKNOWN).await)
}

async fn no_program(suite: Arc<Suite>) -> String {
    let pod = suite.pod("no-program").await;
    let config = ContainerConfig { command: vec!["/none".into()], ..suite.container("main", "") };
    let id = suite.create(&pod, config).await;
    let started = suite.node.start_container(&id).await;
    format!("{}, {}", code(&started), describe(&suite.node.status(&id).await))
}

async fn start_late(suite: Arc<Suite>) -> String {
    let pod = suite.pod("late").await;
    let id = suite.create(&pod, suite.container("main", "sleep 1000")).await;
    stop_pod(&suite, &pod.id).await;
    code(&suite.node.start_container(&id).await)
}

async fn stop(suite: &Suite, id: &str, timeout: i64) -> String {
    code(&suite.node.runtime.stop_container(StopContainerRequest { container_id: id.into(), timeout }).await)
}

async fn log_of(suite: &Suite, id: &str) -> String {
    suite.node.status(id).await.log_path
}

async fn stopped(suite: &Suite, name: &str, command: &str, timeout: i64) -> String {
    let (_, id) = suite.running(name, command).await;
    let log = log_of(suite, &id).await;
    until("it to be up", || text(Path::new(&log)).contains("up")).await;
    format!("{}, {}", stop(suite, &id, timeout).await, describe(&suite.node.status(&id).await))
}

async fn stop_polite(suite: Arc<Suite>) -> String {
    stopped(&suite, "polite", "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", 30).await
}

async fn stop_deaf(suite: Arc<Suite>) -> String {
    stopped(&suite, "deaf", "trap '' TERM; echo up; while :; do sleep 0.01; done", 1).await
}

async fn stop_now(suite: Arc<Suite>) -> String {
    stopped(&suite, "now", "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", 0).await
}

async fn stop_twice(suite: Arc<Suite>) -> String {
    let (pod, id) = suite.running("stop-twice", "sleep 1000").await;
    let both = [stop(&suite, &id, 0).await, stop(&suite, &id, 0).await].join(", ");
    let created = suite.create(&pod, suite.container("other", "sleep 1000")).await;
    let third = stop(&suite, &created, 1).await;
    format!("{both}, created {third}, {:?}", suite.node.status(&created).await.state())
}

async fn stop_unknown(suite: Arc<Suite>) -> String {
    stop(&suite, UNKNOWN, 1).await
}

async fn remove(suite: &Suite, id: &str) -> String {
    code(&suite.node.runtime.remove_container(RemoveContainerRequest { container_id: id.into() }).await)
}

fn status_of(id: &str) -> ContainerStatusRequest {
    ContainerStatusRequest { container_id: id.into(), verbose: false }
}

async fn remove_twice(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("remove-twice", "sleep 1000").await;
    let both = [remove(&suite, &id).await, remove(&suite, &id).await].join(", ");
    format!("{both}, {}", code(&suite.node.runtime.container_status(status_of(&id)).await))
}

async fn remove_created(suite: Arc<Suite>) -> String {
    let pod = suite.pod("remove-created").await;
    let id = suite.create(&pod, suite.container("main", "true")).await;
    remove(&suite, &id).await
}

async fn remove_unknown(suite: Arc<Suite>) -> String {
    remove(&suite, UNKNOWN).await
}

async fn log_stays(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("log-stays", "echo kept").await;
    let log = suite.node.wait_exit(&id).await.log_path;
    remove(&suite, &id).await;
    text(Path::new(&log)).trim().into()
}

async fn codes(suite: Arc<Suite>) -> String {
    let pod = suite.pod("codes").await;
    let mut results = Vec::new();
    for (name, command) in
        [("good", "exit 0"), ("bad", "exit 7"), ("killed", "kill -KILL $$"), ("ended", "sleep 9 & kill $!; wait $!")]
    {
        // The init process of a PID namespace is not killed by its own signals.
        let command = format!("sh -c '{command}'");
        let id = suite.run(&pod, suite.container(name, &format!("{command}; exit $?"))).await;
        let status = suite.node.wait_exit(&id).await;
        results.push(format!("{} {}", status.exit_code, status.reason));
    }
    results.join(", ")
}

fn memory(bytes: i64) -> LinuxContainerResources {
    LinuxContainerResources { memory_limit_in_bytes: bytes, ..Default::default() }
}

async fn out_of_memory(suite: Arc<Suite>) -> String {
    let pod = suite.pod("memory").await;
    let mut config = suite.container("main", "exec tail -c 200m /dev/zero");
    config.linux.as_mut().unwrap().resources = Some(memory(20 << 20));
    let id = suite.run(&pod, config).await;
    let status = suite.node.wait_exit(&id).await;
    format!("{} {}", status.exit_code, status.reason)
}

async fn shown(suite: Arc<Suite>) -> String {
    let pod = suite.pod("container-status").await;
    let mut config = suite.container("main", "sleep 1000");
    config.metadata.as_mut().unwrap().attempt = 3;
    config.labels.insert("a".into(), "1".into());
    config.annotations.insert("note".into(), "two".into());
    let host_path = suite.node.path("data").to_string_lossy().into_owned();
    config.mounts =
        vec![cri::Mount { container_path: "/data".into(), host_path, readonly: true, ..Default::default() }];
    let id = suite.run(&pod, config).await;
    let status = suite.node.status(&id).await;
    let metadata = status.metadata.clone().unwrap();
    let mount = &status.mounts[0];
    format!(
        "{} {} a={} note={}; mount {} {}; image {}; ref {}",
        metadata.name,
        metadata.attempt,
        status.labels["a"],
        status.annotations["note"],
        mount.container_path,
        if mount.readonly { "ro" } else { "rw" },
        if status.image.clone().unwrap().image == suite.image() { "as asked" } else { "another" },
        if status.image_ref.starts_with(&suite.registry.name("test/busybox@sha256:")) {
            "by digest"
        } else {
            "another"
        },
    )
}

async fn short_id(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("short-id", "sleep 1000").await;
    match suite.node.runtime.container_status(status_of(&id[..13])).await {
        Ok(answer) if answer.status.as_ref().unwrap().id == id => "the same".into(),
        other => code(&other),
    }
}

async fn status_unknown(suite: Arc<Suite>) -> String {
    code(&suite.node.runtime.container_status(status_of(UNKNOWN)).await)
}

async fn verbose(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("verbose-container", "sleep 1000").await;
    let plain = suite.node.runtime.container_status(status_of(&id)).await.unwrap().info;
    let request = ContainerStatusRequest { verbose: true, ..status_of(&id) };
    let more = suite.node.runtime.container_status(request).await.unwrap().info;
    format!("{}, {}", plain.len(), if more.is_empty() { "none" } else { "some" })
}

async fn filtered(suite: Arc<Suite>) -> String {
    let pod = suite.pod("filter-containers").await;
    let labelled = |name: &str, label: &str| {
        let mut config = suite.container(name, "exec sleep 1000");
        config.labels.insert("case".into(), label.into());
        config
    };
    let running = suite.run(&pod, labelled("running", "filter")).await;
    suite.create(&pod, labelled("created", "filter")).await;
    let exited = suite.run(&pod, labelled("exited", "different")).await;
    stop(&suite, &exited, 0).await;
    let of_pod = ContainerFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() };
    let in_state = |state: ContainerState| {
        let state = Some(ContainerStateValue { state: state as i32 });
        ContainerFilter { state, ..of_pod.clone() }
    };
    let label = |value: &str| ContainerFilter {
        label_selector: [("case".to_string(), value.to_string())].into(),
        ..Default::default()
    };
    let table = [
        ("id", ContainerFilter { id: running.clone(), ..Default::default() }),
        ("short id", ContainerFilter { id: running[..13].into(), ..Default::default() }),
        ("pod", of_pod.clone()),
        ("label", label("filter")),
        ("running", in_state(ContainerState::Running)),
        ("created", in_state(ContainerState::Created)),
        ("exited", in_state(ContainerState::Exited)),
        ("other", label("none")),
    ];
    let mut results = Vec::new();
    for (name, filter) in table {
        let request = ListContainersRequest { filter: Some(filter) };
        results.push(format!("{name} {}", suite.node.runtime.list_containers(request).await.unwrap().containers.len()));
    }
    results.join(", ")
}

async fn streamed(suite: Arc<Suite>) -> String {
    let (pod, _) = suite.running("stream-containers", "sleep 1000").await;
    let filter = Some(ContainerFilter { pod_sandbox_id: pod.id, ..Default::default() });
    let mut answers = match suite.node.runtime.stream_containers(StreamContainersRequest { filter }).await {
        Ok(answers) => answers,
        refused => return code(&refused),
    };
    let mut count = 0;
    while let Some(answer) = answers.next().await {
        count += answer.unwrap().containers.len();
    }
    count.to_string()
}

async fn update(suite: &Suite, id: &str, resources: LinuxContainerResources) -> String {
    let request =
        UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(resources), ..Default::default() };
    code(&suite.node.runtime.update_container_resources(request).await)
}

/// The memory limit of a container in MiB, and its CPU shares, from the kernel.
async fn limits(suite: &Suite, id: &str) -> (i64, String) {
    let read = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.shares";
    let (_, output) = suite.node.exec(id, read).await;
    let (memory, shares) = output.trim().split_once('\n').unwrap();
    (memory.parse::<i64>().unwrap() >> 20, shares.into())
}

async fn update_running(suite: Arc<Suite>) -> String {
    let pod = suite.pod("update").await;
    let mut config = suite.container("main", "sleep 1000");
    config.linux.as_mut().unwrap().resources = Some(LinuxContainerResources { cpu_shares: 512, ..memory(64 << 20) });
    let id = suite.run(&pod, config).await;
    let (before, shares_before) = limits(&suite, &id).await;
    let updated = update(&suite, &id, memory(128 << 20)).await;
    if updated != "ok" {
        return updated;
    }
    let (after, shares) = limits(&suite, &id).await;
    let shown = suite.node.status(&id).await.resources.and_then(|r| r.linux).unwrap_or_default();
    let shown = shown.memory_limit_in_bytes;
    format!("{before} MiB {shares_before}, then {after} MiB {shares}, shown {shown}")
}

async fn update_created(suite: Arc<Suite>) -> String {
    let pod = suite.pod("update-created").await;
    let id = suite.create(&pod, suite.container("main", "sleep 1000")).await;
    let updated = update(&suite, &id, memory(96 << 20)).await;
    suite.node.start_container(&id).await.unwrap();
    format!("{updated}, {} MiB", limits(&suite, &id).await.0)
}

async fn update_exited(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("update-exited", "true").await;
    suite.node.wait_exit(&id).await;
    update(&suite, &id, memory(96 << 20)).await
}

async fn update_unknown(suite: Arc<Suite>) -> String {
    update(&suite, UNKNOWN, memory(96 << 20)).await
}

async fn reopened(suite: &Suite, id: &str) -> String {
    code(&suite.node.runtime.reopen_container_log(ReopenContainerLogRequest { container_id: id.into() }).await)
}

async fn reopen(suite: Arc<Suite>) -> String {
    let command = "echo old file; until [ -e /tmp/go ]; do sleep 0.01; done; echo new file; sleep 1000";
    let (_, id) = suite.running("reopen", command).await;
    let log = log_of(&suite, &id).await;
    until("the first line", || text(Path::new(&log)).contains("old file")).await;
    let rotated = format!("{log}.1");
    std::fs::rename(&log, &rotated).unwrap();
    let answer = reopened(&suite, &id).await;
    suite.node.exec(&id, "touch /tmp/go").await;
    until("the second line", || text(Path::new(&log)).contains("new file")).await;
    format!("{answer}, {}, {}", text(Path::new(&rotated)).trim(), text(Path::new(&log)).trim())
}

async fn reopen_exited(suite: Arc<Suite>) -> String {
    let (_, id) = suite.running("reopen-exited", "true").await;
    suite.node.wait_exit(&id).await;
    reopened(&suite, &id).await
}

async fn reopen_unknown(suite: Arc<Suite>) -> String {
    reopened(&suite, UNKNOWN).await
}

async fn log_format(suite: Arc<Suite>) -> String {
    let command = "echo out; sleep 0.1; echo err >&2; sleep 0.1; head -c 16384 /dev/zero | tr '\\0' x; echo rest; \
                   printf 'without an end'";
    let (_, id) = suite.running("log-format", command).await;
    let log = suite.node.wait_exit(&id).await.log_path;
    let whole = std::fs::read_to_string(&log).unwrap();
    let line = |line: &str| {
        let (time, rest) = line.split_once(' ').unwrap();
        // With fractional seconds, without trailing zeros, and an offset from UTC.
        let is_time = time.len() > 21 && time.as_bytes()[10] == b'T' && time.as_bytes()[19] == b'.';
        let rest = rest.replace(&"x".repeat(16384), "part of 16384");
        if is_time { rest } else { format!("{time:?} is no time: {rest}") }
    };
    whole.lines().map(line).collect::<Vec<_>>().join(", ")
}
