//! Small things that every layer uses: identifiers, files. They know nothing of requests.

pub(crate) mod errors;
pub mod files;
pub mod identity;
pub mod ids;
pub(crate) mod join;
pub mod reload;
pub mod users;
