//! The scheduler configuration: a KubeSchedulerConfiguration, or a legacy policy translated to one. All errors are
//! reported at once, each with its field path.

mod args;
mod effective;
mod extenders;
mod plugins;
mod policy;
mod reader;

use std::collections::BTreeMap;
use std::time::Duration;

use api::field::Path;
use api::{Str, Tree};

use crate::framework::Profile;
use crate::plugins::args::Shared;
use crate::plugins::list::DEFAULT_SCHEDULER;
use reader::Reader;

pub use extenders::{ExtenderConfig, ManagedResource, TlsConfig};
pub use policy::read_policy;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// A KubeSchedulerConfiguration.
#[derive(Clone)]
pub struct Configuration {
    /// One for each scheduler name.
    pub profiles: Vec<Profile>,
    pub extenders: Vec<ExtenderConfig>,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    pub enable_profiling: bool,
    /// Whether a standby scheduler starts its informers only when it leads.
    pub delay_cache_until_active: bool,
}

/// The leader election of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    pub elect: bool,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub name: String,
    pub namespace: String,
}

impl Default for LeaderElection {
    fn default() -> LeaderElection {
        LeaderElection {
            elect: true,
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1500),
            retry_period: Duration::from_millis(400),
            name: "kube-scheduler".to_string(),
            namespace: "kube-system".to_string(),
        }
    }
}

/// The client connection of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConnection {
    /// Empty if it is set by a flag or not at all.
    pub kubeconfig: String,
    /// None if requests are not limited.
    pub qps: Option<f64>,
    pub burst: u32,
}

impl Default for ClientConnection {
    fn default() -> ClientConnection {
        ClientConnection { kubeconfig: String::new(), qps: None, burst: 100 }
    }
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            profiles: vec![crate::plugins::list::default_profile(DEFAULT_SCHEDULER)],
            extenders: Vec::new(),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            delay_cache_until_active: false,
        }
    }
}

/// Parses a configuration file. Errors are `FIELD: problem`.
pub fn read(text: &[u8]) -> Result<Configuration, Vec<String>> {
    let tree = api::yaml::decode(text).map_err(|error| vec![error.to_string()])?;
    if tree.str("kind") != "KubeSchedulerConfiguration" || tree.str("apiVersion") != API_VERSION {
        let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
        return Err(vec![format!(
            "it must be a KubeSchedulerConfiguration of {API_VERSION}, not a {kind:?} of {version:?}"
        )]);
    }
    let mut reader = Reader::default();
    let configuration = configuration(&mut reader, &tree);
    reader.result(configuration)
}

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    "delayCacheUntilActive",
];

fn configuration(reader: &mut Reader, tree: &Tree) -> Configuration {
    let root = Path::nil();
    reader.known(tree, &root, FIELDS);
    if reader.int(tree, "parallelism", &root).is_some_and(|parallelism| parallelism <= 0) {
        let path = root.field("parallelism");
        reader.errors.invalid(&path, tree.at("parallelism"), "should be an integer value greater than zero");
    }
    reader.bool(tree, "enableContentionProfiling", &root);
    let percentage = reader.percentage(tree, &root);
    let initial = reader.int(tree, "podInitialBackoffSeconds", &root).unwrap_or(1);
    let most = reader.int(tree, "podMaxBackoffSeconds", &root).unwrap_or(10);
    if initial <= 0 {
        reader.errors.invalid(&root.field("podInitialBackoffSeconds"), initial, "must be greater than 0");
    }
    if most < initial {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        reader.errors.invalid(&root.field("podMaxBackoffSeconds"), most, detail);
    }
    let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or(0));
    let extenders = extenders::read(reader, tree);
    Configuration {
        profiles: profiles(reader, tree, percentage, &extenders),
        extenders,
        initial_backoff: seconds(initial),
        max_backoff: seconds(most),
        leader_election: leader_election(reader, tree),
        client_connection: client_connection(reader, tree),
        enable_profiling: reader.bool(tree, "enableProfiling", &root).unwrap_or(true),
        delay_cache_until_active: reader.bool(tree, "delayCacheUntilActive", &root).unwrap_or(false),
    }
}

