//! Constraints between the devices of a claim: equal or distinct attributes.

use api::Str;

use crate::claim::ConstraintSpec;
use crate::{Attribute, Device};

/// A constraint with the attributes of the devices that are allocated so far. Once it is violated, no more devices
/// can satisfy it: the search ends early.
#[derive(Debug)]
pub(crate) struct Constraint<'a> {
    spec: &'a ConstraintSpec,
    values: Vec<&'a Attribute>,
}

impl<'a> Constraint<'a> {
    pub(crate) fn new(spec: &'a ConstraintSpec) -> Constraint<'a> {
        Constraint { spec, values: Vec::new() }
    }

    /// Adds a device of a request; false if that violates the constraint.
    pub(crate) fn add(&mut self, request: &str, full_name: &str, driver: &str, device: &'a Device) -> bool {
        if !self.is_for(request, full_name) {
            return true;
        }
        let attribute = device.attribute(driver, &self.spec.attribute);
        let Some(value) = attribute.filter(|value| !matches!(value, Attribute::List(_))) else { return false };
        let fits = match (self.spec.is_distinct, self.values.first()) {
            (true, _) => !self.values.contains(&value),
            (false, None) => true,
            (false, Some(first)) => *first == value,
        };
        if fits {
            self.values.push(value);
        }
        fits
    }

    /// Takes back the last device that was added.
    pub(crate) fn remove(&mut self, request: &str, full_name: &str) {
        if self.is_for(request, full_name) {
            self.values.pop();
        }
    }

    fn is_for(&self, request: &str, full_name: &str) -> bool {
        let is_named = |name: &Str| name == request || name == full_name;
        self.spec.requests.is_empty() || self.spec.requests.iter().any(is_named)
    }
}
