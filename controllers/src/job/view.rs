//! Accessors for a job's spec, and for the role of its pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;

use super::backoff::finished_at;

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(crate) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(crate) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The `managedBy` value of this controller.
const CONTROLLER: &str = "kubernetes.io/job-controller";

#[derive(Clone, Copy)]
pub(super) struct Job<'a>(pub &'a Tree);

impl<'a> Job<'a> {
    fn count(&self, field: &str) -> Option<usize> {
        self.0.at("spec").int(field).map(|number| usize::try_from(number).unwrap_or(0))
    }

    pub(super) fn parallelism(&self) -> usize {
        self.count("parallelism").unwrap_or(1)
    }

    /// None if any success completes the job.
    pub(super) fn completions(&self) -> Option<usize> {
        self.count("completions")
    }

    pub(crate) fn back_off_limit(&self) -> i64 {
        self.0.int("spec.backoffLimit").unwrap_or(6)
    }

    pub(crate) fn limit_per_index(&self) -> Option<i64> {
        self.0.int("spec.backoffLimitPerIndex")
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.0.str("spec.completionMode") == "Indexed"
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.0.bool("spec.suspend")
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.0.at("metadata").has("deletionTimestamp")
    }

    /// Whether another controller manages the job.
    pub(crate) fn is_foreign(&self) -> bool {
        !matches!(self.0.str("spec.managedBy"), "" | CONTROLLER)
    }

    /// Whether a terminating pod is replaced only after it has finished.
    pub(crate) fn replaces_only_failed(&self) -> bool {
        self.0.str("spec.podReplacementPolicy") == "Failed" || self.0.at("spec").has("podFailurePolicy")
    }

    /// The condition of a type if it is True.
    pub(super) fn condition(&self, ty: &str) -> Option<&'a Tree> {
        let mut conditions = self.0.list("status.conditions").iter();
        conditions.find(|condition| condition.str("type") == ty && condition.str("status") == "True")
    }

    pub(super) fn is_finished(&self) -> bool {
        self.condition("Complete").is_some() || self.condition("Failed").is_some()
    }

    /// The index of a pod if it is within the completions.
    pub(super) fn index(&self, pod: &Tree) -> Option<usize> {
        index(pod).filter(|index| self.completions().is_none_or(|completions| *index < completions))
    }

    /// Indexed jobs count only pods with a valid index.
    pub(super) fn counts(&self, pod: &Tree) -> bool {
        !self.is_indexed() || self.index(pod).is_some()
    }

    /// A deleted pod may never report its failure, so it counts as failed unless the job waits for it to finish.
    pub(crate) fn has_failed(&self, pod: &Tree) -> bool {
        match pod.str("status.phase") {
            "Failed" => true,
            "Succeeded" => false,
            _ => !self.replaces_only_failed() && is_deleted(pod),
        }
    }
}

pub(super) fn uid(pod: &Tree) -> &str {
    pod.str("metadata.uid")
}

pub(super) fn index(pod: &Tree) -> Option<usize> {
    pod.map("metadata.annotations").str(INDEX).parse().ok()
}

/// The failures of earlier pods of the index: counted and ignored ones.
pub(crate) fn index_failures(pod: &Tree) -> (i64, i64) {
    let count = |name: &str| pod.map("metadata.annotations").str(name).parse().unwrap_or(0i64).max(0);
    (count(INDEX_FAILURES), count(INDEX_IGNORED))
}

/// A pod without the finalizer was counted.
pub(crate) fn is_tracked(pod: &Tree) -> bool {
    pod.list("metadata.finalizers").iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER))
}

pub(super) fn is_deleted(pod: &Tree) -> bool {
    pod.at("metadata").has("deletionTimestamp")
}

fn has_ended(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

pub(super) fn is_active(pod: &Tree) -> bool {
    !has_ended(pod) && !is_deleted(pod)
}

pub(super) fn is_terminating(pod: &Tree) -> bool {
    !has_ended(pod) && is_deleted(pod)
}

/// By index, the failed pod whose replacement continues its failure count. Its finalizer stays until then, since the
/// count is stored in the pod.
pub(crate) fn last_failed(
    job: Job<'_>,
    pods: &[Arc<Tree>],
    skip: impl Fn(usize) -> bool,
) -> BTreeMap<usize, Arc<Tree>> {
    let rank = |pod: &Tree| {
        let (counted, ignored) = index_failures(pod);
        (counted + ignored, finished_at(pod))
    };
    let mut last: BTreeMap<usize, Arc<Tree>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_tracked(pod) && job.has_failed(pod)) {
        let Some(index) = job.index(pod).filter(|index| !skip(*index)) else { continue };
        if last.get(&index).is_none_or(|other| rank(other) <= rank(pod)) {
            last.insert(index, pod.clone());
        }
    }
    last
}
