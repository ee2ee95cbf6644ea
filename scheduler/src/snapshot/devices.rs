//! Claims, classes, slices and taint rules, parsed when they change, with the devices that claims are allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree};
use devices::{AllocatedState, Claim, DeviceClass, Inventory, ResourceSlice, TaintRule};

use super::{Kind, Objects};

/// The kinds stored here.
const KINDS: [Kind; 4] = [Kind::ResourceClaim, Kind::ResourceSlice, Kind::DeviceClass, Kind::DeviceTaintRule];

/// The devices of a cluster and their claims.
#[derive(Default)]
pub struct Devices {
    pub inventory: Arc<Inventory>,
    /// By key.
    claims: BTreeMap<Str, Arc<Claim>>,
    /// The keys of claims for extended resources, by the uid of their pod.
    extended: BTreeMap<Str, Str>,
    /// The devices of all claims. A decision may hold it, so that it is copied if it changes meanwhile.
    pub allocated: Arc<AllocatedState>,
}

impl Devices {
    /// Reads all objects.
    pub fn of(objects: &dyn Objects) -> Devices {
        let mut devices = Devices::default();
        for kind in KINDS {
            objects.all(kind).iter().for_each(|object| devices.put(kind, object));
        }
        devices
    }

    /// Adds or replaces an object.
    pub fn put(&mut self, kind: Kind, object: &Tree) {
        match kind {
            Kind::ResourceClaim => self.put_claim(Claim::read(object)),
            Kind::ResourceSlice => Arc::make_mut(&mut self.inventory).put_slice(ResourceSlice::read(object)),
            Kind::DeviceClass => Arc::make_mut(&mut self.inventory).put_class(DeviceClass::read(object)),
            Kind::DeviceTaintRule => Arc::make_mut(&mut self.inventory).put_rule(TaintRule::read(object)),
            _ => {}
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, object: &Tree) {
        let name = object.str("metadata.name");
        match kind {
            Kind::ResourceClaim => self.remove_claim(&client::key_of(object)),
            Kind::ResourceSlice => Arc::make_mut(&mut self.inventory).remove_slice(name),
            Kind::DeviceClass => Arc::make_mut(&mut self.inventory).remove_class(name),
            Kind::DeviceTaintRule => Arc::make_mut(&mut self.inventory).remove_rule(name),
            _ => {}
        }
    }

    fn put_claim(&mut self, claim: Claim) {
        self.remove_claim(&claim.key);
        if let Some(allocation) = &claim.allocation {
            Arc::make_mut(&mut self.allocated).add(allocation);
        }
        if let Some(owner) = claim.controller.as_ref().filter(|_| claim.is_for_extended_resources) {
            self.extended.insert(owner.clone(), claim.key.clone());
        }
        self.claims.insert(claim.key.clone(), Arc::new(claim));
    }

    fn remove_claim(&mut self, key: &str) {
        let Some(claim) = self.claims.remove(key) else { return };
        if let Some(allocation) = &claim.allocation {
            Arc::make_mut(&mut self.allocated).remove(allocation);
        }
        if let Some(owner) = &claim.controller {
            self.extended.remove(owner);
        }
    }

    /// The claim of a name.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Claim>> {
        self.claims.get(format!("{namespace}/{name}").as_str())
    }

    /// The claim for the extended resources of a pod.
    pub fn extended_claim(&self, pod_uid: &str) -> Option<&Arc<Claim>> {
        self.claims.get(self.extended.get(pod_uid)?)
    }
}
