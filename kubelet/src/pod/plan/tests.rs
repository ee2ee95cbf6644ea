//! Decisions as tables: a pod, the runtime's state, and the commands.

use std::time::Duration;

use api::{Tree, list, tree};

use super::*;
use crate::model::state::Sandbox;

const SECOND: i64 = 1_000_000_000;

fn pod(policy: &str) -> Tree {
    tree! {
        "metadata" => tree! { "name" => "web", "namespace" => "default", "uid" => "u" },
        "spec" => tree! {
            "restartPolicy" => policy,
            "containers" => list![tree! { "name" => "a", "image" => "i" }, tree! { "name" => "b", "image" => "i" }],
        },
    }
}

fn with_init(policy: &str, init: Tree) -> Tree {
    let mut pod = pod(policy);
    pod.child("spec").set("initContainers", list![init]);
    pod
}

fn sandbox(is_ready: bool) -> Sandbox {
    Sandbox { id: "s0".into(), is_ready, addresses: vec!["10.0.0.2".into()], ..Sandbox::default() }
}

/// `name` and its state: "running", "created", "unknown" or an exit code.
fn container(name: &str, what: &str) -> Container {
    let stage = match what {
        "running" => Stage::Running,
        "created" => Stage::Created,
        "unknown" => Stage::Unknown,
        _ => Stage::Exited,
    };
    Container {
        id: format!("id-{name}"),
        sandbox: "s0".into(),
        name: name.into(),
        restarts: 0,
        stage,
        hash: hash(&tree! { "name" => name, "image" => "i" }),
        created_at: 1,
        started_at: 2,
        finished_at: 3,
        exit_code: what.parse().unwrap_or(0),
        reason: String::new(),
        message: String::new(),
        image: "i".into(),
        image_id: "sha256:i".into(),
        log_path: String::new(),
        annotations: Default::default(),
        resources: None,
        user: None,
        stop_signal: 0,
    }
}

fn decide(pod: &Tree, ready: Option<bool>, containers: &[(&str, &str)]) -> Plan {
    decide_with(pod, ready, containers, Verdicts::default(), &Backoffs::new(Duration::from_secs(300)))
}

fn decide_with(
    pod: &Tree,
    ready: Option<bool>,
    containers: &[(&str, &str)],
    verdicts: Verdicts,
    backoffs: &Backoffs,
) -> Plan {
    let state = PodState {
        sandboxes: ready.map(sandbox).into_iter().collect(),
        containers: containers.iter().map(|(name, what)| container(name, what)).collect(),
        round: 0,
    };
    let resized = BTreeSet::new();
    let (verdicts, next_log) = (|_: &str| verdicts, |_: &str| 4);
    let now = 5 * SECOND;
    plan(&View { pod, state: &state, verdicts: &verdicts, resized: &resized, backoffs, next_log: &next_log, now })
}

/// The commands that change something, in their order.
fn short(plan: &Plan) -> String {
    let word = |command: &Command| match command {
        Command::StopContainer(stop) => Some(format!("-{}", stop.name)),
        Command::FinishPod => Some("finish".to_string()),
        Command::StopSandboxes => Some("stop".to_string()),
        Command::CreateSandbox { attempt } => Some(format!("sandbox#{attempt}")),
        Command::StartContainer(start) => Some(format!("+{}#{}", start.name, start.restarts)),
        _ => None,
    };
    plan.commands.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

fn stops(plan: &Plan) -> Vec<&StopContainer> {
    let mut stops = Vec::new();
    for command in &plan.commands {
        if let Command::StopContainer(stop) = command {
            stops.push(stop);
        }
    }
    stops
}

#[test]
fn starts_and_restarts_containers() {
    type Case<'a> = (&'a str, Option<bool>, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 13] = [
        ("Always", None, &[], "sandbox#0 +a#0 +b#0"),
        ("Always", Some(true), &[], "+a#0 +b#0"),
        ("Always", Some(true), &[("a", "running"), ("b", "running")], ""),
        ("Always", Some(true), &[("a", "running"), ("b", "0")], "+b#1"),
        ("Always", Some(true), &[("a", "running"), ("b", "created")], "+b#0"),
        ("Always", Some(true), &[("a", "running"), ("b", "unknown")], "-b +b#1"),
        ("OnFailure", Some(true), &[("a", "running"), ("b", "0")], ""),
        ("OnFailure", Some(true), &[("a", "running"), ("b", "1")], "+b#1"),
        ("Never", Some(true), &[("a", "running"), ("b", "1")], ""),
        ("Never", Some(true), &[("a", "0"), ("b", "1")], "finish"),
        ("Always", Some(false), &[("a", "1"), ("b", "1")], "stop sandbox#1 +a#1 +b#1"),
        ("Never", Some(false), &[("a", "1"), ("b", "1")], "finish"),
        ("OnFailure", Some(false), &[("a", "0"), ("b", "0")], "finish"),
    ];
    for (policy, ready, containers, expected) in cases {
        let plan = decide(&pod(policy), ready, containers);
        assert_eq!(short(&plan), expected, "{policy} {ready:?} {containers:?}");
    }
}

