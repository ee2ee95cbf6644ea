//! Calls to etcd with deadlines, and the conversion of its errors.

use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Config;
use super::proto;
use crate::{Error, Result, Revision};

/// gRPC's default of 4 MiB is less than a list of a few large objects.
const MAX_MESSAGE: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Detects a dead peer; upstream's values.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(config: &Config) -> Result<Self> {
        let tls = tls(config)?;
        let endpoints: Result<Vec<Endpoint>> =
            config.endpoints.iter().map(|address| endpoint(address, tls.as_ref())).collect();
        let mut endpoints = endpoints?;
        let channel = match endpoints.len() {
            0 => return Err(Error::Unavailable("no etcd endpoint is configured".to_owned())),
            1 => endpoints.remove(0).connect_lazy(),
            _ => Channel::balance_list(endpoints.into_iter()),
        };
        Ok(Self { channel, timeout: config.timeout })
    }

    /// Sent once: after an error it may or may not have been executed.
    pub(crate) async fn txn(&self, request: proto::TxnRequest) -> Result<proto::TxnResponse, Status> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    /// A linearizable read.
    pub(super) async fn range(&self, request: proto::RangeRequest) -> Result<proto::RangeResponse, Status> {
        self.retried("/etcdserverpb.KV/Range", request).await
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<proto::CompactionResponse, Status> {
        let request = proto::CompactionRequest { revision: revision as i64 };
        self.retried("/etcdserverpb.KV/Compact", request).await
    }

    pub(super) async fn grant(&self, ttl_seconds: i64) -> Result<proto::LeaseGrantResponse, Status> {
        self.retried("/etcdserverpb.Lease/LeaseGrant", proto::LeaseGrantRequest { ttl: ttl_seconds }).await
    }

    pub(super) async fn status(&self) -> Result<proto::StatusResponse, Status> {
        self.retried("/etcdserverpb.Maintenance/Status", proto::StatusRequest {}).await
    }

    pub(super) async fn snapshot(&self) -> Result<Streaming<proto::SnapshotResponse>, Status> {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
        let request = tonic::Request::new(proto::SnapshotRequest {});
        Ok(grpc.server_streaming(request, path, ProstCodec::default()).await?.into_inner())
    }

    /// The request stream stays open as long as the sender exists: etcd ends the watch with it.
    pub(super) async fn watch(
        &self,
        requests: tokio::sync::mpsc::Receiver<proto::WatchRequest>,
    ) -> Result<Streaming<proto::WatchResponse>, Status> {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        Ok(grpc.streaming(tonic::Request::new(requests), path, ProstCodec::default()).await?.into_inner())
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let grpc = Grpc::new(self.channel.clone());
        let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
        grpc.ready().await.map_err(|error| Status::unavailable(cause(&error)))?;
        Ok(grpc)
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let call = async {
            let mut grpc = self.grpc().await?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(tonic::Request::new(request), path, ProstCodec::default()).await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_elapsed) => Err(Status::unavailable("etcd request timed out")),
        }
    }

    /// Retries an idempotent call while etcd is unreachable, up to the deadline.
    async fn retried<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            match self.unary(path, request.clone()).await {
                Err(status) if is_lost(&status) && tokio::time::Instant::now() + RETRY < deadline => {
                    tokio::time::sleep(RETRY).await;
                }
                result => return result,
            }
        }
    }
}

fn endpoint(address: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| unusable(address, &error))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(Some(4 << 20))
        .initial_connection_window_size(Some(16 << 20))
        .tcp_nodelay(true);
    match tls.filter(|_| address.starts_with("https:")) {
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| unusable(address, &error)),
        None => Ok(endpoint),
    }
}

fn tls(config: &Config) -> Result<Option<ClientTlsConfig>> {
    if config.ca_file.is_none() && config.cert_file.is_none() {
        return Ok(None);
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(path) = &config.ca_file {
        tls = tls.ca_certificate(Certificate::from_pem(read(path)?));
    }
    if let (Some(cert), Some(key)) = (&config.cert_file, &config.key_file) {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(tls))
}

fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })
}

fn unusable(address: &str, error: &dyn std::error::Error) -> Error {
    Error::Unavailable(format!("{address}: {}", cause(error)))
}

/// The innermost cause: tonic's own text is only "transport error".
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// The call did not get through, or a member has no leader.
fn is_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
        && !status.message().contains("too many requests")
}

pub(crate) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}

/// An error that does not concern one write or read.
pub(crate) fn failed(status: &Status) -> Error {
    let text = match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), cause(source)),
        None => status.message().to_owned(),
    };
    match status.code() {
        Code::ResourceExhausted if text.contains("space exceeded") => Error::Full(std::io::Error::other(text)),
        _ => Error::Unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_etcd_errors() {
        let compacted = Status::out_of_range("etcdserver: mvcc: required revision has been compacted");
        assert!(is_compacted(&compacted) && !is_lost(&compacted));
        let full = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        assert!(matches!(failed(&full), Error::Full(_)));
        assert!(is_lost(&Status::unavailable("etcdserver: leader changed")));
    }
}
