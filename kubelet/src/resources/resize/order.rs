//! The order of pods with pending resizes, and texts about resizes.

use std::cmp::Reverse;

use api::{Tree, json, tree};

use super::allocation::{Amounts, with};
use crate::model::pod;
use crate::model::resources::resizable;
use crate::model::resources::{Class, class};

/// Smaller comes first: resizes that free resources, then by priority, class, and waiting time.
pub(crate) type Rank = (bool, Reverse<i64>, Class, i64);

pub(crate) fn rank(wanted: &Tree, allocated: &Amounts, since: i64) -> Rank {
    let (new, old) = (requests(wanted), requests(&with(wanted, allocated)));
    let grows = new.milli_cpu > old.milli_cpu || new.memory > old.memory;
    (grows, Reverse(wanted.int("spec.priority").unwrap_or(0)), class(wanted), since)
}

/// The requests of the spec alone.
pub(crate) fn requests(pod: &Tree) -> podmodel::Resources {
    podmodel::requests(&tree! { "spec" => pod.at("spec").clone() })
}

/// The text of an event about a resize.
pub(crate) fn text(what: &str, pod: &Tree, error: &str) -> String {
    let summary = |spec: &&Tree| {
        let mut one = tree! { "name" => spec.str("name") };
        if let Some(resources) = spec.get("resources") {
            one.set("resources", resources.clone());
        }
        one
    };
    let (beside, main): (Vec<&Tree>, Vec<&Tree>) = resizable(pod).partition(|spec| pod::is_sidecar(spec));
    let mut message = tree! {};
    for (key, list) in [("initContainers", beside), ("containers", main)] {
        let list: Vec<Tree> = list.iter().map(summary).collect();
        if !list.is_empty() {
            message.set(key, list);
        }
    }
    message.set("generation", pod.int("metadata.generation").unwrap_or(0));
    if !error.is_empty() {
        message.set("error", error);
    }
    format!("Pod resize {what}: {}", String::from_utf8_lossy(&json::encode(&message, None)))
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn pod(cpu: &str, more: &str) -> Tree {
        let text = format!(
            "{{metadata: {{generation: 3}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]{more}}}}}"
        );
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    #[test]
    fn orders_by_freed_resources_priority_and_waiting_time() {
        let allocated = super::super::allocation::desired_resources(&pod("1", ""));
        let mut ranks = [
            ("late", rank(&pod("2", ""), &allocated, 9)),
            ("early", rank(&pod("2", ""), &allocated, 1)),
            ("important", rank(&pod("2", ", priority: 7"), &allocated, 9)),
            ("smaller", rank(&pod("500m", ""), &allocated, 99)),
        ];
        ranks.sort_by_key(|(_, rank)| *rank);
        assert_eq!(ranks.map(|(name, _)| name), ["smaller", "important", "early", "late"]);
    }

    #[test]
    fn events_show_desired_resources() {
        assert_eq!(
            text("Deferred", &pod("2", ""), "no room"),
            "Pod resize Deferred: {\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":2}}}],\
             \"error\":\"no room\",\"generation\":3}"
        );
    }
}
