//! The resize fields of a pod's status.

use api::{Tree, time, tree};

use super::{Entry, Resizes, generation};
use crate::model::pod;
use crate::model::state::PodState;

pub(crate) const PENDING: &str = "PodResizePending";
pub(crate) const IN_PROGRESS: &str = "PodResizeInProgress";

impl Resizes {
    /// Adds the actual resources and the progress of a resize to a status.
    pub(crate) fn show(&self, pod: &Tree, state: &PodState, status: &mut Tree, now: i64) {
        let entries = self.entries();
        let Some(entry) = entries.get(pod::uid(pod)) else { return };
        show(entry, pod, state, status, now);
    }
}

fn show(entry: &Entry, pod: &Tree, state: &PodState, status: &mut Tree, now: i64) {
    for list in ["initContainerStatuses", "containerStatuses"] {
        if !status.has(list) {
            continue;
        }
        for one in status.list_mut(list) {
            let name = one.str("name").to_string();
            let runs = state.active(&name).is_some_and(|seen| seen.is_running());
            if let Some(old) = entry.record.behind.get(&name).filter(|_| runs) {
                one.set("resources", old.clone());
            }
        }
    }
    if let Some(whole) = entry.record.actual(super::WHOLE) {
        status.set("resources", whole.clone());
        let requests = entry.record.allocated.get(super::WHOLE).map(|whole| whole.at("requests").clone());
        status.set("allocatedResources", requests.unwrap_or_default());
    }
    let conditions = conditions(entry, pod, now);
    if !conditions.is_empty() {
        status.list_entry("conditions").extend(conditions);
    }
}

fn conditions(entry: &Entry, pod: &Tree, now: i64) -> Vec<Tree> {
    let pending = entry.pending.as_ref().map(|(problem, _)| (PENDING, &*problem.reason, problem.message.as_str()));
    let reason = if entry.error.is_empty() { "" } else { "Error" };
    let progress = entry.record.is_unfinished.then_some((IN_PROGRESS, reason, entry.error.as_str()));
    let make = |(name, reason, message): (&str, &str, &str)| {
        let old = pod.list("status.conditions").iter().find(|condition| condition.str("type") == name);
        let since = old.filter(|old| old.str("status") == "True").map(|old| old.str("lastTransitionTime").into());
        let mut condition = tree! {
            "type" => name,
            "status" => "True",
            "lastTransitionTime" => since.unwrap_or_else(|| time::format_seconds(now)),
            "lastProbeTime" => Tree::Null,
            "observedGeneration" => generation(pod),
        };
        for (key, text) in [("reason", reason), ("message", message)] {
            if !text.is_empty() {
                condition.set(key, text);
            }
        }
        condition
    };
    [pending, progress].into_iter().flatten().map(make).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{json, yaml};

    use super::*;
    use crate::model::problem::Problem;
    use crate::model::state;
    use crate::resources::resize::allocation::{Record, desired_resources};

    #[test]
    fn status_shows_allocated_and_actual_resources() {
        let pod = |cpu: &str| -> Tree {
            let text = format!(
                "{{metadata: {{generation: 2}}, spec: {{containers: [{{name: a, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
            );
            yaml::decode(text.as_bytes()).expect("YAML")
        };
        let mut entry = Entry::new(Record::of(&pod("1")), &Arc::new(pod("1")));
        let shown = |entry: &Entry| {
            let sandbox = state::Sandbox { id: "s".to_string(), ..Default::default() };
            let metadata = Some(cri::ContainerMetadata { name: "a".to_string(), attempt: 0 });
            let state = state::Stage::Running.into();
            let seen = cri::ContainerStatus { metadata, state, created_at: 1, ..Default::default() };
            let state = PodState {
                sandboxes: vec![sandbox],
                containers: vec![state::container("s", seen)],
                ..Default::default()
            };
            let mut status = yaml::decode(b"{containerStatuses: [{name: a}]}").expect("YAML");
            show(entry, &pod("2"), &state, &mut status, 0);
            String::from_utf8_lossy(&json::encode(&status, None)).into_owned()
        };
        assert_eq!(shown(&entry), r#"{"containerStatuses":[{"name":"a"}]}"#);
        let problem = Problem { reason: "Deferred".into(), message: "no room".to_string() };
        entry.pending = Some((problem, 0));
        assert!(shown(&entry).contains(r#""status":"True","type":"PodResizePending""#), "{}", shown(&entry));
        entry.pending = None;
        entry.record.allocate(desired_resources(&pod("2")));
        let after = shown(&entry);
        assert!(after.contains(r#"{"name":"a","resources":{"requests":{"cpu":"1"}}}"#), "{after}");
        assert!(
            after.contains(r#""status":"True","type":"PodResizeInProgress""#) && !after.contains("reason"),
            "{after}"
        );
        entry.error = "busy".to_string();
        let after = shown(&entry);
        assert!(after.contains(r#""message":"busy""#) && after.contains(r#""reason":"Error""#), "{after}");
    }
}
