//! Runs the scheduler: informers feed the core, one task makes decisions, and others execute them concurrently:
//! bindings, status updates, events, and preemptions.

mod bind;
mod informers;
mod preempt;
mod status;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Str, Tree, tree};
use client::{Cause, Change, Client, EventDetails, Events, Informers, Random, Recorder, Resource, Selection, Store};
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::changes::Changes;
use crate::config::{Configuration, ExtenderConfig};
use crate::core::{Core, ExtenderCall, ExtenderQuery, Placement, Step, Unschedulable};
use crate::explain;
use crate::extender::{ExtenderTransport, Extenders};
use crate::framework::{Handle, PermitRejection, Profile, WaitingPods};
use crate::metrics::{Attempt, Gauges, Metrics};
use crate::pod_resources;
use podmodel::Pod;

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
const NAMESPACES: Resource = Resource::core("namespaces");
/// Finished pods are not watched.
const LIVING_PODS: Selection =
    Selection { resource: PODS, query: "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed" };

/// The maximum number of concurrent bindings and preemptions, which share disk syncs. Priority and fairness has 98
/// seats for a scheduler by default, which its events need too: more would be queued or rejected.
const MOST_UNDER_WAY: usize = 64;

/// The number of decisions before other tasks run: their bindings then share a commit.
const DECISIONS_PER_TURN: usize = 16;

/// How long running work may take to finish at shutdown.
const LONGEST_END: Duration = Duration::from_secs(5);

/// The dependencies of a scheduler.
pub struct Environment {
    pub client: Client,
    pub configuration: Configuration,
    /// Calls extenders, if the configuration has some.
    pub extender_transport: Option<Arc<dyn ExtenderTransport>>,
    pub clock: Arc<dyn Clock>,
    /// Distinguishes schedulers of the same name in events.
    pub host: String,
    pub metrics: Metrics,
    /// The metrics of the client's events and queues.
    pub client_metrics: client::Metrics,
    /// The seed of all randomness.
    pub seed: u64,
}

/// State shared by all tasks.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// There may be something to do.
    moved: Notify,
    is_closed: AtomicBool,
    /// Whether all informers have synced.
    is_synced: AtomicBool,
    /// No decision is made before this is true.
    leads: watch::Sender<bool>,
    handle: Handle,
    pods: Arc<Store>,
    /// Changes of pods, by key.
    pod_changes: Arc<Changes>,
    nodes: Arc<Store>,
    extenders: Option<Arc<Extenders>>,
    waiting: Arc<WaitingPods>,
    statuses: status::Statuses,
    recorders: Vec<(Arc<Profile>, Recorder)>,
    metrics: Metrics,
}

/// Handle of a running scheduler.
pub struct SchedulerHandle {
    shared: Arc<Shared>,
    informers: Arc<Informers>,
    decides: JoinHandle<()>,
    writers: Vec<JoinHandle<()>>,
}

/// Why a scheduler cannot start with its configuration.
#[derive(Debug, Error)]
pub enum StartError {
    /// Two profiles have one name, or one has no queue sort plugin.
    #[error("profiles: each scheduler name needs one profile with a queue sort plugin")]
    Profiles,
    /// Extenders are configured, but there is no transport for them.
    #[error("extenders: not supported by this scheduler")]
    Extenders,
}

/// Why a scheduler does not decide about a manifest.
#[derive(Debug, Error)]
pub enum WhatIfError {
    /// The scheduler has stopped.
    #[error("the scheduler has stopped")]
    Stopped,
    /// No profile has the scheduler name of the pod.
    #[error("spec.schedulerName: no profile named {0:?}")]
    NoProfile(String),
}

/// Why the scheduler writes: for this pod, in the revision that it knows.
fn cause(key: &str, pod: &Tree) -> Cause {
    Cause::object("kube-scheduler", PODS, key, client::revision_of(pod).unwrap_or_default())
}

