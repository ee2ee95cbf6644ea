//! CRI v1, the protocol between a node agent and its container runtime: messages by their published field
//! numbers, the calls as traits, and both ends of the wire. It knows neither a kubelet nor a runtime. Others speak
//! gRPC over sockets in the same way, and find its ends in `grpc`.

mod limited;
mod messages;
mod remote;
mod serve;
mod services;

pub use limited::Limited;
pub use messages::*;
pub use remote::connect;
pub use serve::serve;
pub use services::*;

/// Calls of other services by their paths.
pub mod grpc {
    pub use crate::remote::{call, dial, stream};
    pub use crate::serve::{Answering, Body, Responding, respond_stream, respond_unary, serve_calls};
    pub use crate::services::{Answers, BoxFuture};
    pub use tonic::transport::Channel;
}

/// What a call that failed says: a gRPC code and a text.
pub use tonic::{Code, Status};

/// gRPC's own default of 4 MiB is less than a list of a few hundred containers; upstream's value.
const MAX_MESSAGE: usize = 16 << 20;
