//! In-place resize of pods: allocated resources follow the desired ones if the node has enough, and running containers
//! follow the allocated ones.

pub(crate) mod allocation;
mod order;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::{Tree, tree};
use client::Recorder;
use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};

use crate::admission::Admission;
use crate::admission::resize::{Change, INFEASIBLE};
use crate::clock;
use crate::config::Config;
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::resources::{milli, resize_policy};
use crate::node::NodeView;
use allocation::{Amounts, Record, WHOLE, desired_resources, differing, with};
pub(crate) use order::text as event_text;
pub(crate) use status::{IN_PROGRESS, PENDING};

/// The dependencies of resize decisions.
pub(crate) struct Environment {
    pub(crate) admission: Arc<Admission>,
    pub node: NodeView,
    pub recorder: Recorder,
    pub clock: Arc<dyn Clock>,
}

pub(crate) struct Resizes {
    config: Arc<Config>,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Wakes the worker of a pod.
    wake: Box<dyn Fn(&str) + Send + Sync>,
}

/// The state of one pod.
struct Entry {
    record: Record,
    /// The pod at its last sync.
    pod: Arc<Tree>,
    /// The generation whose resize was allocated.
    granted: Option<i64>,
    /// Why a resize is pending, and since when.
    pending: Option<(Problem, i64)>,
    /// Why a granted resize has failed.
    error: String,
}

impl Resizes {
    pub(crate) fn new(config: Arc<Config>, wake: impl Fn(&str) + Send + Sync + 'static) -> Resizes {
        Resizes { config, entries: Mutex::default(), wake: Box::new(wake) }
    }

    /// The pod with its allocated resources.
    pub(crate) fn allocated(&self, pod: &Arc<Tree>) -> Arc<Tree> {
        let mut entries = self.entries();
        let uid = pod::uid(pod);
        if !entries.contains_key(uid)
            && let Some(record) = Record::read(&self.file(uid))
        {
            entries.insert(uid.to_string(), Entry::new(record, pod));
        }
        match entries.get(uid) {
            Some(entry) if entry.granted != Some(generation(pod)) && entry.is_behind(pod) => {
                Arc::new(with(pod, &entry.record.allocated))
            }
            _ => pod.clone(),
        }
    }

    /// A pod was admitted: its desired resources are allocated.
    pub(crate) fn take(&self, pod: &Arc<Tree>) {
        let mut entries = self.entries();
        if entries.contains_key(pod::uid(pod)) {
            return;
        }
        let mut entry = Entry::new(Record::of(pod), pod);
        entry.granted = Some(generation(pod));
        self.keep(pod::uid(pod), &entry.record);
        entries.insert(pod::uid(pod).to_string(), entry);
    }

    /// Removes the state of a pod that was removed.
    pub(crate) fn remove_pod(&self, uid: &str) {
        self.entries().remove(uid);
    }

    /// Allocates a pod's desired resources if the node has enough.
    pub(crate) fn try_allocate(&self, environment: &Environment, pod: &Arc<Tree>) {
        {
            let mut entries = self.entries();
            let Some(entry) = entries.get_mut(pod::uid(pod)) else { return };
            entry.pod = pod.clone();
            if entry.granted == Some(generation(pod)) {
                return;
            }
            if !entry.is_behind(pod) {
                entry.granted = Some(generation(pod));
                entry.pending = None;
                return;
            }
        }
        self.retry(environment);
    }

    /// Retries the pending resizes of all pods, in order, and wakes the pods whose result has changed.
    pub(crate) fn retry(&self, environment: &Environment) {
        let mut changed = Vec::new();
        {
            let mut entries = self.entries();
            let waits = |entry: &&Entry| {
                let is_granted = entry.granted == Some(generation(&entry.pod));
                // A stopped pod is not resized any more.
                !is_granted && entry.is_behind(&entry.pod) && environment.admission.holds(pod::uid(&entry.pod))
            };
            let mut waiting: Vec<_> = entries.values().filter(waits).map(|entry| (entry.rank(), entry.uid())).collect();
            waiting.sort_unstable();
            for (_, uid) in waiting {
                if let Some(entry) = entries.get_mut(&uid)
                    && self.judge(environment, entry)
                {
                    changed.push(uid);
                }
            }
        }
        changed.iter().for_each(|uid| (self.wake)(uid));
    }

