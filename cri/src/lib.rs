//! CRI v1, the protocol between a kubelet and its container runtime: messages by their published field numbers, the
//! calls as traits, and both ends of the wire. The crate is independent of the kubelet and of the runtime. Other gRPC
//! services over unix sockets use its module `grpc`.

#![warn(unreachable_pub)]

mod endpoints;
pub mod grpc;
mod messages;
mod services;
mod timeout;

pub use endpoints::{connect, serve};
pub use grpc::{BoxFuture, ResponseStream};
pub use messages::*;
pub use services::*;
pub use timeout::TimeoutService;

/// The error of a call: a gRPC code and a text.
pub use tonic::{Code, Status};
