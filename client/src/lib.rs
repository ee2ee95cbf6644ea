//! An API client: requests, informers, work queues, events and leader election. It depends neither on whether the
//! server is in the same process or behind HTTPS, nor on how the server works.

#![warn(unreachable_pub)]

mod cause;
pub mod election;
mod error;
mod fence;
pub mod files;
mod follower;
pub mod gates;
pub mod https;
pub mod index;
mod informer;
mod informers;
pub mod metrics;
mod object;
pub mod ordered;
mod queue;
mod random;
mod recorder;
mod reflector;
mod requests;
mod resource;
mod store;
mod throttle;
mod transport;
mod watch;
pub mod writes;

pub use cause::Cause;
pub use error::{Error, Result};
pub use fence::Fence;
pub use follower::{Follower, Listener};
pub use index::Index;
pub use informer::{Informer, Selection};
pub use informers::Informers;
pub use metrics::{Metric, Metrics};
pub use object::{Key, Object, ObservedObject, key, key_of, revision_of, split};
pub use queue::{Queue, WorkResult};
pub use random::Random;
pub use recorder::{EventDetails, Events, Recorder};
pub use reflector::{ObjectChange, Reflector, Sink};
pub use requests::{Client, DeleteOptions, Patch, Propagation};
pub use resource::Resource;
pub use store::{Change, Store};
pub use throttle::ThrottledTransport;
pub use transport::{Body, DiscardBody, ObjectFrames, ResponseFuture, Transport};
pub use watch::{Event, Watch};
