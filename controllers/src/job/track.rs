//! The second and third step of a sync: recording finished pods in the status, and counting them.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Tree;
use api::time::{self, Timestamp};

use super::failure_policy::matching_action;
use super::plan::{Decision, PodAction, PodActionResult};
use super::status::{Event, FinishedCondition, UncountedPods, add_uncounted, count_released, set_condition, set_count};
use super::view::{self, Job, is_tracked, uid};

/// The maximum number of uids in the status, so that it stays small.
const MAX_UNCOUNTED: usize = 500;

/// The status to write before finalizers are removed.
pub(crate) struct Tracking {
    pub status: Tree,
    /// Pods whose finalizers may be removed once the status is written.
    pub release: Vec<Arc<Tree>>,
    pub events: Vec<Event>,
    /// The actions of the failure policy rules that matched.
    pub rules: Vec<&'static str>,
    job: Arc<Tree>,
    tracked: BTreeSet<String>,
    ending: Option<FinishedCondition>,
    terminating: usize,
    is_full: bool,
}

/// The status to write after finalizers were removed.
pub(crate) struct FinalStatus {
    pub status: Tree,
    pub events: Vec<Event>,
}

impl Decision {
    /// Records what was done and which pods have finished.
    pub(crate) fn track(mut self, done: PodActionResult, now: Timestamp) -> Tracking {
        let job = self.job.clone();
        let view = Job(&job);
        let active = self.counts.active + done.created - done.deleted.min(self.counts.active);
        let ready = self.counts.ready.saturating_sub(done.deleted_ready);
        let terminating = self.counts.terminating + done.deleted;
        if matches!(&self.act, PodAction::End(pods) if pods.len() != done.deleted) {
            // Some pods still exist and could be counted differently.
            self.ending = None;
        } else if self.ending.is_none() && is_complete(view, self.counts.succeeded, active) {
            self.ending =
                Some(FinishedCondition::success("CompletionsReached", "Reached expected number of succeeded pods"));
        }
        let managed = !matches!(self.act, PodAction::End(_)) && !view.is_deleted() && self.ending.is_none();
        let events = if managed { suspend(view, &mut self.status, now) } else { Vec::new() };
        set_count(&mut self.status, "active", active as i64);
        self.status.set("ready", ready as i64);
        self.status.set("terminating", terminating as i64);
        self.status.child("uncountedTerminatedPods");
        self.terminate(terminating, events, now)
    }

    fn terminate(mut self, terminating: usize, events: Vec<Event>, now: Timestamp) -> Tracking {
        let job = self.job.clone();
        let tracked: BTreeSet<String> =
            self.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod).to_string()).collect();
        let uncounted = UncountedPods::read(&self.status);
        count_released(&mut self.status, &tracked);
        if self.indexes.is_some() {
            self.pods.sort_by_key(|pod| view::index(pod));
        }
        let (mut release, mut rules) = (Vec::new(), Vec::new());
        let mut waiting = UncountedPods::read(&self.status).len();
        let mut is_full = false;
        for pod in self.pods.iter().filter(|pod| is_tracked(pod)) {
            if !self.may_release(Job(&job), pod) {
                continue;
            }
            release.push(pod.clone());
            match self.count_decision(Job(&job), pod, &uncounted) {
                CountDecision::Succeeded => add_uncounted(&mut self.status, "succeeded", uid(pod)),
                CountDecision::Failed(rule) => {
                    rules.extend(rule);
                    add_uncounted(&mut self.status, "failed", uid(pod));
                }
                CountDecision::Index => {}
                CountDecision::Ignored(rule) => {
                    rules.push(rule);
                    continue;
                }
                CountDecision::Not => continue,
            }
            waiting += 1;
            is_full = waiting >= MAX_UNCOUNTED;
            if is_full {
                break;
            }
        }
        self.write_indexes();
        if let Some(ending) = self.ending.as_ref().filter(|ending| !ending.known) {
            set_condition(&mut self.status, ending.target(), true, (&ending.reason, &ending.message), now);
        }
        let (status, ending) = (self.status, self.ending);
        Tracking { status, release, events, rules, job, tracked, ending, terminating, is_full }
    }

    /// Whether the finalizer may be removed: the pod has finished, or the job ends or is deleted, unless a
    /// replacement needs the pod's failure count.
    fn may_release(&self, job: Job<'_>, pod: &Tree) -> bool {
        if job.is_deleted() || self.ending.is_some() || pod.str("status.phase") == "Succeeded" {
            return true;
        }
        let is_awaited = || {
            let last = view::index(pod).and_then(|index| self.replaced.get(&index));
            last.is_some_and(|last| uid(last) == uid(pod))
        };
        job.has_failed(pod) && !is_awaited()
    }

    fn count_decision(&self, job: Job<'_>, pod: &Tree, uncounted: &UncountedPods) -> CountDecision {
        let id = uid(pod);
        let ends_in_failure = self.ending.as_ref().is_some_and(|ending| !ending.success);
        if pod.str("status.phase") == "Succeeded" && !uncounted.failed.contains(id) {
            return match &self.indexes {
                Some(indexes) if job.index(pod).is_some_and(|index| !indexes.counted.has(index)) => {
                    CountDecision::Index
                }
                None if !uncounted.succeeded.contains(id) => CountDecision::Succeeded,
                _ => CountDecision::Not,
            };
        }
        // A failed job fails all its pods.
        let failed = job.has_failed(pod) || ends_in_failure;
        if !failed || uncounted.failed.contains(id) || !job.counts(pod) {
            return CountDecision::Not;
        }
        match matching_action(job.0, pod) {
            Some(verdict) if !verdict.counts() => CountDecision::Ignored(verdict.action()),
            verdict => CountDecision::Failed(verdict.map(|verdict| verdict.action())),
        }
    }

    fn write_indexes(&mut self) {
        let Some(indexes) = &self.indexes else { return };
        set_count(&mut self.status, "succeeded", indexes.succeeded.len() as i64);
        match indexes.succeeded.to_string() {
            text if text.is_empty() => drop(self.status.remove("completedIndexes")),
            text => self.status.set("completedIndexes", text),
        }
        match &indexes.failed {
            Some(failed) => self.status.set("failedIndexes", failed.to_string()),
            None => drop(self.status.remove("failedIndexes")),
        }
    }
}