impl Shared {
    fn cause(&self, pod: &Pod) -> Cause {
        self.pods.get(&pod.key).map_or(Cause::component("kube-scheduler"), |seen| cause(&pod.key, &seen))
    }
}

/// Starts a scheduler for the pods of all its profiles.
pub fn start(environment: Environment) -> Result<SchedulerHandle, StartError> {
    let running = start_standby(environment)?;
    running.lead();
    Ok(running)
}

/// Starts a scheduler that runs its informers but makes no decisions before it [leads](Running::lead).
pub fn start_standby(environment: Environment) -> Result<SchedulerHandle, StartError> {
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Arc::new(Informers::new(environment.client.clone(), random.clone()));
    let objects = Arc::new(informers::Stores::new(&informers));
    let configuration = environment.configuration;
    let extenders = extenders(configuration.extenders, environment.extender_transport)?;
    let extended = |profile: Profile| match &extenders {
        Some(extenders) => profile.with_plugin(extenders.clone(), 1),
        None => profile,
    };
    let profiles: Vec<Arc<Profile>> = configuration.profiles.into_iter().map(extended).map(Arc::new).collect();
    let core = Core::new(profiles.clone(), objects.clone(), random, environment.metrics.clone());
    let mut core = core.ok_or(StartError::Profiles)?;
    core.queue.set_back_off(configuration.initial_backoff, configuration.max_backoff);
    core.extenders = extenders.clone();
    let events = Events::start(environment.clock.clone(), environment.client_metrics.clone());
    let recorder = |profile: &Arc<Profile>| {
        let recorder = events.recorder(environment.client.clone(), informers::leak_name(&profile.scheduler_name));
        (profile.clone(), recorder.on(&environment.host))
    };
    let pods = informers.informer(LIVING_PODS);
    let waiting = core.waiting.clone();
    let shared = Arc::new(Shared {
        core: Mutex::new(core),
        moved: Notify::new(),
        is_closed: AtomicBool::new(false),
        is_synced: AtomicBool::new(false),
        leads: watch::Sender::new(false),
        recorders: profiles.iter().map(recorder).collect(),
        handle: Handle { client: environment.client, clock: environment.clock, objects, changes: Arc::default() },
        pod_changes: Arc::default(),
        pods: pods.store().clone(),
        nodes: informers.informer(Selection::all(NODES)).store().clone(),
        extenders,
        waiting,
        statuses: status::Statuses::new(environment.client_metrics.queue("scheduler-status")),
        metrics: environment.metrics,
    });
    informers::follow(&shared, &informers);
    informers.start();
    let decides = tokio::spawn(shared.clone().decide_all(informers.clone()));
    let writers = (0..status::WRITERS).map(|_| tokio::spawn(status::write_all(shared.clone()))).collect();
    Ok(SchedulerHandle { shared, informers, decides, writers })
}

impl SchedulerHandle {
    /// Starts to make decisions.
    pub fn lead(&self) {
        self.shared.leads.send_replace(true);
    }

    /// Stops, letting running work finish.
    pub async fn stop(self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.leads.send_replace(true);
        self.shared.moved.notify_one();
        let _ = self.decides.await;
        self.shared.statuses.queue.close();
        for writer in self.writers {
            let _ = writer.await;
        }
        self.informers.stop();
    }

    /// Aborts it, as if the process were killed.
    pub fn abort(&self) {
        // Aborting the deciding task also aborts all tasks it has spawned.
        self.decides.abort();
        self.writers.iter().for_each(JoinHandle::abort);
        self.informers.stop();
    }

    /// Whether the task that decides runs.
    pub fn is_well(&self) -> bool {
        !self.decides.is_finished()
    }

    /// Whether all informers have synced.
    pub fn is_synced(&self) -> bool {
        self.shared.is_synced.load(Ordering::Acquire)
    }

