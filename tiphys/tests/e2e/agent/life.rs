//! The life of pods: init containers, sidecars, hooks, restarts, deadlines, deletion.

use std::time::Instant;

use super::CaseFn;
use super::case::{Case, condition, container};

pub const CASES: &[(&str, CaseFn)] = &[
    ("init containers run in order", init_containers),
    ("a failing init container blocks the pod", failing_init),
    ("a sidecar outlives the main container", sidecar),
    ("hooks run after the start and before the stop", hooks),
    ("a failing hook is reported", failing_hook),
    ("a crash loop backs off", crash_loop),
    ("a container without memory is OOMKilled", out_of_memory),
    ("termination messages come from file or log", termination_messages),
    ("a killed pause process creates a new sandbox", killed_pause),
    ("a deadline ends a pod", deadline),
    ("restart rules decide which containers restart", restart_rules),
    ("a deletion grants its grace period", deletion),
    ("impossible containers are reported", impossible),
];

fn init_containers(case: &Case) {
    let step = |name: &str| {
        format!(
            "{{name: {name}, image: IMAGE, command: [sh, -c, 'echo {name} >> /work/order'], \
             volumeMounts: [{{name: work, mountPath: /work}}]}}"
        )
    };
    case.pod(
        "web",
        &format!(
            "volumes: [{{name: work, emptyDir: {{}}}}], initContainers: [{}, {}], containers: [{{name: main, \
             image: IMAGE, command: [sh, -c, 'cat /work/order; exec sleep 1000'], \
             volumeMounts: [{{name: work, mountPath: /work}}]}}]",
            step("one"),
            step("two")
        ),
    );
    let pod = case.until_ready("web");
    assert_eq!(case.kubectl(&["logs", "web"]), "one\ntwo");
    for name in ["one", "two"] {
        assert_eq!(container(&pod, name).str("state.terminated.reason"), "Completed");
        assert!(container(&pod, name).bool("ready"), "{name}");
    }
    let table = case.kubectl(&["get", "pod", "web", "--no-headers"]);
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "1/1", "Running", "0"], "{table}");
    let described = case.kubectl(&["describe", "pod", "web"]);
    for line in
        ["Init Containers:", "Reason:       Completed", "Container ID:  ", "QoS Class:                   BestEffort"]
    {
        assert!(described.contains(line), "{line}: {described}");
    }
}

fn failing_init(case: &Case) {
    let init = |code: u8| format!("initContainers: [{{name: fails, image: IMAGE, command: [sh, -c, 'exit {code}']}}]");
    let main = "containers: [{name: main, image: IMAGE}]";
    case.pod("over", &format!("restartPolicy: Never, {}, {main}", init(3)));
    case.pod("again", &format!("{}, {main}", init(4)));
    let pod = case.until_pod("over", "failure", |pod| pod.str("status.phase") == "Failed");
    assert_eq!(container(&pod, "fails").int("state.terminated.exitCode"), Some(3));
    assert_eq!(container(&pod, "main").str("state.waiting.reason"), "PodInitializing");
    assert!(case.kubectl(&["get", "pod", "over"]).contains("Init:Error"));
    let pod = case.until_pod("again", "back-off", |pod| {
        container(pod, "fails").str("state.waiting.reason") == "CrashLoopBackOff"
    });
    assert_eq!(pod.str("status.phase"), "Pending");
    assert!(case.kubectl(&["get", "pod", "again"]).contains("Init:CrashLoopBackOff"));
    let incomplete = pod.list("status.conditions").iter().find(|one| one.str("type") == "Initialized").cloned();
    let message = incomplete.unwrap_or_default().str("message").to_string();
    assert_eq!(message, "containers with incomplete status: [fails]");
}

