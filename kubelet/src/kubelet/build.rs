//! Builds the state that all pod workers share, from the configuration and the runtime's features. Nothing runs yet.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use client::{Client, Events, Informers, Recorder, Resource, Selection};

use super::{Environment, StartError};
use crate::admission::Admission;
use crate::config::{CgroupDriver, Config};
use crate::images::Images;
use crate::images::providers::Providers;
use crate::metrics::Starts;
use crate::node;
use crate::objects::Objects;
use crate::pod::context::{Cache, MachineMemory, PodContext, RuntimeFeatures};
use crate::pod::cri_config::memory;
use crate::pod::probes::Probes;
use crate::pod::status::writer::Writer;
use crate::pod::user_namespaces::UsernsManager;
use crate::pod::worker::{Termination, Workers};
use crate::resources::cgroups::CgroupManager;
use crate::resources::managers::Managers;
use crate::resources::resize::{self, Resizes};
use crate::runtime::Runtime;
use crate::volumes::{self, Host, Volumes};

const PODS: Resource = Resource::core("pods");
const SERVICES: Resource = Resource::core("services");
const RUNTIME_CLASSES: Resource = Resource::new("node.k8s.io", "v1", "runtimeclasses");

/// The workers, for parts that the workers are built from and that wake them.
#[derive(Clone, Default)]
pub(crate) struct WorkersHandle(Arc<OnceLock<Weak<Workers>>>);

impl WorkersHandle {
    pub(crate) fn create(&self, context: &Arc<PodContext>) -> Arc<Workers> {
        let workers = Workers::new(context.clone());
        let _ = self.0.set(Arc::downgrade(&workers));
        workers
    }

    pub(crate) fn wake(&self) -> impl Fn(&str) + Clone + Send + Sync + 'static {
        let handle = self.clone();
        move |uid: &str| handle.with(|workers| workers.wake(uid))
    }

    fn end(&self) -> impl Fn(&str, Termination) + Send + Sync + 'static {
        let handle = self.clone();
        move |uid: &str, end: Termination| handle.with(|workers| workers.end(uid, end))
    }

    fn with(&self, act: impl FnOnce(&Workers)) {
        if let Some(workers) = self.0.get().and_then(Weak::upgrade) {
            act(&workers);
        }
    }
}

pub(crate) async fn context(
    environment: Environment,
    informers: &Informers,
    handle: &WorkersHandle,
) -> Result<Arc<PodContext>, StartError> {
    let Environment { client, runtime, node, config, clock, metrics, network_gate, seed } = environment;
    let runtime = runtime.limited(config.runtime_request_timeout);
    create_directories(&config)?;
    let managers = Arc::new(Managers::open(config.clone(), Path::new("/"), clock.clone(), metrics.clone())?);
    let features = features(&runtime).await?;
    let config = with_driver(config, &runtime).await;
    let machine = node::machine::read(Path::new("/"), &config.root_dir);
    let groups = Arc::new(CgroupManager::open(config.clone(), &machine)?);
    let cache = cache(&config.node_name, informers);
    let recorder = recorder(&client, &config, Events::start(clock.clone(), metrics.clone()));
    let objects = Arc::new(Objects::new(client.clone(), seed, handle.wake()));
    let view = node.view();
    let shown = view.clone();
    let name = &config.node_name;
    let allocatable = move || shown.allocatable();
    let host = Host::new(config.clone(), name, client.clone(), clock.clone(), objects.clone(), allocatable);
    let paths = (config.credential_provider_config.as_deref(), config.credential_provider_bin_dir.as_deref());
    let providers = Providers::open(paths, client.clone(), clock.clone())?;
    let starts = Arc::new(Starts::new(metrics.clone()));
    let admission = Arc::new(Admission::default());
    let resizing = resize::Environment {
        admission: admission.clone(),
        node: view.clone(),
        recorder: recorder.clone(),
        clock: clock.clone(),
    };
    Ok(Arc::new(PodContext {
        statuses: Writer::new(client, cache.pods.clone()),
        images: Arc::new(Images::new(runtime.clone(), recorder.clone(), &config, providers, starts.clone())),
        probes: Probes::new(runtime.clone(), recorder.clone(), clock.clone(), handle.wake()),
        admission,
        users: UsernsManager::open(config.clone()),
        managers,
        objects,
        volumes: Arc::new(Volumes::new(host)),
        cache,
        node: view,
        features,
        runtime,
        network_gate,
        machine: MachineMemory {
            bytes: machine.memory_bytes,
            rules: memory_rules(&config, &groups, machine.swap_bytes),
        },
        groups,
        resizes: Resizes::new(config.clone(), handle.wake()),
        resizing,
        config,
        clock,
        recorder,
        metrics,
        starts,
        end: Box::new(handle.end()),
    }))
}

