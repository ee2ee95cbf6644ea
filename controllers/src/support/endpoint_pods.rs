//! Shared by Endpoints and EndpointSlices: the pods of a service, and the services that a change affects.

mod pod;
mod triggers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Change, Index, Key, Queue, Resource, Selection, Store, index};
use stdx::sync::{Mutex, RwLock};

use super::PODS;
use crate::{Context, Setup};
pub(crate) use pod::Pod;
#[cfg(test)]
pub(crate) use pod::Templates;
pub(crate) use triggers::Triggers;

pub(crate) const SERVICES: Selection = Selection::all(Resource::core("services"));

/// Services by one label that all their pods have.
const BY_SELECTOR: Index = Index { name: "service-selector", values: selector_key };

pub(crate) fn is_headless(service: &Tree) -> bool {
    matches!(service.str("spec.clusterIP"), "" | "None")
}

/// Whether a service selects pods; an ExternalName service never does.
pub(crate) fn selects(service: &Tree) -> bool {
    service.at("spec").has("selector") && service.str("spec.type") != "ExternalName"
}

/// A service without a selector is not indexed; an empty selector matches all pods of the namespace.
fn selector_key(service: &Tree) -> Vec<String> {
    if !selects(service) {
        return Vec::new();
    }
    let namespace = service.str("metadata.namespace");
    vec![labels_of_pods(service).next().unwrap_or_else(|| metadata_monitor(namespace))]
}

/// Index keys of pods for each label of the selector.
fn labels_of_pods(service: &Tree) -> impl Iterator<Item = String> {
    let namespace = service.str("metadata.namespace");
    let labels = service.map("spec.selector").iter();
    labels.map(move |(key, value)| index::label(namespace, key, value.as_str().unwrap_or("")))
}

/// All index keys under which services of this pod may be found.
fn service_keys(pod: &Tree) -> Vec<String> {
    let mut keys = (index::LABELS.values)(pod);
    keys.push(metadata_monitor(pod.str("metadata.namespace")));
    keys
}

fn metadata_monitor(namespace: &str) -> String {
    format!("{namespace}/")
}

/// Whether a service's selector matches the labels of an object.
fn selects_object(service: &Tree, object: &Tree) -> bool {
    let labels = object.map("metadata.labels");
    selects(service)
        && service.map("spec.selector").iter().all(|(key, value)| labels.get(key).is_some_and(|has| has == value))
}

/// A sync of a large service visits all its pods: changes are batched.
fn batch_delay(pods: usize) -> Duration {
    const LARGE: usize = 500;
    const PODS_PER_MILLISECOND: usize = 25;
    const LONGEST: usize = 200;
    let millis = if pods < LARGE { 0 } else { (pods / PODS_PER_MILLISECOND).min(LONGEST) };
    Duration::from_millis(millis as u64)
}

/// The pods as endpoints need them, and the queues to notify of affected services.
pub(crate) struct EndpointPods {
    services: Arc<Store>,
    store: Arc<Store>,
    known: RwLock<HashMap<Key, Arc<Pod>>>,
    templates: pod::Templates,
    listeners: Mutex<Vec<(Arc<Queue>, Duration)>>,
}

/// Queues services that change, and services of pods with relevant changes. `batch` is how long to wait for more
/// changes.
pub(crate) fn follow(setup: &Setup, context: &Context, batch: Duration) -> Arc<EndpointPods> {
    let queue = context.queue.clone();
    setup.informer(SERVICES).on_change(move |change| add(&queue, change.key.clone(), batch));
    let served = setup.shared(EndpointPods::start);
    served.listeners.lock().push((context.queue.clone(), batch));
    served
}

pub(crate) fn add(queue: &Queue, key: Key, batch: Duration) {
    if batch.is_zero() { queue.add(key) } else { queue.add_after(key, batch) }
}

impl EndpointPods {
    fn start(setup: &Setup) -> Arc<EndpointPods> {
        let (services, pods) = (setup.informer(SERVICES), setup.informer(PODS));
        services.index_by(BY_SELECTOR);
        pods.index_by(index::LABELS);
        let served = Arc::new(EndpointPods {
            services: services.store().clone(),
            store: pods.store().clone(),
            known: RwLock::default(),
            templates: pod::Templates::default(),
            listeners: Mutex::default(),
        });
        let heard = served.clone();
        pods.on_change(move |change| heard.handle(change));
        served
    }

