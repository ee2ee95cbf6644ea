//! Claims, volumes, classes and related objects, parsed when they change and indexed for plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Str, Tree};

use super::{Kind, Objects};
use podmodel::storage::{Claim, CsiNode, Disk, PersistentVolume, StorageCapacity, StorageClass};

/// The kinds stored here.
const KINDS: [Kind; 7] = [
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::CsiNode,
    Kind::CsiDriver,
    Kind::CsiStorageCapacity,
    Kind::VolumeAttachment,
];

/// Claims, volumes, classes and what drivers report.
#[derive(Default)]
pub struct Storage {
    claims: BTreeMap<Str, Arc<Claim>>,
    volumes: BTreeMap<Str, Arc<PersistentVolume>>,
    /// Volume names by class.
    by_class: BTreeMap<Str, BTreeSet<Str>>,
    classes: BTreeMap<Str, Arc<StorageClass>>,
    csi_nodes: BTreeMap<Str, CsiNode>,
    /// Drivers that report storage capacity.
    reporting_drivers: BTreeSet<Str>,
    /// Drivers that must be installed on the node.
    required_on_nodes: BTreeSet<Str>,
    capacities: BTreeMap<Str, StorageCapacity>,
    /// Node and volume of each VolumeAttachment.
    attachments: BTreeMap<Str, (Str, Str)>,
    /// Attached volumes by node, with the number of attachments.
    attached: BTreeMap<Str, BTreeMap<Str, usize>>,
}

impl Storage {
    /// Reads all objects.
    pub fn of(objects: &dyn Objects) -> Storage {
        let mut storage = Storage::default();
        for kind in KINDS {
            objects.all(kind).iter().for_each(|object| storage.put(kind, object));
        }
        storage
    }

    /// Adds or replaces an object.
    pub fn put(&mut self, kind: Kind, object: &Tree) {
        self.remove(kind, object);
        let key = key_of(object);
        match kind {
            Kind::PersistentVolumeClaim => drop(self.claims.insert(key, Arc::new(Claim::read(object)))),
            Kind::PersistentVolume => {
                let volume = PersistentVolume::read(object);
                self.by_class.entry(volume.offered.class.clone()).or_default().insert(key.clone());
                self.volumes.insert(key, Arc::new(volume));
            }
            Kind::StorageClass => drop(self.classes.insert(key, Arc::new(StorageClass::read(object)))),
            Kind::CsiNode => drop(self.csi_nodes.insert(key, CsiNode::read(object))),
            Kind::CsiDriver => self.put_driver(key, object),
            Kind::CsiStorageCapacity => drop(self.capacities.insert(key, StorageCapacity::read(object))),
            Kind::VolumeAttachment => self.attach(key, object),
            _ => {}
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, object: &Tree) {
        let key = key_of(object);
        match kind {
            Kind::PersistentVolumeClaim => drop(self.claims.remove(&key)),
            Kind::PersistentVolume => self.remove_volume(&key),
            Kind::StorageClass => drop(self.classes.remove(&key)),
            Kind::CsiNode => drop(self.csi_nodes.remove(&key)),
            Kind::CsiDriver => {
                self.reporting_drivers.remove(&key);
                self.required_on_nodes.remove(&key);
            }
            Kind::CsiStorageCapacity => drop(self.capacities.remove(&key)),
            Kind::VolumeAttachment => self.detach(&key),
            _ => {}
        }
    }

    fn put_driver(&mut self, key: Str, driver: &Tree) {
        if driver.bool("spec.storageCapacity") {
            self.reporting_drivers.insert(key.clone());
        }
        if driver.bool("spec.preventPodSchedulingIfMissing") {
            self.required_on_nodes.insert(key);
        }
    }

    fn remove_volume(&mut self, name: &Str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        let class = &volume.offered.class;
        if let Some(names) = self.by_class.get_mut(class) {
            names.remove(name);
            if names.is_empty() {
                self.by_class.remove(class);
            }
        }
    }

    fn attach(&mut self, key: Str, object: &Tree) {
        let node = Str::new(object.str("spec.nodeName"));
        let volume = Str::new(object.str("spec.source.persistentVolumeName"));
        *self.attached.entry(node.clone()).or_default().entry(volume.clone()).or_default() += 1;
        self.attachments.insert(key, (node, volume));
    }

    fn detach(&mut self, key: &Str) {
        let Some((node, volume)) = self.attachments.remove(key) else { return };
        let Some(volumes) = self.attached.get_mut(&node) else { return };
        if let Some(count) = volumes.get_mut(&volume) {
            *count -= 1;
            if *count == 0 {
                volumes.remove(&volume);
            }
        }
        if volumes.is_empty() {
            self.attached.remove(&node);
        }
    }

    /// The claim of a name.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Claim>> {
        self.claims.get(format!("{namespace}/{name}").as_str())
    }

    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    /// Sorted by name.
    pub(crate) fn volumes_of(&self, class: &str) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let names = self.by_class.get(class).into_iter().flatten();
        names.filter_map(|name| self.volumes.get(name))
    }

    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    /// The CSINode of a node.
    pub fn csi_node(&self, name: &str) -> Option<&CsiNode> {
        self.csi_nodes.get(name)
    }

    /// Whether a driver reports storage capacity.
    pub(crate) fn reports_capacity(&self, driver: &str) -> bool {
        self.reporting_drivers.contains(driver)
    }

    /// Whether a driver must be installed on the node.
    pub(crate) fn is_required_on_nodes(&self, driver: &str) -> bool {
        self.required_on_nodes.contains(driver)
    }

    /// The capacities that drivers report.
    pub fn capacities(&self) -> impl Iterator<Item = &StorageCapacity> {
        self.capacities.values()
    }

    /// The volumes attached to a node.
    pub(crate) fn attached_to(&self, node: &str) -> impl Iterator<Item = &Disk> {
        let names = self.attached.get(node).into_iter().flatten();
        names.filter_map(|(name, _)| self.volumes.get(name)?.disk.as_ref())
    }
}

