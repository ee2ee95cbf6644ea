//! Plans a job. A sync has three steps, each of which a crash may interrupt: pods are created or deleted; the status
//! records the uids of finished pods and their finalizers are removed; the status counts them. A pod is counted only
//! when its finalizer is removed and its uid is in the status, so that interrupted steps are repeated and nothing is
//! counted twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::{self, Timestamp};

use super::backoff::Backoff;
use super::failure_policy::{FailureAction, failure_action};
use super::indexes::Indexes;
use super::pods::surplus;
use super::status::{FinishedCondition, UncountedPods, count};
use super::view::{self, Job, is_active, is_terminating, is_tracked, uid};
use crate::support::clock::until;
use crate::support::pods::is_ready;

/// The maximum number of pods created or deleted per sync.
const MAX_PODS: usize = 500;

/// The action on the pods.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PodAction {
    Nothing,
    /// One pod for each index; None for non-indexed jobs.
    Create(Vec<Option<usize>>),
    /// Delete pods that do not count: their finalizers are removed first.
    Remove(Vec<Arc<Tree>>),
    /// Delete pods of a job that ends: their finalizers stay until they are counted.
    End(Vec<Arc<Tree>>),
}

/// The result of the action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PodActionResult {
    pub created: usize,
    pub deleted: usize,
    /// The ready ones among the deleted pods.
    pub deleted_ready: usize,
}

pub(super) struct Decision {
    pub act: PodAction,
    /// When the job must be synced again without an event.
    pub again: Option<Duration>,
    pub backoff: Backoff,
    /// The failed pod that a new pod of the index replaces.
    pub replaced: BTreeMap<usize, Arc<Tree>>,
    pub(super) job: Arc<Tree>,
    pub(super) pods: Vec<Arc<Tree>>,
    pub(super) status: Tree,
    pub(super) ending: Option<FinishedCondition>,
    pub(super) counts: Counts,
    pub(super) indexes: Option<ByIndex>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub active: usize,
    pub ready: usize,
    pub terminating: usize,
    pub succeeded: usize,
    pub failed: i64,
}

/// The state of the indexes of an indexed job.
pub(super) struct ByIndex {
    pub counted: Indexes,
    pub succeeded: Indexes,
    /// If indexes have their own backoff limit.
    pub failed: Option<Indexes>,
}

/// `known` is the backoff state from the previous sync, if any.
pub(super) fn decide(job: Arc<Tree>, pods: Vec<Arc<Tree>>, known: Option<Backoff>, now: Timestamp) -> Decision {
    let view = Job(&job);
    let mut status = job.at("status").clone();
    if !view.is_suspended() && !status.has("startTime") {
        status.set("startTime", time::format_seconds(now.seconds));
    }
    let indexes = view.is_indexed().then(|| ByIndex::of(view, &pods));
    let active: Vec<Arc<Tree>> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    let (counts, backoff) = count_pods(view, &pods, &active, indexes.as_ref(), known);
    let look =
        Inputs { job: view, status: &status, pods: &pods, active: &active, counts, indexes: indexes.as_ref(), now };
    let ending = look.finished_condition();
    let replaced = look.replaced();
    let (act, wait) = match &ending {
        Some(_) => (PodAction::End(active.clone()), None),
        None if view.is_deleted() => (PodAction::Nothing, None),
        None => look.manage(backoff, &replaced),
    };
    let deadline = if ending.is_none() { look.until_deadline() } else { None };
    let again = [wait, deadline].into_iter().flatten().min();
    Decision { act, again, backoff, replaced, status, ending, counts, indexes, pods, job: job.clone() }
}

impl ByIndex {
    fn of(job: Job<'_>, pods: &[Arc<Tree>]) -> ByIndex {
        let completions = job.completions().unwrap_or(0);
        let read = |field: &str| Indexes::parse(job.0.at("status").str(field), completions);
        let of = |chosen: &dyn Fn(&Tree) -> bool| {
            let chosen = pods.iter().filter(|pod| is_tracked(pod) && chosen(pod));
            chosen.filter_map(|pod| job.index(pod)).collect::<Vec<_>>()
        };
        let counted = read("completedIndexes");
        let succeeded = counted.with(of(&|pod| pod.str("status.phase") == "Succeeded"));
        let failed =
            job.limit_per_index().map(|limit| read("failedIndexes").with(of(&|pod| gives_up(job, pod, limit))));
        ByIndex { counted, succeeded, failed }
    }
}

/// Whether the index of a failed pod is not retried.
fn gives_up(job: Job<'_>, pod: &Tree, limit: i64) -> bool {
    job.has_failed(pod)
        && match failure_action(job.0, pod) {
            FailureAction::FailIndex => true,
            verdict => verdict.counts() && view::index_failures(pod).0 >= limit,
        }
}

