//! The kinds of the `apiextensions` group, one file per kind.

pub(crate) mod custom_resource_definition;