fn cache(node: &str, informers: &Informers) -> Cache {
    let store = |selection: Selection| informers.informer(selection).store().clone();
    Cache {
        pods: store(pods_of(node)),
        services: store(Selection::all(SERVICES)),
        services_known: informers.informer(Selection::all(SERVICES)).synced(),
        runtime_classes: store(Selection::all(RUNTIME_CLASSES)),
    }
}

/// Events have a rate limit of their own.
fn recorder(client: &Client, config: &Config, events: Events) -> Recorder {
    let client = match config.requests.events {
        Some((per_second, burst)) => client.throttled(f64::from(per_second), burst),
        None => client.clone(),
    };
    events.recorder(client, "kubelet").on(&config.node_name)
}

async fn features(runtime: &Runtime) -> Result<RuntimeFeatures, StartError> {
    let version = runtime.service.version(cri::VersionRequest { version: "v1".to_string() }).await;
    let version = version.map_err(StartError::Runtime)?;
    Ok(RuntimeFeatures { name: version.runtime_name, recursive_read_only: can_read_only_below(runtime).await })
}

/// The pods of one node.
pub(crate) fn pods_of(node: &str) -> Selection {
    Selection::queried(PODS, &format!("fieldSelector=spec.nodeName%3D{node}"))
}

/// The runtime's cgroup driver overrides the configured one if the runtime reports it.
async fn with_driver(config: Arc<Config>, runtime: &Runtime) -> Arc<Config> {
    let response = runtime.service.runtime_config(cri::RuntimeConfigRequest {}).await;
    let Some(linux) = response.ok().and_then(|response| response.linux) else { return config };
    let cgroup_driver = match linux.cgroup_driver() {
        cri::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        cri::CgroupDriver::Systemd => CgroupDriver::Systemd,
    };
    Arc::new(Config { cgroup_driver, ..(*config).clone() })
}

fn memory_rules(config: &Config, groups: &CgroupManager, swap: i64) -> memory::Rules {
    let unified = groups.unified();
    memory::Rules {
        unified,
        counts_swap: groups.counts_swap(),
        swap: config.swap.limited.then_some(swap),
        throttling: config.memory_throttling_factor,
        reserves: config.reserves_memory,
        ends_whole: unified && config.single_process_oom_kill != Some(true),
        allocatable: 0,
    }
}

fn create_directories(config: &Config) -> Result<(), StartError> {
    let own = ["pods", "plugins", "plugins_registry"].map(|name| config.root_dir.join(name));
    for directory in own.iter().chain([&config.pod_logs_dir]) {
        volumes::create_dirs(directory).map_err(StartError::directory(directory))?;
    }
    restrict_pod_dirs(&config.root_dir.join("pods"))
}

/// Closes directories of pods that an earlier version, or another program, has left open to every user.
fn restrict_pod_dirs(pods: &Path) -> Result<(), StartError> {
    let close = |path: &Path| volumes::restrict_permissions(path).map_err(StartError::directory(path));
    close(pods)?;
    let entries = std::fs::read_dir(pods).map_err(StartError::directory(pods))?;
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).try_for_each(|dir| close(&dir))
}

/// Whether the runtime's default handler supports recursive read-only mounts.
async fn can_read_only_below(runtime: &Runtime) -> bool {
    let Ok(status) = runtime.service.status(cri::StatusRequest { verbose: false }).await else { return false };
    let default = status.runtime_handlers.into_iter().find(|handler| handler.name.is_empty());
    default.and_then(|handler| handler.features).is_some_and(|features| features.recursive_read_only_mounts)
}
