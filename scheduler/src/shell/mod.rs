//! The scheduler at work: informers feed the core, one task decides, and what is decided is carried out beside
//! it: bindings, conditions, events, and the end of those who make room.

mod bind;
mod preempt;
mod status;
mod watched;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Str, Tree, tree};
use client::{Change, Client, Clock, Events, Informers, Note, Random, Recorder, Resource, Selection, Store};
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::changes::Changes;
use crate::config::{Configuration, ExtenderConfig};
use crate::core::{About, Asking, Core, Placing, Step, Waits};
use crate::extender::{Extenders, Wire};
use crate::framework::Hands;
use crate::metrics::{Attempt, Gauges, Metrics};
use crate::model::Pod;
use crate::permit::{Rejected, WaitingPods};
use crate::pod_resources;
use crate::profile::Profile;
use crate::why;

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
const NAMESPACES: Resource = Resource::core("namespaces");
/// Pods that are over take no place.
const LIVING_PODS: Selection =
    Selection { resource: PODS, query: "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed" };

/// So many bindings and the like are under way at once: they share the waits for the disk. Priority and fairness has 98
/// seats for a scheduler by default, which its events need too: more would wait in a queue, or be refused.
const MOST_UNDER_WAY: usize = 64;

/// As many decisions are made before other tasks get their turn: their bindings then share a commit.
const DECISIONS_PER_TURN: usize = 16;

/// So long what is under way has to finish when the scheduler ends.
const LONGEST_END: Duration = Duration::from_secs(5);

/// What a scheduler is given.
pub struct Environment {
    pub client: Client,
    pub configuration: Configuration,
    /// Carries questions to extenders, where the configuration has some.
    pub wire: Option<Arc<dyn Wire>>,
    pub clock: Arc<dyn Clock>,
    /// By which events tell schedulers of one name apart.
    pub host: String,
    pub metrics: Metrics,
    /// What events and queues of the client are counted in.
    pub client_metrics: client::Metrics,
    /// Where all that is left to chance starts from.
    pub seed: u64,
}

/// What all of it shares.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Something may be to do.
    moved: Notify,
    is_closed: AtomicBool,
    /// Whether all that is watched has been seen once.
    is_synced: AtomicBool,
    /// Nothing is decided before this is true.
    leads: watch::Sender<bool>,
    hands: Hands,
    pods: Arc<Store>,
    /// Changes of pods, by their keys.
    pod_changes: Arc<Changes>,
    nodes: Arc<Store>,
    extenders: Option<Arc<Extenders>>,
    waiting: Arc<WaitingPods>,
    statuses: status::Statuses,
    recorders: Vec<(Arc<Profile>, Recorder)>,
    metrics: Metrics,
}

/// A scheduler at work.
pub struct Running {
    shared: Arc<Shared>,
    informers: Arc<Informers>,
    decides: JoinHandle<()>,
    writers: Vec<JoinHandle<()>>,
}

/// Starts a scheduler for the pods of all its profiles.
pub fn start(environment: Environment) -> Result<Running, String> {
    let running = stand_by(environment)?;
    running.lead();
    Ok(running)
}

