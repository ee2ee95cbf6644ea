//! The devices that are allocated.

use std::collections::{BTreeMap, HashMap};

use api::Str;
use api::quantity::Quantity;

use crate::{AllocatedDevice, Allocation, DeviceId};

/// The devices of a set of allocations, kept up to date by adding and removing allocations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllocatedState {
    /// Devices that are not shared, with the number of allocations: more than one if claims were written by hand.
    devices: HashMap<DeviceId, usize>,
    /// Devices that are shared.
    shared: HashMap<DeviceId, SharedDevice>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct SharedDevice {
    shares: usize,
    consumed: BTreeMap<Str, Quantity>,
}

impl AllocatedState {
    /// Adds the devices of an allocation.
    pub fn add(&mut self, allocation: &Allocation) {
        for device in allocation.devices.iter().filter(|device| !device.admin_access) {
            match device.share {
                None => *self.devices.entry(device.id.clone()).or_default() += 1,
                Some(_) => self.add_share(device),
            }
        }
    }

    fn add_share(&mut self, device: &AllocatedDevice) {
        let shared = self.shared.entry(device.id.clone()).or_default();
        shared.shares += 1;
        for (name, amount) in &device.consumed {
            *shared.consumed.entry(name.clone()).or_default() += amount;
        }
    }

    /// Removes the devices of an allocation that was added.
    pub fn remove(&mut self, allocation: &Allocation) {
        for device in allocation.devices.iter().filter(|device| !device.admin_access) {
            match device.share {
                None => release(&mut self.devices, &device.id),
                Some(_) => self.remove_share(device),
            }
        }
    }

    fn remove_share(&mut self, device: &AllocatedDevice) {
        let Some(shared) = self.shared.get_mut(&device.id) else { return };
        shared.shares -= 1;
        if shared.shares == 0 {
            self.shared.remove(&device.id);
            return;
        }
        for (name, amount) in &device.consumed {
            if let Some(total) = shared.consumed.get_mut(name) {
                *total -= amount;
            }
        }
    }

    /// Whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.shared.is_empty()
    }
}

fn release(devices: &mut HashMap<DeviceId, usize>, id: &DeviceId) {
    if let Some(count) = devices.get_mut(id) {
        *count -= 1;
        if *count == 0 {
            devices.remove(id);
        }
    }
}

/// All allocated devices: those of claims, and those of allocations that are not written yet.
#[derive(Debug, Clone, Copy)]
pub struct Allocated<'a> {
    pub claims: &'a AllocatedState,
    pub pending: &'a AllocatedState,
}

impl Allocated<'_> {
    /// Whether a device belongs to one claim alone.
    pub(crate) fn is_taken(&self, id: &DeviceId) -> bool {
        self.claims.devices.contains_key(id) || self.pending.devices.contains_key(id)
    }

    /// Whether claims share a device.
    pub(crate) fn is_shared(&self, id: &DeviceId) -> bool {
        self.claims.shared.contains_key(id) || self.pending.shared.contains_key(id)
    }

    /// What is consumed of a capacity.
    pub(crate) fn consumed(&self, id: &DeviceId, capacity: &str) -> Quantity {
        let mut total = Quantity::default();
        for state in [self.claims, self.pending] {
            if let Some(amount) = state.shared.get(id).and_then(|shared| shared.consumed.get(capacity)) {
                total += amount;
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn what_is_added_can_be_removed() {
        let result = |device: &str| tree! { "driver" => "d", "pool" => "p", "device" => device };
        let share = |device: &str, id: &str, amount: &str| {
            let mut share = result(device);
            share.set("shareID", id);
            share.set("consumedCapacity", tree! { "memory" => amount });
            share
        };
        let mut admin = result("b");
        admin.set("adminAccess", true);
        let of = |results: Vec<api::Tree>| Allocation::read(&tree! { "devices" => tree! { "results" => results } });
        let (one, other) = (of(vec![result("a"), admin, share("s", "1", "2Gi")]), of(vec![share("s", "2", "1Gi")]));
        let (mut state, none) = (AllocatedState::default(), AllocatedState::default());
        state.add(&one);
        state.add(&other);
        let view = Allocated { claims: &state, pending: &none };
        let id = |device: &str| DeviceId::new("d", "p", device);
        assert!(view.is_taken(&id("a")) && !view.is_taken(&id("b")) && view.is_shared(&id("s")));
        assert_eq!(view.consumed(&id("s"), "memory").to_string(), "3Gi");
        state.remove(&one);
        let view = Allocated { claims: &state, pending: &none };
        assert_eq!(view.consumed(&id("s"), "memory").to_string(), "1Gi");
        state.remove(&other);
        assert!(state.is_empty());
    }
}
