//! Resource limits of pods: their cgroups, read from the kernel, and in-place resizing.

use std::path::{Path, PathBuf};

use api::Tree;

use super::CaseFn;
use super::case::{Case, container};

pub const CASES: &[(&str, CaseFn)] = &[
    ("limits are in cgroups", limits),
    ("a pod is resized while it runs", resize),
    ("a resize may need a restart", restart),
    ("memory in use is not reclaimed", shrink),
];

const FULL: &str = "{limits: {cpu: 100m, memory: 32Mi}, requests: {cpu: 100m, memory: 32Mi}}";

/// A pod that sleeps, with resources of one container.
fn sleeper(case: &Case, name: &str, resources: &str, more: &str) -> Tree {
    let main = format!("{{name: main, image: IMAGE, resources: {resources}, {more} command: [sleep, '1000']}}");
    case.pod(name, &format!("terminationGracePeriodSeconds: 0, containers: [{main}]"));
    case.until_ready(name)
}

/// The directory of a pod's group that has a file, in whichever hierarchy.
fn group(case: &Case, pod: &Tree, file: &str) -> PathBuf {
    let name = format!("pod{}", pod.str("metadata.uid"));
    let ours = |dir: &PathBuf| dir.file_name().is_some_and(|own| own.to_string_lossy() == name);
    let found = case.cluster.cgroups().into_iter().filter(ours).find(|dir| dir.join(file).exists());
    found.unwrap_or_else(|| panic!("no group of {name} has {file}"))
}

fn number(directory: &Path, file: &str) -> i64 {
    let text = std::fs::read_to_string(directory.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    text.trim().parse().unwrap_or_else(|_| panic!("{file}: {text}"))
}

/// Microseconds of CPU time in each tenth of a second, and bytes of memory.
fn seen(case: &Case, pod: &Tree) -> (i64, i64) {
    let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if is_v2 {
        let group = group(case, pod, "cpu.max");
        let max = std::fs::read_to_string(group.join("cpu.max")).expect("a file");
        let quota = max.split(' ').next().and_then(|quota| quota.parse().ok()).unwrap_or(-1);
        return (quota, number(&group, "memory.max"));
    }
    let of = |file: &str| number(&group(case, pod, file), file);
    (of("cpu.cfs_quota_us"), of("memory.limit_in_bytes"))
}

fn limits(case: &Case) {
    let pod = sleeper(case, "full", FULL, "");
    assert_eq!(seen(case, &pod), (10_000, 32 << 20));
    let burstable = sleeper(case, "part", "{requests: {cpu: 50m}}", "");
    let parent = group(case, &burstable, "cgroup.procs");
    assert_eq!(parent.parent().and_then(Path::file_name), Some("burstable".as_ref()));
    // The cgroups of containers are below it.
    let inner = std::fs::read_dir(group(case, &pod, "cgroup.procs")).expect("a directory");
    assert!(inner.flatten().filter(|entry| entry.path().is_dir()).count() >= 1);
    case.kubectl(&["delete", "pod", "full", "--now"]);
    case.until_gone("full");
    let uid = pod.str("metadata.uid");
    let left = || case.cluster.cgroups().iter().filter(|dir| dir.to_string_lossy().contains(uid)).count();
    case.until("no group of it", left, |left| *left == 0);
}

fn ask(case: &Case, pod: &str, resources: &str) {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/resize", case.namespace);
    case.patch(&path, &format!(r#"{{"spec":{{"containers":[{{"name":"main","resources":{resources}}}]}}}}"#));
}

fn is_pending(pod: &Tree) -> bool {
    pod.list("status.conditions").iter().any(|one| one.str("type").starts_with("PodResize"))
}

/// Waits until a pod has a memory limit, and its resize is complete.
fn until_resized(case: &Case, name: &str, memory: &str) -> Tree {
    case.until_pod(name, "the new size", |pod| {
        let main = container(pod, "main");
        let settled = pod.int("status.observedGeneration") == pod.int("metadata.generation") && !is_pending(pod);
        settled && main.str("resources.limits.memory") == memory && main.str("allocatedResources.memory") == memory
    })
}

fn resize(case: &Case) {
    sleeper(case, "web", FULL, "");
    for (cpu, memory, expected) in [("200m", "48Mi", (20_000, 48 << 20)), ("50m", "24Mi", (5000, 24 << 20))] {
        let amounts = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
        ask(case, "web", &format!(r#"{{"requests":{amounts},"limits":{amounts}}}"#));
        let pod = until_resized(case, "web", memory);
        assert_eq!(seen(case, &pod), expected);
        assert_eq!(container(&pod, "main").int("restartCount"), Some(0));
    }
    for reason in ["ResizeStarted", "ResizeCompleted"] {
        case.until_event("web", reason, "\"generation\":3");
    }
}

fn restart(case: &Case) {
    let policy = "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}],";
    sleeper(case, "web", "{limits: {memory: 32Mi}, requests: {cpu: 10m, memory: 32Mi}}", policy);
    ask(case, "web", r#"{"requests":{"memory":"40Mi"},"limits":{"memory":"40Mi"}}"#);
    let pod = until_resized(case, "web", "40Mi");
    assert_eq!(container(&pod, "main").int("restartCount"), Some(1));
    case.until_event("web", "Killing", "Container main resize requires restart");
}

fn shrink(case: &Case) {
    let fill = "[sh, -c, 'dd if=/dev/zero of=/memory/full bs=1M count=20; exec sleep 1000']";
    case.pod(
        "fat",
        &format!(
            "terminationGracePeriodSeconds: 0, volumes: [{{name: memory, emptyDir: {{medium: Memory}}}}], \
             containers: [{{name: main, image: IMAGE, command: {fill}, \
             volumeMounts: [{{name: memory, mountPath: /memory}}], \
             readinessProbe: {{exec: {{command: [sh, -c, 'test $(stat -c %s /memory/full) = 20971520']}}, periodSeconds: 1}}, \
             resources: {{limits: {{memory: 100Mi}}, requests: {{memory: 100Mi}}}}}}]"
        ),
    );
    case.until_ready("fat");
    ask(case, "fat", r#"{"requests":{"memory":"8Mi"},"limits":{"memory":"8Mi"}}"#);
    // The resize is in progress first; then its error is reported.
    let is_told =
        |one: &Tree| one.str("type") == "PodResizeInProgress" && one.str("message").contains("below current usage");
    let pod = case.until_pod("fat", "an error", |pod| pod.list("status.conditions").iter().any(is_told));
    assert_eq!(container(&pod, "main").str("resources.limits.memory"), "100Mi");
    ask(case, "fat", r#"{"requests":{"memory":"120Mi"},"limits":{"memory":"120Mi"}}"#);
    until_resized(case, "fat", "120Mi");
}
