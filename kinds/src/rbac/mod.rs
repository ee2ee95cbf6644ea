//! The kinds of the `rbac` group, one file per kind.

pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;
mod rules;