fn count_pods(
    job: Job<'_>,
    pods: &[Arc<Tree>],
    active: &[Arc<Tree>],
    indexes: Option<&ByIndex>,
    known: Option<Backoff>,
) -> (Counts, Backoff) {
    let uncounted = UncountedPods::read(job.0.at("status"));
    let ended = |is: &dyn Fn(&Tree) -> bool| -> Vec<Arc<Tree>> {
        pods.iter().filter(|pod| job.counts(pod) && is(pod)).cloned().collect()
    };
    let fresh = |pods: &[Arc<Tree>], seen: &BTreeSet<String>| -> Vec<Arc<Tree>> {
        pods.iter().filter(|pod| is_tracked(pod) && !seen.contains(uid(pod))).cloned().collect()
    };
    let (succeeded, failed) = (ended(&|pod| pod.str("status.phase") == "Succeeded"), ended(&|pod| job.has_failed(pod)));
    let (new_succeeded, new_failed) = (fresh(&succeeded, &uncounted.succeeded), fresh(&failed, &uncounted.failed));
    let counting = new_failed.iter().filter(|pod| failure_action(job.0, pod).counts()).count();
    let counts = Counts {
        active: active.len(),
        ready: active.iter().filter(|pod| is_ready(pod)).count(),
        terminating: pods.iter().filter(|pod| is_terminating(pod)).count(),
        succeeded: match indexes {
            Some(indexes) => indexes.succeeded.len(),
            None => count(job.0.at("status"), "succeeded") as usize + new_succeeded.len() + uncounted.succeeded.len(),
        },
        failed: count(job.0.at("status"), "failed") + (counting + uncounted.failed.len()) as i64,
    };
    let backoff = match known {
        Some(known) => known.after(&new_succeeded, &new_failed),
        // The backoff state is lost by a restart; most of it is restored from the existing pods.
        None => Backoff::default().after(&succeeded, &failed),
    };
    (counts, backoff)
}

/// The inputs of a decision.
struct Inputs<'a> {
    job: Job<'a>,
    status: &'a Tree,
    pods: &'a [Arc<Tree>],
    active: &'a [Arc<Tree>],
    counts: Counts,
    indexes: Option<&'a ByIndex>,
    now: Timestamp,
}

