//! The client's end: one connection to a runtime's socket, made when it is first needed and again when it broke.

use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Endpoint, Uri};

use crate::services::{ImageServiceClient, RuntimeServiceClient};

/// A runtime by its socket. Nothing is asked of it yet: a runtime that is not there fails the first call.
pub fn connect(socket: &Path) -> (RuntimeServiceClient, ImageServiceClient) {
    let socket = socket.to_owned();
    // The address is never looked up; HTTP/2 wants one for its authority.
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(Dial(socket));
    (RuntimeServiceClient(channel.clone()), ImageServiceClient(channel))
}

struct Dial(PathBuf);

impl tower_service::Service<Uri> for Dial {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn std::future::Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(UnixStream::connect(socket).await?)) })
    }
}