fn sidecar(case: &Case) {
    let reported = |name: &str, start: &str| {
        format!(
            "name: {name}, image: IMAGE, volumeMounts: [{{name: work, mountPath: /work}}], command: [sh, -c, '{start} \
             echo {name} starts >> /work/order; trap \"echo {name} ends >> /work/order; exit 0\" TERM; \
             touch /tmp/up; while :; do sleep 0.1; done']"
        )
    };
    case.pod(
        "both",
        &format!(
            "volumes: [{{name: work, hostPath: {{path: {:?}, type: DirectoryOrCreate}}}}], \
             initContainers: [{{{}, restartPolicy: Always, startupProbe: {{exec: {{command: [test, -f, /tmp/up]}}, \
             periodSeconds: 1}}}}], containers: [{{{}}}]",
            case.directory("order"),
            reported("beside", "sleep 0.5;"),
            reported("main", "")
        ),
    );
    let pod = case.until_ready("both");
    assert!(container(&pod, "beside").bool("started"));
    let table = case.kubectl(&["get", "pod", "both", "--no-headers"]);
    assert!(table.contains("2/2"), "{table}");
    case.kubectl(&["delete", "pod", "both"]);
    let order = std::fs::read_to_string(format!("{}/order", case.directory("order"))).expect("a file");
    assert_eq!(order, "beside starts\nmain starts\nmain ends\nbeside ends\n");
}

fn hooks(case: &Case) {
    case.pod(
        "hooked",
        &format!(
            "volumes: [{{name: work, hostPath: {{path: {:?}, type: DirectoryOrCreate}}}}], containers: [{{name: main, \
             image: IMAGE, volumeMounts: [{{name: work, mountPath: /work}}], \
             command: [sh, -c, 'trap \"echo term >> /work/order; exit 0\" TERM; while :; do sleep 0.1; done'], \
             lifecycle: {{postStart: {{exec: {{command: [sh, -c, 'echo post >> /work/order']}}}}, \
             preStop: {{exec: {{command: [sh, -c, 'echo pre >> /work/order']}}}}}}}}]",
            case.directory("hooks")
        ),
    );
    case.pod(
        "sleeps",
        "terminationGracePeriodSeconds: 20, containers: [{name: main, image: IMAGE, \
         command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'], \
         lifecycle: {preStop: {sleep: {seconds: 2}}}}]",
    );
    // The hook sends a request to a server in the same pod, which logs it. The missing page does not matter.
    case.pod(
        "asks",
        "initContainers: [{name: hears, image: IMAGE, restartPolicy: Always, command: [httpd, -f, -vv, -p, '8088'], \
         startupProbe: {tcpSocket: {port: 8088}, periodSeconds: 1}}], containers: [{name: main, image: IMAGE, \
         lifecycle: {postStart: {httpGet: {path: /begun, port: 8088}}}}]",
    );
    for pod in ["hooked", "sleeps", "asks"] {
        case.until_ready(pod);
    }
    case.kubectl(&["delete", "pod", "hooked"]);
    let order = std::fs::read_to_string(format!("{}/order", case.directory("hooks"))).expect("a file");
    assert_eq!(order, "post\npre\nterm\n");
    let started = Instant::now();
    case.kubectl(&["delete", "pod", "sleeps"]);
    let took = started.elapsed().as_secs();
    assert!((2..15).contains(&took), "the hook sleeps for two seconds, not {took}");
    let logs = case.kubectl(&["logs", "asks", "-c", "hears"]);
    assert!(logs.contains("url:/begun"), "{logs}");
}

fn failing_hook(case: &Case) {
    case.pod(
        "bad",
        "terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE, \
         lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no; exit 5']}}}}]",
    );
    case.pod(
        "worse",
        "terminationGracePeriodSeconds: 3, containers: [{name: main, image: IMAGE, \
         command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'], \
         lifecycle: {preStop: {exec: {command: [sh, -c, 'exit 6']}}}}]",
    );
    case.until_event("bad", "FailedPostStartHook", "PostStartHook failed");
    case.until_event("bad", "Killing", "FailedPostStartHook");
    case.until_pod("bad", "another start", |pod| container(pod, "main").int("restartCount") > Some(0));
    case.until_ready("worse");
    case.kubectl(&["delete", "pod", "worse"]);
    case.until_event("worse", "FailedPreStopHook", "PreStopHook failed");
}

