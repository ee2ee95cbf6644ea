//! One worker per pod: it is woken when its pod changes, decides what to do, and does it. A worker that fails or hangs
//! blocks no other pod.

mod container;
mod dependencies;
mod drain;
mod execute;
mod files;
mod grace_period;
mod resize;
mod sandbox;
mod start;
mod sync;
mod terminate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use stdx::backoff::Backoff;
use stdx::panic::catch_unwind;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::metrics;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::state::PodState;
use crate::pod::context::PodContext;
pub(crate) use grace_period::GracePeriod;
pub(crate) use sync::from_labels;
use sync::{SyncResult, WorkerState};
pub(crate) use terminate::stop_all;

/// After a failure, growing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why and how the node terminates a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Termination {
    pub(crate) problem: Problem,
    /// Overrides the pod's grace period.
    pub(crate) grace_seconds: Option<i64>,
    /// A condition that explains the termination.
    pub(crate) condition: Option<Tree>,
}

/// The desired state of a pod.
#[derive(Debug, Clone, Default)]
struct DesiredPod {
    pod: Arc<Tree>,
    /// The object was deleted, or was never a pod of this node: everything of the pod is removed.
    is_removed: bool,
    /// The node terminates the pod.
    ending: Option<Termination>,
}

impl DesiredPod {
    /// Whether the pod has to be stopped.
    fn ends(&self) -> bool {
        self.is_removed || self.ending.is_some() || pod::is_deleted(&self.pod) || pod::is_over(&self.pod)
    }
}

struct Worker {
    wanted: watch::Sender<DesiredPod>,
    wake: Arc<Notify>,
    /// The state in the runtime when it was last read.
    state: Arc<Mutex<Arc<PodState>>>,
    /// Nothing of the pod runs any more, and its status is reported.
    is_down: watch::Receiver<bool>,
    /// Of several pods with the same namespace and name, such as a changed static pod and its predecessor, only one
    /// runs.
    has_turn: bool,
    /// The pod to start once this one is removed: a static pod may be added again, unchanged, while it is stopped.
    comes_back: Option<Arc<Tree>>,
    task: JoinHandle<()>,
}

pub(crate) struct Workers {
    context: Arc<PodContext>,
    workers: Mutex<BTreeMap<String, Worker>>,
    /// Notified when a worker starts or has ended.
    moved: Notify,
}

impl Workers {
    pub(crate) fn new(context: Arc<PodContext>) -> Arc<Workers> {
        Arc::new(Workers { context, workers: Mutex::default(), moved: Notify::new() })
    }

    /// A pod of this node was added or has changed.
    pub(crate) fn update(self: &Arc<Workers>, pod: Arc<Tree>) {
        if !may_be_called(&pod) {
            return;
        }
        let mut workers = self.workers();
        let uid = pod::uid(&pod).to_string();
        match workers.get_mut(&uid) {
            Some(worker) if worker.wanted.borrow().is_removed => worker.comes_back = Some(pod),
            Some(worker) => {
                worker.wanted.send_modify(|wanted| wanted.pod = pod);
                worker.wake.notify_one();
            }
            None => {
                let worker = self.begin(DesiredPod { pod, ..DesiredPod::default() });
                workers.insert(uid, worker);
                self.moved.notify_one();
            }
        }
    }

    /// A pod was deleted: everything of it on this node is removed.
    pub(crate) fn remove(self: &Arc<Workers>, uid: &str) {
        if let Some(worker) = self.workers().get_mut(uid) {
            worker.comes_back = None;
            worker.wanted.send_modify(|wanted| wanted.is_removed = true);
            worker.wake.notify_one();
        }
    }

    /// The runtime has containers of an unknown pod: `pod` is built from their labels.
    pub(crate) fn clean_up(self: &Arc<Workers>, pod: Arc<Tree>) {
        if !may_be_called(&pod) {
            return;
        }
        let mut workers = self.workers();
        let uid = pod::uid(&pod).to_string();
        workers.entry(uid).or_insert_with(|| self.begin(DesiredPod { pod, is_removed: true, ending: None }));
    }

    /// Terminates a pod on behalf of the node.
    pub(crate) fn end(&self, uid: &str, ending: Termination) {
        if let Some(worker) = self.workers().get(uid) {
            worker.wanted.send_modify(|wanted| match &mut wanted.ending {
                // The first ending gives the reason, the shortest one the grace period.
                Some(first) => first.grace_seconds = shorter(first.grace_seconds, ending.grace_seconds),
                None => wanted.ending = Some(ending),
            });
            worker.wake.notify_one();
        }
    }

