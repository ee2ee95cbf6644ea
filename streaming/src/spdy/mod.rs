//! SPDY/3.1, as far as Kubernetes uses it: many streams over one connection, opened by either end, each with headers
//! and two directions that close on their own. It knows nothing of what the streams carry.
//!
//! The other end is often one that ignores windows altogether and never grants any. So windows bind our sending only
//! once the other end has said that it uses them, and what comes in past a window is not an error: the connection is
//! just not read on until there is room.

mod entry;
mod frame;
mod headers;
mod session;
mod state;
mod stream;

pub use frame::Error;
pub use headers::{Headers, header};
pub use session::Session;
pub use state::{Check, Limits, Role};
pub use stream::Stream;