/// Starts one that follows all that happens, and decides nothing before it [leads](Running::lead).
pub fn stand_by(environment: Environment) -> Result<Running, String> {
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Arc::new(Informers::new(environment.client.clone(), random.clone()));
    let objects = Arc::new(watched::Stores::new(&informers));
    let configuration = environment.configuration;
    let extenders = extenders(configuration.extenders, environment.wire)?;
    let extended = |profile: Profile| match &extenders {
        Some(extenders) => profile.with_plugin(extenders.clone(), 1),
        None => profile,
    };
    let profiles: Vec<Arc<Profile>> = configuration.profiles.into_iter().map(extended).map(Arc::new).collect();
    let core = Core::new(profiles.clone(), objects.clone(), random, environment.metrics.clone());
    let mut core =
        core.ok_or("profiles: one for each scheduler's name is needed, with a plugin that sorts the queue")?;
    core.queue.set_back_off(configuration.initial_backoff, configuration.max_backoff);
    core.extenders = extenders.clone();
    let events = Events::start(environment.clock.clone(), environment.client_metrics.clone());
    let recorder = |profile: &Arc<Profile>| {
        let recorder = events.recorder(environment.client.clone(), watched::name_for_good(&profile.scheduler_name));
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
        hands: Hands { client: environment.client, clock: environment.clock, objects, changes: Arc::default() },
        pod_changes: Arc::default(),
        pods: pods.store().clone(),
        nodes: informers.informer(Selection::all(NODES)).store().clone(),
        extenders,
        waiting,
        statuses: status::Statuses::new(environment.client_metrics.queue("scheduler-status")),
        metrics: environment.metrics,
    });
    watched::follow(&shared, &informers);
    informers.start();
    let decides = tokio::spawn(shared.clone().decide_all(informers.clone()));
    let writers = (0..status::WRITERS).map(|_| tokio::spawn(status::write_all(shared.clone()))).collect();
    Ok(Running { shared, informers, decides, writers })
}

impl Running {
    pub fn lead(&self) {
        self.shared.leads.send_replace(true);
    }

    /// Lets what is under way finish.
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

    /// Ends it where it is, as if the process were killed.
    pub fn abort(&self) {
        // With the task that decides end all that it has started.
        self.decides.abort();
        self.writers.iter().for_each(JoinHandle::abort);
        self.informers.stop();
    }

    pub fn is_well(&self) -> bool {
        !self.decides.is_finished()
    }

    /// Whether it knows all that there is.
    pub fn is_synced(&self) -> bool {
        self.shared.is_synced.load(Ordering::Acquire)
    }

    /// Those that have a node and wait for leave.
    pub fn waiting_pods(&self) -> Arc<WaitingPods> {
        self.shared.waiting.clone()
    }

    /// For those who ask while it runs, and do not keep it.
    /// Says at any time whether it decides still.
    pub fn watch_health(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let decides = self.decides.abort_handle();
        move || !decides.is_finished()
    }

    pub fn explainer(&self) -> Explainer {
        Explainer(Arc::downgrade(&self.shared))
    }

    pub fn metrics(&self) -> String {
        self.shared.render_metrics()
    }

    /// What each pod asks for and may use, as metrics.
    pub fn pod_resources(&self) -> String {
        let pods = self.shared.pods.all();
        pod_resources::text(pods.iter().map(|pod| &**pod))
    }
}

/// Tells why pods wait, and where others would go.
#[derive(Clone)]
pub struct Explainer(Weak<Shared>);