#[test]
fn does_not_repeat_containers_that_the_runtime_forgot() {
    let running = "{restartCount: 1, state: {running: {}}}";
    let done = "{restartCount: 0, state: {terminated: {exitCode: 0}}}";
    let failed = "{restartCount: 0, state: {terminated: {exitCode: 1}}}";
    let awaited = "{restartCount: 3, state: {waiting: {}}}";
    // The policy, the last reported status of both, the sandbox, and the commands.
    let cases = [
        ("Always", [running, done], None, "sandbox#0 +a#2 +b#1"),
        ("Always", [awaited, awaited], None, "sandbox#0 +a#3 +b#3"),
        ("OnFailure", [running, done], None, "sandbox#0 +a#2"),
        ("OnFailure", [failed, done], None, "sandbox#0 +a#1"),
        ("OnFailure", [done, done], None, "finish"),
        ("OnFailure", [running, done], Some(true), "+a#2"),
        ("Never", [running, done], None, "finish"),
        ("Never", [done, awaited], None, "finish"),
        ("Never", [awaited, awaited], None, "sandbox#0 +a#3 +b#3"),
        ("Never", [done, done], Some(true), "finish"),
    ];
    for (policy, [a, b], ready, expected) in cases {
        let named = |name: &str, status: &str| {
            let mut status = api::yaml::decode(status.as_bytes()).expect("a status");
            status.set("name", name);
            status
        };
        let mut pod = pod(policy);
        pod.set("status", tree! { "containerStatuses" => list![named("a", a), named("b", b)] });
        assert_eq!(short(&decide(&pod, ready, &[])), expected, "{policy} {a} {b} {ready:?}");
    }
    let mut pod = pod("Always");
    pod.child("spec").set("ephemeralContainers", list![tree! { "name" => "e", "image" => "i" }]);
    let both = [("a", "running"), ("b", "running")];
    assert_eq!(short(&decide(&pod, Some(true), &both)), "+e#0");
    let ended = tree! { "name" => "e", "state" => tree! { "terminated" => tree! { "exitCode" => 0 } } };
    pod.set("status", tree! { "ephemeralContainerStatuses" => list![ended] });
    assert_eq!(short(&decide(&pod, Some(true), &both)), "", "it is started once");
}

#[test]
fn init_containers_run_first() {
    let init = || tree! { "name" => "i", "image" => "i" };
    type Case<'a> = (&'a str, Option<bool>, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 7] = [
        ("Always", None, &[], "sandbox#0 +i#0"),
        ("Always", Some(true), &[], "+i#0"),
        ("Always", Some(true), &[("i", "running")], ""),
        ("Always", Some(true), &[("i", "0")], "+a#0 +b#0"),
        ("Always", Some(true), &[("i", "1")], "+i#1"),
        ("Never", Some(true), &[("i", "1")], "finish"),
        // An init container does not run again once main containers exist.
        ("Always", Some(true), &[("i", "1"), ("a", "running"), ("b", "running")], ""),
    ];
    for (policy, ready, containers, expected) in cases {
        let plan = decide(&with_init(policy, init()), ready, containers);
        assert_eq!(short(&plan), expected, "{policy} {ready:?} {containers:?}");
    }
}

