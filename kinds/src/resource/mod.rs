//! The kinds of the `resource` group, one file per kind.

mod claim;
mod device;
pub mod device_class;
pub mod device_taint_rule;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;
mod rules;
