//! Small things that every layer uses: clock, identifiers, files. They know nothing of requests.

pub mod clock;
pub mod files;
pub mod ids;
pub(crate) mod join;
pub mod reload;