fn key_of(object: &Tree) -> Str {
    Str::from(client::key_of(object).to_string())
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn volume(name: &str, class: &str) -> Tree {
        let csi = tree! { "driver" => "d", "volumeHandle" => name };
        tree! {
            "metadata" => tree! { "name" => name },
            "spec" => tree! { "storageClassName" => class, "csi" => csi },
        }
    }

    #[test]
    fn finds_volumes_by_class() {
        let mut storage = Storage::default();
        for (name, class) in [("b", "x"), ("a", "x"), ("c", "y")] {
            storage.put(Kind::PersistentVolume, &volume(name, class));
        }
        let names = |storage: &Storage, class: &str| -> Vec<String> {
            storage.volumes_of(class).map(|volume| volume.name.to_string()).collect()
        };
        assert_eq!(names(&storage, "x"), ["a", "b"]);
        storage.put(Kind::PersistentVolume, &volume("a", "y"));
        assert_eq!((names(&storage, "x"), names(&storage, "y")), (vec!["b".into()], vec!["a".into(), "c".into()]));
        storage.remove(Kind::PersistentVolume, &volume("b", "x"));
        assert!(names(&storage, "x").is_empty() && storage.by_class.len() == 1);
    }

    #[test]
    fn counts_attachments() {
        let mut storage = Storage::default();
        storage.put(Kind::PersistentVolume, &volume("v", "x"));
        let attachment = |name: &str| {
            let source = tree! { "persistentVolumeName" => "v" };
            tree! { "metadata" => tree! { "name" => name }, "spec" => tree! { "nodeName" => "n", "source" => source } }
        };
        for name in ["one", "one", "two"] {
            storage.put(Kind::VolumeAttachment, &attachment(name));
        }
        assert_eq!(storage.attached_to("n").count(), 1);
        storage.remove(Kind::VolumeAttachment, &attachment("one"));
        assert_eq!(storage.attached_to("n").count(), 1);
        storage.remove(Kind::VolumeAttachment, &attachment("two"));
        assert!(storage.attached_to("n").next().is_none() && storage.attached.is_empty());
    }
}
