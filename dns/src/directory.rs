//! Keeps the index by watches: each event changes the index before the next one is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use api::Tree;
use api::query::percent_encode;
use arc_swap::{ArcSwap, Guard};
use client::{Client, ObjectChange, Reflector, Resource, Sink, split};
use stdx::clock::Clock;
use stdx::sync::Mutex;
use tokio::task::JoinHandle;

use crate::corefile::Kubernetes;
use crate::zone::{Index, Pod, Service, Slice, Writer};

const SERVICES: Resource = Resource::core("services");
const NAMESPACES: Resource = Resource::core("namespaces");
const PODS: Resource = Resource::core("pods");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

/// Which pods are watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWatch {
    /// No pods.
    None,
    /// The pods of a node.
    Node(String),
    /// All pods.
    All,
}

/// The watched resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watches {
    /// The label selector of Services and EndpointSlices.
    pub labels: Option<String>,
    /// The label selector of namespaces.
    pub namespace_labels: Option<String>,
    /// The pods that are watched.
    pub pods: PodWatch,
    /// Whether the pods of endpoints are kept, as names.
    pub with_pod_names: bool,
}

impl Watches {
    /// The watches of a `kubernetes` plugin.
    pub fn new(kubernetes: &Kubernetes, pods: PodWatch) -> Watches {
        Watches {
            labels: kubernetes.labels.clone(),
            namespace_labels: kubernetes.namespace_labels.clone(),
            pods,
            with_pod_names: kubernetes.zone.with_pod_names,
        }
    }
}

/// The index of the cluster. Reading it takes no lock.
pub struct Directory {
    /// The watches that keep it current.
    pub watches: Watches,
    index: ArcSwap<Index>,
    writer: Mutex<Writer>,
    clock: Arc<dyn Clock>,
    /// Whether each reflector has listed its resource.
    synced: Vec<Arc<AtomicBool>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Directory {
    /// Follows the objects until it is dropped. Only the index is kept of them.
    pub fn follow(client: &Client, watches: Watches, clock: Arc<dyn Clock>) -> Arc<Directory> {
        let resources = resources(&watches);
        let synced: Vec<Arc<AtomicBool>> = resources.iter().map(|_| Arc::default()).collect();
        let directory = Arc::new(Directory {
            watches,
            index: ArcSwap::default(),
            writer: Mutex::default(),
            clock,
            synced: synced.clone(),
            tasks: Mutex::default(),
        });
        let tasks = resources.into_iter().zip(synced).map(|((resource, query, apply), synced)| {
            let sink = IndexSink { directory: Arc::downgrade(&directory), apply, synced };
            tokio::spawn(Reflector::new(client.clone(), resource, query, sink).run())
        });
        *directory.tasks.lock() = tasks.collect();
        directory
    }

    /// The current snapshot.
    pub fn index(&self) -> Guard<Arc<Index>> {
        self.index.load()
    }

    /// Whether all objects are known that existed at the start.
    pub fn is_synced(&self) -> bool {
        self.synced.iter().all(|synced| synced.load(Ordering::Acquire))
    }

    fn apply(&self, key: &Arc<str>, object: Option<&Tree>, apply: Apply) {
        let mut writer = self.writer.lock();
        apply(&mut writer, key, object);
        writer.set_modified(u32::try_from(self.clock.since_epoch().as_secs()).unwrap_or(u32::MAX));
        self.index.store(Arc::new(writer.index()));
    }
}

/// Puts the objects of a resource into the index.
struct IndexSink {
    directory: Weak<Directory>,
    apply: Apply,
    synced: Arc<AtomicBool>,
}

impl Sink for IndexSink {
    fn put(&mut self, observed: ObjectChange<'_>) {
        if let Some(directory) = self.directory.upgrade() {
            directory.apply(observed.key, observed.object, self.apply);
        }
    }

    fn listed(&mut self, _: u64) {
        self.synced.store(true, Ordering::Release);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.tasks.lock().iter().for_each(JoinHandle::abort);
    }
}

/// Changes the index by the current state of an object.
type Apply = fn(&mut Writer, &Arc<str>, Option<&Tree>);

/// The watched resources, with the selectors of each.
fn resources(watches: &Watches) -> Vec<(Resource, String, Apply)> {
    let labelled = |labels: &Option<String>| match labels {
        Some(labels) => format!("labelSelector={}", percent_encode(labels)),
        None => String::new(),
    };
    let mut resources: Vec<(Resource, String, Apply)> = vec![
        (NAMESPACES, labelled(&watches.namespace_labels), apply_namespace),
        (SERVICES, labelled(&watches.labels), apply_service),
        (SLICES, labelled(&watches.labels), if watches.with_pod_names { apply_named_slice } else { apply_slice }),
    ];
    match &watches.pods {
        PodWatch::None => {}
        PodWatch::All => resources.push((PODS, String::new(), apply_pod)),
        PodWatch::Node(node) => {
            let query = format!("fieldSelector={}", percent_encode(&format!("spec.nodeName={node}")));
            resources.push((PODS, query, apply_pod));
        }
    }
    resources
}

fn apply_namespace(writer: &mut Writer, key: &Arc<str>, object: Option<&Tree>) {
    writer.set_namespace(key, object.is_some());
}

fn apply_service(writer: &mut Writer, key: &Arc<str>, object: Option<&Tree>) {
    let (namespace, name) = split(key);
    writer.set_service(namespace, name, object.map(|object| Service::read(namespace, name, object)));
}

fn apply_slice(writer: &mut Writer, key: &Arc<str>, object: Option<&Tree>) {
    let (namespace, _) = split(key);
    writer.set_slice(key, object.and_then(|object| Slice::read(namespace, object, false)));
}

fn apply_named_slice(writer: &mut Writer, key: &Arc<str>, object: Option<&Tree>) {
    let (namespace, _) = split(key);
    writer.set_slice(key, object.and_then(|object| Slice::read(namespace, object, true)));
}

fn apply_pod(writer: &mut Writer, key: &Arc<str>, object: Option<&Tree>) {
    let (namespace, _) = split(key);
    writer.set_pod(key, object.and_then(|object| Pod::read(namespace, object)));
}
