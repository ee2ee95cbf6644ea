//! The kinds of the `rbac` group, one file per kind.

pub(crate) mod cluster_role;
pub(crate) mod cluster_role_binding;
pub(crate) mod role;
pub(crate) mod role_binding;
mod rules;
