//! The devices, and the containers that have them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::{Format, Quantity};
use api::{Tree, base64, tree};
use prost::Message;

use super::super::numa::{Hint, Mask, hints};
use super::super::requests;
use super::wire::{self, ContainerAllocateResponse};
use crate::model::pod;
use crate::node::status_input;

/// How long a resource is kept after its plugin has disappeared.
const GRACE_SECONDS: i64 = 300;

pub(crate) type Ids = BTreeSet<String>;

/// Devices that a container cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    NoLongerHealthy(String),
    #[error("pod {uid:?} container {container:?} changed request for resource {resource:?} from {has} to {wanted}")]
    Changed { uid: String, container: String, resource: String, has: usize, wanted: usize },
    #[error("requested number of devices unavailable for {resource}. Requested: {needed}, Available: {free}")]
    NotEnough { resource: String, needed: usize, free: usize },
}

/// A checkpoint whose entries cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("AllocResp is not valid base64")]
    Base64,
    #[error(transparent)]
    Message(#[from] prost::DecodeError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) is_healthy: bool,
    /// None if the plugin does not report it.
    pub(crate) nodes: Option<Vec<u32>>,
}

/// A resource of a registered plugin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource {
    pub(crate) devices: BTreeMap<String, Device>,
    /// Since when the resource has no plugin, in seconds since the epoch.
    pub(crate) silent_since: Option<i64>,
}

/// The devices of a container of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceAllocation {
    /// With the NUMA nodes of each.
    pub(crate) devices: BTreeMap<String, Vec<u32>>,
    pub(crate) answer: ContainerAllocateResponse,
}

/// By pod, container and resource.
pub(crate) type Allocations = BTreeMap<String, BTreeMap<String, BTreeMap<String, DeviceAllocation>>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Inventory {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) given: Allocations,
}

pub(crate) fn read_device(device: &wire::Device) -> Device {
    let nodes = device
        .topology
        .as_ref()
        .map(|topology| topology.nodes.iter().filter_map(|node| u32::try_from(node.id).ok()).collect());
    Device { is_healthy: device.health == wire::HEALTHY, nodes }
}

impl Inventory {
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, DeviceAllocation>> {
        self.given.get(uid)?.get(container)
    }

    /// The devices of a resource that a container has.
    pub(crate) fn ids(&self, uid: &str, container: &str, resource: &str) -> Option<Ids> {
        let share = self.of(uid, container)?.get(resource)?;
        Some(share.devices.keys().cloned().collect())
    }

    fn in_use(&self, resource: &str) -> Ids {
        let shares = self.given.values().flat_map(BTreeMap::values).filter_map(|resources| resources.get(resource));
        shares.flat_map(|share| share.devices.keys().cloned()).collect()
    }

    /// Healthy devices that no container has.
    pub(crate) fn free(&self, resource: &str) -> Ids {
        let Some(known) = self.resources.get(resource) else { return Ids::new() };
        let healthy = known.devices.iter().filter(|(_, device)| device.is_healthy).map(|(id, _)| id.clone());
        &healthy.collect::<Ids>() - &self.in_use(resource)
    }

    /// Devices of init containers, which have completed when main containers start.
    pub(crate) fn reusable(&self, pod: &Tree, resource: &str) -> Ids {
        let mut reusable = Ids::new();
        for spec in requests::containers(pod) {
            let Some(ids) = self.ids(pod::uid(pod), spec.str("name"), resource) else { continue };
            reusable = match requests::is_passing(pod, spec) {
                true => &reusable | &ids,
                false => &reusable - &ids,
            };
        }
        reusable
    }

