//! Higher priority first, then the longest waiting pod.

use std::cmp::Ordering;

use crate::framework::{Plugin, Point, QueuedPod};

pub(crate) struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::QueueSort]
    }

    fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> Ordering {
        other.pod.priority.cmp(&one.pod.priority).then(one.since.cmp(&other.since))
    }
}
