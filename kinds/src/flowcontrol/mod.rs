//! The kinds of the `flowcontrol` group, one file per kind.

pub mod flow_schema;
pub mod priority_level_configuration;
mod rules;
