//! The cgroups of pods: one for all, below it one per QoS class, below that one per pod. They exist, with their limits,
//! before a sandbox is created; the runtime creates the cgroups of containers below them.

pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod oom;
mod systemd;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::Tree;
use cgroup::{Hierarchies, Resources};
use stdx::sync::{Mutex, MutexGuard};

use crate::config::{CgroupDriver, Config};
use crate::model::pod;
use crate::model::resources::{Class, class};
use crate::node::resources;
use crate::node::status_input::{Devices, Machine};
use limits::{Rules, Share};
use names::CLASSES;

/// The longest wait for killed processes to leave the cgroup of a pod.
const DESTROY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// A failed change of the pods' cgroups.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    #[error(transparent)]
    Systemctl(#[from] systemd::SystemctlError),
    #[error("{field}: the cgroup {group:?} does not exist")]
    NoGroup { field: &'static str, group: String },
    #[error("{field}: {source}")]
    Reserved { field: &'static str, source: cgroup::Error },
    #[error(
        "cgroupDriver (--cgroup-driver) systemd: systemd does not run this machine; it must be cgroupfs here and in \
         the container runtime"
    )]
    NoSystemd,
    #[error("singleProcessOOMKill false: cgroups of version 1 end single processes")]
    SingleProcessOomKill,
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

pub(crate) struct CgroupManager {
    config: Arc<Config>,
    /// None if the kubelet creates no cgroups: all containers are below the configured root.
    hierarchies: Option<Hierarchies>,
    rules: Rules,
    /// The limits of all pods together.
    whole: Resources,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The pods that have a group, by uid.
    taken: BTreeMap<String, Share>,
    /// The resources last written for each QoS class.
    written: BTreeMap<Class, Resources>,
}

impl CgroupManager {
    /// Creates the cgroups that do not belong to one pod. An error names what the machine does not support.
    pub(crate) fn open(config: Arc<Config>, machine: &Machine) -> Result<CgroupManager, GroupError> {
        let hierarchies = match config.cgroups_per_qos {
            true => Some(Hierarchies::detect()?),
            false => None,
        };
        let unified = hierarchies.as_ref().is_some_and(Hierarchies::unified_only);
        check(&config, unified)?;
        let rules = Rules {
            cfs_period: config.cpu_cfs_quota.then(|| micros(&config)),
            pins_cpus: config.pinning.cpu_static,
            pids: Some(config.pod_pids_limit).filter(|most| *most > 0),
            reserves: unified && config.reserves_memory,
            page_sizes: machine.huge_pages.iter().map(|(size, _)| *size).collect(),
        };
        let groups =
            CgroupManager { whole: whole(&config, machine), config, hierarchies, rules, state: Mutex::default() };
        groups.begin()?;
        Ok(groups)
    }

    /// Whether the machine has only cgroup v2; false if the kubelet creates no cgroups.
    pub(crate) fn unified(&self) -> bool {
        self.hierarchies.as_ref().is_some_and(Hierarchies::unified_only)
    }

    /// Whether the kernel accounts swap of cgroups.
    pub(crate) fn counts_swap(&self) -> bool {
        let Some(hierarchies) = &self.hierarchies else { return false };
        let path = names::of_class(&self.config, Class::Guaranteed);
        let directory = match self.unified() {
            true => hierarchies.in_v2(&path).map(|directory| directory.join("memory.swap.max")),
            false => hierarchies.in_v1("memory", &path).map(|directory| directory.join("memory.memsw.limit_in_bytes")),
        };
        directory.is_some_and(|file| file.exists())
    }

    fn begin(&self) -> Result<(), GroupError> {
        let Some(hierarchies) = &self.hierarchies else { return Ok(()) };
        for class in CLASSES {
            let path = names::of_class(&self.config, class);
            hierarchies.create(&path)?;
        }
        self.write_classes(hierarchies, &mut self.state())?;
        self.limit_reserved(hierarchies)
    }

    /// Limits the reserved cgroups, which must exist.
    fn limit_reserved(&self, hierarchies: &Hierarchies) -> Result<(), GroupError> {
        let settings = &self.config.allocatable;
        let parts = [
            ("system-reserved", "systemReservedCgroup", &settings.system_reserved_cgroup, &settings.system_reserved),
            ("kube-reserved", "kubeReservedCgroup", &settings.kube_reserved_cgroup, &settings.kube_reserved),
        ];
        for (name, field, group, amounts) in parts {
            let Some(limits) = limits::of_reserved(&settings.enforced, name, amounts) else { continue };
            let path = cgroup::parent_path(group);
            if !hierarchies.has_group(&path) {
                return Err(GroupError::NoGroup { field, group: group.clone() });
            }
            hierarchies.update(&path, &limits).map_err(|source| GroupError::Reserved { field, source })?;
        }
        Ok(())
    }

    /// Limits all pods together. Fails while they use more than the limit.
    pub(crate) fn limit_all(&self) -> Result<(), GroupError> {
        let Some(hierarchies) = &self.hierarchies else { return Ok(()) };
        self.write(hierarchies, (Class::Guaranteed, None), &self.whole)
    }

    /// Creates and limits the cgroup of a pod. A cgroup that is in use keeps its limits: it is resized step by step. An
    /// empty one may be left from a failed attempt.
    pub(crate) async fn ensure(self: &Arc<CgroupManager>, pod: &Tree) -> Result<(), GroupError> {
        let uid = pod::uid(pod).to_string();
        if self.hierarchies.is_none() || self.state().taken.contains_key(&uid) {
            return Ok(());
        }
        let (share, limits) = (limits::share(pod), limits::of_pod(pod, &self.rules));
        self.spawn_blocking(move |groups, hierarchies| {
            let path = names::of_pod(&groups.config, share.class, &uid);
            if !hierarchies.has_group(&path) || hierarchies.processes(&path).is_empty() {
                hierarchies.create(&path)?;
                groups.write(hierarchies, (share.class, Some(&uid)), &limits)?;
            }
            let mut state = groups.state();
            state.taken.insert(uid.clone(), share);
            let written = groups.write_classes(hierarchies, &mut state);
            if written.is_err() {
                state.taken.remove(&uid);
            }
            written
        })
        .await
    }

    /// Changes the limits of a pod's cgroup; missing limits are unchanged.
    pub(crate) async fn limit(self: &Arc<CgroupManager>, pod: &Tree, limits: Resources) -> Result<(), GroupError> {
        let (class, uid) = (class(pod), pod::uid(pod).to_string());
        self.spawn_blocking(move |groups, hierarchies| groups.write(hierarchies, (class, Some(&uid)), &limits)).await
    }

    /// Applies the limits that are larger than the current ones.
    pub(crate) async fn grow(self: &Arc<CgroupManager>, pod: &Tree, limits: Resources) -> Result<(), GroupError> {
        let (class, uid) = (class(pod), pod::uid(pod).to_string());
        self.spawn_blocking(move |groups, hierarchies| {
            let now = hierarchies.limits(&names::of_pod(&groups.config, class, &uid));
            groups.write(hierarchies, (class, Some(&uid)), &limits::grown(&now, &limits))
        })
        .await
    }

    /// Whether a pod's group may use more memory than that now.
    pub(crate) fn shrinks_below(&self, pod: &Tree, limit: i64) -> bool {
        let path = names::of_pod(&self.config, class(pod), pod::uid(pod));
        let Some(hierarchies) = &self.hierarchies else { return false };
        hierarchies.limits(&path).memory.is_none_or(|now| now > limit)
    }

    /// A pod weighs more or less in its class from now on.
    pub(crate) async fn reweigh(self: &Arc<CgroupManager>, pod: &Tree) -> Result<(), GroupError> {
        let (share, uid) = (limits::share(pod), pod::uid(pod).to_string());
        self.spawn_blocking(move |groups, hierarchies| {
            let mut state = groups.state();
            state.taken.insert(uid, share);
            groups.write_classes(hierarchies, &mut state)
        })
        .await
    }

    /// The limits of a pod's cgroup.
    pub(crate) fn limits_of(&self, pod: &Tree) -> Resources {
        limits::of_pod(pod, &self.rules)
    }

    /// Bytes of memory that a pod uses and that cannot be reclaimed; None if unknown.
    pub(crate) fn memory_of(&self, pod: &Tree) -> Option<i64> {
        let path = names::of_pod(&self.config, class(pod), pod::uid(pod));
        let usage = self.hierarchies.as_ref()?.usage(&path);
        i64::try_from(usage.working_set_bytes).ok()
    }

    /// Removes the cgroup of a stopped pod, in all hierarchies; remaining processes are an error.
    pub(crate) async fn remove(self: &Arc<CgroupManager>, pod: &Tree) -> Result<(), GroupError> {
        self.remove_group(pod, |hierarchies, path| hierarchies.remove(path)).await
    }

    /// Removes the cgroup of a pod of which the runtime has removed everything. A runtime that was killed while it started
    /// a container may have lost processes of it: they are killed, as nothing else would end them.
    pub(crate) async fn destroy(self: &Arc<CgroupManager>, pod: &Tree) -> Result<(), GroupError> {
        let name = pod::name(pod).to_string();
        self.remove_group(pod, move |hierarchies, path| {
            let lost = hierarchies.processes(path).len();
            if lost > 0 {
                tracing::warn!(pod = name, processes = lost, "killing processes that the runtime has lost");
            }
            hierarchies.remove_when_empty(path, DESTROY_TIMEOUT)
        })
        .await
    }

    async fn remove_group(
        self: &Arc<CgroupManager>,
        pod: &Tree,
        remove: impl Fn(&Hierarchies, &str) -> cgroup::Result<()> + Send + 'static,
    ) -> Result<(), GroupError> {
        let uid = pod::uid(pod).to_string();
        self.spawn_blocking(move |groups, hierarchies| {
            {
                let mut state = groups.state();
                state.taken.remove(&uid);
                groups.write_classes(hierarchies, &mut state)?;
            }
            // The pod may be known only by its UID, without its class.
            CLASSES.into_iter().try_for_each(|class| groups.remove_one(hierarchies, class, &uid, &remove))
        })
        .await
    }

    /// Removes the empty cgroups of unknown pods, which ended while the kubelet was stopped.
    pub(crate) async fn clean_up(
        self: &Arc<CgroupManager>,
        is_known: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<(), GroupError> {
        self.spawn_blocking(move |groups, hierarchies| {
            for class in CLASSES {
                let below = hierarchies.children(&names::of_class(&groups.config, class)).into_iter();
                let uids = below.filter_map(|name| names::pod_of(&groups.config, class, &name));
                for uid in uids.filter(|uid| !is_known(uid)) {
                    let path = names::of_pod(&groups.config, class, &uid);
                    if hierarchies.processes(&path).is_empty() {
                        groups.remove_one(hierarchies, class, &uid, &Hierarchies::remove)?;
                    }
                }
            }
            Ok(())
        })
        .await
    }

    fn remove_one(
        &self,
        hierarchies: &Hierarchies,
        class: Class,
        uid: &str,
        remove: &impl Fn(&Hierarchies, &str) -> cgroup::Result<()>,
    ) -> Result<(), GroupError> {
        let path = names::of_pod(&self.config, class, uid);
        if self.config.cgroup_driver == CgroupDriver::Systemd && hierarchies.has_group(&path) {
            systemd::remove(&names::name_for_driver(&self.config, class, Some(uid)))?;
        }
        Ok(remove(hierarchies, &path)?)
    }

    fn write_classes(&self, hierarchies: &Hierarchies, state: &mut State) -> Result<(), GroupError> {
        for (class, resources) in limits::of_classes(&state.taken, &self.rules) {
            if state.written.get(&class) != Some(&resources) {
                self.write(hierarchies, (class, None), &resources)?;
                state.written.insert(class, resources);
            }
        }
        Ok(())
    }

    fn write(
        &self,
        hierarchies: &Hierarchies,
        (class, uid): (Class, Option<&str>),
        resources: &Resources,
    ) -> Result<(), GroupError> {
        let path = match uid {
            Some(uid) => names::of_pod(&self.config, class, uid),
            None => names::of_class(&self.config, class),
        };
        let mut resources = resources.clone();
        if self.config.cgroup_driver == CgroupDriver::Systemd {
            systemd::set(&names::name_for_driver(&self.config, class, uid), &resources, self.unified())?;
            resources = Resources { hugepages: resources.hugepages, ..Resources::default() };
        }
        let warnings = hierarchies.update(&path, &resources)?;
        warnings.iter().for_each(|warning| tracing::debug!(path, warning, "failed to set cgroup limits"));
        Ok(())
    }

    /// The kernel may be slow, and must not block the async runtime.
    async fn spawn_blocking(
        self: &Arc<CgroupManager>,
        work: impl FnOnce(&CgroupManager, &Hierarchies) -> Result<(), GroupError> + Send + 'static,
    ) -> Result<(), GroupError> {
        let groups = self.clone();
        let done = tokio::task::spawn_blocking(move || match &groups.hierarchies {
            Some(hierarchies) => work(&groups, hierarchies),
            None => Ok(()),
        });
        done.await?
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Rejects settings that the machine does not support.
fn check(config: &Config, unified: bool) -> Result<(), GroupError> {
    if config.cgroup_driver == CgroupDriver::Systemd && config.cgroups_per_qos && !systemd::runs() {
        return Err(GroupError::NoSystemd);
    }
    if config.single_process_oom_kill == Some(false) && config.cgroups_per_qos && !unified {
        return Err(GroupError::SingleProcessOomKill);
    }
    let version_2 = [
        ("memoryThrottlingFactor", config.memory_throttling_factor.is_some()),
        ("memoryReservationPolicy TieredReservation", config.reserves_memory),
    ];
    for (field, _) in version_2.iter().filter(|(_, is_set)| *is_set && config.cgroups_per_qos && !unified) {
        tracing::warn!(field, "setting has no effect: it needs cgroup v2");
    }
    Ok(())
}

fn micros(config: &Config) -> i64 {
    i64::try_from(config.cpu_cfs_quota_period.as_micros()).unwrap_or(100_000)
}

/// The limits of all pods together: the machine, without reserved resources if that is enforced.
fn whole(config: &Config, machine: &Machine) -> Resources {
    let mut amounts = resources::capacity(config, machine, &Devices::default(), &api::Map::new());
    if let Some(most) = most_processes(Path::new("/proc/sys/kernel")) {
        amounts.insert("pid".to_string(), api::quantity::Quantity::new(most, api::quantity::Format::DecimalSI));
    }
    if config.allocatable.enforced.iter().any(|one| one == "pods") {
        amounts = resources::unreserved(config, &amounts);
    }
    limits::of_part(&amounts)
}

/// The smaller of the limits of PIDs and threads.
fn most_processes(directory: &Path) -> Option<i64> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok()?.trim().parse::<i64>().ok();
    ["pid_max", "threads-max"].into_iter().filter_map(read).min()
}
