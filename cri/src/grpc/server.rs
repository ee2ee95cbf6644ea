//! Server: HTTP/2 on a unix socket, each call dispatched by its path.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::MAX_MESSAGE;
use super::{BoxFuture, ResponseStream};

/// The body of a request.
pub type Body = Incoming;
/// A response in progress.
pub type ResponseFuture = Pin<Box<dyn Future<Output = http::Response<tonic::body::Body>> + Send>>;

/// Handles a call by its path.
pub type CallHandler = Arc<dyn Fn(http::Request<Body>) -> ResponseFuture + Send + Sync>;

/// Serves any calls until the future is dropped.
pub async fn serve_calls(listener: UnixListener, answering: CallHandler) -> std::io::Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(connection(stream, answering.clone()));
            }
        }
    }
}

async fn connection(stream: UnixStream, answering: CallHandler) {
    let service = service_fn(move |request| {
        let answering = answering.clone();
        async move { Ok::<_, Infallible>(answering(request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection closed");
    }
}

type Grpc<Q, A> = tonic::server::Grpc<ProstCodec<A, Q>>;

fn grpc<Q: Message + Default + 'static, A: Message + Default + 'static>() -> Grpc<Q, A> {
    tonic::server::Grpc::new(ProstCodec::default())
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

/// Responds to one message with the result of a function.
pub fn respond_unary<Q, A>(
    request: http::Request<Body>,
    call: impl Fn(Q) -> BoxFuture<'static, A> + Send + Sync + 'static,
) -> ResponseFuture
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    Box::pin(async move { grpc::<Q, A>().unary(Call(call), request).await })
}

/// Responds to one message with a stream.
pub fn respond_stream<Q, A>(
    request: http::Request<Body>,
    call: impl Fn(Q) -> BoxFuture<'static, ResponseStream<A>> + Send + Sync + 'static,
) -> ResponseFuture
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    Box::pin(async move { grpc::<Q, A>().server_streaming(Call(call), request).await })
}

/// A function of a message as the service that tonic calls.
struct Call<F>(F);

impl<Q, A: 'static, F: Fn(Q) -> BoxFuture<'static, A>> tower_service::Service<Request<Q>> for Call<F> {
    type Response = Response<A>;
    type Error = Status;
    type Future = BoxFuture<'static, Response<A>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}
