//! The conditions that a node reports of a pod. A condition keeps the time of its last change.

use api::{Tree, time, tree};

/// What a kubelet knows of a pod beyond its object.
pub struct ConditionInputs<'a> {
    /// "" while it is not over.
    pub phase: &'a str,
    /// The names of the containers that are not ready.
    pub unready: Vec<&'a str>,
    /// Those that have to prepare the pod and have not done so yet.
    pub incomplete: Vec<&'a str>,
    /// The sandbox is there, with its network.
    pub has_sandbox: bool,
    /// Whether containers are stopped to restart all of them; None if no restart rule can do so.
    pub begins_anew: Option<bool>,
    pub now: i64,
}

/// The conditions of a pod's status.
pub fn conditions(pod: &Tree, inputs: &ConditionInputs<'_>) -> Vec<Tree> {
    let containers = containers_ready(inputs);
    let ready = ready(pod, &containers);
    let report = |(name, (status, reason, message)): (&str, ConditionStatus)| {
        let old = pod.list("status.conditions").iter().find(|condition| condition.str("type") == name);
        let mut condition = tree! { "type" => name, "status" => status };
        let since = old.filter(|old| old.str("status") == status).map(|old| old.str("lastTransitionTime"));
        condition.set("lastTransitionTime", since.map_or_else(|| time::format_seconds(inputs.now), Into::into));
        condition.set("lastProbeTime", Tree::Null);
        for (key, text) in [("reason", reason), ("message", message)] {
            if !text.is_empty() {
                condition.set(key, text);
            }
        }
        condition.set("observedGeneration", pod.int("metadata.generation").unwrap_or(0));
        condition
    };
    let yes = |reason: &str| ("True", reason.to_string(), String::new());
    let sandbox = if inputs.has_sandbox { yes("") } else { no("", String::new()) };
    let initialized = match (inputs.phase, inputs.incomplete.is_empty()) {
        ("Succeeded", _) => yes("PodCompleted"),
        (_, true) => yes(""),
        _ => no("ContainersNotInitialized", named("incomplete", &inputs.incomplete)),
    };
    let mut all = vec![
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", yes("")),
    ];
    all.extend(inputs.begins_anew.map(|now| ("AllContainersRestarting", restarting(inputs.phase, now))));
    all.into_iter().map(report).collect()
}

fn restarting(phase: &str, now: bool) -> ConditionStatus {
    match phase {
        "Succeeded" => no("PodCompleted", String::new()),
        "Failed" => no("PodFailed", String::new()),
        _ if now => {
            let why = "container exited with restart policy rule";
            ("True", "RestartAllContainersStarted".to_string(), why.to_string())
        }
        _ => no("", String::new()),
    }
}

/// Status, reason and message.
type ConditionStatus = (&'static str, String, String);

fn no(reason: &str, message: String) -> ConditionStatus {
    ("False", reason.to_string(), message)
}

fn containers_ready(inputs: &ConditionInputs<'_>) -> ConditionStatus {
    match inputs.phase {
        "Succeeded" => no("PodCompleted", String::new()),
        "Failed" => no("PodFailed", String::new()),
        _ if inputs.unready.is_empty() => ("True", String::new(), String::new()),
        _ => no("ContainersNotReady", named("unready", &inputs.unready)),
    }
}

fn named(what: &str, containers: &[&str]) -> String {
    format!("containers with {what} status: [{}]", containers.join(" "))
}

fn ready(pod: &Tree, containers: &ConditionStatus) -> ConditionStatus {
    if containers.0 == "False" {
        return containers.clone();
    }
    let missing = |gate: &str| {
        let found = pod.list("status.conditions").iter().find(|condition| condition.str("type") == gate);
        match found.map(|condition| condition.str("status")) {
            None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
            Some("True") => None,
            Some(status) => Some(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {status}")),
        }
    };
    let gates = pod.list("spec.readinessGates").iter().filter_map(|gate| missing(gate.str("conditionType")));
    let messages: Vec<String> = gates.collect();
    if messages.is_empty() { containers.clone() } else { no("ReadinessGatesNotReady", messages.join(", ")) }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn show(pod: &Tree, phase: &str, unready: Vec<&str>) -> String {
        let conditions = conditions(
            pod,
            &ConditionInputs { phase, unready, incomplete: vec![], has_sandbox: true, begins_anew: None, now: 60 },
        );
        let short = |condition: &Tree| {
            let since = &condition.str("lastTransitionTime")[14..19];
            format!("{}={} {}@{since}", condition.str("type"), condition.str("status"), condition.str("reason"))
        };
        conditions.iter().map(short).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn conditions_follow_containers_gates_and_phase() {
        let old =
            list![tree! { "type" => "Ready", "status" => "False", "lastTransitionTime" => "1970-01-01T00:00:07Z" }];
        let mut pod = tree! { "status" => tree! { "conditions" => old } };
        assert_eq!(
            show(&pod, "", vec!["a", "b"]),
            "PodReadyToStartContainers=True @01:00; Initialized=True @01:00; Ready=False ContainersNotReady@00:07; \
             ContainersReady=False ContainersNotReady@01:00; PodScheduled=True @01:00"
        );
        let unprepared = ConditionInputs {
            phase: "",
            unready: vec![],
            incomplete: vec!["i"],
            has_sandbox: false,
            begins_anew: None,
            now: 60,
        };
        let conditions = conditions(&pod, &unprepared);
        assert_eq!(conditions[0].str("status"), "False");
        assert_eq!(conditions[1].str("message"), "containers with incomplete status: [i]");
        assert!(show(&pod, "", vec![]).contains("Ready=True @01:00"));
        assert!(show(&pod, "Succeeded", vec![]).contains("Ready=False PodCompleted@00:07"));
        assert!(show(&pod, "Failed", vec![]).contains("ContainersReady=False PodFailed@01:00"));
        pod.child("spec").set("readinessGates", list![tree! { "conditionType" => "example.com/gate" }]);
        assert!(show(&pod, "", vec![]).contains("Ready=False ReadinessGatesNotReady@00:07"));
        pod.child("status").list_entry("conditions").push(tree! { "type" => "example.com/gate", "status" => "True" });
        assert!(show(&pod, "", vec![]).contains("Ready=True @01:00"));
    }
}
