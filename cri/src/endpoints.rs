//! Both ends of CRI: clients of a runtime's socket, and the server of a runtime.

use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixListener;

use crate::Status;
use crate::grpc::{Body, ResponseFuture, dial, serve_calls};
use crate::services::{
    DynImageService, DynRuntimeService, ImageServiceClient, RuntimeServiceClient, dispatch_image, dispatch_runtime,
};

/// Clients of the runtime at a socket. They connect with the first call, which fails where no runtime listens.
pub fn connect(socket: &Path) -> (RuntimeServiceClient, ImageServiceClient) {
    let channel = dial(socket);
    (RuntimeServiceClient(channel.clone()), ImageServiceClient(channel))
}

/// Serves both services until the future is dropped; open connections end with it.
pub async fn serve(
    listener: UnixListener,
    runtime: Arc<dyn DynRuntimeService>,
    images: Arc<dyn DynImageService>,
) -> std::io::Result<()> {
    serve_calls(listener, Arc::new(move |request| answer(runtime.clone(), images.clone(), request))).await
}

fn answer(
    runtime: Arc<dyn DynRuntimeService>,
    images: Arc<dyn DynImageService>,
    request: http::Request<Body>,
) -> ResponseFuture {
    let unknown = |request: http::Request<Body>| -> ResponseFuture {
        let status = Status::unimplemented(unknown(request.uri().path()));
        Box::pin(async move { status.into_http() })
    };
    dispatch_runtime(runtime, request).or_else(|request| dispatch_image(images, request)).unwrap_or_else(unknown)
}

/// The text of upstream's gRPC server, by which clients distinguish an old runtime from a broken one.
fn unknown(path: &str) -> String {
    match path.trim_start_matches('/').split_once('/') {
        Some((service @ ("runtime.v1.RuntimeService" | "runtime.v1.ImageService"), method)) => {
            format!("unknown method {method} for service {service}")
        }
        Some((service, _)) => format!("unknown service {service}"),
        None => format!("malformed method name: {path:?}"),
    }
}
