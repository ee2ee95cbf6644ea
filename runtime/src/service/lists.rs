//! Lists and their filters.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::{ContainerFilter, ContainerStatsFilter, PodSandboxFilter, PodSandboxStatsFilter};

use super::state::{Container, Sandbox};
use super::{Service, convert};

/// Whether something has every label that is asked for, with its value.
fn labelled(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether an id is the one that is asked for, or begins with it.
fn named(id: &str, wanted: &str) -> bool {
    id.starts_with(wanted)
}

impl Service {
    pub(super) fn sandboxes(&self, filter: Option<PodSandboxFilter>) -> Vec<cri::PodSandbox> {
        let filter = filter.unwrap_or_default();
        let all = self.0.sandboxes.all().into_iter().map(|s| convert::sandbox(&s.record()));
        all.filter(|s| {
            named(&s.id, &filter.id)
                && filter.state.as_ref().is_none_or(|wanted| wanted.state == s.state)
                && labelled(&s.labels, &filter.label_selector)
        })
        .collect()
    }

    pub(super) fn containers(&self, filter: Option<ContainerFilter>) -> Vec<cri::Container> {
        let filter = filter.unwrap_or_default();
        let all = self.0.containers.all().into_iter().map(|c| convert::container(&c));
        all.filter(|c| {
            named(&c.id, &filter.id)
                && named(&c.pod_sandbox_id, &filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|wanted| wanted.state == c.state)
                && labelled(&c.labels, &filter.label_selector)
        })
        .collect()
    }

    /// Running ones: what has ended uses nothing.
    pub(super) fn measured_containers(&self, filter: Option<ContainerStatsFilter>) -> Vec<Arc<Container>> {
        let filter = filter.unwrap_or_default();
        let wanted = |c: &Arc<Container>| {
            let labels = c.record().config.unwrap_or_default().labels;
            c.is_running()
                && named(&c.id, &filter.id)
                && named(&c.sandbox.id, &filter.pod_sandbox_id)
                && labelled(&labels, &filter.label_selector)
        };
        self.0.containers.all().into_iter().filter(wanted).collect()
    }

    pub(super) fn measured_sandboxes(&self, filter: Option<PodSandboxStatsFilter>) -> Vec<Arc<Sandbox>> {
        let filter = filter.unwrap_or_default();
        let wanted = |s: &Arc<Sandbox>| {
            let ready = convert::sandbox_state(&s.record()) == cri::PodSandboxState::Ready;
            ready && named(&s.id, &filter.id) && labelled(&s.config().labels, &filter.label_selector)
        };
        self.0.sandboxes.all().into_iter().filter(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_must_fit() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let labels = map(&[("a", "1"), ("b", "2")]);
        for (selector, expected) in
            [(map(&[]), true), (map(&[("a", "1")]), true), (map(&[("a", "2")]), false), (map(&[("c", "")]), false)]
        {
            assert_eq!(labelled(&labels, &selector), expected, "{selector:?}");
        }
    }
}