    /// Decides about a resize; returns whether the result has changed.
    fn judge(&self, environment: &Environment, entry: &mut Entry) -> bool {
        let pod = entry.pod.clone();
        let node = environment.node.object().unwrap_or_default();
        let allocated = with(&pod, &entry.record.allocated);
        let (swap, pinning) = (self.config.swap, &self.config.pinning);
        let change = Change {
            wanted: &spec_only(&pod),
            allocated: &allocated,
            swaps: swap.limited,
            pins_cpu: pinning.cpu_static,
            pins_memory: pinning.memory_static,
        };
        let mut next = entry.record.clone();
        next.allocate(desired_resources(&pod));
        match environment.admission.resize(&change, &counted(&pod, &next.behind), &node) {
            Ok(()) => {
                entry.record = next;
                self.keep(pod::uid(&pod), &entry.record);
                entry.granted = Some(generation(&pod));
                entry.pending = None;
                entry.error.clear();
                environment.recorder.normal(&pod, "ResizeStarted", order::text("started", &pod, ""));
                true
            }
            Err(problem) if entry.pending.as_ref().is_some_and(|(known, _)| *known == problem) => false,
            Err(problem) => {
                let reason = if problem.reason == INFEASIBLE { "ResizeInfeasible" } else { "ResizeDeferred" };
                environment.recorder.warning(&pod, reason, order::text(&problem.reason, &pod, &problem.message));
                let since = entry.pending.take().map_or(clock::unix_nanos(&*environment.clock), |(_, since)| since);
                entry.pending = Some((problem, since));
                true
            }
        }
    }

    /// The resize to be carried out for a pod.
    pub(crate) fn record(&self, uid: &str) -> Option<Record> {
        self.entries().get(uid).map(|entry| entry.record.clone())
    }

    /// Containers whose resize needs a restart.
    pub(crate) fn restarts(&self, pod: &Tree) -> BTreeSet<String> {
        let record = self.record(pod::uid(pod)).unwrap_or_default();
        record.behind.iter().filter(|(name, old)| wants_restart(pod, name, old)).map(|(name, _)| name.clone()).collect()
    }

    /// A container runs with its allocated resources.
    pub(crate) fn follows(&self, uid: &str, name: &str) {
        if let Some(entry) = self.entries().get_mut(uid)
            && entry.record.behind.remove(name).is_some()
        {
            self.keep(uid, &entry.record);
        }
    }

    /// All that was granted is carried out.
    pub(crate) fn finish(&self, uid: &str) {
        if let Some(entry) = self.entries().get_mut(uid) {
            entry.error.clear();
            entry.record.is_unfinished = false;
            entry.record.behind.clear();
            self.keep(uid, &entry.record);
        }
    }

    /// Whether the error is a new one.
    pub(crate) fn fails(&self, uid: &str, why: &str) -> bool {
        let mut entries = self.entries();
        entries.get_mut(uid).is_some_and(|entry| std::mem::replace(&mut entry.error, why.to_string()) != why)
    }

    /// A record that cannot be written is lost with the kubelet, and the pod then has its desired resources.
    fn keep(&self, uid: &str, record: &Record) {
        let file = self.file(uid);
        if let Err(error) = record.write(&file) {
            tracing::warn!(file = %file.display(), %error, "failed to write allocated resources of pod");
        }
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.config.pod_dir(uid).join("allocated")
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock()
    }
}

impl Entry {
    fn new(record: Record, pod: &Arc<Tree>) -> Entry {
        Entry { record, pod: pod.clone(), granted: None, pending: None, error: String::new() }
    }

    fn is_behind(&self, pod: &Tree) -> bool {
        !differing(&self.record.allocated, &desired_resources(pod)).is_empty()
    }

    fn uid(&self) -> String {
        pod::uid(&self.pod).to_string()
    }

    fn rank(&self) -> order::Rank {
        let since = self.pending.as_ref().map_or(i64::MAX, |(_, since)| *since);
        order::rank(&self.pod, &self.record.allocated, since)
    }
}

