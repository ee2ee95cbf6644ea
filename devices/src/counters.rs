//! Counters that the devices of a pool share: partitions of one card consume its memory.

use std::collections::BTreeMap;

use api::Str;
use api::quantity::Quantity;

use crate::slice::{CounterConsumption, ResourceSlice};
use crate::{Allocated, Device};

/// Amounts by counter set and counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters(BTreeMap<Str, BTreeMap<Str, Quantity>>);

/// Why the counters of a pool are no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidCounters;

impl Counters {
    /// The counters of slices. Each set is in one slice.
    pub(crate) fn of<'a>(slices: impl Iterator<Item = &'a ResourceSlice>) -> Result<Counters, InvalidCounters> {
        let mut sets = BTreeMap::new();
        for (name, counters) in slices.flat_map(|slice| &slice.counters) {
            if sets.insert(name.clone(), counters.clone()).is_some() {
                return Err(InvalidCounters);
            }
        }
        Ok(Counters(sets))
    }

    /// Whether there is each counter that a device consumes.
    pub(crate) fn has_all(&self, device: &Device) -> bool {
        let known = |one: &CounterConsumption| {
            let set = self.0.get(&one.set);
            set.is_some_and(|set| one.counters.keys().all(|counter| set.contains_key(counter)))
        };
        device.consumes.iter().all(known)
    }

    /// What allocated devices leave, which can be less than nothing.
    pub(crate) fn available<'a>(
        &self,
        slices: impl Iterator<Item = &'a ResourceSlice>,
        allocated: Allocated<'_>,
    ) -> Counters {
        let mut left = self.clone();
        for slice in slices {
            for device in slice.devices.iter().filter(|device| !device.consumes.is_empty()) {
                let id = slice.id_of(device);
                if allocated.is_taken(&id) || allocated.is_shared(&id) {
                    left.subtract(device);
                }
            }
        }
        left
    }

    /// Adds what a device consumes.
    pub(crate) fn add(&mut self, device: &Device) {
        for one in &device.consumes {
            let set = self.0.entry(one.set.clone()).or_default();
            for (counter, amount) in &one.counters {
                *set.entry(counter.clone()).or_default() += amount;
            }
        }
    }

    /// Subtracts what a device consumes from the counters that there are.
    pub(crate) fn subtract(&mut self, device: &Device) {
        for one in &device.consumes {
            let Some(set) = self.0.get_mut(&one.set) else { continue };
            for (counter, amount) in &one.counters {
                if let Some(left) = set.get_mut(counter) {
                    *left -= amount;
                }
            }
        }
    }

    /// Whether every counter is at least as large as in `consumed`. Like upstream, a counter that is overcommitted
    /// blocks all counters of its pool.
    pub(crate) fn covers(&self, consumed: &Counters) -> bool {
        let none = Quantity::default();
        self.0.iter().all(|(set, counters)| {
            let consumed = consumed.0.get(set);
            let amount = |counter: &Str| consumed.and_then(|set| set.get(counter)).unwrap_or(&none);
            counters.iter().all(|(counter, left)| left >= amount(counter))
        })
    }
}
