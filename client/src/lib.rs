//! A client of the API: requests, informers that keep a resource in memory, and work queues. It does not
//! know whether the server is in this process or behind HTTPS, and nothing of how the server is made.

mod error;
pub mod https;
mod informer;
pub mod queue;
mod requests;
mod resource;
mod store;
mod transport;
mod watch;

pub use error::{Error, Result};
pub use informer::{Informer, Selection};
pub use queue::Queue;
pub use requests::Client;
pub use resource::Resource;
pub use store::{Change, Key, Store};
pub use transport::{Body, Sending, Transport};
pub use watch::{Event, Watch};
