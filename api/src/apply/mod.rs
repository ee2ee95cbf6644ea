//! Server-side apply and managed fields: the owners of each field of an object.
//!
//! The server calls this once for each write, on the decoded, conformed and defaulted object, *before* mutating
//! admission: fields that admission adds have no owner.
//!
//! 1. create, update, and every patch except apply: decode and patch, [`keep_reset`], conform, default,
//!    then [`update`];
//! 2. apply: [`apply`] on the decoded patch, then conform, default; nothing else, as the managed
//!    fields are already in the object;
//! 3. then admission, prepare and validation;
//! 4. last, if the object exists, [`keep_timestamps`]: a write that changes only the times of managed fields keeps
//!    the old times, and creates no revision.

mod applier;
mod codec;
mod compare;
mod configuration;
mod conflict;
mod last_applied;
mod managers;
mod merge;
mod remove;
mod scale;
mod set;
mod shape;
mod to_set;
mod updater;
mod validate;

pub use applier::{ApplyError, apply};
pub use codec::DecodeError;
pub use configuration::{ConfigurationError, merge_configuration};
pub use conflict::{Conflict, Conflicts};
pub use managers::{EntryError, ManagedFields, Manager, Operation};
pub use merge::merge;
pub use scale::{ReplicasPath, parent_from_scale, scale_from_parent};
pub(crate) use set::order_values;
pub use set::{Entry, FieldSet};
pub use updater::{Request, SameVersion, Versions, keep_reset, keep_timestamps, update};

#[cfg(test)]
mod tests;
