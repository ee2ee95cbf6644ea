//! `apiextensions.k8s.io`.

pub(crate) mod custom_resource_definition;
mod printed;
mod validate;

pub use validate::structural_violations;
