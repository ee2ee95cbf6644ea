//! The state that watches, the kubelet's reports and the sync loop share.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Str;
use client::Key;
use stdx::sync::Mutex;
use tokio::sync::{Notify, watch};

use super::{PodError, PodInfo};
use crate::model::{Pod, Policy};

pub(super) struct Shared {
    pub(super) node: Str,
    pub(super) policies: Mutex<BTreeMap<Key, Arc<Policy>>>,
    reported: Mutex<ReportedPods>,
    changed: Notify,
    pub(super) outcome: watch::Sender<Outcome>,
}

/// The pods that the kubelet has reported.
#[derive(Clone, Default)]
pub(super) struct ReportedPods {
    /// The latest report last.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The number of the latest report.
    pub(super) generation: u64,
}

/// The results of the sync loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Whether there was a sync, and the latest report that is in force.
    applied: Option<u64>,
    /// The latest report that could not be applied, and why.
    failed: Option<(u64, Arc<str>)>,
    stopped: bool,
}

impl Outcome {
    pub(super) fn is_synced(&self) -> bool {
        self.applied.is_some()
    }

    /// The outcome of a report, if there is one.
    pub(super) fn of(&self, generation: u64) -> Option<Result<(), PodError>> {
        if self.applied.is_some_and(|applied| applied >= generation) {
            return Some(Ok(()));
        }
        if self.stopped {
            return Some(Err(PodError::Stopped));
        }
        let (failed, error) = self.failed.as_ref()?;
        (*failed >= generation).then(|| Err(PodError::NotApplied(error.clone())))
    }
}

impl Shared {
    pub(super) fn new(node: &str) -> Shared {
        Shared {
            node: Str::new(node),
            policies: Mutex::default(),
            reported: Mutex::default(),
            changed: Notify::new(),
            outcome: watch::Sender::default(),
        }
    }

    /// Adds a pod, and returns the number of the report.
    pub(super) fn report(&self, pod: PodInfo) -> u64 {
        let PodInfo { namespace, name, uid, labels, ips, ports } = pod;
        let node = self.node.clone();
        let pod = Arc::new(Pod { namespace, name, uid, labels, ips, ports, node, ..Pod::default() });
        let mut reported = self.reported.lock();
        reported.pods.retain(|other| other.uid != pod.uid);
        reported.pods.push(pod);
        reported.generation += 1;
        self.changed.notify_one();
        reported.generation
    }

    pub(super) fn remove(&self, uid: &str) {
        self.reported.lock().pods.retain(|pod| pod.uid != uid);
        self.changed.notify_one();
    }

    pub(super) fn reported(&self) -> ReportedPods {
        self.reported.lock().clone()
    }

    /// Something has changed that policies depend on.
    pub(super) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits for a change. One that happens while no caller waits is not lost.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn applied(&self, generation: u64) {
        self.outcome.send_replace(Outcome { applied: Some(generation), ..Outcome::default() });
    }

    pub(super) fn failed(&self, generation: u64, error: &str) {
        self.outcome.send_modify(|outcome| outcome.failed = Some((generation, error.into())));
    }

    pub(super) fn stopped(&self) {
        self.outcome.send_modify(|outcome| outcome.stopped = true);
    }
}
