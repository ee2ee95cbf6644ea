//! Statuses as tables.

use std::time::Duration;

use api::{Tree, list, tree};

use super::*;
use crate::model::state::{Container, Sandbox, Stage};
use crate::pod::plan::Backoffs;

fn pod(policy: &str) -> Tree {
    tree! {
        "metadata" => tree! { "name" => "web", "namespace" => "default", "uid" => "u", "generation" => 3 },
        "spec" => tree! {
            "restartPolicy" => policy,
            "containers" => list![tree! { "name" => "a", "image" => "i" }, tree! { "name" => "b", "image" => "i" }],
        },
    }
}

/// `name` and its state: "running", "created" or an exit code; an earlier container of the same name comes later.
fn container(index: usize, (name, what): &(&str, &str)) -> Container {
    let exit_code = what.parse().unwrap_or(0);
    let stage = match *what {
        "running" => Stage::Running,
        "created" => Stage::Created,
        _ => Stage::Exited,
    };
    let status = cri::ContainerStatus {
        id: format!("{name}{index}"),
        metadata: Some(cri::ContainerMetadata { name: name.to_string(), attempt: 0 }),
        state: stage.into(),
        created_at: 100 - i64::try_from(index).unwrap_or(0),
        started_at: 2_000_000_000,
        finished_at: 3_000_000_000,
        exit_code,
        ..Default::default()
    };
    crate::model::state::container("s", status)
}

fn state(containers: &[(&str, &str)]) -> PodState {
    let sandbox = Sandbox { id: "s".into(), is_ready: true, addresses: vec!["10.0.0.9".into()], ..Sandbox::default() };
    let containers = containers.iter().enumerate().map(|(index, what)| container(index, what)).collect();
    PodState { sandboxes: vec![sandbox], containers, round: 0 }.sorted()
}

fn say(pod: &Tree, state: &PodState, verdicts: Verdicts, backoffs: &[RestartBackoff], is_over: bool) -> Tree {
    status(&View {
        pod,
        state,
        verdicts: &|_| verdicts,
        backoffs,
        problems: &Problems::new(),
        runtime: "tiphys",
        host_ips: &["192.0.2.7".parse().expect("an address")],
        is_over,
        ended: None,
        now: 60,
    })
}

/// The phase, and of each container what it is and whether it is ready.
fn short(status: &Tree) -> String {
    let one = |status: &Tree| {
        let state = status.at("state").as_map().and_then(|map| map.keys().next().map(str::to_string));
        let state = state.unwrap_or_default();
        let reason = status.at("state").at(&state).str("reason").to_string();
        let ready = if status.bool("ready") { "+" } else { "-" };
        format!("{}{ready}{state}{}", status.str("name"), if reason.is_empty() { reason } else { format!(":{reason}") })
    };
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let containers = lists.iter().flat_map(|list| status.list(list)).map(one);
    std::iter::once(status.str("phase").to_string()).chain(containers).collect::<Vec<_>>().join(" ")
}

#[test]
fn derives_the_phase_from_containers() {
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], bool, &'a str);
    let cases: [Case<'_>; 8] = [
        ("Always", &[], false, "Pending a-waiting:ContainerCreating b-waiting:ContainerCreating"),
        ("Always", &[("a", "running")], false, "Pending a+running b-waiting:ContainerCreating"),
        ("Always", &[("a", "running"), ("b", "running")], false, "Running a+running b+running"),
        ("Always", &[("a", "running"), ("b", "1")], false, "Running a+running b-terminated:Error"),
        ("Always", &[("a", "0"), ("b", "1")], false, "Running a-terminated:Completed b-terminated:Error"),
        ("Never", &[("a", "0"), ("b", "0")], false, "Succeeded a-terminated:Completed b-terminated:Completed"),
        ("OnFailure", &[("a", "0"), ("b", "1")], false, "Running a-terminated:Completed b-terminated:Error"),
        ("Always", &[("a", "0"), ("b", "137")], true, "Failed a-terminated:Completed b-terminated:Error"),
    ];
    for (policy, containers, is_over, expected) in cases {
        let status = say(&pod(policy), &state(containers), Verdicts::default(), &[], is_over);
        assert_eq!(short(&status), expected, "{policy} {containers:?}");
    }
}

#[test]
fn reports_the_stop_signal() {
    let mut pod = pod("Always");
    pod.list_mut("spec.containers")[0].set("lifecycle", tree! { "stopSignal" => "SIGUSR1" });
    let mut state = state(&[("a", "running"), ("b", "running")]);
    for container in &mut state.containers {
        container.stop_signal = cri::Signal::Sigusr1.into();
    }
    let status = say(&pod, &state, Verdicts::default(), &[], false);
    let signals: Vec<&str> = status.list("containerStatuses").iter().map(|status| status.str("stopSignal")).collect();
    assert_eq!(signals, ["SIGUSR1", ""]);
}

