//! SPDY/3.1, as far as Kubernetes uses it: many streams over one connection, opened by either end, each with headers
//! and two directions that close separately. The content of the streams is opaque.
//!
//! Many peers ignore windows altogether and never grant any. So windows limit our sending only once the peer has
//! announced that it uses them, and data beyond a window is not an error: the connection is not read until the buffer
//! has space.

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