    /// Applies a plugin's list. Returns the pods whose devices have changed.
    pub(crate) fn update(&mut self, resource: &str, devices: BTreeMap<String, Device>) -> Vec<String> {
        let known = self.resources.entry(resource.to_string()).or_default();
        let before = std::mem::replace(&mut known.devices, devices);
        let after = self.resources.get(resource).map(|known| known.devices.clone()).unwrap_or_default();
        let health = |of: &BTreeMap<String, Device>, id: &String| of.get(id).map(|device| device.is_healthy);
        let has_changed = |containers: &BTreeMap<String, BTreeMap<String, DeviceAllocation>>| {
            let shares = containers.values().filter_map(|resources| resources.get(resource));
            shares.flat_map(|share| share.devices.keys()).any(|id| health(&before, id) != health(&after, id))
        };
        self.given.iter().filter(|(_, containers)| has_changed(containers)).map(|(uid, _)| uid.clone()).collect()
    }

    /// A resource has no plugin any more: none of its devices is healthy.
    pub(crate) fn mark_disconnected(&mut self, resource: &str, now: i64) -> Vec<String> {
        let Some(known) = self.resources.get_mut(resource) else { return Vec::new() };
        known.silent_since = Some(now);
        let mut devices = known.devices.clone();
        devices.values_mut().for_each(|device| device.is_healthy = false);
        self.update(resource, devices)
    }

    /// Removes resources that were without a plugin for a long time. Returns their names.
    pub(crate) fn expire(&mut self, now: i64) -> Vec<String> {
        let is_over = |known: &Resource| known.silent_since.is_some_and(|since| now - since >= GRACE_SECONDS);
        let gone: Vec<String> =
            self.resources.iter().filter(|(_, known)| is_over(known)).map(|(name, _)| name.clone()).collect();
        self.resources.retain(|name, _| !gone.contains(name));
        gone
    }

    /// When the next resource expires.
    pub(crate) fn next_expiry(&self) -> Option<i64> {
        self.resources.values().filter_map(|known| known.silent_since).min().map(|since| since + GRACE_SECONDS)
    }

    /// The devices in the node's status.
    pub(crate) fn report(&self, removed: &BTreeSet<String>) -> status_input::Devices {
        let count = |number: usize| Quantity::new(i64::try_from(number).unwrap_or(i64::MAX), Format::DecimalSI);
        let mut report = status_input::Devices::default();
        for (name, known) in &self.resources {
            let healthy = known.devices.values().filter(|device| device.is_healthy).count();
            report.capacity.insert(name.clone(), count(known.devices.len()));
            report.allocatable.insert(name.clone(), count(healthy));
        }
        report.removed = removed.iter().filter(|name| !self.resources.contains_key(*name)).cloned().collect();
        report
    }

    /// The nodes that a device is at.
    fn mask(&self, resource: &str, id: &str) -> Option<Mask> {
        let device = self.resources.get(resource)?.devices.get(id)?;
        device.nodes.as_ref().map(|nodes| nodes.iter().copied().collect())
    }

    fn has_topology(&self, resource: &str) -> bool {
        self.resources.get(resource).is_some_and(|known| known.devices.values().any(|device| device.nodes.is_some()))
    }

    /// Topology hints for devices; None where the devices have no topology.
    pub(crate) fn hints(
        &self,
        nodes: &[u32],
        resource: &str,
        has: Option<&Ids>,
        reusable: &Ids,
        wanted: usize,
    ) -> Option<Vec<Hint>> {
        if !self.has_topology(resource) {
            return None;
        }
        let (free, reusable) = match has {
            Some(has) if has.len() != wanted => return Some(Vec::new()),
            Some(has) => (has.clone(), Ids::new()),
            None => (self.free(resource), reusable.clone()),
        };
        if (&free | &reusable).len() < wanted {
            return Some(Vec::new());
        }
        let is_at = |id: &String, mask: Mask| self.mask(resource, id).is_some_and(|at| at.and(mask).count() > 0);
        let all: Ids =
            self.resources.get(resource).map(|known| known.devices.keys().cloned().collect()).unwrap_or_default();
        let count = |ids: &Ids, mask: Mask| ids.iter().filter(|id| is_at(id, mask)).count();
        let holds = |mask: Mask| count(&all, mask) >= wanted;
        let fits = |mask: Mask| {
            let placed = reusable.iter().filter(|id| self.mask(resource, id).is_some());
            placed.clone().all(|id| is_at(id, mask)) && placed.count() + count(&free, mask) >= wanted
        };
        Some(hints(nodes, holds, fits))
    }

