//! Utilities that every layer uses: identifiers, files, deadlines. They do not depend on requests.

pub(crate) mod deadline;
pub(crate) mod errors;
pub mod files;
pub mod identity;
pub mod ids;
pub(crate) mod join;
pub mod reload;
pub mod users;
