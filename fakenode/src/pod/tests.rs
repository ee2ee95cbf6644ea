use api::{list, tree};

use super::*;

const HOST: Host<'static> = Host { address: "172.16.0.1", pod_address: Some("10.128.0.1") };

fn pod(restart: &str, annotations: &[(&str, &str)]) -> Tree {
    let mut map = api::Map::new();
    annotations.iter().for_each(|(name, value)| drop(map.insert(format!("tiphys.io/fake-{name}"), *value)));
    tree! {
        "metadata" => tree! { "name" => "p", "uid" => "u", "generation" => 1, "annotations" => map },
        "spec" => tree! {
            "restartPolicy" => restart,
            "initContainers" => list![
                tree! { "name" => "setup", "image" => "i" },
                tree! { "name" => "side", "image" => "i", "restartPolicy" => "Always" },
            ],
            "containers" => list![tree! { "name" => "a", "image" => "i" }, tree! { "name" => "b", "image" => "i" }],
        },
        "status" => tree! { "phase" => "Pending" },
    }
}

/// What the server makes of a report; good enough for lists that are replaced as a whole.
fn take(pod: &mut Tree, report: &Tree) {
    for (key, value) in report.map("status").iter() {
        pod.child("status").set(key, value.clone());
    }
}

/// Lives until nothing more would happen, and says what was reported when.
fn lives(mut pod: Tree, most: usize) -> Vec<String> {
    let (mut now, mut told) = (100, Vec::new());
    for _ in 0..most {
        let plan = plan(&pod, &HOST, now);
        match plan.step {
            Step::Report(report) => {
                take(&mut pod, &report);
                told.push(format!("{now}: {}", show(&pod)));
                continue;
            }
            Step::Delete => {
                told.push(format!("{now}: delete"));
                break;
            }
            Step::Nothing => {}
        }
        match plan.next {
            Some(next) => now = next,
            None => break,
        }
    }
    told
}

fn show(pod: &Tree) -> String {
    let ready = pod.list("status.conditions").iter().find(|condition| condition.str("type") == "Ready");
    let ready = ready.map_or("", |condition| condition.str("status"));
    let state = |status: &Tree| {
        let state = status.map("state").keys().next().unwrap_or("").chars().next().unwrap_or('-');
        format!("{}={state}", status.str("name"))
    };
    let inits = pod.list("status.initContainerStatuses").iter().map(state);
    let states: Vec<String> = inits.chain(pod.list("status.containerStatuses").iter().map(state)).collect();
    format!("{} ready={ready} {}", pod.str("status.phase"), states.join(" "))
}

#[test]
fn a_pod_runs_on() {
    assert_eq!(lives(pod("Always", &[]), 20), ["100: Running ready=True setup=t side=r a=r b=r"]);
    assert_eq!(lives(pod("Never", &[]), 20), ["100: Running ready=True setup=t side=r a=r b=r"]);
    assert_eq!(
        lives(pod("Always", &[("ready-seconds", "5")]), 20),
        ["100: Running ready=False setup=t side=r a=r b=r", "105: Running ready=True setup=t side=r a=r b=r"]
    );
    assert_eq!(
        lives(pod("Always", &[("ready-seconds", "never")]), 20),
        ["100: Running ready=False setup=t side=r a=r b=r"]
    );
}

#[test]
fn a_pod_of_a_job_ends_as_its_annotations_say() {
    assert_eq!(
        lives(pod("Never", &[("exit-code", "0"), ("run-seconds", "7")]), 20),
        ["100: Running ready=True setup=t side=r a=r b=r", "107: Succeeded ready=False setup=t side=t a=t b=t"]
    );
    assert_eq!(
        lives(pod("OnFailure", &[("exit-code", "0")]), 20)[0],
        "100: Succeeded ready=False setup=t side=t a=t b=t"
    );
    assert_eq!(lives(pod("Never", &[("exit-code", "9")]), 20)[0], "100: Failed ready=False setup=t side=t a=t b=t");
    assert_eq!(
        lives(pod("OnFailure", &[("exit-code", "1"), ("run-seconds", "1")]), 9),
        [
            "100: Running ready=True setup=t side=r a=r b=r",
            "101: Running ready=False setup=t side=r a=t b=t",
            "101: Running ready=True setup=t side=r a=r b=r",
            "102: Running ready=False setup=t side=r a=t b=t",
            "102: Running ready=False setup=t side=r a=w b=w",
            "112: Running ready=True setup=t side=r a=r b=r",
        ]
    );
}

#[test]
fn a_pod_that_cannot_run_says_why() {
    let full = Host { pod_address: None, ..HOST };
    let Step::Report(report) = plan(&pod("Always", &[]), &full, 100).step else { panic!("a report") };
    assert_eq!((report.str("status.phase"), report.str("status.reason")), ("Failed", "OutOfpods"));
    let told = plan(&pod("Always", &[("exit-code", "x")]), &HOST, 100).step;
    let Step::Report(report) = told else { panic!("a report") };
    assert!(report.str("status.message").contains("fake-exit-code"), "{report:?}");
    let mut late = pod("Never", &[]);
    late.child("spec").set("activeDeadlineSeconds", 30);
    assert_eq!(
        lives(late, 20),
        ["100: Running ready=True setup=t side=r a=r b=r", "130: Failed ready=False setup=t side=t a=t b=t"]
    );
}

/// A pod that runs, deleted at 100.
fn deleted(restart: &str, annotations: &[(&str, &str)], grace: i64) -> Tree {
    let mut pod = pod(restart, annotations);
    if let Step::Report(report) = plan(&pod, &HOST, 90).step {
        take(&mut pod, &report);
    }
    pod.child("metadata").set("deletionTimestamp", time::format_seconds(100 + grace));
    pod.child("metadata").set("deletionGracePeriodSeconds", grace);
    pod
}

#[test]
fn a_deletion_is_completed() {
    let ended = "Failed ready=False setup=t side=t a=t b=t";
    assert_eq!(lives(deleted("Always", &[], 30), 20), ["100: delete"]);
    assert_eq!(lives(deleted("Always", &[("stop-seconds", "12")], 30), 20), ["112: delete"]);
    assert_eq!(lives(deleted("Always", &[("stop-seconds", "99")], 30), 20), ["130: delete"]);
    assert_eq!(lives(deleted("Never", &[], 30), 20), [format!("100: {ended}"), "100: delete".to_string()]);
    assert_eq!(lives(deleted("Always", &[], 0), 20), ["100: delete"], "the server ended before it was gone");
    let mut held = deleted("Always", &[], 0);
    held.child("metadata").set("finalizers", list!["example.com/hold"]);
    assert_eq!(lives(held, 20), [format!("100: {ended}")], "what holds it is not ours");
}

#[test]
fn what_others_wrote_is_left_alone() {
    let mut pod = pod("Always", &[]);
    if let Step::Report(report) = plan(&pod, &HOST, 90).step {
        take(&mut pod, &report);
    }
    let disruption = tree! { "type" => "DisruptionTarget", "status" => "True" };
    pod.child("status").list_entry("conditions").push(disruption);
    assert_eq!(plan(&pod, &HOST, 95), Plan { step: Step::Nothing, next: None });
}
