//! The Node object: registered when the kubelet starts, kept alive by a lease, and its status written when it changes.
//! [`status`], [`conditions`], [`register`] and [`resources`] decide; this module executes.

mod addresses;
mod conditions;
mod lease;
pub mod machine;
pub mod register;
pub(crate) mod resources;
mod runtime;
pub(crate) mod status;
pub(crate) mod status_input;
#[cfg(test)]
mod tests;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Informers, Patch, Random, Recorder, Resource, Result, Selection, revision_of};
use cri::{DynImageService, DynRuntimeService, NetworkConfig, RuntimeConfig, UpdateRuntimeConfigRequest};
use stdx::backoff::Backoff;
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::config::Config;
use conditions::Event;
use runtime::RuntimeClient;
use status_input::{Health, Image, Machine, Reports, Runtime, StatusInput};

pub(crate) use view::NodeView;

pub(crate) const NODES: Resource = Resource::core("nodes");

/// How often the status is computed until the node is ready for the first time.
const IMPATIENCE: Duration = Duration::from_millis(100);
/// Changes within this time are handled together.
const SETTLE: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);
const ADDRESS_SECONDS: i64 = 60;
const TRIES: u32 = 5;

/// The dependencies of a node.
pub struct Environment {
    /// The configuration.
    pub config: Arc<Config>,
    /// Acts as the node.
    pub client: Client,
    /// The runtime service of CRI.
    pub runtime: Arc<dyn DynRuntimeService>,
    /// The image service of CRI.
    pub images: Arc<dyn DynImageService>,
    /// The time of conditions and leases.
    pub clock: Arc<dyn Clock>,
    /// Records events about the node, as the kubelet.
    pub recorder: Recorder,
    /// Spreads requests of several nodes.
    pub random: Arc<Random>,
}

/// The Node object of this machine: registration, status and lease.
pub struct Node {
    config: Arc<Config>,
    client: Client,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    random: Arc<Random>,
    runtime_client: RuntimeClient,
    reports: watch::Sender<Reports>,
    /// The newest version that was received or written.
    object: watch::Sender<Option<Arc<Tree>>>,
    ready: watch::Sender<bool>,
    progress: Mutex<Progress>,
}

/// State kept between two status updates.
#[derive(Default)]
struct Progress {
    runtime: Runtime,
    /// The second of the runtime's last response.
    answered: Option<i64>,
    images: Vec<Image>,
    addresses: Option<(i64, Vec<std::net::IpAddr>)>,
    /// The second of the last report.
    reported: Option<i64>,
    pod_cidr: String,
    is_unschedulable: bool,
}

impl Node {
    /// Creates the node; [`Node::run`] registers it.
    pub fn new(environment: Environment) -> Arc<Node> {
        let Environment { config, client, runtime, images, clock, recorder, random } = environment;
        let runtime_client = RuntimeClient { runtime, images, timeout: config.runtime_request_timeout };
        let config = match config.hostname.is_empty() {
            true => Arc::new(Config { hostname: config.node_name.clone(), ..(*config).clone() }),
            false => config,
        };
        Arc::new(Node {
            config,
            client,
            clock,
            recorder,
            random,
            runtime_client,
            reports: watch::Sender::default(),
            object: watch::Sender::default(),
            ready: watch::Sender::default(),
            progress: Mutex::default(),
        })
    }

    /// Changes the reports; the status is updated at once.
    pub fn update_reports(&self, change: impl FnOnce(&mut Reports)) {
        self.reports.send_modify(change);
    }

    /// The last known Node object. Before the API server was reached, it is the object to be registered, so that static
    /// pods do not wait. None before the machine was read.
    pub fn object(&self) -> watch::Receiver<Option<Arc<Tree>>> {
        self.object.subscribe()
    }

    /// The current reports.
    pub(crate) fn reports(&self) -> watch::Receiver<Reports> {
        self.reports.subscribe()
    }

    /// Waits until the API has the condition of the shutdown.
    pub(crate) async fn wait_for_shutdown_report(&self) {
        let goes_down = |node: &Option<Arc<Tree>>| node.as_ref().is_some_and(|node| conditions::is_shutting_down(node));
        let _ = self.object.subscribe().wait_for(goes_down).await;
    }

    /// Registers, renews the lease and reports until it is dropped.
    pub async fn run(self: Arc<Node>) {
        self.recorder.normal(&self.reference(), "Starting", "Starting kubelet.");
        let informers = self.follow();
        let keeper = lease::LeaseController {
            config: self.config.clone(),
            client: self.client.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
        };
        let uid = || self.registered().map(|node| node.str("metadata.uid").to_string());
        tokio::select! {
            biased;
            () = self.report_for_good() => {}
            () = keeper.run(uid) => {}
        }
        informers.stop();
    }

