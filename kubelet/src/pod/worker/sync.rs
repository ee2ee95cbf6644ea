//! One sync of a pod: reads its state, admits it, decides and executes.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time, tree};
use stdx::sync::Mutex;
use tokio::sync::{Notify, watch};

use super::execute::Executor;
use super::{DesiredPod, Termination, files, start, terminate};
use crate::admission::preempt;
use crate::metrics;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
use crate::pod::plan::{self, Backoffs, Plan, RestartBackoff};
use crate::pod::status::{self, Problems};
use crate::volumes::MountedVolumes;

const SECOND: i64 = 1_000_000_000;
/// How often a pod checks whether the pods that it has preempted have terminated.
const LOOK: Duration = Duration::from_millis(100);

/// State that a worker keeps of its pod between syncs.
pub(crate) struct WorkerState {
    pub(crate) backoffs: Backoffs,
    pub(crate) problems: Problems,
    pub(crate) is_admitted: bool,
    /// Why the node has terminated the pod.
    pub(crate) ended: Option<Termination>,
    /// Nothing runs any more, and only the data for logs is left.
    pub(crate) is_stopped: bool,
    /// Becomes true once that is so and the status is reported.
    pub(crate) is_down: watch::Sender<bool>,
    /// Updates when something of the pod changes while it is worked on.
    pub(crate) wake: Arc<Notify>,
    pub(crate) warned: bool,
    /// When the pod was first seen deleted while proxies might send requests to it.
    pub(crate) held_since: Option<i64>,
    /// Preempted pods whose termination this pod waits for.
    awaited: Vec<String>,
    /// Restart backoffs for which an event was recorded.
    pub(crate) pauses: Vec<RestartBackoff>,
    shown: Arc<Mutex<Arc<PodState>>>,
}

impl WorkerState {
    pub(crate) fn new(
        longest: Duration,
        shown: Arc<Mutex<Arc<PodState>>>,
        wake: Arc<Notify>,
        is_down: watch::Sender<bool>,
    ) -> WorkerState {
        WorkerState {
            backoffs: Backoffs::new(longest),
            problems: Problems::new(),
            is_admitted: false,
            ended: None,
            is_stopped: false,
            is_down,
            wake,
            warned: false,
            held_since: None,
            awaited: Vec::new(),
            pauses: Vec::new(),
            shown,
        }
    }

    /// A problem is over once its container is not to be started any more.
    fn keep_problems(&mut self, plan: &Plan) {
        self.problems.retain(|name, _| plan.starts(name));
    }

    /// Drops reported pauses that are over.
    pub(crate) fn keep_pauses(&mut self, plan: &Plan) {
        self.pauses.retain(|pause| plan.backoffs().any(|backoff| backoff == pause));
    }
}

/// When the pod is synced again.
#[derive(Debug, PartialEq)]
pub(crate) enum SyncResult {
    /// At this time, if nothing happens before.
    Idle(Option<i64>),
    /// At once.
    Again,
    /// After a pause that grows.
    Failed,
    /// The pod needs no further sync.
    Gone,
}

/// Shows whether a pod is to end while a sync is running.
pub(crate) type Updates<'a> = &'a watch::Receiver<DesiredPod>;

pub(crate) async fn sync(
    context: &Arc<PodContext>,
    desired: &DesiredPod,
    worker: &mut WorkerState,
    updates: Updates<'_>,
) -> SyncResult {
    // Desired and allocated resources may differ.
    let wanted = &mut DesiredPod { pod: context.resizes.allocated(&desired.pod), ..desired.clone() };
    let state = match read_state(context, &wanted.pod, worker).await {
        Ok(state) => state,
        Err(status) => {
            tracing::warn!(
                pod = pod::name(&wanted.pod),
                error = status.message(),
                "failed to call the container runtime"
            );
            return SyncResult::Failed;
        }
    };
    if let Some(ending) = &wanted.ending {
        worker.ended.get_or_insert_with(|| ending.clone());
    }
    if wanted.ends() || worker.ended.is_some() {
        return terminate::sync(context, wanted, worker, state, updates).await;
    }
    if !worker.is_admitted && !node_is_known(context, &wanted.pod, updates).await {
        return SyncResult::Again;
    }
    if !worker.is_admitted && !admit(context, wanted, worker, &state).await {
        return SyncResult::Again;
    }
    context.resizes.take(&wanted.pod);
    context.resizes.try_allocate(&context.resizing, &desired.pod);
    wanted.pod = context.resizes.allocated(&desired.pod);
    if worker.awaited.iter().any(|uid| context.admission.holds(uid)) {
        return SyncResult::Idle(Some(after(context, LOOK)));
    }
    if let Some(ending) = overdue(deadline(context, &wanted.pod), context.now()) {
        context.recorder.normal(&wanted.pod, &ending.problem.reason, ending.problem.message.as_str());
        worker.ended = Some(ending);
        return SyncResult::Again;
    }
    run(context, wanted, worker, state, updates).await
}

