//! gRPC over unix sockets, for CRI and for other services that are called by their paths.

mod client;
mod server;

use std::future::Future;
use std::pin::Pin;

use tokio_stream::Stream;
pub use tonic::transport::Channel;

use crate::Status;
pub use client::{call, dial, stream};
pub use server::{Body, CallHandler, ResponseFuture, respond_stream, respond_unary, serve_calls};

/// gRPC's own default of 4 MiB is less than a list of a few hundred containers; upstream's value.
const MAX_MESSAGE: usize = 16 << 20;

/// The response to a call.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;
/// The stream of responses to a call.
pub type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
