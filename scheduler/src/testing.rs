//! Test helpers: short constructors of pods and nodes, and a world to put them into.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};

use crate::framework::{Cycle, Plugin, PreFilter, PreScore, Slot, Verdict};
use crate::snapshot::{Kind, Objects, Snapshot};
use podmodel::{Node, Pod};

/// A pod or node under construction.
#[derive(Debug, Clone)]
pub(crate) struct Written(pub Tree);

pub(crate) fn pod(name: &str) -> Written {
    Written(tree! {
        "metadata" => tree! { "name" => name, "namespace" => "default", "uid" => name },
        "spec" => tree! {
            "schedulerName" => "default-scheduler",
            "containers" => api::list![tree! { "name" => "c", "image" => "i" }],
        },
        "status" => tree! { "phase" => "Pending" },
    })
}

/// A node with room for a hundred pods and little else.
pub(crate) fn node(name: &str) -> Written {
    let labels = tree! { "kubernetes.io/hostname" => name };
    let made = tree! { "metadata" => tree! { "name" => name, "uid" => name, "labels" => labels } };
    Written(made).allocatable("4", "8Gi", "100")
}

impl Written {
    /// Sets the value at a path.
    pub(crate) fn with(mut self, path: &str, value: impl Into<Tree>) -> Written {
        match path.rsplit_once('.') {
            Some((parent, field)) => self.0.child(parent).set(field, value),
            None => self.0.set(path, value),
        }
        self
    }

    /// Sets the JSON value at a path.
    pub(crate) fn json(self, path: &str, text: &str) -> Written {
        self.with(path, api::json::decode(text.as_bytes()).expect("JSON"))
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Written {
        self.0.child("metadata.labels").set(key, value);
        self
    }

    pub(crate) fn allocatable(self, cpu: &str, memory: &str, pods: &str) -> Written {
        self.with("status.allocatable", tree! { "cpu" => cpu, "memory" => memory, "pods" => pods })
    }

    pub(crate) fn offer(mut self, resource: &str, amount: &str) -> Written {
        self.0.child("status.allocatable").set(resource, amount);
        self
    }

    pub(crate) fn requests(mut self, requests: Tree) -> Written {
        self.0.list_mut("spec.containers")[0].child("resources").set("requests", requests);
        self
    }

    pub(crate) fn cpu(self, cpu: &str) -> Written {
        self.requests(tree! { "cpu" => cpu })
    }

    pub(crate) fn host_port(mut self, port: i64) -> Written {
        let ports = api::list![tree! { "hostPort" => port, "containerPort" => port }];
        self.0.list_mut("spec.containers")[0].set("ports", ports);
        self
    }

    pub(crate) fn priority(self, priority: i64) -> Written {
        self.with("spec.priority", priority)
    }

    pub(crate) fn on(self, node: &str) -> Written {
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
pub(crate) struct Fixed(pub BTreeMap<(Kind, String), Arc<Tree>>);

impl Fixed {
    pub(crate) fn put(&mut self, kind: Kind, object: Tree) {
        let key = client::key_of(&object).to_string();
        self.0.insert((kind, key), Arc::new(object));
    }
}

impl Objects for Fixed {
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
pub(crate) struct World {
    pub snapshot: Snapshot,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(Fixed::default())
    }

    pub(crate) fn with(objects: Fixed) -> World {
        World { snapshot: Snapshot::new(Arc::new(objects)) }
    }

    pub(crate) fn node(&mut self, node: Written) {
        self.snapshot.put_node(node.node());
    }

    pub(crate) fn placed(&mut self, pod: Written) {
        self.snapshot.put_pod(pod.pod());
    }

    /// The filter result of a single plugin.
    pub(crate) fn filter(&mut self, plugin: &dyn Plugin, pod: Written, node: &str) -> Verdict {
        let pod = pod.pod();
        self.snapshot.update_order();
        plugin.prepare(&mut self.snapshot, &pod);
        let cycle = Cycle { snapshot: &self.snapshot, pod: &pod };
        let slot = match plugin.pre_filter(cycle) {
            PreFilter::Skip => return Ok(()),
            PreFilter::Refuse(refusal) => return Err(refusal),
            PreFilter::Check(slot) | PreFilter::Only(_, slot) => slot,
        };
        plugin.filter(cycle, &slot, self.snapshot.find(node).expect("the node is there"))
    }

    /// The score of a single plugin, before normalization.
    pub(crate) fn score(&mut self, plugin: &dyn Plugin, pod: Written, node: &str) -> i64 {
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
