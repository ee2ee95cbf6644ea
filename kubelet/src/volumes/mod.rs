//! The volumes of pods on this node: directories and files that containers mount. A kind of volume returns a plan
//! (`plan`), `execute` carries it out, and `remove` removes the volume again.

mod atomic;
mod certificates;
mod claims;
mod command;
pub mod csi;
mod disk;
pub(crate) mod erase;
mod execute;
mod files;
mod kinds;
#[cfg(test)]
mod mount_namespace;
mod mountinfo;
mod mounts;
mod ownership;
mod plan;
mod remove;
mod requirements;
mod subpath;
mod tokens;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::quantity::Quantity;
use client::{Client, Random, Resource, ordered};
use stdx::backoff::pause_after;
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::Config;
use crate::model::env::{self, EnvFile};
use crate::model::pod;
use crate::objects::Objects;
use execute::{PreparedVolume, Target};
use kinds::VolumeContext;
use plan::{Failure, Medium, Plan, RequestError, Step};

pub(crate) use execute::{create_dirs, restrict_permissions, write_private};
pub(crate) use mounts::{MountError, devices};
pub use mounts::{MountInputs, mounts};
pub(crate) use ownership::Owner;
pub(crate) use tokens::{TokenError, Tokens};

const NODES: Resource = Resource::core("nodes");

/// Pauses between attempts, doubled up to the longest, as upstream's.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);
/// How long a pod waits for its volumes before an event is recorded.
const PATIENCE: Duration = Duration::from_secs(123);

/// How often a driver is called again if it requires republishing.
const REPEAT: Duration = Duration::from_secs(60);
/// How often an attachment is checked.
const ATTACH_PAUSE: Duration = Duration::from_secs(1);
/// The limit of a file of variables: more than a process can get.
const MOST_VARIABLES: u64 = 4 << 20;

/// The dependencies of volume kinds.
pub struct Host {
    pub(crate) config: Arc<Config>,
    pub(crate) node: String,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) objects: Arc<Objects>,
    /// Allocatable resources of the node; null while they are not known.
    pub(crate) allocatable: Box<dyn Fn() -> Tree + Send + Sync>,
    tokens: tokens::Tokens,
    certificates: certificates::Certificates,
    csi: csi::Csi,
}

impl Host {
    pub fn new(
        config: Arc<Config>,
        node: &str,
        client: Client,
        clock: Arc<dyn Clock>,
        objects: Arc<Objects>,
        allocatable: impl Fn() -> Tree + Send + Sync + 'static,
    ) -> Host {
        let (node, allocatable) = (node.to_string(), Box::new(allocatable));
        let csi = csi::Csi::new(&config.root_dir);
        let certificates = certificates::Certificates::new(Random::fresh_seed());
        let tokens = tokens::Tokens::default();
        Host { config, node, client, clock, objects, allocatable, tokens, certificates, csi }
    }

    fn allocatable(&self) -> Tree {
        (self.allocatable)()
    }

    fn memory(&self) -> Option<u64> {
        let memory = Quantity::parse(self.allocatable().str("memory"));
        memory.ok().and_then(|memory| u64::try_from(memory.value()).ok())
    }

    /// The file system of files that must not reach a disk.
    fn in_memory(&self, pod: &Tree) -> Medium {
        Medium::Memory(kinds::memory(pod, None, self.memory()))
    }
}

/// A warning event for the pod, with upstream's reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The reason of the event.
    pub reason: &'static str,
    pub message: String,
}

/// All volumes of a pod that its containers use.
#[derive(Debug, Clone, Default)]
pub struct MountedVolumes {
    /// By their names in the pod.
    pub volumes: BTreeMap<String, Volume>,
    /// Volumes that could not be updated; the pod continues with their old content.
    pub warnings: Vec<Warning>,
    /// When the volumes have to be prepared again, even without a change.
    pub again: Option<Duration>,
}

/// A volume that is ready for containers.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// The name of its directory: its own, or that of its persistent volume.
    pub name: String,
    /// A supplemental group that the persistent volume requires.
    group: Option<i64>,
    made: PreparedVolume,
}