#[test]
fn sidecars_start_first_and_keep_running() {
    let sidecar = || tree! { "name" => "i", "image" => "i", "restartPolicy" => "Always" };
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 5] = [
        (&[], "+i#0"),
        (&[("i", "1"), ("a", "0"), ("b", "1")], "finish"),
        (&[("i", "running")], "+a#0 +b#0"),
        (&[("i", "0"), ("a", "running"), ("b", "running")], "+i#1"),
        (&[("i", "running"), ("a", "0"), ("b", "1")], "finish"),
    ];
    for (containers, expected) in cases {
        assert_eq!(short(&decide(&with_init("Never", sidecar()), Some(true), containers)), expected, "{containers:?}");
    }
    let mut slow = sidecar();
    slow.set("startupProbe", tree! {});
    let plan = decide(&with_init("Never", slow), Some(true), &[("i", "running")]);
    assert_eq!(short(&plan), "", "main containers wait for its startup probe");
}

#[test]
fn failed_probes_and_changed_specs_stop_containers() {
    let backoffs = Backoffs::new(Duration::from_secs(300));
    let running = [("a", "running"), ("b", "running")];
    let dead = Verdicts { liveness: Some(false), ..Verdicts::default() };
    let mut probed = pod("Always");
    let probe = tree! { "terminationGracePeriodSeconds" => 7 };
    probed.child("spec").list_mut("containers")[0].set("livenessProbe", probe);
    let plan = decide_with(&probed, Some(true), &running, dead, &backoffs);
    assert_eq!(short(&plan), "-a -b +a#1 +b#1");
    let grace_seconds: Vec<_> = stops(&plan).iter().map(|stop| stop.grace_seconds).collect();
    assert_eq!(grace_seconds, [Some(7), None], "a probe can have its own grace period");
    assert!(stops(&plan).iter().all(|stop| stop.runs_pre_stop));
    let plan = decide_with(&pod("Never"), Some(true), &running, dead, &backoffs);
    assert_eq!(short(&plan), "-a -b finish", "the pod has completed");
    assert_eq!(stops(&plan)[0].message, "Container a failed liveness probe");
    let mut changed = pod("Always");
    changed.child("spec").list_mut("containers")[0].set("image", "other");
    assert_eq!(short(&decide(&changed, Some(true), &running)), "-a +a#1");
}

#[test]
fn restart_policy_rules_restart_by_exit_code() {
    let mut pod = pod("Never");
    let codes = tree! { "operator" => "In", "values" => list![42] };
    let rules = list![tree! { "action" => "Restart", "exitCodes" => codes }];
    let spec = &mut pod.child("spec").list_mut("containers")[1];
    spec.set("restartPolicy", "Never");
    spec.set("restartPolicyRules", rules);
    for (code, expected) in [("42", "+b#1"), ("1", "")] {
        assert_eq!(short(&decide(&pod, Some(true), &[("a", "running"), ("b", code)])), expected, "{code}");
    }
}

#[test]
fn a_rule_restarts_all_containers() {
    let mut pod = with_init("Never", tree! { "name" => "i", "image" => "i" });
    let codes = tree! { "operator" => "In", "values" => list![42] };
    let spec = &mut pod.child("spec").list_mut("containers")[1];
    spec.set("restartPolicy", "Never");
    spec.set("restartPolicyRules", list![tree! { "action" => "RestartAllContainers", "exitCodes" => codes }]);
    // Name, state, time of creation; b exited at 3.
    type Case<'a> = (&'a [(&'a str, &'a str, i64)], &'a str);
    let cases: [Case<'_>; 7] = [
        (&[("i", "0", 1), ("a", "running", 1), ("b", "running", 1)], ""),
        (&[("i", "0", 1), ("a", "running", 1), ("b", "42", 1)], "-a"),
        (&[("i", "0", 1), ("a", "137", 1), ("b", "42", 1)], "+i#1"),
        (&[("i", "running", 4), ("i", "0", 1), ("a", "137", 1), ("b", "42", 1)], ""),
        (&[("i", "0", 4), ("i", "0", 1), ("a", "137", 1), ("b", "42", 1)], "+a#1 +b#1"),
        (&[("a", "running", 5), ("b", "running", 5), ("i", "0", 4), ("a", "137", 1), ("b", "42", 1)], ""),
        (&[("a", "0", 5), ("b", "1", 5), ("i", "0", 4), ("a", "137", 1), ("b", "42", 1)], "finish"),
    ];
    for (containers, expected) in cases {
        let made = |(name, what, created_at): &(&str, &str, i64)| Container {
            created_at: *created_at,
            ..container(name, what)
        };
        let mut state =
            PodState { sandboxes: vec![sandbox(true)], containers: containers.iter().map(made).collect(), round: 0 };
        state.round = restart::round(&pod, &state);
        let backoffs = Backoffs::new(Duration::from_secs(300));
        let view = View {
            pod: &pod,
            state: &state,
            verdicts: &|_| Verdicts::default(),
            resized: &BTreeSet::new(),
            backoffs: &backoffs,
            next_log: &|_| 0,
            now: 5 * SECOND,
        };
        assert_eq!(short(&plan(&view)), expected, "{containers:?}");
    }
}