fn crash_loop(case: &Case) {
    case.pod("crashes", "containers: [{name: main, image: IMAGE, command: [sh, -c, 'echo gone; exit 7']}]");
    let pod = case.until_pod("crashes", "back-off", |pod| {
        container(pod, "main").str("state.waiting.reason") == "CrashLoopBackOff"
    });
    let status = container(&pod, "main");
    assert_eq!(status.int("lastState.terminated.exitCode"), Some(7));
    assert_eq!(status.str("lastState.terminated.reason"), "Error");
    assert_eq!(pod.str("status.phase"), "Running");
    let whom = format!("crashes_{}({})", case.namespace, pod.str("metadata.uid"));
    let message = status.str("state.waiting.message").to_string();
    assert_eq!(message, format!("back-off 10s restarting failed container=main pod={whom}"));
    case.until_event("crashes", "BackOff", &format!("Back-off restarting failed container main in pod {whom}"));
    let table = case.kubectl(&["get", "pod", "crashes", "--no-headers"]);
    assert!(table.contains("CrashLoopBackOff") && table.contains("0/1"), "{table}");
    assert_eq!(case.kubectl(&["logs", "crashes", "--previous"]), "gone");
    let described = case.kubectl(&["describe", "pod", "crashes"]);
    for part in
        ["State:          Waiting", "Reason:       CrashLoopBackOff", "Last State:     Terminated", "Exit Code:    7"]
    {
        assert!(described.contains(part), "{part}: {described}");
    }
}

fn out_of_memory(case: &Case) {
    let hungry = "resources: {limits: {memory: 24Mi}}, command: [sh, -c, 'tail /dev/zero']";
    case.pod("hungry", &format!("restartPolicy: Never, containers: [{{name: main, image: IMAGE, {hungry}}}]"));
    let pod = case.until_pod("hungry", "its end", |pod| pod.str("status.phase") == "Failed");
    let ended = container(&pod, "main").at("state.terminated").clone();
    // containerd receives the exit and its reason in two events; it reports `Error` if the exit comes first.
    let reason = match ended.str("reason") {
        "Error" if case.is_containerd() => "Error",
        _ => "OOMKilled",
    };
    assert_eq!((ended.str("reason"), ended.int("exitCode")), (reason, Some(137)), "{ended:?}");
    assert!(case.kubectl(&["get", "pod", "hungry"]).contains(reason));
}

fn termination_messages(case: &Case) {
    let run = "restartPolicy: Never, containers: [{name: main, image: IMAGE, ";
    case.pod("file", &format!("{run} command: [sh, -c, 'echo -n last word > /dev/termination-log; exit 1']}}]"));
    case.pod(
        "own",
        &format!("{run} terminationMessagePath: /tmp/word, command: [sh, -c, 'echo -n elsewhere > /tmp/word']}}]"),
    );
    let fallback = "terminationMessagePolicy: FallbackToLogsOnError";
    case.pod("log", &format!("{run} {fallback}, command: [sh, -c, 'echo from the log; exit 1']}}]"));
    case.pod("quiet", &format!("{run} {fallback}, command: [sh, -c, 'echo from the log']}}]"));
    case.pod("open", &format!("{run} {fallback}, command: [sh, -c, 'echo -n DONE; exit 1']}}]"));
    let expected =
        [("file", "last word"), ("own", "elsewhere"), ("log", "from the log\n"), ("quiet", ""), ("open", "DONE")];
    for (pod, expected) in expected {
        let ended = case.until_pod(pod, "its end", |pod| !container(pod, "main").at("state.terminated").is_null());
        assert_eq!(container(&ended, "main").str("state.terminated.message"), expected, "{pod}");
    }
}