    /// Assumed pods that wait for permission.
    pub fn waiting_pods(&self) -> Arc<WaitingPods> {
        self.shared.waiting.clone()
    }

    /// Returns a function that reports whether the deciding task is alive, without keeping the scheduler alive.
    pub fn watch_health(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let decides = self.decides.abort_handle();
        move || !decides.is_finished()
    }

    /// Explains decisions while the scheduler runs.
    pub fn explainer(&self) -> Explainer {
        Explainer(Arc::downgrade(&self.shared))
    }

    /// The encoded metrics.
    pub fn metrics(&self) -> String {
        self.shared.render_metrics()
    }

    /// The requests and limits of each pod, as metrics.
    pub fn pod_resources(&self) -> String {
        let pods = self.shared.pods.all();
        pod_resources::text(pods.iter().map(|pod| &**pod))
    }
}

/// Explains why pods are unschedulable, and simulates others.
#[derive(Clone)]
pub struct Explainer(Weak<Shared>);

impl Explainer {
    /// Whether this scheduler has a profile of the name.
    pub fn is_for(&self, scheduler_name: &str) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.core().algorithm(scheduler_name).is_some())
    }

    /// The result of every node. None if the pod is not unschedulable or was not attempted yet.
    pub fn why(&self, namespace: &str, name: &str) -> Option<Tree> {
        self.0.upgrade()?.core().records.get(&client::key(namespace, name))
    }

    /// The encoded metrics; empty once it has stopped.
    pub fn metrics(&self) -> String {
        self.0.upgrade().map(|shared| shared.render_metrics()).unwrap_or_default()
    }

    /// The node for a pod with this manifest; nothing is bound.
    pub fn what_if(&self, manifest: &Tree) -> Result<Tree, WhatIfError> {
        let shared = self.0.upgrade().ok_or(WhatIfError::Stopped)?;
        shared.core().what_if(manifest)
    }
}

impl Shared {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    fn render_metrics(&self) -> String {
        let core = self.core();
        let snapshot = &core.snapshot;
        let gauges = Gauges {
            queue: core.queue.counts(),
            refused: core.queue.refused(),
            nodes: snapshot.node_count(),
            pods: snapshot.placed_count(),
            assumed: snapshot.assumed_count(),
            evaluations: core.evaluations(),
        };
        drop(core);
        self.metrics.render(&gauges)
    }

    /// Applies a change to the core and wakes the deciding task.
    fn take(&self, change: &Change, how: impl FnOnce(&mut Core, &Change, Instant)) {
        how(&mut self.core(), change, Instant::now());
        self.moved.notify_one();
    }

    async fn decide_all(self: Arc<Shared>, informers: Arc<Informers>) {
        // Without all pods, nodes would look emptier than they are.
        informers.synced().await;
        self.is_synced.store(true, Ordering::Release);
        let _ = self.leads.subscribe().wait_for(|leads| *leads).await;
        // Pods that wait for permission or volumes do not count towards the limit of concurrent bindings.
        let (mut under_way, mut waiting) = (JoinSet::new(), JoinSet::new());
        while !self.is_closed.load(Ordering::Acquire) {
            if under_way.len() >= MOST_UNDER_WAY {
                // Capacity for a whole turn, not for one decision.
                while under_way.len() > MOST_UNDER_WAY - DECISIONS_PER_TURN && under_way.join_next().await.is_some() {}
            }
            while under_way.try_join_next().is_some() || waiting.try_join_next().is_some() {}
            let moved = self.moved.notified();
            for _ in 0..DECISIONS_PER_TURN.min(MOST_UNDER_WAY.saturating_sub(under_way.len())) {
                let mut step = self.step();
                while let Some(Step::CallExtenders(asking)) = step {
                    step = self.call_extenders(asking).await;
                }
                match step {
                    Some(Step::Idle(until)) => {
                        wait(moved, until).await;
                        break;
                    }
                    Some(Step::Bind(placement)) => self.spawn_binding(placement, &mut under_way, &mut waiting),
                    Some(Step::Wait(waits)) => self.clone().report_unschedulable(*waits, &mut under_way),
                    Some(Step::CallExtenders(_)) | None => {}
                }
            }
            tokio::task::yield_now().await;
        }
        // Pods that wait for other components, such as for a volume, are aborted with the set.
        let drained = async { while under_way.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LONGEST_END, drained).await;
    }

