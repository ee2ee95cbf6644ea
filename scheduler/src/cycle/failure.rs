//! Why a pod found no node: every node's refusal, and the sentence that users read.

use std::collections::BTreeMap;

use crate::framework::Refusal;
use crate::profile::Profile;
use crate::snapshot::NodeId;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    pub node_count: usize,
    /// All nodes were refused at once, by the plugin at this position of the profile.
    pub at_once: Option<(usize, Refusal)>,
    /// Different refusals, with the position of the plugin; few for many nodes.
    pub refusals: Vec<(usize, Refusal)>,
    /// In the order in which they were tried; the second is a place in `refusals`.
    pub nodes: Vec<(NodeId, u32)>,
    /// Plugins that had named the only nodes that can do: all others were not tried.
    pub excluded_by: Vec<&'static str>,
    /// What is said of preemption.
    pub post_filter: String,
}

impl Failure {
    pub fn new(node_count: usize) -> Failure {
        Failure { node_count, ..Failure::default() }
    }

    pub fn at_once(node_count: usize, position: usize, refusal: Refusal) -> Failure {
        Failure { node_count, at_once: Some((position, refusal)), ..Failure::default() }
    }

    /// The place of a refusal.
    pub(super) fn place(&mut self, position: usize, refusal: Refusal) -> u32 {
        let known = self.refusals.iter().position(|known| known.0 == position && known.1 == refusal);
        let at = known.unwrap_or_else(|| {
            self.refusals.push((position, refusal));
            self.refusals.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// All nodes that were refused, with the plugin's position and why.
    pub fn by_node(&self) -> impl Iterator<Item = (NodeId, usize, &Refusal)> {
        self.nodes.iter().filter_map(|(node, at)| {
            let (position, refusal) = self.refusals.get(*at as usize)?;
            Some((*node, *position, refusal))
        })
    }

    /// Names of the plugins whose refusals, were they gone, could let the pod in.
    pub fn plugins(&self, profile: &Profile) -> Vec<&'static str> {
        let all = self.at_once.iter().chain(&self.refusals);
        let mut names: Vec<&'static str> = all.map(|(position, _)| profile.plugin(*position).name()).collect();
        names.extend(&self.excluded_by);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The sentence of the event and of the condition.
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

    /// How many nodes were not tried, and what is said of them.
    pub fn excluded(&self) -> Option<(usize, String)> {
        let count = self.node_count.saturating_sub(self.nodes.len());
        let mut names = self.excluded_by.clone();
        names.sort_unstable();
        let reason = || format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
        (!names.is_empty() && count > 0).then(|| (count, reason()))
    }
}

/// How many nodes say what, in the order of the texts.
pub fn summary(counts: &BTreeMap<&str, usize>) -> String {
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    if parts.is_empty() { String::new() } else { format!(" {}.", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_upstreams() {
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
