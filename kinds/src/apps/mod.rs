//! The kinds of the `apps` group, a file a kind.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use crate::gojson::{EMPTY, NULL, Shown, field};

/// An update strategy of any of these kinds, in the form that upstream's errors show.
const STRATEGY: &[Shown] = &[field("type", "Type", EMPTY), field("rollingUpdate", "RollingUpdate", NULL)];