    fn spawn_binding(self: &Arc<Shared>, placement: Placement, under_way: &mut JoinSet<()>, waiting: &mut JoinSet<()>) {
        match self.waiting.get(&placement.pod.uid) {
            Some(one) => waiting.spawn(bind::bind_when_allowed(self.clone(), one, placement)),
            None if bind::waits(self, &placement) => waiting.spawn(bind::bind(self.clone(), placement)),
            None => under_way.spawn(bind::bind(self.clone(), placement)),
        };
    }

    /// None after a panic: the pod is retried with backoff, others continue.
    fn step(&self) -> Option<Step> {
        let began = Instant::now();
        let mut core = self.core();
        let step = std::panic::catch_unwind(AssertUnwindSafe(|| core.step(began)));
        let step = step.inspect_err(|_| core.recover(began)).ok();
        drop(core);
        if step.is_none() {
            tracing::error!("scheduling cycle panicked, requeueing pod");
        }
        if matches!(step, Some(Step::Bind(_) | Step::Wait(_))) {
            self.metrics.algorithm_done(began.elapsed());
        }
        step
    }

    /// Calls the extenders and decides with their responses. None if a required one fails: the pod is retried with
    /// backoff.
    async fn call_extenders(&self, asking: ExtenderCall) -> Option<Step> {
        let pod = asking.waiting.pod.clone();
        let extenders = self.extenders.clone()?;
        let object = |pod: &Pod| self.pods.get(&pod.key).map(|object| Tree::clone(&object)).unwrap_or_default();
        let answer = match &asking.about {
            ExtenderQuery::Nodes(names) => {
                let node = |name: &Str| Some((name.clone(), self.nodes.get(name)?));
                let nodes: Vec<_> = names.iter().filter_map(node).collect();
                extenders.filter_nodes(&pod, &object(&pod), &nodes).await
            }
            ExtenderQuery::Candidates(candidates) => {
                extenders.process_preemption(&pod, candidates.clone(), object).await;
                Ok(())
            }
        };
        let Err(error) = answer else { return Some(self.core().resume(asking, Instant::now())) };
        let why = error.to_string();
        extenders.forget(&pod);
        self.core().queue.retry(&pod.uid, Instant::now());
        self.metrics.attempt(&asking.profile.scheduler_name, Attempt::Error, Duration::ZERO);
        self.record_failure(&asking.profile, &pod, &why);
        self.statuses.request(&pod, Some(("SchedulerError", &why)), crate::core::NominationChange::Unchanged);
        None
    }

    /// Reports an unschedulable pod, and starts the preemption of its victims.
    fn report_unschedulable(self: Arc<Shared>, waits: Unschedulable, under_way: &mut JoinSet<()>) {
        let profile = &waits.profile.scheduler_name;
        let (attempt, reason) = match waits.is_error {
            true => (Attempt::Error, "SchedulerError"),
            false => (Attempt::Unschedulable, "Unschedulable"),
        };
        self.metrics.attempt(profile, attempt, Duration::ZERO);
        self.record_failure(&waits.profile, &waits.pod, &waits.message);
        self.statuses.request(&waits.pod, Some((reason, &waits.message)), waits.nominated.clone());
        under_way.spawn(clean_up(self.clone(), waits.profile.clone(), waits.pod.clone()));
        for other in &waits.displaced {
            self.statuses.request(other, None, crate::core::NominationChange::Cleared);
        }
        if !waits.victims.is_empty() {
            self.metrics.preempted(waits.victims.len());
            under_way.spawn(preempt::preempt(self, waits));
        }
    }

