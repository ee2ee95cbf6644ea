//! Server-side apply and managed fields: who owns which field of an object.
//!
//! The server calls this once for each write, on the object as it was decoded, conformed and
//! defaulted, *before* mutating admission: what admission adds has no owner.
//!
//! 1. create, update, and every patch but apply: decode and patch, [`keep_reset`], conform, default,
//!    then [`update`];
//! 2. apply: [`apply`] on the decoded patch, then conform, default; nothing else, as the managed
//!    fields are already in the object;
//! 3. then admission, prepare and validation;
//! 4. last, where there is a live object, [`keep_timestamps`]: a write that changes nothing but the
//!    times of managed fields keeps the old ones, and so makes no revision.

mod applier;
mod codec;
mod compare;
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
pub use conflict::{Conflict, Conflicts};
pub use managers::{EntryError, Managed, Manager, Operation};
pub use merge::merge;
pub use scale::{ReplicasPath, parent_from_scale, scale_from_parent};
pub(crate) use set::order_values;
pub use set::{Entry, FieldSet};
pub use updater::{Request, SameVersion, Versions, keep_reset, keep_timestamps, update};

#[cfg(test)]
mod tests;
