//! The published devices and the classes of a cluster, indexed for the allocator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Str;

use crate::{Device, DeviceClass, DeviceId, DeviceTaint, NodeScope, PoolId, ResourceSlice, TaintRule};

/// The prefix of the extended resource that every class provides: `deviceclass.resource.kubernetes.io/CLASS`.
const IMPLICIT_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Resource slices, device classes and taint rules.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    slices: BTreeMap<Str, Arc<ResourceSlice>>,
    /// Names of the slices of one node.
    by_node: BTreeMap<Str, BTreeSet<Str>>,
    /// Names of the slices that can be available on several nodes.
    shared: BTreeSet<Str>,
    by_pool: BTreeMap<PoolId, BTreeSet<Str>>,
    classes: BTreeMap<Str, Arc<DeviceClass>>,
    /// Names of classes by the extended resource that they name.
    by_resource: BTreeMap<Str, BTreeSet<Str>>,
    rules: BTreeMap<Str, TaintRule>,
}

impl Inventory {
    /// Adds or replaces a slice.
    pub fn put_slice(&mut self, slice: ResourceSlice) {
        self.remove_slice(&slice.name);
        let name = slice.name.clone();
        match &slice.nodes {
            NodeScope::Node(node) => drop(self.by_node.entry(node.clone()).or_default().insert(name.clone())),
            _ => drop(self.shared.insert(name.clone())),
        }
        self.by_pool.entry(slice.pool_id()).or_default().insert(name.clone());
        self.slices.insert(name, Arc::new(slice));
    }

    /// Removes a slice.
    pub fn remove_slice(&mut self, name: &str) {
        let Some(slice) = self.slices.remove(name) else { return };
        match &slice.nodes {
            NodeScope::Node(node) => remove_from(&mut self.by_node, node, name),
            _ => drop(self.shared.remove(name)),
        }
        remove_from(&mut self.by_pool, &slice.pool_id(), name);
    }

    /// Adds or replaces a class.
    pub fn put_class(&mut self, class: DeviceClass) {
        self.remove_class(&class.name);
        if let Some(resource) = &class.extended_resource {
            self.by_resource.entry(resource.clone()).or_default().insert(class.name.clone());
        }
        self.classes.insert(class.name.clone(), Arc::new(class));
    }

    /// Removes a class.
    pub fn remove_class(&mut self, name: &str) {
        let Some(class) = self.classes.remove(name) else { return };
        if let Some(resource) = &class.extended_resource {
            remove_from(&mut self.by_resource, resource, name);
        }
    }

    /// Adds or replaces a taint rule.
    pub fn put_rule(&mut self, rule: TaintRule) {
        self.rules.insert(rule.name.clone(), rule);
    }

    /// Removes a taint rule.
    pub fn remove_rule(&mut self, name: &str) {
        self.rules.remove(name);
    }

    /// A class by its name.
    pub fn class(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// The class whose devices provide an extended resource: the newest of those that name it, then the first by name.
    pub fn class_of_resource(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(name) = resource.strip_prefix(IMPLICIT_PREFIX) {
            return self.classes.get(name);
        }
        let named = self.by_resource.get(resource)?.iter().filter_map(|name| self.classes.get(name));
        // Times are written in one form, which sorts.
        named.min_by(|one, other| other.created.cmp(&one.created).then_with(|| one.name.cmp(&other.name)))
    }

    /// Whether a class names an extended resource, so that pods may get devices for it.
    pub fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// All slices, by name.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        self.slices.values()
    }

    /// The slices that may have devices for a node: first its own.
    pub(crate) fn slices_for(&self, node: &str) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        let own = self.by_node.get(node).into_iter().flatten();
        own.chain(&self.shared).filter_map(|name| self.slices.get(name))
    }

    /// All slices of a pool, of all generations.
    pub fn slices_of(&self, pool: &PoolId) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        let names = self.by_pool.get(pool).into_iter().flatten();
        names.filter_map(|name| self.slices.get(name))
    }

    /// The taints of a device, with those of rules.
    pub fn taints<'a>(&'a self, id: &'a DeviceId, device: &'a Device) -> impl Iterator<Item = &'a DeviceTaint> {
        let added = self.rules.values().filter(|rule| rule.selects(id)).map(|rule| &rule.taint);
        device.taints.iter().chain(added)
    }
}

/// Removes a name from a set, and the set with its last name.
fn remove_from<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<Str>>, key: &K, name: &str) {
    if let Some(names) = sets.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            sets.remove(key);
        }
    }
}
