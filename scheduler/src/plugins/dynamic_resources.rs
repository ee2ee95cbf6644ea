//! Pods with resource claims stay unschedulable: claims are not allocated yet.

use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection};
use podmodel::Pod;

pub(super) struct DynamicResources;

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if cycle.pod.spec.resource_claims.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Refuse(Rejection::unresolvable("pod has resource claims, which this scheduler cannot allocate yet"))
    }

    fn may_help(&self, _pod: &Pod, _event: &Event) -> bool {
        false
    }
}