/// Reads the state of the pod in the runtime.
pub(crate) async fn read_state(
    context: &PodContext,
    pod: &Tree,
    worker: &WorkerState,
) -> crate::runtime::Result<Arc<PodState>> {
    let mut state = context.runtime.pod(pod::uid(pod)).await?;
    state.round = plan::restart::round(pod, &state);
    files::read_messages(context, pod, &mut state);
    let state = Arc::new(state);
    *worker.shown.lock() = state.clone();
    Ok(state)
}

/// Admission needs the node; false if the pod ends before. For static pods, one of which may be the API server, the
/// object to be registered is enough; for all other pods labels and taints matter, which only the API has.
async fn node_is_known(context: &PodContext, pod: &Tree, updates: Updates<'_>) -> bool {
    let (mut object, is_static) = (context.node.watch(), pod::is_static(pod));
    let is_enough =
        |node: &Option<Arc<Tree>>| node.as_ref().is_some_and(|node| is_static || !node.str("metadata.uid").is_empty());
    // If the node's task has ended, admission uses the last known node.
    let known = async { object.wait_for(is_enough).await.is_ok() };
    start::unless_ended(updates, known).await.is_some()
}

/// A pod that runs already was admitted by an earlier kubelet.
async fn admit(context: &PodContext, wanted: &DesiredPod, worker: &mut WorkerState, state: &PodState) -> bool {
    let pod = &wanted.pod;
    worker.is_admitted = true;
    if !state.sandboxes.is_empty() {
        context.admission.take(pod);
        context.managers.take(pod);
        return true;
    }
    let problem = match judge(context, pod).await {
        Ok(room) => {
            room.victims.iter().for_each(|uid| preempt(context, uid, &room.signal));
            worker.awaited = room.victims;
            return true;
        }
        Err(problem) => problem,
    };
    context.recorder.warning(pod, &problem.reason, problem.message.as_str());
    context.statuses.set(pod, status::rejected(pod, &problem, context.now() / SECOND));
    worker.ended = Some(Termination { problem, grace_seconds: Some(0), condition: None });
    false
}

/// Terminates a pod that a critical pod preempts.
fn preempt(context: &PodContext, uid: &str, signal: &str) {
    let problem = Problem { reason: preempt::REASON.into(), message: preempt::MESSAGE.to_string() };
    let victim = context.cache.pods.all().into_iter().find(|pod| pod::uid(pod) == uid);
    let condition = victim.map(|victim| {
        context.recorder.warning(&victim, preempt::REASON, preempt::MESSAGE);
        status::disruption(&victim, preempt::CONDITION, context.now() / SECOND)
    });
    context.metrics.count(&metrics::PREEMPTIONS, &[signal]);
    (context.end)(uid, Termination { problem, grace_seconds: None, condition });
}

/// Admission handlers in their order: the resource managers come after the handlers that check only the pod, and before
/// those that check the node's resources.
async fn judge(context: &PodContext, pod: &Tree) -> Result<preempt::Preemption, Problem> {
    let (node, rules) = (context.node.object().unwrap_or_default(), context.rules());
    context.admission.look(pod, &node, &rules)?;
    context.managers.admit(pod).await?;
    context.admission.admit(pod, &node, &rules).inspect_err(|_| context.managers.release(pod::uid(pod)))
}

/// The termination of a pod whose active deadline has passed.
fn overdue(deadline: Option<i64>, now: i64) -> Option<Termination> {
    (now >= deadline?).then(|| Termination {
        problem: Problem {
            reason: "DeadlineExceeded".into(),
            message: "Pod was active on the node longer than the specified deadline".to_string(),
        },
        grace_seconds: None,
        condition: None,
    })
}

/// The object of a static pod has no status: the last reported status is used.
pub(crate) fn deadline(context: &PodContext, pod: &Tree) -> Option<i64> {
    let limit = pod.int("spec.activeDeadlineSeconds")?;
    let started = time::parse(context.statuses.last(pod).str("startTime")).ok()?;
    Some(started.seconds.saturating_add(limit).saturating_mul(SECOND))
}

async fn run(
    context: &Arc<PodContext>,
    wanted: &DesiredPod,
    worker: &mut WorkerState,
    state: Arc<PodState>,
    updates: Updates<'_>,
) -> SyncResult {
    context.objects.register(&wanted.pod);
    let plan = decide(context, &wanted.pod, worker, &state);
    worker.keep_problems(&plan);
    worker.keep_pauses(&plan);
    report_status(context, wanted, worker, &state, &plan);
    Box::pin(Executor::new(context, wanted, worker, state, updates).run(&plan)).await
}

pub(crate) fn after(context: &PodContext, pause: Duration) -> i64 {
    context.now().saturating_add(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX))
}

/// When a pod with resource claims is looked at again.
const DEVICES_PAUSE: Duration = Duration::from_secs(120);

