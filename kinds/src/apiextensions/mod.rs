//! The kinds of the `apiextensions` group, a file a kind.

pub mod custom_resource_definition;
