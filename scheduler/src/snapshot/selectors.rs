//! Selectors of services and of pods' controllers, parsed when they change and not for each pod.

use std::collections::{BTreeMap, HashMap};

use api::{Map, Str, Tree};
use client::key_of;

use super::Kind;
use podmodel::{Controller, Operator, Pod, Requirement, Selector};

/// The selectors of Services, and of the controllers of pods.
#[derive(Debug, Default)]
pub struct SelectorIndex {
    /// By namespace and name.
    services: BTreeMap<Str, BTreeMap<Str, Vec<(Str, Str)>>>,
    /// By kind and key.
    owners: HashMap<(Kind, Str), Owner>,
}

#[derive(Debug)]
enum Owner {
    /// The labels replace those of services with the same keys.
    Labels(Vec<(Str, Str)>),
    Selector(Selector),
}

impl SelectorIndex {
    /// The combined selector of a pod's services and controller. None if there is none.
    pub(crate) fn selector_of(&self, pod: &Pod) -> Option<Selector> {
        let mut labels = self.of_services(pod);
        let mut requirements = Vec::new();
        match pod.controller.as_ref().and_then(|controller| self.owner(pod, controller)) {
            Some(Owner::Labels(more)) => labels.extend(more.iter().cloned()),
            Some(Owner::Selector(selector)) => requirements.extend_from_slice(selector.requirements()),
            None => {}
        }
        let equal = |(key, value): (Str, Str)| Requirement::new(&key, Operator::In, vec![value]);
        requirements.extend(labels.into_iter().map(equal));
        (!requirements.is_empty()).then(|| Selector::of(requirements))
    }

    fn of_services(&self, pod: &Pod) -> BTreeMap<Str, Str> {
        let Some(services) = self.services.get(&pod.namespace) else { return BTreeMap::new() };
        let means = |selector: &&Vec<(Str, Str)>| selector.iter().all(|(key, value)| pod.labels.has(key, value));
        services.values().filter(means).flatten().cloned().collect()
    }

    fn owner(&self, pod: &Pod, controller: &Controller) -> Option<&Owner> {
        let kind = match controller.kind.as_str() {
            "ReplicationController" => Kind::ReplicationController,
            "ReplicaSet" => Kind::ReplicaSet,
            "StatefulSet" => Kind::StatefulSet,
            _ => return None,
        };
        self.owners.get(&(kind, Str::from(format!("{}/{}", pod.namespace, controller.name))))
    }

    pub(super) fn put(&mut self, kind: Kind, object: &Tree) {
        let key = || Str::from(key_of(object).to_string());
        match kind {
            Kind::Service => self.put_service(object),
            Kind::ReplicationController => {
                self.owners.insert((kind, key()), Owner::Labels(pairs(object.map("spec.selector"))));
            }
            Kind::ReplicaSet | Kind::StatefulSet => {
                self.owners.insert((kind, key()), Owner::Selector(Selector::read(object.at("spec.selector"))));
            }
            _ => {}
        }
    }

    /// A service without a selector matches nothing.
    fn put_service(&mut self, service: &Tree) {
        let selector = pairs(service.map("spec.selector"));
        if selector.is_empty() {
            return self.remove(Kind::Service, service);
        }
        let services = self.services.entry(Str::new(service.str("metadata.namespace"))).or_default();
        services.insert(Str::new(service.str("metadata.name")), selector);
    }

    pub(super) fn remove(&mut self, kind: Kind, object: &Tree) {
        self.owners.remove(&(kind, Str::from(key_of(object).to_string())));
        let namespace = object.str("metadata.namespace");
        if let Some(services) = self.services.get_mut(namespace).filter(|_| kind == Kind::Service) {
            services.remove(object.str("metadata.name"));
            if services.is_empty() {
                self.services.remove(namespace);
            }
        }
    }
}

fn pairs(labels: &Map) -> Vec<(Str, Str)> {
    labels.iter().map(|(key, value)| (Str::new(key), Str::new(value.as_str().unwrap_or("")))).collect()
}