impl MountedVolumes {
    /// The groups of volumes, without those of the pod's spec.
    pub fn groups(&self, pod: &Tree) -> Vec<i64> {
        let named = pod.list("spec.securityContext.supplementalGroups");
        let of_volumes: BTreeSet<i64> = self.volumes.values().filter_map(|volume| volume.group).collect();
        of_volumes.into_iter().filter(|group| !named.iter().any(|named| named.as_int() == Some(*group))).collect()
    }
}

/// A file of variables that cannot be read. The error shown to the container has no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse env file")]
pub(crate) struct EnvFileError;

impl Volume {
    /// An image that has to be pulled before containers start, and its pull policy.
    pub(crate) fn image(&self) -> Option<(&str, &str)> {
        self.made.image.as_ref().map(|(reference, policy)| (reference.as_str(), policy.as_str()))
    }

    /// A file of variables that a container has written. The container controls where the path leads, so nothing
    /// outside of the volume is read, and the error has no details.
    pub(crate) async fn read(&self, path: &str) -> Result<EnvFile, EnvFileError> {
        let (volume, below) = (self.made.path.clone(), PathBuf::from(path));
        let shown = volume.join(&below).display().to_string();
        let read = blocking(move || Ok(subpath::read(&volume, &below, MOST_VARIABLES)?)).await;
        let text = read.and_then(|bytes| Ok(String::from_utf8(bytes)?));
        text.map(|text| EnvFile { path: shown, text }).map_err(|failure| {
            tracing::warn!(volume = self.name, path, error = %failure.source, "failed to read environment file");
            EnvFileError
        })
    }
}

/// Some volumes are not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub warnings: Vec<Warning>,
    /// The whole error in one line.
    pub(crate) message: String,
    /// When to retry even without a change.
    pub(crate) again: Duration,
}

/// The volumes of all pods of this node.
pub struct Volumes {
    host: Host,
    /// The pod that uses a volume exclusively, by the volume's name.
    sole: Mutex<BTreeMap<String, String>>,
    pods: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<State>>>>,
}

/// The state of one pod's volumes.
#[derive(Default)]
struct State {
    done: BTreeMap<String, MountedVolume>,
    failures: u32,
    /// Since when the pod waits for missing volumes.
    waiting: Option<Instant>,
    /// Held while its files are changed, which continues if the caller is cancelled.
    busy: Arc<tokio::sync::Mutex<()>>,
}

struct MountedVolume {
    volume: Volume,
    stamp: Option<u64>,
    refreshes: bool,
    /// When it was last mounted, if it has to be remounted from time to time.
    repeats: Option<Instant>,
}

impl MountedVolume {
    /// Whether the volume needs no update.
    fn stays(&self) -> bool {
        match self.repeats {
            Some(made) => made.elapsed() < REPEAT,
            None => !self.refreshes,
        }
    }
}

impl Volumes {
    /// Volumes of a host.
    pub fn new(host: Host) -> Volumes {
        Volumes { host, sole: Mutex::default(), pods: Mutex::default() }
    }

    /// Registers CSI drivers as they appear and disappear, forever. Device plugins have their sockets in the same
    /// directory and are passed to `devices`.
    pub async fn run(&self, devices: &csi::DevicePluginHandler) {
        let Host { client, node, objects, csi, .. } = &self.host;
        csi.run(&csi::RegistrationContext { client, node, wake: &|uid| objects.notify_pod(uid), devices }).await;
    }

    /// The volumes in use, for the node's status.
    pub fn in_use(&self) -> ordered::Receiver<BTreeSet<String>> {
        self.host.csi.in_use()
    }

    /// The paths of a pod's volumes, by their names in the pod; empty while the volumes are being changed.
    pub(crate) fn places(&self, uid: &str) -> Vec<(String, PathBuf)> {
        let Some(state) = self.pods().get(uid).cloned() else { return Vec::new() };
        let Ok(state) = state.try_lock() else { return Vec::new() };
        let files =
            state.done.iter().filter(|(_, done)| !done.volume.made.is_device && done.volume.made.image.is_none());
        files.map(|(name, done)| (name.clone(), done.volume.made.path.clone())).collect()
    }

