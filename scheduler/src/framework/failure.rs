//! Why a pod found no node: the rejection of every node, and the message for users.

use std::collections::BTreeMap;

use super::{Profile, Rejection};
use crate::snapshot::NodeId;

/// Why a pod fits on no node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    pub node_count: usize,
    /// All nodes were rejected at once, by the plugin at this position of the profile.
    pub for_all_nodes: Option<(usize, Rejection)>,
    /// Distinct rejections with the plugin position; few for many nodes.
    pub rejections: Vec<(usize, Rejection)>,
    /// In search order; the second value is an index of `rejections`.
    pub nodes: Vec<(NodeId, u32)>,
    /// Plugins that restricted the feasible nodes: other nodes were not filtered.
    pub excluded_by: Vec<&'static str>,
    /// The text of PostFilter.
    pub post_filter: String,
    /// A filter failed, by its position, with this text: no node was chosen, and the pod is retried.
    pub error: Option<(usize, String)>,
}

impl Failure {
    /// No node is rejected yet.
    pub fn new(node_count: usize) -> Failure {
        Failure { node_count, ..Failure::default() }
    }

    /// A plugin rejects all nodes.
    pub fn for_all_nodes(node_count: usize, position: usize, rejection: Rejection) -> Failure {
        Failure { node_count, for_all_nodes: Some((position, rejection)), ..Failure::default() }
    }

    /// The index of a rejection.
    pub(crate) fn place(&mut self, position: usize, rejection: Rejection) -> u32 {
        let known = self.rejections.iter().position(|known| known.0 == position && known.1 == rejection);
        let at = known.unwrap_or_else(|| {
            self.rejections.push((position, rejection));
            self.rejections.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// All rejected nodes, with the plugin's position and the reason.
    pub fn by_node(&self) -> impl Iterator<Item = (NodeId, usize, &Rejection)> {
        self.nodes.iter().filter_map(|(node, at)| {
            let (position, rejection) = self.rejections.get(*at as usize)?;
            Some((*node, *position, rejection))
        })
    }

    /// Names of the plugins whose rejections could be resolved by events.
    pub fn plugins(&self, profile: &Profile) -> Vec<&'static str> {
        let all = self.for_all_nodes.iter().chain(&self.rejections);
        let mut names: Vec<&'static str> = all.map(|(position, _)| profile.plugin(*position).name()).collect();
        names.extend(&self.excluded_by);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What failed, if the attempt did not end with a decision.
    pub(crate) fn error_message(&self, profile: &Profile) -> Option<String> {
        if let Some((position, text)) = &self.error {
            return Some(format!("running {:?} filter plugin: {text}", profile.plugin(*position).name()));
        }
        let (position, rejection) = self.for_all_nodes.as_ref().filter(|(_, rejection)| rejection.is_error)?;
        let text = rejection.reasons.join(", ");
        Some(format!("running Reserve plugin {:?}: {text}", profile.plugin(*position).name()))
    }

    /// The message of the event and the condition.
    pub fn message(&self) -> String {
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_string();
        }
        let mut text = format!("0/{} nodes are available:", self.node_count);
        match &self.for_all_nodes {
            Some((_, rejection)) => text.push_str(&format!(" {}.", rejection.reasons.join(", "))),
            None => text.push_str(&self.histogram()),
        }
        if !self.post_filter.is_empty() {
            text.push_str(&format!(" {}", self.post_filter));
        }
        text
    }

    fn histogram(&self) -> String {
        let mut nodes = vec![0; self.rejections.len()];
        self.nodes.iter().for_each(|(_, at)| nodes[*at as usize] += 1);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((_, rejection), nodes) in self.rejections.iter().zip(nodes) {
            rejection.reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += nodes);
        }
        let excluded = self.excluded();
        if let Some((count, reason)) = &excluded {
            counts.insert(reason, *count);
        }
        summary(&counts)
    }

    /// The number of nodes that were not filtered, and the reason.
    pub(crate) fn excluded(&self) -> Option<(usize, String)> {
        let count = self.node_count.saturating_sub(self.nodes.len());
        let mut names = self.excluded_by.clone();
        names.sort_unstable();
        let reason = || format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
        (!names.is_empty() && count > 0).then(|| (count, reason()))
    }
}

/// The number of nodes for each reason, sorted by text.
pub fn summary(counts: &BTreeMap<&str, usize>) -> String {
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    if parts.is_empty() { String::new() } else { format!(" {}.", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_matches_upstream() {
        let mut failure = Failure::new(3);
        let cpu = Rejection::unschedulable("Insufficient cpu");
        let cordoned = Rejection::unresolvable("node(s) were unschedulable");
        for (node, position, rejection) in [(0, 1, &cpu), (1, 1, &cpu), (2, 0, &cordoned)] {
            let place = failure.place(position, rejection.clone());
            failure.nodes.push((NodeId(node), place));
        }
        failure.post_filter = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.".into();
        assert_eq!(failure.rejections.len(), 2);
        assert_eq!(
            failure.message(),
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        );
        let at_once = Failure::for_all_nodes(2, 0, Rejection::unresolvable("no"));
        assert_eq!(at_once.message(), "0/2 nodes are available: no.");
        assert_eq!(Failure::new(0).message(), "no nodes available to schedule pods");
    }
}