fn generation(pod: &Tree) -> i64 {
    pod.int("metadata.generation").unwrap_or(0)
}

/// Without the resources in the status.
pub(crate) fn spec_only(pod: &Tree) -> Tree {
    tree! {
        "metadata" => pod.at("metadata").clone(),
        "spec" => pod.at("spec").clone(),
        "status" => tree! { "qosClass" => pod.str("status.qosClass") },
    }
}

/// The amounts of a pod during a resize: the larger of both.
fn counted(pod: &Tree, behind: &Amounts) -> Tree {
    let mut counted = spec_only(pod);
    for (list, statuses) in [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")] {
        let names = pod.at("spec").list(list).iter().map(|spec| spec.str("name"));
        let old = names.filter_map(|name| Some(tree! { "name" => name, "resources" => behind.get(name)?.clone() }));
        let old: Vec<Tree> = old.collect();
        counted.child("status").set(statuses, old);
    }
    if let Some(whole) = behind.get(WHOLE) {
        counted.child("status").set("resources", whole.clone());
    }
    counted
}

/// Memory requests are not visible to a running container, and need no restart.
pub(crate) fn wants_restart(pod: &Tree, name: &str, old: &Tree) -> bool {
    let Some(spec) = pod::container(pod, name).filter(|_| name != WHOLE) else { return false };
    let new = spec.at("resources");
    let moves = |path: &str| milli(old.at(path)) != milli(new.at(path));
    let cpu = (moves("requests.cpu") || moves("limits.cpu")) && resize_policy(spec, "cpu") == "RestartContainer";
    cpu || moves("limits.memory") && resize_policy(spec, "memory") == "RestartContainer"
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn read(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    #[test]
    fn resize_policy_decides_restarts() {
        let pod = read(
            "spec: {containers: [{name: c, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}],
             resources: {requests: {cpu: 1, memory: 1Mi}, limits: {memory: 2Mi}}}]}",
        );
        let cases = [
            ("{requests: {cpu: 2, memory: 1Mi}, limits: {memory: 2Mi}}", false),
            ("{requests: {cpu: 1, memory: 2Mi}, limits: {memory: 2Mi}}", false),
            ("{requests: {cpu: 1, memory: 1Mi}, limits: {memory: 3Mi}}", true),
        ];
        for (old, expected) in cases {
            assert_eq!(wants_restart(&pod, "c", &read(old)), expected, "{old}");
        }
        assert!(!wants_restart(&pod, "gone", &Tree::Null));
    }

    #[test]
    fn allocation_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Arc::new(Config { root_dir: dir.path().to_path_buf(), ..Config::default() });
        let pod = |generation: i64, cpu: &str| {
            Arc::new(read(&format!(
                "{{metadata: {{uid: u, generation: {generation}}}, spec: {{containers: [{{name: a, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
            )))
        };
        let cpu = |pod: &Tree| pod.list("spec.containers")[0].str("resources.requests.cpu").to_string();
        let before = Resizes::new(config.clone(), |_| {});
        assert_eq!(cpu(&before.allocated(&pod(1, "1"))), "1", "nothing is known of it yet");
        before.take(&pod(1, "1"));
        assert_eq!(cpu(&before.allocated(&pod(2, "2"))), "1");
        let after = Resizes::new(config, |_| {});
        assert_eq!(cpu(&after.allocated(&pod(2, "2"))), "1", "a client requested more while the kubelet was stopped");
        assert!(after.restarts(&pod(2, "2")).is_empty());
        after.remove_pod("u");
    }

    #[test]
    fn larger_amount_counts_during_a_resize() {
        let pod = read("spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 4Mi}}}]}");
        let behind = [("a".to_string(), read("requests: {cpu: 2, memory: 1Mi}"))].into();
        let sum = podmodel::requests(&counted(&pod, &behind));
        assert_eq!((sum.milli_cpu, sum.memory), (2000, 4 << 20));
        assert_eq!(podmodel::requests(&counted(&pod, &Amounts::new())).milli_cpu, 1000);
    }
}