/// Why a pod cannot get its devices: it must not run without them.
fn claimed_devices(pod: &Tree) -> Option<String> {
    let of_resources = pod.get("status").is_some_and(|status| status.has("extendedResourceClaimStatus"));
    let is_claimed = of_resources || !pod.list("spec.resourceClaims").is_empty();
    is_claimed.then(|| "Failed to prepare dynamic resources: this kubelet does not support DRA drivers".to_string())
}

/// The pod's volumes, up to date; or when to retry.
pub(crate) async fn volumes(
    context: &Arc<PodContext>,
    pod: &Tree,
    updates: Updates<'_>,
) -> Result<MountedVolumes, SyncResult> {
    if let Some(problem) = claimed_devices(pod) {
        context.recorder.warning(pod, "FailedPrepareDynamicResources", problem);
        return Err(SyncResult::Idle(Some(after(context, DEVICES_PAUSE))));
    }
    let prepared = start::unless_ended(updates, context.volumes.prepare(pod)).await.ok_or(SyncResult::Again)?;
    let (result, warnings) = match prepared {
        Ok(mounted) => (Ok(mounted.clone()), mounted.warnings),
        Err(problem) => (Err(SyncResult::Idle(Some(after(context, problem.again)))), problem.warnings),
    };
    for warning in warnings {
        context.recorder.warning(pod, warning.reason, warning.message);
    }
    result
}

/// Decides from the state that was read last, after probes were started and stopped for it.
pub(crate) fn decide(context: &PodContext, pod: &Arc<Tree>, worker: &WorkerState, state: &PodState) -> Plan {
    context.probes.follow(pod, state, &context.node.host_ip());
    let verdicts = |id: &str| context.probes.verdicts(id);
    let resized = context.resizes.restarts(pod);
    let (backoffs, now) = (&worker.backoffs, context.now());
    let next_log = |name: &str| files::next_log(&logs(context, pod).join(name));
    plan::plan(&plan::View { pod, state, verdicts: &verdicts, resized: &resized, backoffs, next_log: &next_log, now })
}

/// Reports the status of a running pod.
pub(crate) fn report_status(
    context: &PodContext,
    wanted: &DesiredPod,
    worker: &WorkerState,
    state: &PodState,
    plan: &Plan,
) {
    let status = build_status(context, wanted, worker, state, plan);
    if status.str("phase") == "Running" {
        context.starts.runs(&wanted.pod, state, context.now());
    }
    context.statuses.set(&wanted.pod, status);
}

pub(crate) fn build_status(
    context: &PodContext,
    wanted: &DesiredPod,
    worker: &WorkerState,
    state: &PodState,
    plan: &Plan,
) -> Tree {
    let pod = with_last_status(context, &wanted.pod);
    let verdicts = |id: &str| context.probes.verdicts(id);
    let ended = worker.ended.as_ref().map(|ending| &ending.problem);
    let mut status = status::status(&status::View {
        pod: &pod,
        state,
        verdicts: &verdicts,
        backoffs: &plan.backoffs().cloned().collect::<Vec<_>>(),
        problems: &worker.problems,
        runtime: &context.features.name,
        host_ips: &context.node.host_ips(),
        // A pod is not complete while a container runs.
        is_over: worker.is_stopped || (wanted.ends() || worker.ended.is_some()) && state.is_stopped(),
        ended: ended.filter(|_| worker.is_stopped),
        now: context.now() / SECOND,
    });
    context.resizes.show(&pod, state, &mut status, context.now() / SECOND);
    let condition = worker.ended.as_ref().and_then(|ending| ending.condition.clone());
    if let Some(condition) = condition {
        status.list_entry("conditions").push(condition);
    }
    context.managers.add_health(&pod, &mut status);
    status
}

/// Transition times follow the last reported status, which the object may not show yet.
fn with_last_status(context: &PodContext, pod: &Tree) -> Tree {
    let last = context.statuses.last(pod);
    if last.is_null() { pod.clone() } else { status::merged(pod, &last) }
}

/// A pod that exists only in the runtime, from the labels of its sandbox.
pub(crate) fn from_labels(uid: &str, name: &str, namespace: &str) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "metadata" => tree! { "name" => name, "namespace" => namespace, "uid" => uid },
        "spec" => tree! {},
    }
}

/// The directory of a pod's logs.
pub(crate) fn logs(context: &PodContext, pod: &Tree) -> std::path::PathBuf {
    pod::log_dir(&context.config.pod_logs_dir, pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_with_claims_wait_for_their_devices() {
        let check = |spec: Tree, status: Tree, want: bool| {
            let pod = tree! { "spec" => spec, "status" => status };
            assert_eq!(claimed_devices(&pod).is_some(), want, "{pod:?}");
        };
        let claim = || api::list![tree! { "name" => "c", "resourceClaimName" => "c" }];
        check(tree! {}, tree! {}, false);
        check(tree! { "resourceClaims" => claim() }, tree! {}, true);
        check(tree! {}, tree! { "extendedResourceClaimStatus" => tree! { "resourceClaimName" => "c" } }, true);
    }
}
