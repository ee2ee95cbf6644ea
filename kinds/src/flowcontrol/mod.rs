//! The kinds of the `flowcontrol` group, a file a kind.

pub mod flow_schema;
pub mod priority_level_configuration;
mod rules;
