//! Compaction by upstream's rule, with which several servers of one etcd agree: the first to update `compact_rev_key`
//! compacts to the revision of an interval ago.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;

use super::client::{Client, is_compacted};
use super::proto::{self, Compare, PutRequest, RangeRequest, Request, RequestOp, Response, Target, TxnRequest};
use crate::Revision;
use crate::feed::Feed;

const KEY: &[u8] = b"compact_rev_key";

pub(crate) struct Compactor {
    pub client: Client,
    pub feed: Arc<Feed>,
    pub interval: Duration,
}

/// The state of the last run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct CompactionState {
    version: i64,
    revision: i64,
}

impl Compactor {
    pub(super) async fn run(self, mut closed: watch::Receiver<bool>) {
        let mut seen = CompactionState::default();
        loop {
            tokio::select! {
                biased;
                _ = closed.wait_for(|&closed| closed) => return,
                () = tokio::time::sleep(self.interval) => {}
            }
            match self.run_once(seen).await {
                Ok(now) => seen = now,
                Err(status) => tracing::warn!(reason = status.message(), "failed to compact etcd"),
            }
        }
    }

    async fn run_once(&self, seen: CompactionState) -> Result<CompactionState, Status> {
        let response = self.client.txn(request(seen)).await?;
        let (now, compact) = decide(seen, &response);
        if let Some(revision) = compact {
            match self.client.compact(revision).await {
                Err(status) if !is_compacted(&status) => return Err(status),
                _ => {}
            }
            // Our history beyond that is not needed, since etcd has the same limit.
            let _ = self.feed.compact(revision);
        }
        Ok(now)
    }
}

fn request(seen: CompactionState) -> TxnRequest {
    let compare = Compare {
        result: proto::COMPARE_EQUAL,
        target: proto::TARGET_VERSION,
        key: KEY.to_vec(),
        target_union: Some(Target::Version(seen.version)),
    };
    let value = seen.revision.to_string().into_bytes();
    let put = Request::Put(PutRequest { key: KEY.to_vec(), value, ..Default::default() });
    let get = Request::Range(RangeRequest { key: KEY.to_vec(), ..Default::default() });
    TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp { request: Some(put) }],
        failure: vec![RequestOp { request: Some(get) }],
    }
}

/// The state to keep, and the revision to compact to, if it is our turn.
fn decide(seen: CompactionState, response: &proto::TxnResponse) -> (CompactionState, Option<Revision>) {
    let revision = response.header.as_ref().map_or(0, |header| header.revision);
    if response.succeeded {
        let compact = (seen.revision > 0).then_some(seen.revision as u64);
        return (CompactionState { version: seen.version + 1, revision }, compact);
    }
    let version = match response.responses.first().and_then(|answer| answer.response.as_ref()) {
        Some(Response::Range(range)) => range.kvs.first().map_or(0, |kv| kv.version),
        _ => 0,
    };
    (CompactionState { version, revision }, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{KeyValue, RangeResponse, ResponseHeader, ResponseOp, TxnResponse};

    fn answer(succeeded: bool, revision: i64, version: i64) -> TxnResponse {
        let kvs = vec![KeyValue { version, ..Default::default() }];
        let range = Response::Range(RangeResponse { kvs, ..Default::default() });
        let responses = vec![ResponseOp { response: Some(range) }];
        TxnResponse { header: Some(ResponseHeader { revision, ..Default::default() }), succeeded, responses }
    }

    #[test]
    fn one_server_compacts_to_the_previous_revision() {
        let start = CompactionState::default();
        let (first, compact) = decide(start, &answer(true, 100, 0));
        assert_eq!((first, compact), (CompactionState { version: 1, revision: 100 }, None));
        let (second, compact) = decide(first, &answer(true, 200, 0));
        assert_eq!((second, compact), (CompactionState { version: 2, revision: 200 }, Some(100)));
        let (third, compact) = decide(second, &answer(false, 300, 7));
        assert_eq!((third, compact), (CompactionState { version: 7, revision: 300 }, None), "another was first");
    }
}
