//! Pods of higher priority first; among equals the one that waits longest.

use std::cmp::Ordering;

use crate::framework::{Plugin, Point};
use crate::queue::Waiting;

pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::QueueSort]
    }

    fn compare(&self, one: &Waiting, other: &Waiting) -> Ordering {
        other.pod.priority.cmp(&one.pod.priority).then(one.since.cmp(&other.since))
    }
}
