//! The kinds of the `resource` group, one file per kind.

mod claim;
mod device;
pub(crate) mod device_class;
pub(crate) mod device_taint_rule;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;
mod rules;
mod selectors;
