//! Lists of sandboxes and containers, and their filters.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::{ContainerFilter, ContainerStatsFilter, PodSandboxFilter, PodSandboxStatsFilter};

use super::state::{Container, Sandbox};
use super::{Service, convert};

/// Whether the labels match a selector.
fn matches_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether an ID begins with the requested ID.
fn matches_id(id: &str, requested: &str) -> bool {
    id.starts_with(requested)
}

impl Service {
    pub(super) fn sandboxes(&self, filter: Option<PodSandboxFilter>) -> Vec<cri::PodSandbox> {
        let filter = filter.unwrap_or_default();
        let all = self.0.sandboxes.all().into_iter().map(|s| convert::sandbox(&s.record()));
        all.filter(|s| {
            matches_id(&s.id, &filter.id)
                && filter.state.as_ref().is_none_or(|requested| requested.state == s.state)
                && matches_labels(&s.labels, &filter.label_selector)
        })
        .collect()
    }

    pub(super) fn containers(&self, filter: Option<ContainerFilter>) -> Vec<cri::Container> {
        let filter = filter.unwrap_or_default();
        let all = self.0.containers.all().into_iter().map(|c| convert::container(&c));
        all.filter(|c| {
            matches_id(&c.id, &filter.id)
                && matches_id(&c.pod_sandbox_id, &filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|requested| requested.state == c.state)
                && matches_labels(&c.labels, &filter.label_selector)
        })
        .collect()
    }

    /// Only running containers have usage.
    pub(super) fn running_containers(&self, filter: Option<ContainerStatsFilter>) -> Vec<Arc<Container>> {
        let filter = filter.unwrap_or_default();
        let requested = |c: &Arc<Container>| {
            let labels = c.record().config.unwrap_or_default().labels;
            c.is_running()
                && matches_id(&c.id, &filter.id)
                && matches_id(&c.sandbox.id, &filter.pod_sandbox_id)
                && matches_labels(&labels, &filter.label_selector)
        };
        self.0.containers.all().into_iter().filter(requested).collect()
    }

    pub(super) fn ready_sandboxes(&self, filter: Option<PodSandboxStatsFilter>) -> Vec<Arc<Sandbox>> {
        let filter = filter.unwrap_or_default();
        let requested = |s: &Arc<Sandbox>| {
            let ready = convert::sandbox_state(&s.record()) == cri::PodSandboxState::Ready;
            ready && matches_id(&s.id, &filter.id) && matches_labels(&s.config().labels, &filter.label_selector)
        };
        self.0.sandboxes.all().into_iter().filter(requested).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_must_match() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let labels = map(&[("a", "1"), ("b", "2")]);
        for (selector, expected) in
            [(map(&[]), true), (map(&[("a", "1")]), true), (map(&[("a", "2")]), false), (map(&[("c", "")]), false)]
        {
            assert_eq!(matches_labels(&labels, &selector), expected, "{selector:?}");
        }
    }
}