fn profiles(reader: &mut Reader, tree: &Tree, percentage: Option<u8>, extenders: &[ExtenderConfig]) -> Vec<Profile> {
    let path = Path::root("profiles");
    let managed = extenders.iter().flat_map(|one| &one.managed_resources);
    let left = managed.filter(|one| one.is_ignored_by_scheduler).map(|one| Str::new(&one.name));
    let shared = Shared { left_to_extenders: left.collect(), ..Shared::default() };
    let standard = [api::tree! { "schedulerName" => DEFAULT_SCHEDULER }];
    let list = if tree.has("profiles") { tree.list("profiles") } else { &standard[..] };
    if list.is_empty() {
        reader.errors.required(&path, "");
    }
    let mut profiles: Vec<Profile> = Vec::new();
    let mut sorts = BTreeMap::new();
    for (index, one) in list.iter().enumerate() {
        let at = path.index(index);
        let mut profile = plugins::read(reader, one, &at, &shared);
        profile.percentage_of_nodes_to_score = reader.percentage(one, &at).or(percentage);
        if profiles.iter().any(|other| other.scheduler_name == profile.scheduler_name) {
            reader.errors.duplicate(&at.field("schedulerName"), profile.scheduler_name.as_str());
        }
        sorts.insert(plugins::queue_sort_plugin(&profile), index);
        profiles.push(profile);
    }
    // All profiles share one queue.
    if sorts.len() > 1 {
        let at = path.index(sorts.values().max().copied().unwrap_or(0));
        let plugins = at.field("plugins");
        reader.errors.forbidden(&plugins.field("queueSort"), "queueSort must be the same for all profiles");
    }
    profiles
}

const ELECTION_FIELDS: &[&str] = &[
    "leaderElect",
    "leaseDuration",
    "renewDeadline",
    "retryPeriod",
    "resourceLock",
    "resourceName",
    "resourceNamespace",
];

fn leader_election(reader: &mut Reader, tree: &Tree) -> LeaderElection {
    let (tree, path) = (tree.at("leaderElection"), Path::root("leaderElection"));
    let standard = LeaderElection::default();
    reader.known(tree, &path, ELECTION_FIELDS);
    let election = LeaderElection {
        elect: reader.bool(tree, "leaderElect", &path).unwrap_or(standard.elect),
        lease_duration: reader.duration(tree, "leaseDuration", &path).unwrap_or(standard.lease_duration),
        renew_deadline: reader.duration(tree, "renewDeadline", &path).unwrap_or(standard.renew_deadline),
        retry_period: reader.duration(tree, "retryPeriod", &path).unwrap_or(standard.retry_period),
        name: reader.text(tree, "resourceName", &path).unwrap_or(standard.name),
        namespace: reader.text(tree, "resourceNamespace", &path).unwrap_or(standard.namespace),
    };
    let lock = reader.text(tree, "resourceLock", &path).unwrap_or_else(|| "leases".to_string());
    if election.elect && lock != "leases" {
        reader.errors.invalid(&path.field("resourceLock"), &lock, "resourceLock value must be \"leases\"");
    }
    if election.elect && election.lease_duration <= election.renew_deadline {
        let detail = "LeaseDuration must be greater than RenewDeadline";
        reader.errors.invalid(&path.field("leaseDuration"), tree.at("leaseDuration"), detail);
    }
    if election.elect && election.renew_deadline <= election.retry_period {
        let detail = "RenewDeadline must be greater than RetryPeriod";
        reader.errors.invalid(&path.field("renewDeadline"), tree.at("renewDeadline"), detail);
    }
    election
}

fn client_connection(reader: &mut Reader, tree: &Tree) -> ClientConnection {
    let (tree, path) = (tree.at("clientConnection"), Path::root("clientConnection"));
    let standard = ClientConnection::default();
    reader.known(tree, &path, &["kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"]);
    for key in ["acceptContentTypes", "contentType"] {
        reader.text(tree, key, &path);
    }
    let burst = reader.int(tree, "burst", &path).map(|burst| {
        let read = u32::try_from(burst);
        if read.is_err() {
            reader.errors.invalid(&path.field("burst"), burst, "must be non-negative");
        }
        read.unwrap_or_default()
    });
    let qps = reader.number(tree, "qps", &path);
    if qps.is_some_and(|qps| !qps.is_finite()) {
        reader.errors.invalid(&path.field("qps"), tree.at("qps"), "must be a number");
    }
    ClientConnection {
        kubeconfig: reader.text(tree, "kubeconfig", &path).unwrap_or_default(),
        // As upstream: unset is client-go's default, a negative value unlimited.
        qps: qps.filter(|qps| *qps > 0.0),
        burst: burst.filter(|burst| *burst > 0).unwrap_or(standard.burst),
    }
}

#[cfg(test)]
mod tests;