/// Nothing else of the pod changes: the runtime has to report the exit.
fn killed_pause(case: &Case) {
    if case.is_containerd() {
        return;
    }
    case.pod("web", "terminationGracePeriodSeconds: 1, containers: [{name: main, image: IMAGE}]");
    let before = case.until_ready("web").str("status.podIP").to_string();
    let title = format!("tiphys: pause {}/web", case.namespace);
    let kill = format!(
        "for dir in /proc/[0-9]*; do [ \"$(tr -d '\\0' < $dir/cmdline)\" = '{title}' ] && kill -KILL ${{dir#/proc/}}; done"
    );
    // The shell prints errors for processes that exit during the search.
    case.cluster.command("sh").args(["-c", &kill]).output().expect("a shell");
    case.until_event("web", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    let is_anew =
        |pod: &api::Tree| container(pod, "main").int("restartCount") == Some(1) && condition(pod, "Ready") == "True";
    let pod = case.until_pod("web", "its second start", is_anew);
    assert_ne!(pod.str("status.podIP"), before, "it has a network of its own again");
}

fn deadline(case: &Case) {
    case.pod(
        "late",
        "activeDeadlineSeconds: 2, terminationGracePeriodSeconds: 0, containers: [{name: main, image: IMAGE}]",
    );
    let pod = case.until_pod("late", "failure", |pod| pod.str("status.phase") == "Failed");
    assert_eq!(pod.str("status.reason"), "DeadlineExceeded");
    assert_eq!(pod.str("status.message"), "Pod was active on the node longer than the specified deadline");
    case.until_event("late", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
}

fn restart_rules(case: &Case) {
    let rules =
        "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";
    case.pod(
        "ruled",
        &format!(
            "restartPolicy: Never, volumes: [{{name: work, emptyDir: {{}}}}], containers: [{{name: main, image: IMAGE, \
             volumeMounts: [{{name: work, mountPath: /work}}], {rules}, \
             command: [sh, -c, 'test -f /work/been && exit 3; touch /work/been; exit 42']}}]"
        ),
    );
    let pod = case.until_pod("ruled", "failure", |pod| pod.str("status.phase") == "Failed");
    let status = container(&pod, "main");
    assert_eq!((status.int("restartCount"), status.int("state.terminated.exitCode")), (Some(1), Some(3)));
}

fn deletion(case: &Case) {
    let deaf =
        "containers: [{name: main, image: IMAGE, command: [sh, -c, 'trap \"\" TERM; while :; do sleep 0.1; done']}]";
    for pod in ["patient", "forced", "now"] {
        case.pod(pod, &format!("terminationGracePeriodSeconds: 60, {deaf}"));
    }
    for pod in ["patient", "forced", "now"] {
        case.until_ready(pod);
    }
    let delete = |args: &[&str]| {
        let started = Instant::now();
        case.kubectl(&[&["delete", "pod"], args].concat());
        started.elapsed().as_secs_f32()
    };
    let forced = delete(&["forced", "--grace-period=0", "--force"]);
    assert!(forced < 8.0, "{forced} s");
    let now = delete(&["now", "--now"]);
    assert!((0.9..12.0).contains(&now), "{now} s");
    case.kubectl(&["delete", "pod", "patient", "--grace-period=3", "--wait=false"]);
    let pod = case.pods("patient");
    assert_eq!(pod.int("metadata.deletionGracePeriodSeconds"), Some(3));
    assert!(case.kubectl(&["get", "pod", "patient"]).contains("Terminating"));
    case.until_gone("patient");
    case.until_event("patient", "Killing", "Stopping container main");
}

fn impossible(case: &Case) {
    case.pod("command", "containers: [{name: main, image: IMAGE, command: [/no/such/program]}]");
    case.pod("user", "containers: [{name: main, image: IMAGE, securityContext: {runAsNonRoot: true}}]");
    case.pod("key", "containers: [{name: main, image: IMAGE, env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: k}}}]}]");
    case.pod("volume", "volumes: [{name: a, configMap: {name: none}}], containers: [{name: main, image: IMAGE, volumeMounts: [{name: a, mountPath: /a}]}]");
    let waits = |pod: &str, reasons: &[&str], part: &str| {
        let seen = case.until_pod(pod, part, |pod| {
            let state = container(pod, "main").clone();
            let states = [state.at("state.waiting"), state.at("lastState.terminated"), state.at("state.terminated")];
            states.iter().any(|state| reasons.contains(&state.str("reason")) && state.str("message").contains(part))
        });
        assert_eq!(condition(&seen, "Ready"), "False");
    };
    waits("command", &["RunContainerError", "StartError", "ContainerCannotRun"], "/no/such/program");
    waits("user", &["CreateContainerConfigError"], "container has runAsNonRoot and image will run as root");
    waits("key", &["CreateContainerConfigError"], "configmap \"none\" not found");
    case.until_event(
        "volume",
        "FailedMount",
        "MountVolume.SetUp failed for volume \"a\" : configmap \"none\" not found",
    );
    case.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: none}, data: {k: v}}");
    case.until_ready("key");
}
