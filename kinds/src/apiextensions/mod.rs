//! The kinds of the `apiextensions` group, one file per kind.

pub mod custom_resource_definition;