#[test]
fn init_containers_block_main_containers() {
    let mut pod = pod("Never");
    let init = list![tree! { "name" => "i", "image" => "i" }];
    pod.child("spec").set("initContainers", init);
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let cases: [Case<'_>; 5] = [
        (&[], "Pending i-waiting:PodInitializing a-waiting:PodInitializing b-waiting:PodInitializing", "False"),
        (&[("i", "running")], "Pending i-running a-waiting:PodInitializing b-waiting:PodInitializing", "False"),
        (&[("i", "0")], "Pending i+terminated:Completed a-waiting:PodInitializing b-waiting:PodInitializing", "True"),
        (&[("i", "1")], "Failed i-terminated:Error a-waiting:PodInitializing b-waiting:PodInitializing", "False"),
        (
            &[("i", "0"), ("a", "running"), ("b", "running")],
            "Running i+terminated:Completed a+running b+running",
            "True",
        ),
    ];
    for (containers, expected, initialized) in cases {
        let status = say(&pod, &state(containers), Verdicts::default(), &[], false);
        assert_eq!(short(&status), expected, "{containers:?}");
        let condition = status.list("conditions").iter().find(|condition| condition.str("type") == "Initialized");
        assert_eq!(condition.expect("it is there").str("status"), initialized, "{containers:?}");
    }
}

#[test]
fn restarting_all_containers_is_no_failure() {
    let mut pod = pod("Never");
    let codes = tree! { "operator" => "In", "values" => list![42] };
    let rules = list![tree! { "action" => "RestartAllContainers", "exitCodes" => codes }];
    pod.child("spec").list_mut("containers")[1].set("restartPolicyRules", rules);
    let cases = [
        (&[("a", "running"), ("b", "42")], "Running a+running b-waiting:ContainerCreating", "True"),
        (&[("a", "137"), ("b", "42")], "Running a-waiting:ContainerCreating b-waiting:ContainerCreating", "False"),
        (&[("a", "0"), ("b", "1")], "Failed a-terminated:Completed b-terminated:Error", "False"),
    ];
    for (containers, expected, begins) in cases {
        let mut state = state(containers);
        state.round = crate::pod::plan::restart::round(&pod, &state);
        let status = say(&pod, &state, Verdicts::default(), &[], false);
        assert_eq!(short(&status), expected, "{containers:?}");
        let is_it = |condition: &&Tree| condition.str("type") == "AllContainersRestarting";
        let condition = status.list("conditions").iter().find(is_it);
        assert_eq!(condition.expect("it is there").str("status"), begins, "{containers:?}");
    }
}

/// A status as the API has it.
fn old(text: &str) -> Tree {
    api::yaml::decode(text.as_bytes()).expect("a status")
}

#[test]
fn final_phase_does_not_change() {
    let evicted = "{phase: Failed, reason: Evicted, message: too much, containerStatuses: \
                   [{name: a, state: {terminated: {exitCode: 0}}}, {name: b, state: {terminated: {exitCode: 0}}}]}";
    let refused = "{phase: Failed, reason: OutOfpods, message: full}";
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 7] = [
        (evicted, &[("a", "0"), ("b", "0")], "Failed/Evicted/too much"),
        (evicted, &[], "Failed/Evicted/too much"),
        (refused, &[], "Failed/OutOfpods/full"),
        ("{phase: Succeeded}", &[("a", "1"), ("b", "1")], "Succeeded//"),
        // A controller has failed the pod; its containers are stopped.
        ("{phase: Failed, reason: NodeLost}", &[("a", "running"), ("b", "running")], "Failed/NodeLost/"),
        // An outdated reason is removed.
        ("{phase: Pending, reason: Why}", &[("a", "running"), ("b", "running")], "Running//"),
        ("{phase: Running, reason: Why}", &[("a", "running"), ("b", "running")], "Running/Why/"),
    ];
    for (status, containers, expected) in cases {
        let mut pod = pod("Never");
        pod.set("status", old(status));
        let state = if containers.is_empty() { PodState::default() } else { state(containers) };
        let result = say(&pod, &state, Verdicts::default(), &[], true);
        let short = format!("{}/{}/{}", result.str("phase"), result.str("reason"), result.str("message"));
        assert_eq!(short, expected, "{status} {containers:?}");
        if status == refused {
            assert!(!result.has("containerStatuses") && !result.has("conditions"), "it never ran: {result:?}");
        }
    }
}

#[test]
fn keeps_a_final_phase_that_a_controller_set() {
    let object = tree! { "status" => old("{phase: Failed, reason: NodeLost, conditions: [{type: Other}]}") };
    let pod = merged(&object, &old("{phase: Running, podIP: 10.0.0.1, conditions: [{type: Ready}]}"));
    assert_eq!((pod.str("status.phase"), pod.str("status.reason")), ("Failed", "NodeLost"));
    assert_eq!((pod.str("status.podIP"), pod.list("status.conditions").len()), ("10.0.0.1", 2));
}

