//! Small things that every layer uses: clock, identifiers, files. They know nothing of requests.

pub mod clock;
pub(crate) mod errors;
pub mod files;
pub mod identity;
pub mod ids;
pub(crate) mod join;
pub mod reload;
pub mod users;