    /// Free devices by locality: in `near`, on other nodes, without a node.
    fn sort(&self, resource: &str, free: &Ids, near: Option<Mask>) -> [Vec<String>; 3] {
        let mut sorted: [Vec<String>; 3] = Default::default();
        let Some(near) = near.filter(|_| self.has_topology(resource)) else {
            sorted[2] = free.iter().cloned().collect();
            return sorted;
        };
        for id in free {
            let at = match self.mask(resource, id).filter(|mask| mask.count() > 0) {
                Some(mask) if mask.and(near).count() > 0 => 0,
                Some(_) => 1,
                None => 2,
            };
            sorted[at].push(id.clone());
        }
        sorted
    }

    /// Chooses devices for a container; None if it has them already.
    pub(crate) fn choose(
        &self,
        pod: &Tree,
        container: &str,
        resource: &str,
        wanted: usize,
        near: Option<Mask>,
    ) -> Result<Option<Choice>, ChoiceError> {
        let uid = pod::uid(pod);
        let Some(known) = self.resources.get(resource) else {
            return Err(ChoiceError::Unregistered(resource.to_string()));
        };
        let is_healthy = |id: &String| known.devices.get(id).is_some_and(|device| device.is_healthy);
        if !known.devices.keys().any(is_healthy) {
            return Err(ChoiceError::NoneHealthy(resource.to_string()));
        }
        if let Some(has) = self.ids(uid, container, resource) {
            // The devices may have been assigned before a reboot.
            if !has.iter().all(is_healthy) {
                return Err(ChoiceError::NoLongerHealthy(resource.to_string()));
            }
            return match has.len() == wanted {
                true => Ok(None),
                false => Err(ChoiceError::Changed {
                    uid: uid.to_string(),
                    container: container.to_string(),
                    resource: resource.to_string(),
                    has: has.len(),
                    wanted,
                }),
            };
        }
        let taken: Ids = self.reusable(pod, resource).into_iter().take(wanted).collect();
        let needed = wanted - taken.len();
        let free = self.free(resource);
        if free.len() < needed {
            return Err(ChoiceError::NotEnough { resource: resource.to_string(), needed, free: free.len() });
        }
        let sorted = self.sort(resource, &free, near);
        Ok(Some(Choice::new(taken, wanted, free, sorted)))
    }

    pub(crate) fn allocate(
        &mut self,
        uid: &str,
        container: &str,
        resource: &str,
        ids: &Ids,
        answer: ContainerAllocateResponse,
    ) {
        let known = self.resources.get(resource);
        let nodes = |id: &String| known.and_then(|known| known.devices.get(id)?.nodes.clone()).unwrap_or_default();
        let devices = ids.iter().map(|id| (id.clone(), nodes(id))).collect();
        let containers = self.given.entry(uid.to_string()).or_default();
        let resources = containers.entry(container.to_string()).or_default();
        resources.insert(resource.to_string(), DeviceAllocation { devices, answer });
    }

    /// `allocatedResourcesStatus` of a container.
    pub(crate) fn health(&self, uid: &str, container: &str) -> Vec<Tree> {
        let one = |(resource, share): (&String, &DeviceAllocation)| {
            let known = self.resources.get(resource);
            let health = |id: &String| match known.and_then(|known| known.devices.get(id)) {
                Some(device) if device.is_healthy => "Healthy",
                Some(_) => "Unhealthy",
                None => "Unknown",
            };
            let each = |id: &String| tree! { "resourceID" => id.as_str(), "health" => health(id) };
            let devices: Vec<Tree> = share.devices.keys().map(each).collect();
            tree! { "name" => resource.as_str(), "resources" => devices }
        };
        self.of(uid, container).into_iter().flatten().map(one).collect()
    }