impl Explainer {
    /// Whether pods that name this scheduler are placed by it.
    pub fn is_for(&self, scheduler_name: &str) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.core().decider(scheduler_name).is_some())
    }

    /// Every node's verdict. None for a pod that does not wait, or that was not tried yet.
    pub fn why(&self, namespace: &str, name: &str) -> Option<Tree> {
        self.0.upgrade()?.core().records.get(&client::key(namespace, name))
    }

    /// What it counts; nothing once it has ended.
    pub fn metrics(&self) -> String {
        self.0.upgrade().map(|shared| shared.render_metrics()).unwrap_or_default()
    }

    /// Where a pod of this manifest would go now; nothing is bound.
    pub fn what_if(&self, manifest: &Tree) -> Result<Tree, String> {
        let shared = self.0.upgrade().ok_or("the scheduler has ended")?;
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

    /// Takes a change into the core and wakes whoever decides.
    fn take(&self, change: &Change, how: impl FnOnce(&mut Core, &Change, Instant)) {
        how(&mut self.core(), change, Instant::now());
        self.moved.notify_one();
    }

    async fn decide_all(self: Arc<Shared>, informers: Arc<Informers>) {
        // What is missing would be taken for room.
        informers.synced().await;
        self.is_synced.store(true, Ordering::Release);
        let _ = self.leads.subscribe().wait_for(|leads| *leads).await;
        // Those that wait for leave or for volumes take no place of those that are under way: others need not wait.
        let (mut under_way, mut waiting) = (JoinSet::new(), JoinSet::new());
        while !self.is_closed.load(Ordering::Acquire) {
            if under_way.len() >= MOST_UNDER_WAY {
                // Room for a whole turn, not for one decision.
                while under_way.len() > MOST_UNDER_WAY - DECISIONS_PER_TURN && under_way.join_next().await.is_some() {}
            }
            while under_way.try_join_next().is_some() || waiting.try_join_next().is_some() {}
            let moved = self.moved.notified();
            for _ in 0..DECISIONS_PER_TURN.min(MOST_UNDER_WAY.saturating_sub(under_way.len())) {
                let mut step = self.step();
                while let Some(Step::Ask(asking)) = step {
                    step = self.ask(asking).await;
                }
                match step {
                    Some(Step::Idle(until)) => {
                        wait(moved, until).await;
                        break;
                    }
                    Some(Step::Bind(placing)) => self.spawn_binding(placing, &mut under_way, &mut waiting),
                    Some(Step::Wait(waits)) => self.clone().told(*waits, &mut under_way),
                    Some(Step::Ask(_)) | None => {}
                }
            }
            tokio::task::yield_now().await;
        }
        // What waits for others, as for a volume, is not waited for; it ends with the set.
        let drained = async { while under_way.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LONGEST_END, drained).await;
    }

    fn spawn_binding(self: &Arc<Shared>, placing: Placing, under_way: &mut JoinSet<()>, waiting: &mut JoinSet<()>) {
        match self.waiting.get(&placing.pod.uid) {
            Some(one) => waiting.spawn(bind::bind_when_allowed(self.clone(), one, placing)),
            None if bind::waits(self, &placing) => waiting.spawn(bind::bind(self.clone(), placing)),
            None => under_way.spawn(bind::bind(self.clone(), placing)),
        };
    }

    /// None where a panic ended it: the pod is tried again after a pause, others go on.
    fn step(&self) -> Option<Step> {
        let began = Instant::now();
        let mut core = self.core();
        let step = std::panic::catch_unwind(AssertUnwindSafe(|| core.step(began)));
        let step = step.inspect_err(|_| core.recover(began)).ok();
        drop(core);
        if step.is_none() {
            tracing::error!("a panic ended the decision about a pod; it is tried again");
        }
        if matches!(step, Some(Step::Bind(_) | Step::Wait(_))) {
            self.metrics.looked(began.elapsed());
        }
        step
    }

    /// Asks extenders, and decides with their answer. None where one that is needed has none: the pod is tried
    /// again after a pause.
    async fn ask(&self, asking: Asking) -> Option<Step> {
        let pod = asking.waiting.pod.clone();
        let extenders = self.extenders.clone()?;
        let object = |pod: &Pod| self.pods.get(&pod.key).map(|object| Tree::clone(&object)).unwrap_or_default();
        let answer = match &asking.about {
            About::Nodes(names) => {
                let node = |name: &Str| Some((name.clone(), self.nodes.get(name)?));
                let nodes: Vec<_> = names.iter().filter_map(node).collect();
                extenders.ask(&pod, &object(&pod), &nodes).await
            }
            About::Rooms(rooms) => {
                extenders.ask_rooms(&pod, rooms.clone(), object).await;
                Ok(())
            }
        };
        let Err(why) = answer else { return Some(self.core().answered(asking, Instant::now())) };
        extenders.forget(&pod);
        self.core().queue.retry(&pod.uid, Instant::now());
        self.metrics.attempt(&asking.profile.scheduler_name, Attempt::Error, Duration::ZERO);
        self.says_failed(&asking.profile, &pod, &why);
        self.statuses.want(&pod, Some(("SchedulerError", &why)), crate::core::Nominated::Unchanged);
        None
    }

    /// A pod found no node: it says so, and where others are to go for it they are asked to.
    fn told(self: Arc<Shared>, waits: Waits, under_way: &mut JoinSet<()>) {
        let profile = &waits.profile.scheduler_name;
        self.metrics.attempt(profile, Attempt::Unschedulable, Duration::ZERO);
        self.says_failed(&waits.profile, &waits.pod, &waits.message);
        self.statuses.want(&waits.pod, Some(("Unschedulable", &waits.message)), waits.nominated.clone());
        for other in &waits.displaced {
            self.statuses.want(other, None, crate::core::Nominated::Cleared);
        }
        if !waits.victims.is_empty() {
            self.metrics.preempted(waits.victims.len());
            under_way.spawn(preempt::make_room(self, waits));
        }
    }

    fn says_failed(&self, profile: &Arc<Profile>, pod: &Pod, why: &str) {
        let note = Note { reason: "FailedScheduling", action: "Scheduling", related: None, text: why.to_string() };
        self.recorder(profile).note_warning(&reference(pod), note);
    }

    fn recorder(&self, profile: &Arc<Profile>) -> &Recorder {
        let own = self.recorders.iter().find(|(known, _)| Arc::ptr_eq(known, profile));
        // Each profile has one: they were made together.
        &own.unwrap_or(&self.recorders[0]).1
    }

    /// A pod did not get leave to be bound.
    fn not_permitted(self: &Arc<Shared>, placing: &Placing, rejected: &Rejected) {
        let waits = self.core().not_permitted(placing, rejected, Instant::now());
        self.moved.notify_one();
        if let Some(waits) = waits {
            self.clone().told(waits, &mut JoinSet::new());
        }
    }

    /// A binding has failed, or was too late.
    fn not_bound(&self, placing: &Placing, why: &str) {
        let pod = &placing.pod;
        self.core().not_bound(placing, Instant::now());
        self.moved.notify_one();
        self.metrics.attempt(&placing.profile.scheduler_name, Attempt::Error, placing.decided.elapsed());
        self.says_failed(&placing.profile, pod, why);
        self.statuses.want(pod, Some(("SchedulerError", why)), crate::core::Nominated::Unchanged);
    }
}