    fn handle(&self, change: &Change) {
        let new = change.new.as_deref().map(|pod| Arc::new(Pod::of(pod, &self.templates)));
        let mut known = self.known.write();
        let old = match &new {
            Some(new) => known.insert(change.key.clone(), new.clone()),
            None => known.remove(&change.key),
        };
        drop(known);
        if old == new {
            return;
        }
        let is_relabelled = old.zip(new).is_none_or(|(old, new)| old.labels != new.labels);
        let seen = [change.new.as_deref(), change.old.as_deref().filter(|_| is_relabelled)];
        for pod in seen.into_iter().flatten() {
            self.notify(pod);
        }
    }

    fn notify(&self, pod: &Tree) {
        let services: Vec<(Key, Duration)> = self
            .services_selecting(pod)
            .map(|service| (client::key_of(&service), self.batch_delay(&service)))
            .collect();
        for (queue, batch) in self.listeners.lock().iter() {
            services.iter().for_each(|(key, gathering)| add(queue, key.clone(), (*gathering).max(*batch)));
        }
    }

    /// The services whose selector matches a pod.
    fn services_selecting(&self, pod: &Tree) -> impl Iterator<Item = Arc<Tree>> {
        let found = service_keys(pod).into_iter().flat_map(|key| self.services.find(BY_SELECTOR, &key));
        found.filter(move |service| selects_object(service, pod))
    }

    fn services_of(&self, pod: &Tree) -> Vec<Key> {
        self.services_selecting(pod).map(|service| client::key_of(&service)).collect()
    }

    /// The batching delay for the pods of a service.
    fn batch_delay(&self, service: &Tree) -> Duration {
        let counts = labels_of_pods(service).map(|label| self.store.count(index::LABELS, &label));
        batch_delay(counts.min().unwrap_or(0))
    }

    /// The services of the pods on a node.
    pub(crate) fn services_on(&self, node: &str) -> Vec<Key> {
        let pods = self.store.find(index::NODE, node);
        pods.iter().flat_map(|pod| self.services_of(pod)).collect()
    }

    /// The pods of a service, sorted by name.
    pub(crate) fn pods_of(&self, service: &Tree) -> Vec<Arc<Pod>> {
        let mut labels = labels_of_pods(service);
        let mut keys = match labels.next() {
            Some(label) => self.store.find_keys(index::LABELS, &label),
            None => self.store.keys_in_namespace(service.str("metadata.namespace")),
        };
        for label in labels {
            let also = self.store.find_keys(index::LABELS, &label);
            // Both are sorted.
            keys.retain(|key| also.binary_search(key).is_ok());
        }
        let known = self.known.read();
        keys.iter().filter_map(|key| known.get(key).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn batches_changes_of_large_services() {
        for (pods, millis) in [(0, 0), (499, 0), (500, 20), (1_000, 40), (5_000, 200), (100_000, 200)] {
            assert_eq!(batch_delay(pods), Duration::from_millis(millis), "{pods}");
        }
    }

    #[test]
    fn finds_services_by_pod_labels() {
        let service = |selector: Tree| {
            tree! { "metadata" => tree! { "namespace" => "n" }, "spec" => tree! { "selector" => selector } }
        };
        let labels = tree! { "a" => "1", "b" => "2" };
        let pod = tree! { "metadata" => tree! { "namespace" => "n", "labels" => labels } };
        let check = |selector: Tree, want: bool| {
            let service = service(selector);
            let is_found = selector_key(&service).iter().any(|key| service_keys(&pod).contains(key));
            assert_eq!(is_found && selects_object(&service, &pod), want, "{service:?}");
        };
        check(tree! { "a" => "1" }, true);
        check(tree! { "a" => "1", "b" => "2" }, true);
        check(tree! { "a" => "1", "c" => "2" }, false);
        check(tree! { "a" => "2" }, false);
        check(tree! {}, true);
        check(Tree::Null, false);
    }
}