    /// Whether a volume of a pod uses this directory, or may use it: while volumes are being prepared, it is not known.
    pub(crate) async fn uses(&self, directory: &Path) -> bool {
        const PATIENCE: Duration = Duration::from_secs(1);
        let states: Vec<_> = self.pods().values().cloned().collect();
        for state in states {
            let Ok(state) = tokio::time::timeout(PATIENCE, state.lock()).await else { return true };
            if state.done.values().any(|done| done.volume.made.path.starts_with(directory)) {
                return true;
            }
        }
        false
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Arc<tokio::sync::Mutex<State>>>> {
        self.pods.lock()
    }

    fn state(&self, uid: &str) -> Arc<tokio::sync::Mutex<State>> {
        self.pods().entry(uid.to_string()).or_default().clone()
    }

    /// Creates missing volumes and updates changed ones. It can be called at any time after `Objects::register`.
    pub async fn prepare(&self, pod: &Tree) -> Result<MountedVolumes, Problem> {
        let state = self.state(pod::uid(pod));
        let mut state = state.lock().await;
        let (mut mounted, mut failures) = (MountedVolumes::default(), Vec::new());
        let used = used(pod);
        for volume in pod.list("spec.volumes").iter().filter(|volume| used.contains(volume.str("name"))) {
            let name = volume.str("name");
            match self.one(pod, volume, &mut state).await {
                Ok(due) => mounted.again = mounted.again.into_iter().chain(due).min(),
                Err((failure, of)) => match state.done.contains_key(name) {
                    true => mounted.warnings.push(warning(&failure, &of)),
                    false => failures.push((name.to_string(), of, failure)),
                },
            }
        }
        if !failures.is_empty() {
            return Err(state.problem(&failures));
        }
        (state.failures, state.waiting) = (0, None);
        mounted.volumes = state.done.iter().map(|(name, done)| (name.clone(), done.volume.clone())).collect();
        Ok(mounted)
    }

    /// Prepares one volume. Returns when it is due again; an error has the name of the volume that failed.
    async fn one(&self, pod: &Tree, volume: &Tree, state: &mut State) -> Result<Option<Duration>, (Failure, String)> {
        let name = volume.str("name");
        if state.done.get(name).is_some_and(MountedVolume::stays) {
            return Ok(None);
        }
        let found = claims::resolve(&self.host.client, pod, volume).await;
        let found = found.map_err(|failure| (failure, name.to_string()))?;
        let checked = self.check(pod, &found).await;
        checked.map_err(|failure| (failure, found.name(volume).to_string()))?;
        let made = self.mount_volume(pod, volume, &found, state).await;
        if made.is_err() && !state.done.contains_key(name) {
            self.sole().retain(|of, by| of != found.name(volume) || by != pod::uid(pod));
        }
        let (made, due) = made.map_err(|failure| (failure, found.name(volume).to_string()))?;
        if let Some(done) = made {
            state.done.insert(name.to_string(), done);
        }
        let now = self.host.clock.now().seconds;
        Ok(due.map(|due| Duration::from_secs(u64::try_from(due - now).unwrap_or(0).max(1))))
    }

    /// Checks that this node and this pod may use a persistent volume.
    async fn check(&self, pod: &Tree, found: &claims::VolumeSource) -> Result<(), Failure> {
        let Some(volume) = found.persistent() else { return Ok(()) };
        if requirements::has_nodes(volume) {
            let node = self.host.client.get(NODES, "", &self.host.node).await;
            requirements::check_node_affinity(volume, &node.map_err(RequestError)?)?;
        }
        match requirements::is_exclusive(volume) && !self.take(volume.str("metadata.name"), pod::uid(pod)) {
            true => Err(requirements::already_in_use(volume)),
            false => Ok(()),
        }
    }

    /// Reserves a volume for one pod; false if another pod has it.
    fn take(&self, name: &str, uid: &str) -> bool {
        // A volume that a pod had before the kubelet started is still in use, even if the pod was not synced yet.
        let is_there = |other: &String| {
            let directories =
                ["volumes", "volumeDevices"].map(|directory| self.host.config.pod_dir(other).join(directory));
            let mut kinds = directories
                .iter()
                .flat_map(|directory| kinds::KINDS.iter().map(move |kind| directory.join(kind.directory)));
            kinds.any(|kind| kind.join(name).exists())
        };
        let known: BTreeSet<String> = self.pods().keys().cloned().collect();
        let others = self.reconstruct().unwrap_or_default();
        if others.iter().any(|other| other != uid && !known.contains(other) && is_there(other)) {
            return false;
        }
        self.sole().entry(name.to_string()).or_insert_with(|| uid.to_string()) == uid
    }

    fn sole(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.sole.lock()
    }

    /// None if nothing has changed.
    async fn mount_volume(
        &self,
        pod: &Tree,
        volume: &Tree,
        found: &claims::VolumeSource,
        state: &State,
    ) -> Result<(Option<MountedVolume>, Option<i64>), Failure> {
        let (spec, name) = (found.spec(volume), found.name(volume));
        let kind = kinds::of(spec).ok_or_else(|| unknown(spec))?;
        let owner = Owner::of(pod);
        let directory = self.host.config.pod_dir(pod::uid(pod));
        let dir = directory.join("volumes").join(kind.directory).join(name);
        let context = VolumeContext {
            host: &self.host,
            pod,
            source: spec.at(kind.field),
            persistent: found.persistent(),
            name,
            dir: dir.clone(),
            read_only: found.read_only(volume),
            owner: &owner,
        };
        let plan = (kind.plan)(&context).await?;
        let due = if let Plan::Files { due, .. } = &plan { *due } else { None };
        let stamp = plan.stamp();
        if state.done.get(volume.str("name")).is_some_and(|before| before.stamp == stamp && before.repeats.is_none()) {
            return Ok((None, due));
        }
        let repeats = matches!(plan, Plan::Made { repeats: true, .. }).then(Instant::now);
        let ready = directory.join("plugins").join(kind.directory).join(name).join("ready");
        let place = Target { dir, ready, owner, now: self.host.clock.now() };
        let busy = state.busy.clone().lock_owned().await;
        let made = blocking(move || {
            let _busy = busy;
            execute::execute(plan, &place)
        });
        let made = made.await?;
        let volume = Volume { name: name.to_string(), group: found.persistent().and_then(claims::group), made };
        Ok((Some(MountedVolume { volume, stamp, refreshes: kind.refreshes, repeats }), due))
    }
}

/// File systems may be slow, and must not block the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Failure::from(error)),
    }
}

