//! The results of the extenders for the nodes of one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Str, Tree};

use super::error::ResponseError;
use super::wire;
use crate::framework::MAX_SCORE;

/// The highest score of an extender.
const MAX_EXTENDER_SCORE: i64 = 10;

#[derive(Debug, Default)]
pub(crate) struct NodeResults {
    allowed: BTreeSet<Str>,
    /// Whether the rejection is unresolvable, and the reason.
    refused: BTreeMap<Str, (bool, String)>,
    scores: BTreeMap<Str, i64>,
}

impl NodeResults {
    pub(crate) fn allowing(nodes: impl Iterator<Item = Str>) -> NodeResults {
        NodeResults { allowed: nodes.collect(), ..NodeResults::default() }
    }

    /// The nodes that are still allowed.
    pub(super) fn allowed<'a>(&self, nodes: &'a [(Str, Arc<Tree>)]) -> Vec<&'a (Str, Arc<Tree>)> {
        nodes.iter().filter(|(name, _)| self.allowed.contains(name)).collect()
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.allowed.is_empty()
    }

    /// Whether at most one node is left.
    pub(crate) fn is_decided(&self) -> bool {
        self.allowed.len() <= 1
    }

    /// Applies a filter response.
    pub(super) fn filter(&mut self, body: &[u8]) -> Result<(), ResponseError> {
        let answer = wire::read(body)?;
        wire::no_error(&answer)?;
        let (names, nodes) = (wire::field(&answer, "NodeNames"), wire::field(&answer, "Nodes"));
        let left: BTreeSet<Str> = match (names.as_list(), nodes.is_null()) {
            (Some(names), _) => names.iter().filter_map(Tree::as_str).map(Str::new).collect(),
            (None, false) => nodes.list("items").iter().map(|node| Str::new(node.str("metadata.name"))).collect(),
            (None, true) => BTreeSet::new(),
        };
        if let Some(unknown) = left.iter().find(|name| !self.allowed.contains(*name)) {
            return Err(ResponseError::UnknownNode(unknown.to_string()));
        }
        for (list, is_final) in [("FailedNodes", false), ("FailedAndUnresolvableNodes", true)] {
            for (name, why) in wire::field(&answer, list).as_map().into_iter().flat_map(|map| map.iter()) {
                self.refused.insert(Str::new(name), (is_final, why.as_str().unwrap_or("").to_string()));
            }
        }
        self.allowed = left;
        Ok(())
    }

    /// Adds a prioritize response with the extender's weight.
    pub(super) fn rate(&mut self, body: &[u8], weight: i64) -> Result<(), ResponseError> {
        let answer = wire::read(body)?;
        let list = answer.as_list().ok_or(ResponseError::NotAList)?;
        for one in list {
            let name = Str::new(wire::field(one, "Host").as_str().unwrap_or(""));
            let score = wire::field(one, "Score").as_int().unwrap_or(0);
            *self.scores.entry(name).or_default() += score * weight * (MAX_SCORE / MAX_EXTENDER_SCORE);
        }
        Ok(())
    }

    /// Why a node is rejected, and whether it is unresolvable.
    pub(super) fn rejection(&self, node: &str) -> Option<(bool, &str)> {
        if self.allowed.contains(node) {
            return None;
        }
        let (is_final, why) = self.refused.get(node).map_or((false, ""), |(is_final, why)| (*is_final, why));
        Some((is_final, if why.is_empty() { "node(s) were refused by an extender" } else { why }))
    }

    pub(super) fn rates(&self) -> bool {
        !self.scores.is_empty()
    }

    pub(super) fn score(&self, node: &str) -> i64 {
        self.scores.get(node).copied().unwrap_or(0)
    }
}