impl Inputs<'_> {
    /// Whether the job ends, and why. An ending in the status is final.
    fn finished_condition(&self) -> Option<FinishedCondition> {
        self.recorded_condition()
            .or_else(|| self.failed_by_policy())
            .or_else(|| self.job_failure())
            .or_else(|| self.failed_by_index())
            .or_else(|| self.succeeded_by_policy())
    }

    fn recorded_condition(&self) -> Option<FinishedCondition> {
        let success = self.job.condition("SuccessCriteriaMet").map(|condition| (true, condition));
        let (success, condition) = success.or_else(|| Some((false, self.job.condition("FailureTarget")?)))?;
        let (reason, message) = (condition.str("reason"), condition.str("message"));
        Some(FinishedCondition { success, reason: reason.to_string(), message: message.to_string(), known: true })
    }

    fn failed_by_policy(&self) -> Option<FinishedCondition> {
        let mut failed = self.pods.iter().filter(|pod| self.job.has_failed(pod));
        failed.find_map(|pod| match failure_action(self.job.0, pod) {
            FailureAction::FailJob(message) => Some(FinishedCondition::failure("PodFailurePolicy", &message)),
            _ => None,
        })
    }

    fn job_failure(&self) -> Option<FinishedCondition> {
        if self.counts.failed > self.job.back_off_limit() || self.restarts_too_often() {
            return Some(FinishedCondition::failure(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ));
        }
        let due = self.deadline()?;
        (self.now.seconds >= due)
            .then(|| FinishedCondition::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
    }

    /// With `restartPolicy: OnFailure`, container restarts count as failures.
    fn restarts_too_often(&self) -> bool {
        if self.job.0.str("spec.template.spec.restartPolicy") != "OnFailure" {
            return false;
        }
        let lives = |pod: &&Arc<Tree>| matches!(pod.str("status.phase"), "Running" | "Pending");
        let of = |pod: &Arc<Tree>| -> i64 {
            let statuses = pod.list("status.initContainerStatuses").iter().chain(pod.list("status.containerStatuses"));
            statuses.filter_map(|status| status.int("restartCount")).sum()
        };
        let restarts: i64 = self.pods.iter().filter(lives).map(of).sum();
        restarts > 0 && restarts >= self.job.back_off_limit()
    }

    /// The second at which `activeDeadlineSeconds` is exceeded.
    fn deadline(&self) -> Option<i64> {
        let allowed = self.job.0.int("spec.activeDeadlineSeconds").filter(|_| !self.job.is_suspended())?;
        Some(time::parse(self.status.str("startTime")).ok()?.seconds.saturating_add(allowed))
    }

    fn until_deadline(&self) -> Option<Duration> {
        until(self.now, self.deadline()?)
    }

    fn failed_by_index(&self) -> Option<FinishedCondition> {
        let indexes = self.indexes?;
        let failed = indexes.failed.as_ref()?.len();
        let limit = self.job.0.int("spec.maxFailedIndexes");
        if limit.is_some_and(|limit| failed as i64 > limit) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(FinishedCondition::failure("MaxFailedIndexesExceeded", message));
        }
        let all_ended = failed + indexes.succeeded.len() >= self.job.completions().unwrap_or(0);
        (failed > 0 && all_ended).then(|| FinishedCondition::failure("FailedIndexes", "Job has failed indexes"))
    }

    fn succeeded_by_policy(&self) -> Option<FinishedCondition> {
        let succeeded = &self.indexes?.succeeded;
        let completions = self.job.completions().unwrap_or(0);
        let holds = |rule: &Tree| {
            let enough = rule.int("succeededCount").map(|count| usize::try_from(count).unwrap_or(0));
            match rule.at("succeededIndexes").as_str() {
                Some(text) => {
                    let wanted = Indexes::parse(text, completions);
                    let common = wanted.common(succeeded);
                    wanted.len() > 0 && (common == wanted.len() || enough.is_some_and(|enough| common >= enough))
                }
                None => enough.is_some_and(|enough| succeeded.len() >= enough),
            }
        };
        if succeeded.len() == 0 {
            return None;
        }
        let at = self.job.0.list("spec.successPolicy.rules").iter().position(holds)?;
        Some(FinishedCondition::success("SuccessPolicy", &format!("Matched rules at index {at}")))
    }

    fn replaced(&self) -> BTreeMap<usize, Arc<Tree>> {
        let Some(ByIndex { succeeded, failed: Some(failed), .. }) = self.indexes else { return BTreeMap::new() };
        let active: BTreeSet<usize> = self.active.iter().filter_map(|pod| view::index(pod)).collect();
        let has_ended = |index: usize| succeeded.has(index) || failed.has(index) || active.contains(&index);
        view::last_failed(self.job, self.pods, has_ended)
    }

    /// Adjusts the number of pods; one sync either deletes or creates.
    fn manage(&self, backoff: Backoff, replaced: &BTreeMap<usize, Arc<Tree>>) -> (PodAction, Option<Duration>) {
        let active = self.active.len();
        let wanted = self.wanted();
        let mut gone = surplus(self.job, self.active, active.saturating_sub(wanted));
        if !gone.is_empty() {
            if !self.job.is_suspended() {
                gone.truncate(MAX_PODS);
            }
            return (PodAction::Remove(gone), None);
        }
        let held = if self.job.replaces_only_failed() { self.counts.terminating } else { 0 };
        let missing = wanted.saturating_sub(held + active).min(MAX_PODS);
        if missing == 0 {
            return (PodAction::Nothing, None);
        }
        if self.job.limit_per_index().is_none()
            && let Some(wait) = backoff.remaining(self.now)
        {
            return (PodAction::Nothing, Some(wait));
        }
        if self.indexes.is_none() {
            return (PodAction::Create(vec![None; missing]), None);
        }
        self.fill(missing, replaced)
    }

    fn wanted(&self) -> usize {
        if self.job.is_suspended() {
            return 0;
        }
        match self.job.completions() {
            // Without completions any success ends the job: after the first one no pod is added.
            None if self.counts.succeeded > 0 => self.active.len(),
            None => self.job.parallelism(),
            Some(completions) => completions.saturating_sub(self.counts.succeeded).min(self.job.parallelism()),
        }
    }

    /// The first indexes without a pod whose backoff is over.
    fn fill(&self, missing: usize, replaced: &BTreeMap<usize, Arc<Tree>>) -> (PodAction, Option<Duration>) {
        let Some(indexes) = self.indexes else { return (PodAction::Nothing, None) };
        let holds = |pod: &&Arc<Tree>| is_active(pod) || (self.job.replaces_only_failed() && is_terminating(pod));
        let mut taken = indexes.succeeded.with(self.pods.iter().filter(holds).filter_map(|pod| view::index(pod)));
        if let Some(failed) = &indexes.failed {
            taken = taken.union(failed);
        }
        let wait = |index: usize| {
            let pod = replaced.get(&index)?;
            let (counted, ignored) = view::index_failures(pod);
            let failures = u32::try_from(counted + ignored + 1).unwrap_or(u32::MAX);
            Backoff { failures, last_failure: super::backoff::finished_at(pod) }.remaining(self.now)
        };
        let candidates = taken.missing(missing, self.job.completions().unwrap_or(0));
        let first = candidates.iter().filter_map(|index| wait(*index)).min();
        let ready: Vec<Option<usize>> =
            candidates.into_iter().filter(|index| wait(*index).is_none()).map(Some).collect();
        (if ready.is_empty() { PodAction::Nothing } else { PodAction::Create(ready) }, first)
    }
}