fn extenders(all: Vec<ExtenderConfig>, wire: Option<Arc<dyn Wire>>) -> Result<Option<Arc<Extenders>>, String> {
    match (all.is_empty(), wire) {
        (true, _) => Ok(None),
        (false, Some(wire)) => Ok(Some(Arc::new(Extenders::new(all, wire)))),
        (false, None) => Err("extenders: there is no way to reach them here".to_string()),
    }
}

async fn wait(moved: tokio::sync::futures::Notified<'_>, until: Option<Instant>) {
    match until {
        None => moved.await,
        Some(until) => drop(tokio::time::timeout_at(until, moved).await),
    }
}

/// What an event is about.
fn reference(pod: &Pod) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "Pod",
        "metadata" => tree! { "namespace" => pod.namespace.clone(), "name" => pod.name.clone(), "uid" => pod.uid.clone() },
    }
}

impl Core {
    /// Where a pod of this manifest would go now, or why nowhere.
    fn what_if(&mut self, manifest: &Tree) -> Result<Tree, String> {
        let mut pod = Pod::read(manifest);
        if pod.scheduler_name.is_empty() {
            pod.scheduler_name = crate::plugins::list::DEFAULT_SCHEDULER.into();
        }
        let (name, pod) = (pod.scheduler_name.clone(), Arc::new(pod));
        let (decider, snapshot, random) =
            self.decider(&name).ok_or_else(|| format!("spec.schedulerName: no profile is for {name:?}"))?;
        let decided = decider.what_if(snapshot, &pod, random);
        let profile = decider.profile.clone();
        let told = why::decided(&decided.decision, &profile, snapshot);
        self.forget_said(&pod);
        Ok(told)
    }
}
