//! The kinds of the `flowcontrol` group, one file per kind.

pub(crate) mod flow_schema;
pub(crate) mod priority_level_configuration;
mod rules;