enum CountDecision {
    Succeeded,
    /// With the action of the matching rule.
    Failed(Option<&'static str>),
    /// A rule ignores the failure.
    Ignored(&'static str),
    /// Counted by its index; no uid is needed.
    Index,
    Not,
}

fn is_complete(job: Job<'_>, succeeded: usize, active: usize) -> bool {
    let enough = match job.completions() {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0,
    };
    enough && active == 0
}

/// A resumed job starts its active deadline anew.
fn suspend(job: Job<'_>, status: &mut Tree, now: Timestamp) -> Vec<Event> {
    if job.is_suspended() {
        let changed = set_condition(status, "Suspended", true, ("JobSuspended", "Job suspended"), now);
        return if changed { vec![Event::new("Normal", "Suspended", "Job suspended")] } else { Vec::new() };
    }
    if !set_condition(status, "Suspended", false, ("JobResumed", "Job resumed"), now) {
        return Vec::new();
    }
    status.set("startTime", time::format_seconds(now.seconds));
    vec![Event::new("Normal", "Resumed", "Job resumed")]
}

impl Tracking {
    /// Counts the pods whose finalizers were removed, and finishes the job when all of them are counted.
    pub(super) fn count_released(self, released: &BTreeSet<String>, now: Timestamp) -> FinalStatus {
        let mut status = self.status;
        let tracked: BTreeSet<String> = self.tracked.difference(released).cloned().collect();
        count_released(&mut status, &tracked);
        let waits = self.is_full
            || self.terminating > 0
            || UncountedPods::read(&status).len() > 0
            || self.release.iter().any(|pod| !released.contains(uid(pod)));
        let Some(ending) = self.ending.filter(|_| !waits) else { return FinalStatus { status, events: Vec::new() } };
        set_condition(&mut status, ending.end(), true, (&ending.reason, &ending.message), now);
        if ending.success {
            status.set("completionTime", time::format_seconds(now.seconds));
        }
        let events = ending_events(Job(&self.job), &ending, &status);
        FinalStatus { status, events }
    }
}

fn ending_events(job: Job<'_>, ending: &FinishedCondition, status: &Tree) -> Vec<Event> {
    if !ending.success {
        return vec![Event::new("Warning", &ending.reason, &ending.message)];
    }
    let mut events = Vec::new();
    let succeeded = status.int("succeeded").unwrap_or(0);
    if job.completions().is_some_and(|completions| succeeded > completions as i64) {
        let message = "Too many succeeded pods running after completion count reached";
        events.push(Event::new("Warning", "TooManySucceededPods", message));
    }
    events.push(Event::new("Normal", "Completed", "Job completed"));
    events
}
