//! Bound claims restrict the nodes; claims with delayed binding are bound, or their volumes provisioned, for the
//! chosen node. Assumed bindings are reserved until they are written.

mod assumed;
mod plan;
mod shell;

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};

use crate::framework::{Cycle, Event, Handle, Plugin, PluginFuture, Point, PreFilter, Rejection, Slot, Verdict};
use crate::plugins::volumes::{claim_names, is_own_claim};
use crate::snapshot::{Kind, NodeState};
use podmodel::Pod;

pub(crate) use assumed::AssumeCache;
use plan::Claims;

pub(crate) struct VolumeBinding {
    /// How long a pod waits for its volumes after a node was chosen.
    timeout: Duration,
    /// Shared by all profiles: a volume is assigned once.
    assumed: Arc<Mutex<AssumeCache>>,
}

impl VolumeBinding {
    pub(crate) fn new(timeout: Duration, assumed: Arc<Mutex<AssumeCache>>) -> VolumeBinding {
        VolumeBinding { timeout, assumed }
    }

    fn assumed(&self) -> MutexGuard<'_, AssumeCache> {
        self.assumed.lock()
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if claim_names(cycle.pod).next().is_none() {
            return PreFilter::Skip;
        }
        match Claims::of(&cycle.snapshot.storage, &self.assumed(), cycle.pod) {
            Ok(claims) => PreFilter::Check(Slot::new(claims)),
            Err(rejection) => PreFilter::Refuse(rejection),
        }
    }

    fn filter(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        slot.get::<Claims>().map_or(Ok(()), |claims| claims.decide(&node.node).map(drop))
    }

    fn reserve(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(claims) = slot.get::<Claims>() else { return Ok(()) };
        let decision = claims.decide(&node.node)?;
        self.assumed().take(&cycle.pod.uid, node.name(), decision);
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, _node: &str) {
        self.assumed().release(&pod.uid);
    }

    fn pre_bind<'a>(&'a self, handle: &'a Handle, pod: &'a Pod, node: &'a str) -> Option<PluginFuture<'a>> {
        let decision = self.assumed().of(&pod.uid)?;
        Some(Box::pin(async move {
            shell::bind(handle, node, &decision, self.timeout).await?;
            self.assumed().release(&pod.uid);
            Ok(())
        }))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged { old, new } => old.labels != new.labels,
            Event::Object { kind: Kind::PersistentVolumeClaim, new, .. } => is_own_claim(pod, *new),
            Event::Object { kind, new, .. } => new.is_some() && is_storage_kind(*kind),
            _ => false,
        }
    }
}

fn is_storage_kind(kind: Kind) -> bool {
    use Kind::{CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, StorageClass};
    matches!(kind, PersistentVolume | StorageClass | CsiNode | CsiDriver | CsiStorageCapacity)
}

fn reject<T>(reason: impl Into<crate::framework::Reason>) -> Result<T, Rejection> {
    Err(Rejection::unresolvable(reason))
}

#[cfg(test)]
mod tests;
