//! A profile: the plugins of each extension point with order and weights, for pods with this scheduler name.

use std::sync::Arc;

use api::Str;

use super::{Cycle, POINTS, Plugin, Point, Slot, Verdict};
use crate::snapshot::NodeState;
use podmodel::Pod;

/// The maximum number of plugins in a profile: results of equal pods use bit sets.
#[cfg(test)]
pub(crate) const MOST_PLUGINS: usize = 64;

/// The plugins of a scheduler name, with their weights.
#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: Str,
    /// The percentage of feasible nodes that are scored; None for an adaptive number.
    pub percentage_of_nodes_to_score: Option<u8>,
    /// In the order of the plugin list.
    plugins: Vec<EnabledPlugin>,
    /// By [`Point`]: positions in `plugins`, in call order.
    points: Vec<Vec<usize>>,
}

/// A plugin of a profile.
#[derive(Clone)]
pub struct EnabledPlugin {
    pub plugin: Arc<dyn Plugin>,
    /// The weight of its scores.
    pub weight: i64,
}

impl Profile {
    /// All plugins at all of their points, in order.
    pub fn new(scheduler_name: &str, plugins: Vec<EnabledPlugin>) -> Profile {
        let at = |point: Point| {
            let all = plugins.iter().enumerate();
            all.filter(|(_, one)| one.plugin.points().contains(&point)).map(|(at, _)| at).collect()
        };
        let points = POINTS.map(at).to_vec();
        Profile { scheduler_name: Str::new(scheduler_name), percentage_of_nodes_to_score: None, plugins, points }
    }

    /// Replaces the plugins of a point.
    pub(crate) fn with_point(mut self, point: Point, positions: Vec<usize>) -> Profile {
        self.points[point as usize] = positions;
        self
    }

    /// Adds a plugin at the end of each of its points; a bind plugin comes first.
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>, weight: i64) -> Profile {
        let position = self.plugins.len();
        for point in plugin.points() {
            let positions = &mut self.points[*point as usize];
            let at = if *point == Point::Bind { 0 } else { positions.len() };
            positions.insert(at, position);
        }
        self.plugins.push(EnabledPlugin { plugin, weight });
        self
    }

    /// All plugins, in order.
    pub fn plugins(&self) -> &[EnabledPlugin] {
        &self.plugins
    }

    /// Positions of the plugins of a point.
    pub(crate) fn positions(&self, point: Point) -> &[usize] {
        &self.points[point as usize]
    }

    /// The plugin at a position.
    pub fn plugin(&self, position: usize) -> &dyn Plugin {
        &*self.plugins[position].plugin
    }

    /// The weight of the plugin at a position.
    pub fn weight(&self, position: usize) -> i64 {
        self.plugins[position].weight
    }

    /// The plugins of an extension point, with their positions.
    pub fn at(&self, point: Point) -> impl Iterator<Item = (usize, &dyn Plugin)> {
        self.positions(point).iter().map(|position| (*position, self.plugin(*position)))
    }

    /// Releases what plugins have reserved for a pod, in reverse order.
    pub(crate) fn unreserve(&self, pod: &Pod, node: &str) {
        for position in self.positions(Point::Reserve).iter().rev() {
            self.plugin(*position).unreserve(pod, node);
        }
    }

    pub(crate) fn position_of(&self, name: &str) -> Option<usize> {
        self.plugins.iter().position(|one| one.plugin.name() == name)
    }
}

/// The filters with their state for a pod, which can be updated with simulated additions and removals of pods.
#[derive(Clone)]
pub struct Filters<'a> {
    pub profile: &'a Profile,
    /// Positions of the filters that were not skipped.
    pub active: Vec<usize>,
    /// By plugin of the profile.
    pub slots: Vec<Slot>,
}

impl Filters<'_> {
    /// The first rejection, with the position of its plugin.
    pub fn check(&self, cycle: Cycle, node: &NodeState) -> Result<(), (usize, super::Rejection)> {
        for &position in &self.active {
            let verdict: Verdict = self.profile.plugin(position).filter(cycle, &self.slots[position], node);
            verdict.map_err(|rejection| (position, rejection))?;
        }
        Ok(())
    }

    /// The state of a plugin for the pod.
    pub(crate) fn state<T: super::State>(&self, plugin: &str) -> Option<&T> {
        self.slots[self.profile.position_of(plugin)?].get()
    }

    /// Simulates adding a pod to a node.
    pub fn add(&mut self, cycle: Cycle, pod: &Arc<Pod>, node: &mut NodeState) {
        node.add(pod.clone());
        for &position in &self.active {
            self.profile.plugin(position).add_pod(cycle, &mut self.slots[position], pod, node);
        }
    }

    /// Simulates removing a pod from a node.
    pub fn remove(&mut self, cycle: Cycle, pod: &Arc<Pod>, node: &mut NodeState) {
        node.remove(&pod.uid);
        for &position in &self.active {
            self.profile.plugin(position).remove_pod(cycle, &mut self.slots[position], pod, node);
        }
    }
}