#[test]
fn restart_backoff_doubles_with_each_crash() {
    let mut backoffs = Backoffs::new(Duration::from_secs(300));
    let mut now = 100 * SECOND;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let ended_at = now;
        let wait = backoffs.wait("a", ended_at, now);
        pauses.push(wait.as_ref().map_or(0, |wait| wait.pause_seconds));
        now = wait.map_or(now, |wait| wait.until);
        assert_eq!(backoffs.wait("a", ended_at, now), None);
        backoffs.started_again("a", ended_at, now);
        now += SECOND;
    }
    assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
    now += 1000 * SECOND;
    assert_eq!(backoffs.wait("a", now, now), None, "it ran for long");
}

#[test]
fn commands_are_in_the_order_in_which_they_are_carried_out() {
    use Command::{EnsureCgroup, FinishPod, PrepareVolumes, ReadState, ResizeContainers, StopSandboxes};
    let (running, exited) = ([("a", "running"), ("b", "running")], [("a", "1"), ("b", "1")]);
    let prepare = [EnsureCgroup, ResizeContainers, PrepareVolumes];
    assert_eq!(decide(&pod("Always"), Some(true), &running).commands, prepare);
    assert_eq!(decide(&pod("Never"), Some(true), &exited).commands, [FinishPod]);

    let plan = decide(&pod("Always"), Some(false), &exited);
    assert_eq!(plan.commands[..3], prepare);
    assert_eq!(plan.commands[3..5], [StopSandboxes, Command::CreateSandbox { attempt: 1 }]);
    assert!(matches!(plan.commands[5..], [Command::StartContainer(_), Command::StartContainer(_)]));

    let dead = Verdicts { liveness: Some(false), ..Verdicts::default() };
    let mut backoffs = Backoffs::new(Duration::from_secs(300));
    let plan = decide_with(&pod("Never"), Some(true), &running, dead, &backoffs);
    assert_eq!(plan.commands[2..], [ReadState, FinishPod]);

    backoffs.started_again("a", 5 * SECOND, 5 * SECOND);
    let plan = decide_with(&pod("Always"), Some(true), &running, dead, &backoffs);
    assert!(matches!(&plan.commands[0], Command::Backoff(backoff) if backoff.name == "a"));
    assert_eq!(plan.commands[1..4], prepare);
    assert_eq!(short(&plan), "-a -b +b#1");
}

#[test]
fn a_start_lists_the_containers_it_replaces() {
    let both = |a: &[(&str, &str)]| {
        let plan = decide(&pod("Always"), Some(true), a);
        plan.commands.into_iter().find_map(|command| match command {
            Command::StartContainer(start) if start.name == "a" => Some(start),
            _ => None,
        })
    };
    let check = |containers: &[(&str, &str)], crash: Crash, unstarted: usize, older: usize| {
        let start = both(containers).expect("a start");
        let found = (start.crash, start.unstarted.len(), start.older.len());
        assert_eq!(found, (crash, unstarted, older), "{containers:?}");
    };
    check(&[], Crash::None, 0, 0);
    check(&[("a", "1")], Crash::At(3), 0, 0);
    check(&[("a", "1"), ("a", "1"), ("a", "0")], Crash::At(3), 0, 2);
    check(&[("a", "created")], Crash::None, 1, 0);
    check(&[("a", "unknown")], Crash::Now, 0, 0);
}

#[test]
fn log_files_count_the_restarts_of_static_pods() {
    let mut pod = pod("Always");
    let annotations = tree! { "kubernetes.io/config.source" => "file" };
    pod.child("metadata").set("annotations", annotations);
    assert_eq!(short(&decide(&pod, Some(true), &[("a", "1")])), "+a#1 +b#4");
}
