//! Pods that match the selectors of spread constraints, counted by node.

use std::sync::Arc;

use super::NodeId;
use crate::model::Pod;

#[derive(Debug, Default)]
pub struct SpreadIndex {}

impl SpreadIndex {
    pub(super) fn add(&mut self, _: &Arc<Pod>, _: NodeId) {}

    pub(super) fn remove(&mut self, _: &Arc<Pod>, _: NodeId) {}
}