    /// The state of a pod on the node has changed.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(worker) = self.workers().get(uid) {
            worker.wake.notify_one();
        }
    }

    /// Waits until a pod was added or removed since the last call.
    pub(crate) async fn changed(&self) {
        self.moved.notified().await;
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.workers().contains_key(uid)
    }

    /// All pods that are worked on.
    pub(crate) fn pods(&self) -> Vec<Arc<Tree>> {
        self.workers().values().map(|worker| worker.wanted.borrow().pod.clone()).collect()
    }

    /// All pods with a worker, and their states in the runtime.
    pub(crate) fn all(&self) -> Vec<(Arc<Tree>, Arc<PodState>)> {
        let of = |worker: &Worker| {
            let state = worker.state.lock().clone();
            (worker.wanted.borrow().pod.clone(), state)
        };
        self.workers().values().map(of).collect()
    }

    /// How many mirrors of static pods the API shows.
    pub(crate) fn mirrors(&self) -> usize {
        self.context.cache.pods.all().iter().filter(|pod| pod::is_mirror(pod)).count()
    }

    /// A pod as the node last received it, and its state in the runtime.
    pub(crate) fn find(&self, uid: &str) -> Option<(Arc<Tree>, Arc<PodState>)> {
        let workers = self.workers();
        let worker = workers.get(uid)?;
        let state = worker.state.lock().clone();
        Some((worker.wanted.borrow().pod.clone(), state))
    }

    /// Waits until nothing of a pod runs and its final status is reported.
    pub(crate) async fn is_down(&self, uid: &str) {
        let is_down = self.workers().get(uid).map(|worker| worker.is_down.clone());
        if let Some(mut is_down) = is_down {
            // A worker that has ended counts as down.
            let _ = is_down.wait_for(|is_down| *is_down).await;
        }
    }

    /// Aborts all workers; pods keep running.
    pub(crate) fn stop(&self) {
        self.workers().values().for_each(|worker| worker.task.abort());
    }

    fn begin(self: &Arc<Workers>, wanted: DesiredPod) -> Worker {
        let uid = pod::uid(&wanted.pod).to_string();
        let (sender, receiver) = watch::channel(wanted);
        let wake = Arc::new(Notify::new());
        let state = Arc::new(Mutex::default());
        let (down, is_down) = watch::channel(false);
        let run = WorkerLoop {
            workers: self.clone(),
            wanted: receiver,
            wake: wake.clone(),
            memory: WorkerState::new(self.context.config.crash_loop_max, state.clone(), wake.clone(), down),
            is_first: true,
        };
        let workers = self.clone();
        let task = tokio::spawn(async move {
            run.run().await;
            workers.ended(&uid);
        });
        Worker { wanted: sender, wake, state, is_down, has_turn: false, comes_back: None, task }
    }

    /// Whether a pod may start: a static pod waits until no other pod has its name.
    fn take_turn(&self, pod: &Tree) -> bool {
        let mut workers = self.workers();
        let is_before = |(uid, worker): (&String, &Worker)| {
            uid != pod::uid(pod) && worker.has_turn && same_name(&worker.wanted.borrow().pod, pod)
        };
        if pod::is_static(pod) && workers.iter().any(is_before) {
            return false;
        }
        if let Some(own) = workers.get_mut(pod::uid(pod)) {
            own.has_turn = true;
        }
        true
    }

    /// A worker has ended: a pod that waited for its name can start, and its own pod starts again if it came back.
    fn ended(self: &Arc<Workers>, uid: &str) {
        let mut workers = self.workers();
        if let Some(ended) = workers.remove(uid) {
            let pod = ended.wanted.borrow().pod.clone();
            self.context.starts.remove_pod(uid);
            let waiting = workers.values().filter(|worker| same_name(&worker.wanted.borrow().pod, &pod));
            waiting.for_each(|worker| worker.wake.notify_one());
            if let Some(pod) = ended.comes_back {
                workers.insert(uid.to_string(), self.begin(DesiredPod { pod, ..DesiredPod::default() }));
            }
        }
        self.moved.notify_one();
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<String, Worker>> {
        self.workers.lock()
    }
}

/// The loop of one worker.
struct WorkerLoop {
    workers: Arc<Workers>,
    wanted: watch::Receiver<DesiredPod>,
    wake: Arc<Notify>,
    memory: WorkerState,
    is_first: bool,
}

impl WorkerLoop {
    async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let context = self.workers.context.clone();
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if !self.workers.take_turn(&wanted.pod) {
                if wanted.is_removed {
                    return;
                }
                self.wake.notified().await;
                continue;
            }
            let begun = Instant::now();
            let next = catch_unwind(Box::pin(sync::sync(&context, &wanted, &mut self.memory, &self.wanted))).await;
            let next = next.unwrap_or_else(|_| {
                tracing::error!(pod = pod::name(&wanted.pod), "pod sync panicked, retrying");
                SyncResult::Failed
            });
            let operation = match (wanted.ends(), self.is_first) {
                (true, _) => "kill",
                (false, true) => "create",
                (false, false) => "sync",
            };
            self.is_first = false;
            context.metrics.record(&metrics::POD_WORK, &[operation], begun.elapsed().as_secs_f64());
            let wait = match next {
                SyncResult::Gone => return,
                SyncResult::Again => Duration::ZERO,
                SyncResult::Failed => backoff.next_pause(),
                SyncResult::Idle(until) => {
                    backoff.reset();
                    let left = until.map(|until| (until - context.now()).max(0).unsigned_abs());
                    left.map_or(context.config.sync_frequency, Duration::from_nanos)
                }
            };
            // A change that arrived while the pod was stopped may have been consumed there, and does not wake the
            // worker again.
            let wait = if self.wanted.has_changed().unwrap_or(false) { Duration::ZERO } else { wait };
            // The result does not matter: the next sync decides from the state.
            let _ = tokio::time::timeout(wait, self.wake.notified()).await;
        }
    }
}

/// The API server and the file source check it already; but an invalid name could reach any directory of the machine.
fn may_be_called(pod: &Tree) -> bool {
    let is_plain = pod::has_plain_names(pod);
    if !is_plain {
        tracing::error!(name = pod::name(pod), uid = pod::uid(pod), "ignoring pod with invalid name, namespace or uid");
    }
    is_plain
}

/// None is the pod's own grace period, which any other one shortens.
fn shorter(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

fn same_name(one: &Tree, other: &Tree) -> bool {
    (pod::namespace(one), pod::name(one)) == (pod::namespace(other), pod::name(other))
}
