//! CRI v1, the protocol between a kubelet and its container runtime: messages by their published field numbers, the
//! calls as traits, and both ends of the wire. It knows neither a kubelet nor a runtime. Other services that speak
//! gRPC over unix sockets use its module `grpc`.

#![warn(unreachable_pub)]

mod endpoints;
pub mod grpc;
mod limited;
mod messages;
mod services;

pub use endpoints::{connect, serve};
pub use grpc::{Answers, BoxFuture};
pub use limited::Limited;
pub use messages::*;
pub use services::*;

/// The error of a call: a gRPC code and a text.
pub use tonic::{Code, Status};