    pub(crate) fn to_checkpoint(&self) -> Tree {
        let mut entries = Vec::new();
        for (uid, containers) in &self.given {
            for (container, resources) in containers {
                entries.extend(
                    resources.iter().map(|(resource, share)| checkpoint_entry(uid, container, resource, share)),
                );
            }
        }
        let registered: Vec<Tree> = self.resources.keys().map(|name| name.as_str().into()).collect();
        tree! { "PodDeviceEntries" => entries, "RegisteredDevices" => registered }
    }

    /// Reads a checkpoint. Resources have no devices until their plugins register again.
    pub(crate) fn read(tree: &Tree, now: i64) -> Result<Inventory, InventoryError> {
        let mut inventory = Inventory::default();
        for name in tree.list("RegisteredDevices").iter().filter_map(Tree::as_str) {
            let silent = Resource { silent_since: Some(now), ..Resource::default() };
            inventory.resources.insert(name.to_string(), silent);
        }
        for entry in tree.list("PodDeviceEntries") {
            let bytes = base64::decode(entry.str("AllocResp")).map_err(|_| InventoryError::Base64)?;
            let answer = ContainerAllocateResponse::decode(bytes.as_slice())?;
            let nodes = |nodes: &Tree| {
                let nodes = nodes.as_list().unwrap_or_default().iter();
                nodes.filter_map(|node| u32::try_from(node.as_int()?).ok()).collect()
            };
            let devices = entry.map("DeviceIDs").iter().map(|(id, at)| (id.to_string(), nodes(at))).collect();
            let pod = inventory.given.entry(entry.str("PodUID").to_string()).or_default();
            let container = pod.entry(entry.str("ContainerName").to_string()).or_default();
            container.insert(entry.str("ResourceName").to_string(), DeviceAllocation { devices, answer });
        }
        Ok(inventory)
    }
}

fn checkpoint_entry(uid: &str, container: &str, resource: &str, share: &DeviceAllocation) -> Tree {
    let mut devices = tree! {};
    for (id, nodes) in &share.devices {
        devices.set(id, Tree::List(nodes.iter().map(|node| Tree::Int((*node).into())).collect()));
    }
    tree! {
        "PodUID" => uid,
        "ContainerName" => container,
        "ResourceName" => resource,
        "DeviceIDs" => devices,
        "AllocResp" => base64::encode(&share.answer.encode_to_vec()),
    }
}

/// Chosen devices, before the plugin was called for its preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    taken: Ids,
    wanted: usize,
    /// The devices from which the plugin may choose.
    open: Ids,
    /// The order in which devices are chosen without a preference of the plugin.
    rest: Vec<String>,
}

impl Choice {
    fn new(mut taken: Ids, wanted: usize, free: Ids, [near, elsewhere, nowhere]: [Vec<String>; 3]) -> Choice {
        let needed = wanted - taken.len();
        if needed < near.len() {
            return Choice { taken, wanted, open: near.iter().cloned().collect(), rest: near };
        }
        taken.extend(near);
        let open = &free - &taken;
        Choice { taken, wanted, open, rest: [elsewhere, nowhere].concat() }
    }

    /// The request for the plugin's preference, if there is a choice.
    pub(crate) fn preferred_allocation_request(&self) -> Option<wire::PreferredAllocationRequest> {
        if self.taken.len() >= self.wanted {
            return None;
        }
        let list = |ids: &Ids| ids.iter().cloned().collect::<Vec<_>>();
        let request = wire::ContainerPreferredAllocationRequest {
            available: list(&(&self.open | &self.taken)),
            must_include: list(&self.taken),
            allocation_size: i32::try_from(self.wanted).unwrap_or(i32::MAX),
        };
        Some(wire::PreferredAllocationRequest { container_requests: vec![request] })
    }

    pub(crate) fn finish(self, preferred: &[String]) -> Ids {
        let Choice { mut taken, wanted, open, rest } = self;
        let liked = preferred.iter().filter(|id| open.contains(*id)).cloned();
        for id in liked.chain(rest) {
            if taken.len() >= wanted {
                break;
            }
            taken.insert(id);
        }
        taken
    }
}
