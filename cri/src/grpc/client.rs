//! Client: one connection to a socket, opened by the first call and again after it broke.

use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use super::MAX_MESSAGE;
use super::ResponseStream;

/// A channel to the server that listens on a socket.
pub fn dial(socket: &Path) -> Channel {
    // The address is never resolved; HTTP/2 requires one for its authority.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(Dial(socket.to_owned()))
}

/// One call: its path is `/package.Service/Method`.
pub async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    Ok(grpc.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

/// Makes a call with a stream as its response.
pub async fn stream<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<ResponseStream<A>, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answers = grpc.server_streaming(tonic::Request::new(request), path, codec).await?;
    Ok(Box::pin(answers.into_inner()))
}

async fn ready(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc =
        Grpc::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(grpc)
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
