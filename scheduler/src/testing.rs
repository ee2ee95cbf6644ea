//! Test helpers: short constructors of pods and nodes, and a world to put them into.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};

use crate::framework::{Cycle, Plugin, PreFilter, PreScore, Slot, Verdict};
use crate::snapshot::{Kind, Objects, Snapshot};
use podmodel::{Node, Pod};

/// A pod or node under construction.
#[derive(Debug, Clone)]
pub(crate) struct ObjectBuilder(pub Tree);

pub(crate) fn pod(name: &str) -> ObjectBuilder {
    ObjectBuilder(tree! {
        "metadata" => tree! { "name" => name, "namespace" => "default", "uid" => name },
        "spec" => tree! {
            "schedulerName" => "default-scheduler",
            "containers" => api::list![tree! { "name" => "c", "image" => "i" }],
        },
        "status" => tree! { "phase" => "Pending" },
    })
}

/// A node for a hundred pods, with 4 CPUs and 8 GiB of memory.
pub(crate) fn node(name: &str) -> ObjectBuilder {
    let labels = tree! { "kubernetes.io/hostname" => name };
    let made = tree! { "metadata" => tree! { "name" => name, "uid" => name, "labels" => labels } };
    ObjectBuilder(made).allocatable("4", "8Gi", "100")
}

impl ObjectBuilder {
    /// Sets the value at a path.
    pub(crate) fn with(mut self, path: &str, value: impl Into<Tree>) -> ObjectBuilder {
        match path.rsplit_once('.') {
            Some((parent, field)) => self.0.child(parent).set(field, value),
            None => self.0.set(path, value),
        }
        self
    }

    /// Sets the JSON value at a path.
    pub(crate) fn json(self, path: &str, text: &str) -> ObjectBuilder {
        self.with(path, api::json::decode(text.as_bytes()).expect("JSON"))
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> ObjectBuilder {
        self.0.child("metadata.labels").set(key, value);
        self
    }

    pub(crate) fn allocatable(self, cpu: &str, memory: &str, pods: &str) -> ObjectBuilder {
        self.with("status.allocatable", tree! { "cpu" => cpu, "memory" => memory, "pods" => pods })
    }

    pub(crate) fn with_allocatable(mut self, resource: &str, amount: &str) -> ObjectBuilder {
        self.0.child("status.allocatable").set(resource, amount);
        self
    }

    pub(crate) fn requests(mut self, requests: Tree) -> ObjectBuilder {
        self.0.list_mut("spec.containers")[0].child("resources").set("requests", requests);
        self
    }

    pub(crate) fn cpu(self, cpu: &str) -> ObjectBuilder {
        self.requests(tree! { "cpu" => cpu })
    }

    pub(crate) fn host_port(mut self, port: i64) -> ObjectBuilder {
        let ports = api::list![tree! { "hostPort" => port, "containerPort" => port }];
        self.0.list_mut("spec.containers")[0].set("ports", ports);
        self
    }

    pub(crate) fn priority(self, priority: i64) -> ObjectBuilder {
        self.with("spec.priority", priority)
    }

    pub(crate) fn on(self, node: &str) -> ObjectBuilder {
        self.with("spec.nodeName", node)
    }

    pub(crate) fn pod(&self) -> Arc<Pod> {
        Arc::new(Pod::read(&self.0))
    }

    pub(crate) fn node(&self) -> Node {
        Node::read(&self.0)
    }
}

/// Fixed objects of a test.
#[derive(Default, Clone)]
pub(crate) struct FixedObjects(pub BTreeMap<(Kind, String), Arc<Tree>>);

impl FixedObjects {
    pub(crate) fn put(&mut self, kind: Kind, object: Tree) {
        let key = client::key_of(&object).to_string();
        self.0.insert((kind, key), Arc::new(object));
    }
}

impl Objects for FixedObjects {
    fn get(&self, kind: Kind, key: &str) -> Option<Arc<Tree>> {
        self.0.get(&(kind, key.to_string())).cloned()
    }

    fn in_namespace(&self, kind: Kind, namespace: &str) -> Vec<Arc<Tree>> {
        let inside = |object: &Arc<Tree>| object.str("metadata.namespace") == namespace;
        self.all(kind).into_iter().filter(inside).collect()
    }

    fn all(&self, kind: Kind) -> Vec<Arc<Tree>> {
        self.0.iter().filter(|((known, _), _)| *known == kind).map(|(_, object)| object.clone()).collect()
    }
}

/// A snapshot, and the results of single plugins in it.
pub(crate) struct TestCluster {
    pub snapshot: Snapshot,
}

impl TestCluster {
    pub(crate) fn new() -> TestCluster {
        TestCluster::with(FixedObjects::default())
    }

    pub(crate) fn with(objects: FixedObjects) -> TestCluster {
        TestCluster { snapshot: Snapshot::new(Arc::new(objects)) }
    }

    pub(crate) fn node(&mut self, node: ObjectBuilder) {
        self.snapshot.put_node(node.node());
    }

    pub(crate) fn placed(&mut self, pod: ObjectBuilder) {
        self.snapshot.put_pod(pod.pod());
    }

    /// The filter result of a single plugin.
    pub(crate) fn filter(&mut self, plugin: &dyn Plugin, pod: ObjectBuilder, node: &str) -> Verdict {
        let pod = pod.pod();
        self.snapshot.update_order();
        plugin.prepare(&mut self.snapshot, &pod);
        let cycle = Cycle { snapshot: &self.snapshot, pod: &pod };
        let slot = match plugin.pre_filter(cycle) {
            PreFilter::Skip => return Ok(()),
            PreFilter::Refuse(rejection) => return Err(rejection),
            PreFilter::Check(slot) | PreFilter::Only(_, slot) => slot,
        };
        plugin.filter(cycle, &slot, self.snapshot.find(node).expect("the node is there"))
    }

    /// The score of a single plugin, before normalization.
    pub(crate) fn score(&mut self, plugin: &dyn Plugin, pod: ObjectBuilder, node: &str) -> i64 {
        let pod = pod.pod();
        self.snapshot.update_order();
        plugin.prepare(&mut self.snapshot, &pod);
        let cycle = Cycle { snapshot: &self.snapshot, pod: &pod };
        let slot = match plugin.pre_filter(cycle) {
            PreFilter::Check(slot) | PreFilter::Only(_, slot) => slot,
            _ => Slot::default(),
        };
        let PreScore::Rate(slot) = plugin.pre_score(cycle, &slot, self.snapshot.order()) else { return 0 };
        plugin.score(cycle, &slot, self.snapshot.find(node).expect("the node is there"))
    }
}
