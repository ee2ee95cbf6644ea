//! The kinds of the `apps` group, one file per kind.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use crate::gojson::{EMPTY, GoField, NULL, field};

/// An update strategy as upstream's errors print it.
const STRATEGY: &[GoField] = &[field("type", "Type", EMPTY), field("rollingUpdate", "RollingUpdate", NULL)];
