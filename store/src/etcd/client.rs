//! Calls to etcd with deadlines, and the conversion of its errors.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Config;
use super::channels::{Channels, NumberedChannel};
use super::proto;
use crate::{Error, Result, Revision};

/// gRPC's default of 4 MiB is less than a list of a few large objects.
const MAX_MESSAGE: usize = 1 << 30;
const RETRY: Duration = Duration::from_millis(50);
/// The duration of a read at one of several endpoints, before it is repeated at another one: a member without a leader
/// responds late, and one that cannot be reached never.
const READ_ATTEMPT: Duration = Duration::from_millis(1500);

#[derive(Clone)]
pub(crate) struct Client {
    channels: Arc<Channels>,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(config: &Config) -> Result<Self> {
        Ok(Self { channels: Arc::new(Channels::new(config)?), timeout: config.timeout })
    }

    pub(super) fn with_timeout(&self, timeout: Duration) -> Client {
        Client { channels: self.channels.clone(), timeout }
    }

    /// Executed at most once: after an error it may or may not have been executed.
    pub(crate) async fn txn(&self, request: proto::TxnRequest) -> Result<proto::TxnResponse, Status> {
        let mut endpoints = self.channels.count();
        loop {
            let result = self.unary("/etcdserverpb.KV/Txn", request.clone(), self.timeout).await;
            endpoints -= 1;
            match result {
                Err(status) if endpoints > 0 && was_not_sent(&status) => {}
                result => return result,
            }
        }
    }

    /// A linearizable read.
    pub(super) async fn range(&self, request: proto::RangeRequest) -> Result<proto::RangeResponse, Status> {
        self.retried("/etcdserverpb.KV/Range", request).await
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<proto::CompactionResponse, Status> {
        let request = proto::CompactionRequest { revision: revision as i64, physical: false };
        self.retried("/etcdserverpb.KV/Compact", request).await
    }

    /// The same; responds after the space is free.
    pub(super) async fn compact_physically(&self, revision: Revision) -> Result<proto::CompactionResponse, Status> {
        let request = proto::CompactionRequest { revision: revision as i64, physical: true };
        self.unary("/etcdserverpb.KV/Compact", request, self.timeout).await
    }

    pub(super) async fn grant(&self, ttl_seconds: i64) -> Result<proto::LeaseGrantResponse, Status> {
        self.retried("/etcdserverpb.Lease/LeaseGrant", proto::LeaseGrantRequest { ttl: ttl_seconds }).await
    }

    pub(super) async fn time_to_live(&self, id: i64) -> Result<proto::LeaseTimeToLiveResponse, Status> {
        self.retried("/etcdserverpb.Lease/LeaseTimeToLive", proto::LeaseTimeToLiveRequest { id }).await
    }

    pub(super) async fn status(&self) -> Result<proto::StatusResponse, Status> {
        self.retried("/etcdserverpb.Maintenance/Status", proto::StatusRequest {}).await
    }

    pub(super) async fn alarm(&self, request: proto::AlarmRequest) -> Result<proto::AlarmResponse, Status> {
        self.retried("/etcdserverpb.Maintenance/Alarm", request).await
    }

    pub(super) async fn defragment(&self) -> Result<proto::DefragmentResponse, Status> {
        self.unary("/etcdserverpb.Maintenance/Defragment", proto::DefragmentRequest {}, self.timeout).await
    }

    pub(super) async fn hash_kv(&self, revision: Revision) -> Result<proto::HashKvResponse, Status> {
        let request = proto::HashKvRequest { revision: revision as i64 };
        self.retried("/etcdserverpb.Maintenance/HashKV", request).await
    }

    pub(super) async fn snapshot(&self) -> Result<Streaming<proto::SnapshotResponse>, Status> {
        let mut grpc = ready(self.channels.current().channel).await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
        let request = Request::new(proto::SnapshotRequest {});
        Ok(grpc.server_streaming(request, path, ProstCodec::default()).await?.into_inner())
    }

    /// The request stream stays open as long as the sender exists: etcd ends the watch with it. A member that loses
    /// its leader ends the watch too.
    pub(super) async fn watch(
        &self,
        requests: tokio::sync::mpsc::Receiver<proto::WatchRequest>,
    ) -> Result<Watcher, Status> {
        let channel = self.channels.current();
        let open = async {
            let mut grpc = ready(channel.channel.clone()).await?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
            let mut request = Request::new(requests);
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            grpc.streaming(request, path, ProstCodec::default()).await
        };
        let opened = match tokio::time::timeout(self.timeout, open).await {
            Ok(opened) => opened,
            Err(_elapsed) => Err(Status::unavailable("etcd watch timed out")),
        };
        match opened {
            Ok(responses) => Ok(Watcher { responses: responses.into_inner(), channel }),
            Err(status) => {
                self.channels.leave(&channel);
                Err(status)
            }
        }
    }

    /// The watch has failed: the next one uses another endpoint.
    pub(super) fn leave(&self, watcher: &Watcher) {
        self.channels.leave(&watcher.channel);
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q, timeout: Duration) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let channel = self.channels.current();
        let call = async {
            let mut grpc = ready(channel.channel.clone()).await?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(Request::new(request), path, ProstCodec::default()).await
        };
        let result = match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_elapsed) => Err(Status::unavailable("etcd request timed out")),
        };
        if result.as_ref().is_err_and(is_lost) {
            self.channels.leave(&channel);
        }
        result
    }

    /// Retries an idempotent call while etcd is unreachable, up to the deadline.
    async fn retried<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let attempt = if self.channels.count() > 1 { left.min(READ_ATTEMPT) } else { left };
            match self.unary(path, request.clone(), attempt).await {
                Err(status) if is_lost(&status) && tokio::time::Instant::now() + RETRY < deadline => {
                    tokio::time::sleep(RETRY).await;
                }
                result => return result,
            }
        }
    }
}

/// An open watch.
pub(super) struct Watcher {
    pub responses: Streaming<proto::WatchResponse>,
    channel: NumberedChannel,
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let grpc = Grpc::new(channel);
    let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    grpc.ready().await.map_err(|error| Status::unavailable(cause(&error)))?;
    Ok(grpc)
}

/// The innermost cause: tonic's own text is only "transport error".
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// The call did not get through, or a member has no leader.
pub(super) fn is_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
        && !status.message().contains("too many requests")
}

/// There was no connection: the call cannot have been executed.
fn was_not_sent(status: &Status) -> bool {
    let mut inner: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(error) = inner {
        if error.is::<ConnectError>() {
            return true;
        }
        inner = error.source();
    }
    false
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
        Code::ResourceExhausted if text.contains("space exceeded") => Error::Full(std::io::Error::other(format!(
            "{text}: compact and defragment etcd, and disarm its NOSPACE alarm: \
             `tiphys store compact`, then `tiphys store defrag --disarm`"
        ))),
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
        assert!(matches!(failed(&full), Error::Full(why) if why.to_string().contains("defrag --disarm")));
        assert!(is_lost(&Status::unavailable("etcdserver: leader changed")));
    }
}
