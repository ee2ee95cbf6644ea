//! Keeps pods with scheduling gates out of the queue.

use crate::framework::{Event, Plugin, Point, Rejection, Verdict};
use crate::snapshot::Snapshot;
use podmodel::Pod;

pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
    }

    fn pre_enqueue(&self, _snapshot: &Snapshot, pod: &Pod) -> Verdict {
        if pod.gates.is_empty() {
            return Ok(());
        }
        Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{}]", pod.gates.join(" "))))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        matches!(event, Event::SelfChanged { .. }) && pod.gates.is_empty()
    }
}
