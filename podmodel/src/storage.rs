//! Claims, volumes and what belongs to them, as far as they bear on where a pod can go. Each is read once, when it
//! comes or changes.

use api::quantity::Quantity;
use api::{Str, Tree};

use super::{Labels, NodeSelector, Operator, Requirement, Selector, texts};

/// The annotation with the node that a claim is provisioned for.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// What a claim requires of a volume, and a volume provides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeRequirements {
    pub class: Str,
    pub size: i64,
    pub mode: Str,
    pub attributes_class: Str,
    pub access_modes: Vec<Str>,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claim {
    /// `NAMESPACE/NAME`
    pub key: Str,
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub version: Str,
    pub wanted: VolumeRequirements,
    pub volume_name: Str,
    /// Whether the binder has said so.
    pub is_bound: bool,
    pub is_lost: bool,
    pub is_terminating: bool,
    /// The selected node, for which its volume is provisioned.
    pub selected_node: Option<Str>,
    /// The uid of the pod that owns it, for an ephemeral volume.
    pub owner: Option<Str>,
    pub selector: Option<Selector>,
}

/// A PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PersistentVolume {
    pub name: Str,
    pub version: Str,
    pub offered: VolumeRequirements,
    pub is_available: bool,
    pub is_terminating: bool,
    /// Namespace, name and uid of the claim that it belongs to.
    pub claim: Option<(Str, Str, Str)>,
    pub labels: Labels,
    /// From where it can be reached; None from everywhere.
    pub reach: Option<NodeSelector>,
    pub disk: Option<Disk>,
}

/// A disk that is attached to nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disk {
    pub driver: Str,
    pub handle: Str,
    /// The in-tree plugin: the disk counts for CSI if the node lists the plugin as migrated.
    pub plugin: Option<&'static str>,
}

/// The field of a volume that names a disk of an in-tree plugin, and the CSI driver of the plugin.
struct MigratedPlugin {
    field: &'static str,
    id: &'static str,
    plugin: &'static str,
    driver: &'static str,
}

const MOVED: [MigratedPlugin; 6] = [
    MigratedPlugin {
        field: "awsElasticBlockStore",
        id: "volumeID",
        plugin: "kubernetes.io/aws-ebs",
        driver: "ebs.csi.aws.com",
    },
    MigratedPlugin {
        field: "azureDisk",
        id: "diskURI",
        plugin: "kubernetes.io/azure-disk",
        driver: "disk.csi.azure.com",
    },
    MigratedPlugin {
        field: "cinder",
        id: "volumeID",
        plugin: "kubernetes.io/cinder",
        driver: "cinder.csi.openstack.org",
    },
    MigratedPlugin {
        field: "gcePersistentDisk",
        id: "pdName",
        plugin: "kubernetes.io/gce-pd",
        driver: "pd.csi.storage.gke.io",
    },
    MigratedPlugin {
        field: "portworxVolume",
        id: "volumeID",
        plugin: "kubernetes.io/portworx-volume",
        driver: "pxd.portworx.com",
    },
    MigratedPlugin {
        field: "vsphereVolume",
        id: "volumePath",
        plugin: "kubernetes.io/vsphere-volume",
        driver: "csi.vsphere.vmware.com",
    },
];

impl Disk {
    /// Of the spec of a volume, or of a volume of a pod.
    pub fn read(source: &Tree) -> Option<Disk> {
        let csi = source.at("csi");
        if !csi.is_null() && csi.has("volumeHandle") {
            let (driver, handle) = (Str::new(csi.str("driver")), Str::new(csi.str("volumeHandle")));
            return Some(Disk { driver, handle, plugin: None });
        }
        let moved = MOVED.iter().find(|moved| source.has(moved.field))?;
        Disk::from_in_tree_plugin(moved.field, source.at(moved.field).str(moved.id))
    }

    /// A disk of an in-tree plugin, by the field of the plugin.
    pub fn from_in_tree_plugin(field: &str, id: &str) -> Option<Disk> {
        let moved = MOVED.iter().find(|moved| moved.field == field)?;
        Some(Disk { driver: Str::new(moved.driver), handle: Str::new(id), plugin: Some(moved.plugin) })
    }

    /// A disk that the provisioner of a class will create for a claim.
    pub fn for_provisioning(provisioner: &str, claim: &Str) -> Disk {
        let moved = MOVED.iter().find(|moved| moved.plugin == provisioner);
        let driver = moved.map_or(provisioner, |moved| moved.driver);
        Disk { driver: Str::new(driver), handle: claim.clone(), plugin: moved.map(|moved| moved.plugin) }
    }
}

