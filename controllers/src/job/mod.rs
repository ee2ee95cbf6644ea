//! Runs pods until enough of them have succeeded. `plan` decides; this module executes and records events.

mod backoff;
mod counts;
mod failure_policy;
mod indexes;
mod plan;
mod pods;
mod status;
#[cfg(test)]
mod tests;
mod track;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, list, tree};
use client::{Change, DeleteOptions, Error, Key, Patch, Resource, Result, Selection, Store, index};
use stdx::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::metrics;
use crate::support::batch::{bounded, slow_start};
use crate::support::owner;
use crate::support::pods::is_ready;
use crate::support::selecting::{SELECTOR, selecting, selector_of};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use backoff::Backoff;
use plan::{Decision, PodAction, PodActionResult};
use status::Event;
use view::{FINALIZER, Job, is_tracked, uid};

const JOBS: Resource = Resource::new("batch", "v1", "jobs");
const PODS: Resource = Resource::core("pods");
/// Prefix of the keys of pods whose job may be deleted.
const ORPHAN: &str = "pod:";
/// Pod changes are batched for this long, so that a job with many pods is synced less often.
const GATHER: Duration = Duration::from_millis(100);

struct Controller {
    jobs: Arc<Store>,
    pods: Arc<Store>,
    context: Context,
    /// The backoff state of each job, with the job's uid.
    failures: Mutex<BTreeMap<String, (String, Backoff)>>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let jobs = setup.informer(Selection::all(JOBS));
    let pods = setup.informer(Selection::all(PODS));
    jobs.index_by(SELECTOR);
    pods.index_by(index::CONTROLLER);
    pods.index_by(index::LABELS);
    let wake = ChangeHandler { jobs: jobs.store().clone(), pods: pods.store().clone(), context: context.clone() };
    let wake = Arc::new(wake);
    let also = wake.clone();
    jobs.on_change(move |change| wake.job(change));
    pods.on_change(move |change| also.pod(change));
    Some(Box::new(Controller {
        jobs: jobs.store().clone(),
        pods: pods.store().clone(),
        context: context.clone(),
        failures: Mutex::default(),
    }))
}

/// Queues what a change affects.
struct ChangeHandler {
    jobs: Arc<Store>,
    pods: Arc<Store>,
    context: Context,
}

impl ChangeHandler {
    fn job(&self, change: &Change) {
        self.context.queue.add(change.key.clone());
        if let (None, Some(new)) = (&change.old, &change.new)
            && Job(new).is_foreign()
        {
            let labels = [new.str("spec.managedBy")];
            self.context.metrics.count(&metrics::JOBS_BY_EXTERNAL_CONTROLLER, &labels);
        }
        if let (Some(old), None) = (&change.old, &change.new) {
            for pod in self.pods.find_keys(index::CONTROLLER, old.str("metadata.uid")) {
                self.context.queue.add(orphan(&pod));
            }
        }
    }

    fn pod(&self, change: &Change) {
        if let Some(event) = counts::tracked(change.old.as_deref(), change.new.as_deref()) {
            self.context.metrics.count(&metrics::JOB_TRACKED_PODS, &[event]);
        }
        let mut keys = BTreeSet::new();
        for pod in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
            match owner::controller_of(pod) {
                Some(reference) if is_job(reference) => {
                    keys.insert(client::key(pod.str("metadata.namespace"), reference.str("name")));
                }
                Some(_) => {}
                None => keys.extend(selecting(&self.jobs, pod)),
            }
        }
        keys.into_iter().for_each(|key| self.context.queue.add_after(key, GATHER));
        if change.new.as_deref().is_some_and(|pod| is_tracked(pod) && !is_counted(&self.jobs, pod)) {
            self.context.queue.add(orphan(&change.key));
        }
    }
}

fn orphan(key: &Key) -> Key {
    Key::from(format!("{ORPHAN}{key}"))
}

fn is_job(reference: &Tree) -> bool {
    reference.str("kind") == "Job" && reference.str("apiVersion").starts_with("batch/")
}