    /// A read-only view of the node.
    pub(crate) fn view(&self) -> NodeView {
        NodeView::new(self.config.node_name.clone(), self.object(), self.reports())
    }

    /// Records an event about the node itself.
    pub(crate) fn record_event(&self, reason: &str, message: &str) {
        self.recorder.normal(&self.reference(), reason, message);
    }

    /// The subject of events. Its UID is the name, by which `kubectl describe` finds them.
    pub(crate) fn reference(&self) -> Tree {
        reference(&self.config.node_name)
    }

    fn follow(self: &Arc<Node>) -> Informers {
        let informers = Informers::new(self.client.clone(), self.random.clone());
        let query = format!("fieldSelector=metadata.name%3D{}", self.config.node_name);
        let node = Arc::downgrade(self);
        informers.informer(Selection::queried(NODES, &query)).on_change(move |change| {
            let (Some(node), Some(new)) = (node.upgrade(), change.new.as_deref()) else { return };
            node.see(new.clone());
        });
        informers.start();
        informers
    }

    /// Stores an object as the newest one, unless a newer one is stored already.
    fn see(&self, new: Tree) {
        self.object.send_if_modified(|known| {
            let is_newer = known.as_ref().is_none_or(|known| is_newer(known, &new));
            if is_newer {
                *known = Some(Arc::new(new));
            }
            is_newer
        });
    }