/// A volume with fields that no kind has.
#[derive(Debug, thiserror::Error)]
#[error("no volume plugin matched: {0}")]
struct UnknownKind(String);

fn unknown(spec: &Tree) -> Failure {
    let fields: Vec<&str> =
        spec.as_map().map(|map| map.keys().filter(|key| *key != "name").collect()).unwrap_or_default();
    Failure::at(Step::Process, UnknownKind(fields.join(", ")))
}

/// The volumes that containers mount or read variables from; other volumes are not prepared.
fn used(pod: &Tree) -> BTreeSet<&str> {
    let lists = ["volumeMounts", "volumeDevices"];
    let has = |container| lists.iter().flat_map(move |list| Tree::list(container, list)).map(|mount| mount.str("name"));
    let reads = |container| env::files(container).into_iter().map(|(volume, _)| volume);
    pod::containers(pod).flat_map(|container| has(container).chain(reads(container))).collect()
}

fn warning(failure: &Failure, name: &str) -> Warning {
    let message = format!("{} failed for volume {name:?} : {}", failure.step.operation(), failure.source);
    Warning { reason: failure.step.reason(), message }
}

/// The name in the pod, the name of the failed volume, and the failure.
type FailedVolume = (String, String, Failure);

impl State {
    /// Upstream reports each failed attempt, and after a while that the pod waits. A volume that cannot be attempted is
    /// reported at once.
    fn problem(&mut self, failures: &[FailedVolume]) -> Problem {
        let longest = if failures.iter().all(|failure| failure.2.step == Step::WaitForAttach) {
            ATTACH_PAUSE
        } else {
            LONGEST_PAUSE
        };
        self.failures += 1;
        let again = pause_after(self.failures, FIRST_PAUSE, longest);
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let is_attempt = |failure: &&FailedVolume| !matches!(failure.2.step, Step::Process | Step::WaitForAttach);
        let mut warnings: Vec<Warning> =
            failures.iter().filter(is_attempt).map(|(_, name, failure)| warning(failure, name)).collect();
        let message = waits(failures);
        if since.elapsed() >= PATIENCE || failures.iter().any(|failure| failure.2.step == Step::Process) {
            self.waiting = None;
            warnings.push(Warning {
                reason: "FailedMount",
                message: format!("Unable to attach or mount volumes: {message}"),
            });
        }
        Problem { warnings, message, again }
    }
}