    fn record_failure(&self, profile: &Arc<Profile>, pod: &Pod, why: &str) {
        let note =
            EventDetails { reason: "FailedScheduling", action: "Scheduling", related: None, text: why.to_string() };
        self.recorder(profile).record_warning(&reference(pod), note);
    }

    fn recorder(&self, profile: &Arc<Profile>) -> &Recorder {
        let own = self.recorders.iter().find(|(known, _)| Arc::ptr_eq(known, profile));
        // Each profile has one: they are created together.
        &own.unwrap_or(&self.recorders[0]).1
    }

    /// A pod was rejected by Permit.
    fn not_permitted(self: &Arc<Shared>, placement: &Placement, rejected: &PermitRejection) {
        let waits = self.core().not_permitted(placement, rejected, Instant::now());
        self.moved.notify_one();
        if let Some(waits) = waits {
            self.clone().report_unschedulable(waits, &mut JoinSet::new());
        }
    }

    /// A binding has failed or was too late.
    fn not_bound(&self, placement: &Placement, why: &str) {
        let pod = &placement.pod;
        self.core().not_bound(placement, Instant::now());
        self.moved.notify_one();
        self.metrics.attempt(&placement.profile.scheduler_name, Attempt::Error, placement.decided.elapsed());
        self.record_failure(&placement.profile, pod, why);
        self.statuses.request(pod, Some(("SchedulerError", why)), crate::core::NominationChange::Unchanged);
    }
}

/// Lets plugins undo what prevents a pod from being scheduled; the changes are events that queue it again.
async fn clean_up(shared: Arc<Shared>, profile: Arc<Profile>, pod: Arc<Pod>) {
    for one in profile.plugins() {
        let Some(work) = one.plugin.clean_up(&shared.handle, &pod) else { continue };
        if let Err(error) = work.await {
            tracing::warn!(plugin = one.plugin.name(), pod = %pod.key, %error, "failed to clean up after an attempt");
        }
    }
}

fn extenders(
    all: Vec<ExtenderConfig>,
    wire: Option<Arc<dyn ExtenderTransport>>,
) -> Result<Option<Arc<Extenders>>, StartError> {
    match (all.is_empty(), wire) {
        (true, _) => Ok(None),
        (false, Some(wire)) => Ok(Some(Arc::new(Extenders::new(all, wire)))),
        (false, None) => Err(StartError::Extenders),
    }
}

async fn wait(moved: tokio::sync::futures::Notified<'_>, until: Option<Instant>) {
    match until {
        None => moved.await,
        Some(until) => drop(tokio::time::timeout_at(until, moved).await),
    }
}

/// The reference for events.
fn reference(pod: &Pod) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "metadata" => tree! { "namespace" => pod.namespace.clone(), "name" => pod.name.clone(), "uid" => pod.uid.clone() },
    }
}

impl Core {
    /// The node for a pod with this manifest, or why there is none.
    fn what_if(&mut self, manifest: &Tree) -> Result<Tree, WhatIfError> {
        let mut pod = Pod::read(manifest);
        if pod.scheduler_name.is_empty() {
            pod.scheduler_name = crate::plugins::list::DEFAULT_SCHEDULER.into();
        }
        let (name, pod) = (pod.scheduler_name.clone(), Arc::new(pod));
        let (algorithm, snapshot, random) =
            self.algorithm(&name).ok_or_else(|| WhatIfError::NoProfile(name.to_string()))?;
        let decided = algorithm.what_if(snapshot, &pod, random);
        let profile = algorithm.profile.clone();
        let report_unschedulable = explain::decided(&decided.decision, &profile, snapshot);
        self.drop_responses(&pod);
        Ok(report_unschedulable)
    }
}
