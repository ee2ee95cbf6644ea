//! One sync of a pod: reads its state, admits it, decides and executes.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time, tree};
use stdx::sync::Mutex;
use tokio::sync::{Notify, watch};

use super::execute::Executor;
use super::{DesiredPod, Ending, end, files, start};
use crate::admission::preempt;
use crate::metrics;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
use crate::pod::plan::{self, Backoffs, Plan, RestartBackoff};
use crate::pod::status::{self, Problems};
use crate::volumes::Mounted;

const SECOND: i64 = 1_000_000_000;
/// How often a pod checks whether the pods that it has preempted are gone.
const LOOK: Duration = Duration::from_millis(100);

/// What a worker remembers of its pod.
pub(crate) struct WorkerState {
    pub(crate) backoffs: Backoffs,
    pub(crate) problems: Problems,
    pub(crate) is_admitted: bool,
    /// Why the node has terminated it.
    pub(crate) ended: Option<Ending>,
    /// Nothing runs any more, and nothing is left but what logs need.
    pub(crate) is_stopped: bool,
    /// Becomes true once that is so and the status is reported.
    pub(crate) is_down: watch::Sender<bool>,
    /// Updates when something of the pod changes while it is worked on.
    pub(crate) wake: Arc<Notify>,
    pub(crate) warned: bool,
    /// When the pod was first seen deleted while proxies might send requests to it.
    pub(crate) held_since: Option<i64>,
    /// Preempted pods, for which it waits.
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

    /// Forgets reported pauses that are over.
    pub(crate) fn keep_pauses(&mut self, plan: &Plan) {
        self.pauses.retain(|pause| plan.backoffs().any(|backoff| backoff == pause));
    }
}

/// When the pod is synced again.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// At this time, if nothing happens before.
    Idle(Option<i64>),
    /// At once.
    Again,
    /// After a pause that grows.
    Failed,
    /// Nothing is left to be done, ever.
    Gone,
}

/// Shows whether a pod is to end while a sync is running.
pub(crate) type Updates<'a> = &'a watch::Receiver<DesiredPod>;

pub(crate) async fn sync(
    context: &Arc<PodContext>,
    asked: &DesiredPod,
    worker: &mut WorkerState,
    told: Updates<'_>,
) -> Next {
    // Desired and allocated resources may differ.
    let wanted = &mut DesiredPod { pod: context.resizes.allocated(&asked.pod), ..asked.clone() };
    let state = match read_state(context, &wanted.pod, worker).await {
        Ok(state) => state,
        Err(status) => {
            tracing::warn!(
                pod = pod::name(&wanted.pod),
                error = status.message(),
                "failed to call the container runtime"
            );
            return Next::Failed;
        }
    };
    if let Some(ending) = &wanted.ending {
        worker.ended.get_or_insert_with(|| ending.clone());
    }
    if wanted.ends() || worker.ended.is_some() {
        return end::sync(context, wanted, worker, state, told).await;
    }
    if !worker.is_admitted && !node_is_known(context, &wanted.pod, told).await {
        return Next::Again;
    }
    if !worker.is_admitted && !admit(context, wanted, worker, &state).await {
        return Next::Again;
    }
    context.resizes.take(&wanted.pod);
    context.resizes.settle(&context.resizing, &asked.pod);
    wanted.pod = context.resizes.allocated(&asked.pod);
    if worker.awaited.iter().any(|uid| context.admission.holds(uid)) {
        return Next::Idle(Some(after(context, LOOK)));
    }
    if let Some(ending) = overdue(deadline(context, &wanted.pod), context.now()) {
        context.recorder.normal(&wanted.pod, &ending.problem.reason, ending.problem.message.as_str());
        worker.ended = Some(ending);
        return Next::Again;
    }
    run(context, wanted, worker, state, told).await
}

/// What the runtime has of the pod now.
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
async fn node_is_known(context: &PodContext, pod: &Tree, told: Updates<'_>) -> bool {
    let (mut object, is_static) = (context.node.watch(), pod::is_static(pod));
    let is_enough =
        |node: &Option<Arc<Tree>>| node.as_ref().is_some_and(|node| is_static || !node.str("metadata.uid").is_empty());
    // If the node's task has ended, admission uses what is known.
    let known = async { object.wait_for(is_enough).await.is_ok() };
    start::unless_ended(told, known).await.is_some()
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
    worker.ended = Some(Ending { problem, grace_seconds: Some(0), condition: None });
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
    (context.end)(uid, Ending { problem, grace_seconds: None, condition });
}

/// Admission handlers in their order: the resource managers come after the handlers that check only the pod, and before
/// those that check the node's resources.
async fn judge(context: &PodContext, pod: &Tree) -> Result<preempt::Room, Problem> {
    let (node, rules) = (context.node.object().unwrap_or_default(), context.rules());
    context.admission.look(pod, &node, &rules)?;
    context.managers.admit(pod).await?;
    context.admission.admit(pod, &node, &rules).inspect_err(|_| context.managers.release(pod::uid(pod)))
}

/// A pod that has had its time.
fn overdue(deadline: Option<i64>, now: i64) -> Option<Ending> {
    (now >= deadline?).then(|| Ending {
        problem: Problem {
            reason: "DeadlineExceeded".into(),
            message: "Pod was active on the node longer than the specified deadline".to_string(),
        },
        grace_seconds: None,
        condition: None,
    })
}

/// A static pod has no status of its own: the last reported one counts.
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
    told: Updates<'_>,
) -> Next {
    context.objects.register(&wanted.pod);
    let plan = decide(context, &wanted.pod, worker, &state);
    worker.keep_problems(&plan);
    worker.keep_pauses(&plan);
    report_status(context, wanted, worker, &state, &plan);
    Box::pin(Executor::new(context, wanted, worker, state, told).run(&plan)).await
}

pub(crate) fn after(context: &PodContext, pause: Duration) -> i64 {
    context.now().saturating_add(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX))
}

/// The pod's volumes, up to date; or when to retry.
pub(crate) async fn volumes(context: &Arc<PodContext>, pod: &Tree, told: Updates<'_>) -> Result<Mounted, Next> {
    let prepared = start::unless_ended(told, context.volumes.prepare(pod)).await.ok_or(Next::Again)?;
    let (result, warnings) = match prepared {
        Ok(mounted) => (Ok(mounted.clone()), mounted.warnings),
        Err(problem) => (Err(Next::Idle(Some(after(context, problem.again)))), problem.warnings),
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
        // Nothing is over as long as something runs.
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

/// A pod that only the runtime knows, from the labels of its sandbox.
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
