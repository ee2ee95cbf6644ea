//! The kinds of the `apps` group, one file per kind.

pub(crate) mod controller_revision;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;

use crate::gojson::{EMPTY, GoField, NULL, field};

/// An update strategy as upstream's errors print it.
const STRATEGY: &[GoField] = &[field("type", "Type", EMPTY), field("rollingUpdate", "RollingUpdate", NULL)];
