//! The last-change trigger time of endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Tree, time};
use client::Key;

use super::Pod;

/// Kept between two syncs of a service, so that only new changes count. Times are in seconds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Triggers {
    service: i64,
    pods: HashMap<Key, i64>,
    is_known: bool,
}

impl Triggers {
    /// The time of the oldest change since the last sync; None if nothing with a time has changed.
    pub(crate) fn follow(&mut self, service: &Tree, pods: &[Arc<Pod>]) -> Option<String> {
        let created = time::parse(service.str("metadata.creationTimestamp")).map_or(0, |time| time.seconds);
        let mut oldest = (created > self.service).then_some(created);
        let mut times = HashMap::with_capacity(pods.len());
        for (pod, turned) in pods.iter().filter_map(|pod| Some((pod, pod.turned?))) {
            if self.pods.get(&pod.key).is_none_or(|before| *before < turned) {
                oldest = Some(oldest.map_or(turned, |other| other.min(turned)));
            }
            times.insert(pod.key.clone(), turned);
        }
        self.pods = times;
        self.service = created;
        let is_new = !std::mem::replace(&mut self.is_known, true);
        let trigger = if is_new { Some(created) } else { oldest };
        trigger.map(|seconds| time::format_seconds(seconds).to_string())
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::super::pod::Templates;
    use super::*;

    fn pod(name: &str, since: &str) -> Arc<Pod> {
        let ready = tree! { "type" => "Ready", "status" => "True", "lastTransitionTime" => since };
        let status = tree! { "conditions" => list![ready] };
        let pod = tree! { "metadata" => tree! { "name" => name }, "status" => status };
        Arc::new(Pod::of(&pod, &Templates::default()))
    }

    #[test]
    fn oldest_change_is_the_trigger() {
        let service = tree! { "metadata" => tree! { "creationTimestamp" => "2024-05-05T00:00:00Z" } };
        let mut triggers = Triggers::default();
        let mut check = |pods: &[(&str, &str)], want: Option<&str>| {
            let pods: Vec<Arc<Pod>> = pods.iter().map(|(name, since)| pod(name, since)).collect();
            assert_eq!(triggers.follow(&service, &pods).as_deref(), want);
        };
        check(&[("a", "2024-01-01T00:00:00Z")], Some("2024-05-05T00:00:00Z"));
        check(&[("a", "2024-01-01T00:00:00Z")], None);
        check(&[("a", "2024-01-01T00:00:00Z"), ("b", "2024-01-02T00:00:00Z")], Some("2024-01-02T00:00:00Z"));
        check(&[("a", "2024-03-03T00:00:00Z"), ("b", "2024-03-02T00:00:00Z")], Some("2024-03-02T00:00:00Z"));
        check(&[("b", "2024-03-02T00:00:00Z")], None);
    }
}