fn waits(failures: &[FailedVolume]) -> String {
    let names = |wanted: &dyn Fn(Step) -> bool| {
        let names = failures.iter().filter(|(_, _, failure)| wanted(failure.step)).map(|(name, ..)| name.as_str());
        names.collect::<Vec<_>>().join(" ")
    };
    let unprocessed: Vec<String> = failures
        .iter()
        .filter(|(_, _, failure)| failure.step == Step::Process)
        .map(|(_, _, failure)| failure.source.to_string())
        .collect();
    let why = if unprocessed.is_empty() { "context deadline exceeded".to_string() } else { unprocessed.join("; ") };
    format!(
        "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {why}",
        names(&|_| true),
        names(&|step| step == Step::WaitForAttach),
        names(&|step| step == Step::Process),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_groups_of_volumes() {
        let read = |text: &str| api::yaml::decode(text.as_bytes()).unwrap();
        let persistent =
            |note: &str| read(&format!("metadata: {{annotations: {{pv.beta.kubernetes.io/gid: '{note}'}}}}"));
        let volume = |note: &str| Volume {
            name: String::new(),
            group: claims::group(&persistent(note)),
            made: PreparedVolume::default(),
        };
        let notes =
            [("a", "1234"), ("b", "5"), ("c", "1234"), ("d", "wheel"), ("e", ""), ("f", "4294967295"), ("g", "-1")];
        let volumes = notes.map(|(name, note)| (name.to_string(), volume(note))).into();
        let mounted = MountedVolumes { volumes, ..MountedVolumes::default() };
        assert_eq!(mounted.groups(&Tree::Null), [5, 1234]);
        assert_eq!(mounted.groups(&read("spec: {securityContext: {supplementalGroups: [5]}}")), [1234]);
    }

    fn failed(name: &str, step: Step, why: &str) -> FailedVolume {
        (name.to_string(), name.to_string(), Failure::at(step, std::io::Error::other(why)))
    }

    #[tokio::test(start_paused = true)]
    async fn failures_have_upstreams_words() {
        let mut state = State::default();
        let failures = [failed("a", Step::SetUp, "configmap \"y\" not found")];
        let first = state.problem(&failures);
        let message = "MountVolume.SetUp failed for volume \"a\" : configmap \"y\" not found";
        assert_eq!(first.warnings, [Warning { reason: "FailedMount", message: message.to_string() }]);
        assert_eq!(first.again, FIRST_PAUSE);
        assert_eq!(state.problem(&failures).again, FIRST_PAUSE * 2);
        tokio::time::advance(PATIENCE).await;
        let late = state.problem(&failures).warnings.pop().unwrap();
        let wanted = "Unable to attach or mount volumes: unmounted volumes=[a], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";
        assert_eq!(late.message, wanted);
        assert_eq!(state.problem(&failures).warnings.len(), 1, "its patience starts anew");
        let claim = state.problem(&[failures[0].clone(), failed("b", Step::Process, "no claim")]);
        let wanted = "Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[b]: no claim";
        assert_eq!(claim.warnings.last().unwrap().message, wanted);
        let attach = failed("c", Step::WaitForAttach, "later");
        assert!(waits(&[attach]).contains("unattached volumes=[c]"));
    }

    #[test]
    fn prepares_only_used_volumes() {
        let pod = api::yaml::decode(
            b"spec: {initContainers: [{volumeMounts: [{name: a}]}], containers: [{volumeDevices: [{name: b}]}], volumes: [{name: c}]}",
        );
        assert_eq!(used(&pod.unwrap()), BTreeSet::from(["a", "b"]));
    }
}