#[test]
fn uses_the_last_status_of_missing_containers() {
    let crashed = "{containerID: x, restartCount: 4, state: {waiting: {}}, \
                    lastState: {terminated: {exitCode: 3, containerID: x}}}";
    // The policy, the last status of the container, and the new one: its state, its number, its last termination.
    let cases = [
        ("Always", "{restartCount: 2, state: {running: {}}}", "Running waiting 3 137"),
        ("OnFailure", "{restartCount: 2, state: {running: {}}}", "Running waiting 3 137"),
        ("Never", "{restartCount: 2, state: {running: {}}}", "Failed terminated:137 2 "),
        (
            "Always",
            "{restartCount: 3, state: {waiting: {}}, lastState: {terminated: {exitCode: 137}}}",
            "Running waiting 3 137",
        ),
        ("Never", "{restartCount: 0, state: {terminated: {exitCode: 0}}}", "Succeeded terminated:0 0 "),
        ("OnFailure", "{restartCount: 0, state: {terminated: {exitCode: 1}}}", "Running terminated:1 0 "),
        ("Always", crashed, "Running waiting 5 3"),
        ("Always", "{restartCount: 0, state: {waiting: {}}}", "Pending waiting 0 "),
    ];
    for (policy, status, expected) in cases {
        let mut pod = pod(policy);
        pod.child("spec").list_entry("containers").truncate(1);
        let mut container = old(status);
        container.set("name", "a");
        pod.set("status", tree! { "phase" => "Running", "containerStatuses" => list![container] });
        let result = say(&pod, &PodState::default(), Verdicts::default(), &[], false);
        let a = &result.list("containerStatuses")[0];
        let code = |state: &str| a.at(state).at("terminated").int("exitCode").map(|code| code.to_string());
        let state = code("state").map_or_else(|| "waiting".to_string(), |code| format!("terminated:{code}"));
        let restarts = a.int("restartCount").expect("a number");
        let last = code("lastState").unwrap_or_default();
        assert_eq!(format!("{} {state} {restarts} {last}", result.str("phase")), expected, "{policy} {status}");
        // A second computation gives the same status.
        pod.set("status", result.clone());
        assert_eq!(say(&pod, &PodState::default(), Verdicts::default(), &[], false), result, "{policy} {status}");
    }
}

#[test]
fn keeps_termination_messages_of_removed_files() {
    let mut pod = pod("Never");
    let mut ended = state(&[("a", "1"), ("b", "0")]);
    ended.containers.iter_mut().filter(|seen| seen.name == "a").for_each(|seen| seen.message = "gone".into());
    let status = say(&pod, &ended, Verdicts::default(), &[], true);
    pod.set("status", status);
    let again = say(&pod, &state(&[("a", "1"), ("b", "0")]), Verdicts::default(), &[], true);
    let messages: Vec<&str> =
        again.list("containerStatuses").iter().map(|status| status.str("state.terminated.message")).collect();
    assert_eq!(messages, ["gone", ""]);
}

#[test]
fn probes_decide_readiness() {
    let mut pod = pod("Always");
    pod.child("spec").list_mut("containers")[0].set("readinessProbe", tree! {});
    let running = state(&[("a", "running"), ("b", "running")]);
    for (readiness, expected) in [(None, "Running a-running b+running"), (Some(true), "Running a+running b+running")] {
        let verdicts = Verdicts { readiness, ..Verdicts::default() };
        assert_eq!(short(&say(&pod, &running, verdicts, &[], false)), expected);
    }
}

#[test]
fn crashed_container_waits_and_shows_its_last_state() {
    let mut backoffs = Backoffs::new(Duration::from_secs(300));
    backoffs.started_again("a", 0, 0);
    let wait = backoffs.wait("a", 3_000_000_000, 4_000_000_000).expect("it waits");
    let state = state(&[("a", "1"), ("b", "running")]);
    let status = say(&pod("Always"), &state, Verdicts::default(), &[wait], false);
    assert_eq!(short(&status), "Running a-waiting:CrashLoopBackOff b+running");
    let a = &status.list("containerStatuses")[0];
    assert_eq!(a.str("state.waiting.message"), "back-off 10s restarting failed container=a pod=web_default(u)");
    assert_eq!(a.at("lastState.terminated").int("exitCode"), Some(1));
    assert_eq!(a.at("lastState.terminated").str("containerID"), "tiphys://a0");
}

#[test]
fn sets_addresses_conditions_and_times() {
    let status = say(&pod("Always"), &state(&[("a", "running"), ("b", "running")]), Verdicts::default(), &[], false);
    assert_eq!(status.str("podIP"), "10.0.0.9");
    assert_eq!(status.list("podIPs")[0].str("ip"), "10.0.0.9");
    assert_eq!((status.str("hostIP"), status.str("startTime")), ("192.0.2.7", "1970-01-01T00:01:00Z"));
    assert_eq!(status.int("observedGeneration"), Some(3));
    let a = &status.list("containerStatuses")[0];
    assert_eq!((a.str("containerID"), a.str("state.running.startedAt")), ("tiphys://a0", "1970-01-01T00:00:02Z"));
    let types: Vec<&str> = status.list("conditions").iter().map(|condition| condition.str("status")).collect();
    assert_eq!(types, ["True"; 5]);
}
