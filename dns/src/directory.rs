//! Keeps the index by watches: each event changes the index before the informer reports the next one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use client::{Change, Informer, Informers, Resource, Selection, split};
use stdx::clock::Clock;
use stdx::sync::Mutex;

use crate::corefile::Kubernetes;
use crate::zone::{Index, Pod, Service, Slice, Writer};

const SERVICES: Resource = Resource::core("services");
const NAMESPACES: Resource = Resource::core("namespaces");
const PODS: Resource = Resource::core("pods");
const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

/// Which pods are watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWatch {
    None,
    /// Those of a node.
    Node(String),
    All,
}

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watches {
    pub labels: Option<String>,
    pub namespace_labels: Option<String>,
    pub pods: PodWatch,
}

impl Watches {
    pub fn new(kubernetes: &Kubernetes, pods: PodWatch) -> Watches {
        Watches { labels: kubernetes.labels.clone(), namespace_labels: kubernetes.namespace_labels.clone(), pods }
    }
}

/// The index of the cluster. Reading it takes no lock.
pub struct Directory {
    pub watches: Watches,
    index: ArcSwap<Index>,
    writer: Mutex<Writer>,
    informers: Vec<Arc<Informer>>,
    clock: Arc<dyn Clock>,
}

type Apply = fn(&mut Writer, &Change);

impl Directory {
    /// Follows the objects; the informers are shared with other components of the process.
    pub fn follow(informers: &Informers, watches: Watches, clock: Arc<dyn Clock>) -> Arc<Directory> {
        let labelled = |resource: Resource, labels: &Option<String>| match labels {
            Some(labels) => Selection::queried(resource, &format!("labelSelector={}", encode(labels))),
            None => Selection::all(resource),
        };
        let mut followed: Vec<(Selection, Apply)> = vec![
            (labelled(NAMESPACES, &watches.namespace_labels), apply_namespace),
            (labelled(SERVICES, &watches.labels), apply_service),
            (labelled(SLICES, &watches.labels), apply_slice),
        ];
        match &watches.pods {
            PodWatch::None => {}
            PodWatch::All => followed.push((Selection::all(PODS), apply_pod)),
            PodWatch::Node(node) => {
                let query = format!("fieldSelector={}", encode(&format!("spec.nodeName={node}")));
                followed.push((Selection::queried(PODS, &query), apply_pod));
            }
        }
        let with_handler: Vec<(Arc<Informer>, Apply)> =
            followed.into_iter().map(|(selection, apply)| (informers.informer(selection), apply)).collect();
        let directory = Arc::new(Directory {
            watches,
            index: ArcSwap::default(),
            writer: Mutex::default(),
            informers: with_handler.iter().map(|(informer, _)| informer.clone()).collect(),
            clock,
        });
        for (informer, apply) in with_handler {
            // A directory that is no longer in use is not kept by its informers.
            let directory = Arc::downgrade(&directory);
            informer.on_change(move |change| {
                if let Some(directory) = directory.upgrade() {
                    directory.apply(change, apply);
                }
            });
        }
        directory
    }

    /// An index that only the caller changes, for benchmarks and tests.
    pub fn of(writer: Writer, clock: Arc<dyn Clock>) -> Arc<Directory> {
        let watches = Watches { labels: None, namespace_labels: None, pods: PodWatch::None };
        let index = ArcSwap::from_pointee(writer.index());
        Arc::new(Directory { watches, index, writer: Mutex::new(writer), informers: Vec::new(), clock })
    }

    /// The current snapshot.
    pub fn index(&self) -> Guard<Arc<Index>> {
        self.index.load()
    }

    /// Whether all objects are known that existed at the start.
    pub fn is_synced(&self) -> bool {
        self.informers.iter().all(|informer| *informer.synced().borrow())
    }

    fn apply(&self, change: &Change, apply: Apply) {
        let mut writer = self.writer.lock();
        apply(&mut writer, change);
        writer.set_modified(u32::try_from(self.clock.since_epoch().as_secs()).unwrap_or(u32::MAX));
        self.index.store(Arc::new(writer.index()));
    }
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn apply_namespace(writer: &mut Writer, change: &Change) {
    writer.set_namespace(&change.key, change.new.is_some());
}

fn apply_service(writer: &mut Writer, change: &Change) {
    let (namespace, name) = split(&change.key);
    writer.set_service(namespace, name, change.new.as_ref().map(|object| Service::read(namespace, name, object)));
}

fn apply_slice(writer: &mut Writer, change: &Change) {
    let (namespace, _) = split(&change.key);
    writer.set_slice(&change.key, change.new.as_ref().and_then(|object| Slice::read(namespace, object)));
}

fn apply_pod(writer: &mut Writer, change: &Change) {
    let (namespace, _) = split(&change.key);
    writer.set_pod(&change.key, change.new.as_ref().and_then(|object| Pod::read(namespace, object)));
}
