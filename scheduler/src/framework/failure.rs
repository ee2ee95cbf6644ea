//! Why a pod found no node: the rejection of every node, and the message for users.

use std::collections::BTreeMap;

use super::{Profile, Refusal};
use crate::snapshot::NodeId;

/// Why a pod fits on no node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    pub node_count: usize,
    /// All nodes were rejected at once, by the plugin at this position of the profile.
    pub at_once: Option<(usize, Refusal)>,
    /// Distinct rejections with the plugin position; few for many nodes.
    pub refusals: Vec<(usize, Refusal)>,
    /// In search order; the second value is an index of `refusals`.
    pub nodes: Vec<(NodeId, u32)>,
    /// Plugins that restricted the feasible nodes: other nodes were not filtered.
    pub excluded_by: Vec<&'static str>,
    /// The text of PostFilter.
    pub post_filter: String,
}

impl Failure {
    /// No node is rejected yet.
    pub fn new(node_count: usize) -> Failure {
        Failure { node_count, ..Failure::default() }
    }

    /// A plugin rejects all nodes.
    pub fn at_once(node_count: usize, position: usize, refusal: Refusal) -> Failure {
        Failure { node_count, at_once: Some((position, refusal)), ..Failure::default() }
    }

    /// The index of a rejection.
    pub(crate) fn place(&mut self, position: usize, refusal: Refusal) -> u32 {
        let known = self.refusals.iter().position(|known| known.0 == position && known.1 == refusal);
        let at = known.unwrap_or_else(|| {
            self.refusals.push((position, refusal));
            self.refusals.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// All rejected nodes, with the plugin's position and the reason.
    pub fn by_node(&self) -> impl Iterator<Item = (NodeId, usize, &Refusal)> {
        self.nodes.iter().filter_map(|(node, at)| {
            let (position, refusal) = self.refusals.get(*at as usize)?;
            Some((*node, *position, refusal))
        })
    }

    /// Names of the plugins whose rejections could be resolved by events.
    pub fn plugins(&self, profile: &Profile) -> Vec<&'static str> {
        let all = self.at_once.iter().chain(&self.refusals);
        let mut names: Vec<&'static str> = all.map(|(position, _)| profile.plugin(*position).name()).collect();
        names.extend(&self.excluded_by);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The message of the event and the condition.
    pub fn message(&self) -> String {
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_string();
        }
        let mut text = format!("0/{} nodes are available:", self.node_count);
        match &self.at_once {
            Some((_, refusal)) => text.push_str(&format!(" {}.", refusal.reasons.join(", "))),
            None => text.push_str(&self.histogram()),
        }
        if !self.post_filter.is_empty() {
            text.push_str(&format!(" {}", self.post_filter));
        }
        text
    }

    fn histogram(&self) -> String {
        let mut nodes = vec![0; self.refusals.len()];
        self.nodes.iter().for_each(|(_, at)| nodes[*at as usize] += 1);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((_, refusal), nodes) in self.refusals.iter().zip(nodes) {
            refusal.reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += nodes);
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
        let cpu = Refusal::unschedulable("Insufficient cpu");
        let cordoned = Refusal::unresolvable("node(s) were unschedulable");
        for (node, position, refusal) in [(0, 1, &cpu), (1, 1, &cpu), (2, 0, &cordoned)] {
            let place = failure.place(position, refusal.clone());
            failure.nodes.push((NodeId(node), place));
        }
        failure.post_filter = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.".into();
        assert_eq!(failure.refusals.len(), 2);
        assert_eq!(
            failure.message(),
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        );
        let at_once = Failure::at_once(2, 0, Refusal::unresolvable("no"));
        assert_eq!(at_once.message(), "0/2 nodes are available: no.");
        assert_eq!(Failure::new(0).message(), "no nodes available to schedule pods");
    }
}