    /// The object, once the API server has it.
    fn registered(&self) -> Option<Arc<Tree>> {
        self.object.borrow().clone().filter(|node| !node.str("metadata.uid").is_empty())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    async fn report_for_good(&self) {
        match self.config.register_node {
            true => self.register().await,
            false => self.see(self.desired_node().await.0),
        }
        let (mut reports, mut object) = (self.reports.subscribe(), self.object.subscribe());
        let mut was_ready = false;
        loop {
            object.mark_unchanged();
            reports.mark_unchanged();
            self.report().await;
            tokio::time::sleep(SETTLE).await;
            was_ready |= *self.ready.borrow();
            let frequency = self.config.node_status_update_frequency;
            let pause = if was_ready { self.random.jitter(frequency, 0.04) } else { IMPATIENCE };
            tokio::select! {
                biased;
                _ = reports.changed() => {}
                _ = object.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Registering.
impl Node {
    async fn register(&self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let (desired, events) = self.desired_node().await;
            self.see(desired.clone());
            match self.try_register(&desired).await {
                Ok(is_new) => {
                    tracing::info!(node = self.config.node_name, is_new, "registered");
                    if is_new {
                        self.progress().reported = Some(self.clock.now().seconds);
                        self.record(events);
                    }
                    return;
                }
                Err(error) => tracing::warn!(%error, "failed to register node, retrying"),
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    /// The node as it would be registered now, and its events.
    async fn desired_node(&self) -> (Tree, Vec<Event>) {
        self.build_node(&self.look().await)
    }

    fn build_node(&self, input: &StatusInput) -> (Tree, Vec<Event>) {
        let mut made = register::object(&self.config, input);
        let reported = status::status(&self.config, input, &made, self.clock.now());
        made.set("status", reported.status);
        (made, reported.events)
    }

    /// Whether the node is new.
    async fn try_register(&self, desired: &Tree) -> Result<bool> {
        match self.client.create(NODES, "", desired).await {
            Err(error) if error.is_already_exists() => {}
            created => {
                self.see(created?);
                return Ok(true);
            }
        }
        let name = self.config.node_name.as_str();
        let mut found = self.client.get(NODES, "", name).await?;
        if let Some(patch) = register::reconcile(desired, &found) {
            found = self.client.patch(NODES, "", name, "status", Patch::Strategic(&patch)).await?;
        }
        self.see(found);
        Ok(false)
    }
}

/// Reporting.
impl Node {
    async fn report(&self) {
        let input = self.look().await;
        for attempt in 1..=TRIES {
            match self.try_report(&input).await {
                Ok(()) => return,
                Err(error) if attempt == TRIES => tracing::warn!(%error, "failed to update node status"),
                Err(error) => tracing::debug!(%error, "failed to update node status, retrying"),
            }
        }
    }

    async fn try_report(&self, input: &StatusInput) -> Result<()> {
        let name = self.config.node_name.as_str();
        let seen = match self.registered() {
            Some(seen) => seen,
            None => {
                self.see(self.build_node(input).0);
                self.see(self.client.get(NODES, "", name).await?);
                self.registered().unwrap_or_default()
            }
        };
        self.take_cidr(&seen).await;
        self.note_schedulable(&seen);
        let now = self.clock.now();
        let reported = status::status(&self.config, input, &seen, now);
        if !self.is_due(now.seconds) && !status::has_changed(seen.at("status"), &reported.status) {
            return Ok(());
        }
        let patch = status::patch(seen.at("status"), &reported.status);
        self.see(self.client.patch(NODES, "", name, "status", Patch::Strategic(&patch)).await?);
        self.progress().reported = Some(now.seconds);
        self.record(reported.events);
        Ok(())
    }

    fn is_due(&self, now: i64) -> bool {
        let period = self.config.node_status_report_frequency.as_secs() as i64;
        self.progress().reported.is_none_or(|last| !(0..period).contains(&(now - last)))
    }

    fn record(&self, events: Vec<Event>) {
        for event in events {
            match event.is_warning {
                true => self.recorder.warning(&self.reference(), event.reason, event.message),
                false => self.recorder.normal(&self.reference(), event.reason, event.message),
            }
        }
    }

    /// Passes the ranges of pods' addresses on, once for each change.
    async fn take_cidr(&self, node: &Tree) {
        let ranges: Vec<&str> = node.list("spec.podCIDRs").iter().filter_map(Tree::as_str).collect();
        let range = ranges.join(",");
        if range.is_empty() || self.progress().pod_cidr == range {
            return;
        }
        let network = NetworkConfig { pod_cidr: range.clone() };
        let runtime_config = Some(RuntimeConfig { network_config: Some(network) });
        match self.runtime_client.take(UpdateRuntimeConfigRequest { runtime_config }).await {
            Some(()) => self.progress().pod_cidr = range,
            None => tracing::warn!(range, "failed to pass the pod CIDR to the runtime"),
        }
    }

    fn note_schedulable(&self, node: &Tree) {
        let is_unschedulable = node.bool("spec.unschedulable");
        let before = std::mem::replace(&mut self.progress().is_unschedulable, is_unschedulable);
        if before != is_unschedulable {
            let reason = if is_unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
            self.record(vec![Event::now(&self.config.node_name, reason)]);
        }
    }
}

/// Looking.
impl Node {
    async fn look(&self) -> StatusInput {
        let now = self.clock.now().seconds;
        let machine = self.machine();
        let (machine, addresses) = tokio::join!(machine, self.addresses(now));
        let runtime = self.runtime(now).await;
        if let Some(images) = self.runtime_client.images().await {
            self.progress().images = images;
        }
        let images = self.progress().images.clone();
        let reports = self.reports.borrow().clone();
        let is_ready = runtime.health == Health::Ready && runtime.network == status_input::Network::Ready;
        self.ready.send_if_modified(|ready| std::mem::replace(ready, is_ready) != is_ready);
        StatusInput { machine, addresses, runtime, images, reports }
    }

    async fn machine(&self) -> Machine {
        let pods: PathBuf = self.config.root_dir.clone();
        let read = tokio::task::spawn_blocking(move || machine::read(Path::new("/"), &pods));
        read.await.unwrap_or_default()
    }

    /// The node's name is resolved once in a while.
    async fn addresses(&self, now: i64) -> Option<Vec<std::net::IpAddr>> {
        if let Some((since, known)) = &self.progress().addresses
            && (0..ADDRESS_SECONDS).contains(&(now - since))
        {
            return Some(known.clone());
        }
        let config = self.config.clone();
        let known = self.progress().addresses.as_ref().map(|(_, known)| known.clone()).unwrap_or_default();
        let found = tokio::task::spawn_blocking(move || {
            addresses::addresses(&addresses::System { known }, &config.node_ips, &config.node_name, &config.hostname)
        });
        let why = match found.await {
            Ok(Ok(found)) => {
                self.progress().addresses = Some((now, found.clone()));
                return Some(found);
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(why, "node has no address");
        self.progress().addresses = None;
        None
    }

    async fn runtime(&self, now: i64) -> Runtime {
        let response = self.runtime_client.status().await;
        let has_answered = response.is_some();
        let (before, answered) = {
            let progress = self.progress();
            (progress.runtime.clone(), progress.answered)
        };
        let mut runtime = runtime::runtime(&before, response, answered.map(|last| now - last));
        if has_answered && (runtime.version.is_empty() || before.health != Health::Ready) {
            runtime.version = self.runtime_client.version().await.unwrap_or_default();
        }
        let mut progress = self.progress();
        progress.answered = if has_answered { Some(now) } else { answered };
        progress.runtime = runtime.clone();
        runtime
    }
}

/// Before the API server has the object, each computation may know more than the one before.
fn is_newer(known: &Tree, new: &Tree) -> bool {
    match (revision_of(known), revision_of(new)) {
        (None, None) => known != new,
        (known, new) => known < new,
    }
}

/// The object reference of a node for events.
pub(crate) fn reference(name: &str) -> Tree {
    tree! { "kind" => "Node", "metadata" => tree! { "name" => name, "uid" => name } }
}