/// When the claims of a class are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingMode {
    Unset,
    Immediate,
    WaitForFirstConsumer,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageClass {
    pub name: Str,
    pub provisioner: Str,
    pub binding_mode: BindingMode,
    /// Terms of which one must hold; none for anywhere.
    pub topologies: Vec<Vec<Requirement>>,
}

/// A CSINode: the drivers of a node, the limit of disks of each driver, and the migrated in-tree plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsiNode {
    pub drivers: Vec<Str>,
    pub limits: Vec<(Str, i64)>,
    pub migrated: Vec<Str>,
}

/// Room for volumes of a class near some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageCapacity {
    pub class: Str,
    /// The largest volume; None if the driver does not report it.
    pub most: Option<i64>,
    pub nodes: Selector,
}

fn class_name(object: &Tree) -> Str {
    // The annotation is older than the field and wins.
    let annotated = object.map("metadata.annotations").get(OLD_CLASS).and_then(Tree::as_str);
    Str::new(annotated.unwrap_or_else(|| object.str("spec.storageClassName")))
}

fn volume_requirements(object: &Tree, size: &Tree) -> VolumeRequirements {
    let mode = object.str("spec.volumeMode");
    VolumeRequirements {
        class: class_name(object),
        size: amount(size),
        mode: Str::new(if mode.is_empty() { "Filesystem" } else { mode }),
        attributes_class: Str::new(object.str("spec.volumeAttributesClassName")),
        access_modes: texts(object.list("spec.accessModes")),
    }
}

fn amount(quantity: &Tree) -> i64 {
    match quantity {
        Tree::Str(text) => Quantity::parse(text).map_or(0, |quantity| quantity.value()),
        other => other.as_int().unwrap_or(0),
    }
}

impl Claim {
    /// Reads a PersistentVolumeClaim.
    pub fn read(claim: &Tree) -> Claim {
        let text = |path: &str| Str::new(claim.str(path));
        let annotations = claim.map("metadata.annotations");
        let (namespace, name, volume_name) =
            (text("metadata.namespace"), text("metadata.name"), text("spec.volumeName"));
        let controller = claim.list("metadata.ownerReferences").iter().find(|owner| owner.bool("controller"));
        let selector = claim.at("spec.selector");
        Claim {
            key: Str::from(format!("{namespace}/{name}")),
            uid: text("metadata.uid"),
            version: text("metadata.resourceVersion"),
            wanted: volume_requirements(claim, claim.at("spec.resources.requests.storage")),
            is_bound: annotations.contains(BIND_COMPLETED) && !volume_name.is_empty(),
            is_lost: claim.str("status.phase") == "Lost",
            is_terminating: claim.at("metadata").has("deletionTimestamp"),
            selected_node: annotations.get(SELECTED_NODE).and_then(Tree::as_str).map(Str::new),
            owner: controller.map(|owner| Str::new(owner.str("uid"))),
            selector: (!selector.is_null()).then(|| Selector::read(selector)),
            namespace,
            name,
            volume_name,
        }
    }
}

impl PersistentVolume {
    /// Reads a PersistentVolume.
    pub fn read(volume: &Tree) -> PersistentVolume {
        let text = |path: &str| Str::new(volume.str(path));
        let reference = volume.at("spec.claimRef");
        let required = volume.at("spec.nodeAffinity.required");
        PersistentVolume {
            name: text("metadata.name"),
            version: text("metadata.resourceVersion"),
            offered: volume_requirements(volume, volume.at("spec.capacity.storage")),
            is_available: volume.str("status.phase") == "Available",
            is_terminating: volume.at("metadata").has("deletionTimestamp"),
            claim: (!reference.is_null())
                .then(|| (text("spec.claimRef.namespace"), text("spec.claimRef.name"), text("spec.claimRef.uid"))),
            labels: Labels::read(volume.map("metadata.labels")),
            reach: (!required.is_null()).then(|| NodeSelector::read(required)),
            disk: Disk::read(volume.at("spec")),
        }
    }

    /// Whether the volume can be used on a node.
    pub fn is_accessible_from(&self, node: &super::Node) -> bool {
        self.reach.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
    }

    /// Whether it is of the claim's kind and large enough.
    pub fn satisfies(&self, claim: &Claim) -> bool {
        let (offered, wanted) = (&self.offered, &claim.wanted);
        offered.class == wanted.class
            && offered.size >= wanted.size
            && offered.mode == wanted.mode
            && offered.attributes_class == wanted.attributes_class
            && !self.is_terminating
    }