/// Whether a pod is still tracked: by an unfinished job, a job of another controller, or an owner that is not a job.
fn is_counted(jobs: &Store, pod: &Tree) -> bool {
    let Some(reference) = owner::controller_of(pod) else { return false };
    if !is_job(reference) {
        return true;
    }
    let job = jobs.get(&client::key(pod.str("metadata.namespace"), reference.str("name")));
    let job = job.filter(|job| uid(job) == reference.str("uid"));
    job.is_some_and(|job| Job(&job).is_foreign() || !Job(&job).is_finished())
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        if let Some(pod) = key.strip_prefix(ORPHAN) {
            return self.sync_orphan(pod).await;
        }
        let Some(job) = self.jobs.get(key) else {
            self.failures().remove(key);
            return Ok(Outcome::Done);
        };
        if Job(&job).is_foreign() {
            return Ok(Outcome::Done);
        }
        if Job(&job).is_finished() {
            self.failures().remove(key);
            return self.release_left(&job).await;
        }
        self.run(key, job).await
    }

    async fn run(&self, key: &str, job: Arc<Tree>) -> Result<Outcome> {
        let begun = Instant::now();
        let mut action = "reconciling";
        let result = self.sync_unfinished(key, job.clone(), &mut action).await;
        let labels = [counts::mode(&job), if result.is_ok() { "success" } else { "error" }, action];
        self.context.metrics.count(&metrics::JOB_SYNCS, &labels);
        self.context.metrics.record(&metrics::JOB_SYNC_DURATION, &labels, begun.elapsed().as_secs_f64());
        result
    }

    /// Syncs an unfinished job, with the writes in the order that `plan` relies on.
    async fn sync_unfinished(&self, key: &str, job: Arc<Tree>, action: &mut &'static str) -> Result<Outcome> {
        let pods = self.claim(&job).await?;
        let known = self.known(key, &job);
        let decision = plan::decide(job.clone(), pods, known, self.context.clock.now());
        let (again, backoff) = (decision.again, decision.backoff);
        *action = counts::action(&decision.act);
        let (done, failure) = self.act(&job, &decision).await;
        let tracking = decision.track(done, self.context.clock.now());
        let written = self.write(&job, &tracking.status).await?;
        self.failures().insert(key.to_string(), (uid(&job).to_string(), backoff));
        self.record_events(&job, &tracking.events);
        for action in &tracking.rules {
            self.context.metrics.count(&metrics::JOB_FAILURES_BY_POLICY, &[action]);
        }
        let (released, not_released) = self.release(&tracking.release).await;
        let settled = tracking.count_released(&released, self.context.clock.now());
        self.write(&written, &settled.status).await?;
        self.record_events(&written, &settled.events);
        match failure.or(not_released) {
            Some(error) => Err(error),
            None => Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter)),
        }
    }

    /// The pods of a job: those it controls, and those it adopts by its selector.
    async fn claim(&self, job: &Tree) -> Result<Vec<Arc<Tree>>> {
        let selector = selector_of(job);
        let mut pods = self.pods.find(index::CONTROLLER, uid(job));
        pods.extend(self.pods.select(job.str("metadata.namespace"), &selector));
        pods.sort_by_cached_key(|pod| client::key_of(pod));
        pods.dedup_by_key(|pod| client::key_of(pod));
        let mut claim = owner::claim(job, &selector, pods);
        claim.finalizer = FINALIZER;
        owner::execute(&self.context.client, JOBS, job, PODS, claim).await
    }

    fn known(&self, key: &str, job: &Tree) -> Option<Backoff> {
        self.failures().get(key).filter(|(known, _)| known == uid(job)).map(|(_, backoff)| *backoff)
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<String, (String, Backoff)>> {
        self.failures.lock()
    }

    /// The completed actions, and the first error.
    async fn act(&self, job: &Tree, decision: &Decision) -> (PodActionResult, Option<Error>) {
        match &decision.act {
            PodAction::Nothing => (PodActionResult::default(), None),
            PodAction::Create(indexes) => {
                let create = |at: usize| self.create(job, indexes[at], &decision.replaced);
                let (created, failure) = slow_start(indexes.len(), create).await;
                counts::count_created(&self.context.metrics, job, decision, created, failure.is_some());
                let failure = failure.filter(|error| !error.is_terminating());
                (PodActionResult { created, ..PodActionResult::default() }, failure)
            }
            PodAction::Remove(pods) => self.delete(job, pods, false).await,
            PodAction::End(pods) => self.delete(job, pods, true).await,
        }
    }

    async fn create(&self, job: &Tree, index: Option<usize>, replaced: &BTreeMap<usize, Arc<Tree>>) -> Result<()> {
        let replaced = index.and_then(|index| replaced.get(&index)).map(|pod| &**pod);
        let pod = pods::build(job, index, replaced);
        match self.context.client.create(PODS, job.str("metadata.namespace"), &pod).await {
            Ok(made) => {
                let text = format!("Created pod: {}", made.str("metadata.name"));
                self.context.recorder.normal(job, "SuccessfulCreate", text);
                Ok(())
            }
            Err(error) => {
                if !error.is_terminating() {
                    let text = format!("Error creating: {}", error.message());
                    self.context.recorder.warning(job, "FailedCreate", text);
                }
                Err(error)
            }
        }
    }

    async fn delete(&self, job: &Tree, pods: &[Arc<Tree>], counts: bool) -> (PodActionResult, Option<Error>) {
        let work: Vec<_> = pods.iter().map(|pod| self.delete_one(job, pod, counts)).collect();
        let results = bounded(work).await;
        let mut done = PodActionResult::default();
        let mut failure = None;
        for (pod, result) in pods.iter().zip(results) {
            match result {
                Ok(()) => {
                    done.deleted += 1;
                    done.deleted_ready += usize::from(is_ready(pod));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (done, failure)
    }

    /// A pod that does not count loses its finalizer before it is deleted.
    async fn delete_one(&self, job: &Tree, pod: &Tree, counts: bool) -> Result<()> {
        if !counts {
            self.release_one(pod).await?;
        }
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        match self.context.client.delete(PODS, namespace, name, DeleteOptions::of(pod)).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let text = format!("Error deleting: {}", error.message());
                self.context.recorder.warning(job, "FailedDelete", text);
                Err(error)
            }
            Ok(_) => {
                self.context.recorder.normal(job, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
        }
    }

    /// The uids of the pods whose finalizer was removed.
    async fn release(&self, pods: &[Arc<Tree>]) -> (BTreeSet<String>, Option<Error>) {
        let work: Vec<_> = pods.iter().map(|pod| self.release_one(pod)).collect();
        let results = bounded(work).await;
        let mut released = BTreeSet::new();
        let mut failure = None;
        for (pod, result) in pods.iter().zip(results) {
            match result {
                Ok(()) => drop(released.insert(uid(pod).to_string())),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (released, failure)
    }

    async fn release_one(&self, pod: &Tree) -> Result<()> {
        self.release_by(pod, tree! { "uid" => uid(pod) }).await
    }

    /// Removes the finalizer only if the pod matches `metadata`.
    async fn release_by(&self, pod: &Tree, metadata: Tree) -> Result<()> {
        if !is_tracked(pod) {
            return Ok(());
        }
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        let mut patch = tree! { "metadata" => metadata };
        patch.child("metadata").set("$deleteFromPrimitiveList/finalizers", list![FINALIZER]);
        match self.context.client.patch(PODS, namespace, name, "", Patch::Strategic(&patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// A finished job must not leave pods with finalizers.
    async fn release_left(&self, job: &Tree) -> Result<Outcome> {
        let pods = self.pods.find(index::CONTROLLER, uid(job));
        match self.release(&pods).await.1 {
            Some(error) => Err(error),
            None => Ok(Outcome::Done),
        }
    }

    /// Removes the finalizer of a pod whose job was deleted or has finished. The informer shows a job before its
    /// pods, so that a missing job was deleted.
    async fn sync_orphan(&self, key: &str) -> Result<Outcome> {
        let orphan = self.pods.get(key).filter(|pod| is_tracked(pod) && !is_counted(&self.jobs, pod));
        match orphan {
            Some(pod) => {
                // Only the observed version: a job may have adopted the pod since and rely on its finalizer.
                let version = pod.str("metadata.resourceVersion");
                let seen = tree! { "uid" => uid(&pod), "resourceVersion" => version };
                self.release_by(&pod, seen).await.map(|()| Outcome::Done)
            }
            None => Ok(Outcome::Done),
        }
    }

    /// An unchanged status is not written.
    async fn write(&self, job: &Tree, status: &Tree) -> Result<Tree> {
        let mut changed = job.clone();
        if job.at("status") == status {
            return Ok(changed);
        }
        changed.set("status", status.clone());
        let (namespace, name) = (job.str("metadata.namespace"), job.str("metadata.name"));
        let written = self.context.client.update_status(JOBS, namespace, name, &changed).await?;
        counts::status_increments(job, status).into_iter().for_each(|(metric, labels, count)| {
            self.context.metrics.record(metric, &labels, count);
        });
        Ok(written)
    }

    fn record_events(&self, job: &Tree, events: &[Event]) {
        for event in events {
            match event.ty {
                "Warning" => self.context.recorder.warning(job, &event.reason, event.message.as_str()),
                _ => self.context.recorder.normal(job, &event.reason, event.message.as_str()),
            }
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
