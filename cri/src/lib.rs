//! CRI v1, the protocol between a node agent and its container runtime: messages by their published field
//! numbers, the calls as traits, and both ends of the wire. It knows neither a kubelet nor a runtime.

mod messages;
mod remote;
mod serve;
mod services;

pub use messages::*;
pub use remote::connect;
pub use serve::serve;
pub use services::*;

/// What a call that failed says: a gRPC code and a text.
pub use tonic::{Code, Status};

/// gRPC's own default of 4 MiB is less than a list of a few hundred containers; upstream's value.
const MAX_MESSAGE: usize = 16 << 20;