    /// Whether the volume is reserved for a claim.
    pub fn is_reserved_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|(namespace, name, uid)| {
            *name == claim.name && *namespace == claim.namespace && (uid.is_empty() || *uid == claim.uid)
        })
    }

    /// Whether it is available and matches the claim.
    pub fn serves(&self, claim: &Claim) -> bool {
        let modes = &self.offered.access_modes;
        self.claim.is_none()
            && self.is_available
            && claim.wanted.access_modes.iter().all(|mode| modes.contains(mode))
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&self.labels))
    }
}

impl StorageClass {
    /// Reads a StorageClass.
    pub fn read(class: &Tree) -> StorageClass {
        let requirement = |one: &Tree| Requirement::new(one.str("key"), Operator::In, texts(one.list("values")));
        let term = |term: &Tree| term.list("matchLabelExpressions").iter().map(requirement).collect();
        StorageClass {
            name: Str::new(class.str("metadata.name")),
            provisioner: Str::new(class.str("provisioner")),
            binding_mode: match class.str("volumeBindingMode") {
                "WaitForFirstConsumer" => BindingMode::WaitForFirstConsumer,
                "" => BindingMode::Unset,
                _ => BindingMode::Immediate,
            },
            topologies: class.list("allowedTopologies").iter().map(term).collect(),
        }
    }

    /// Whether volumes of the class are provisioned.
    pub fn is_provisioned(&self) -> bool {
        !matches!(self.provisioner.as_str(), "" | "kubernetes.io/no-provisioner")
    }
}

impl CsiNode {
    /// Reads a CSINode.
    pub fn read(csi_node: &Tree) -> CsiNode {
        let limit = |driver: &Tree| Some((Str::new(driver.str("name")), driver.int("allocatable.count")?));
        let migrated = csi_node.map("metadata.annotations").get(MIGRATED).and_then(Tree::as_str).unwrap_or("");
        CsiNode {
            drivers: csi_node.list("spec.drivers").iter().map(|driver| Str::new(driver.str("name"))).collect(),
            limits: csi_node.list("spec.drivers").iter().filter_map(limit).collect(),
            migrated: migrated.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Str::new).collect(),
        }
    }

    /// Whether a disk counts for CSI: its driver is one, or its in-tree plugin is migrated.
    pub fn counts(&self, disk: &Disk) -> bool {
        disk.plugin.is_none_or(|plugin| self.migrated.iter().any(|migrated| migrated == plugin))
    }
}

impl StorageCapacity {
    /// Reads a CSIStorageCapacity.
    pub fn read(capacity: &Tree) -> StorageCapacity {
        let most = if capacity.has("maximumVolumeSize") { "maximumVolumeSize" } else { "capacity" };
        StorageCapacity {
            class: Str::new(capacity.str("storageClassName")),
            most: capacity.has(most).then(|| amount(capacity.at(most))),
            nodes: Selector::read(capacity.at("nodeTopology")),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn disks_of_plugins_of_old_belong_to_the_driver_that_took_over() {
        let of_csi = tree! { "csi" => tree! { "driver" => "d", "volumeHandle" => "h" } };
        let disk = Disk::read(&of_csi).expect("a disk");
        assert_eq!((disk.driver.as_str(), disk.handle.as_str(), disk.plugin), ("d", "h", None));
        let old = Disk::read(&tree! { "awsElasticBlockStore" => tree! { "volumeID" => "vol-1" } }).expect("a disk");
        assert_eq!((old.driver.as_str(), old.handle.as_str()), ("ebs.csi.aws.com", "vol-1"));
        assert_eq!(Disk::read(&tree! { "hostPath" => tree! { "path" => "/" } }), None);
        let made = Disk::for_provisioning("kubernetes.io/gce-pd", &"a/b".into());
        assert_eq!((made.driver.as_str(), made.plugin), ("pd.csi.storage.gke.io", Some("kubernetes.io/gce-pd")));
        assert_eq!(Disk::for_provisioning("example.com/x", &"a/b".into()).driver, "example.com/x");
        let says = |plugins: &str| {
            let mut annotations = tree! {};
            annotations.set(MIGRATED, plugins);
            CsiNode::read(&tree! { "metadata" => tree! { "annotations" => annotations } })
        };
        assert!(says("kubernetes.io/cinder, kubernetes.io/aws-ebs").counts(&old));
        assert!(!says("kubernetes.io/cinder").counts(&old) && says("").counts(&disk));
    }
}
