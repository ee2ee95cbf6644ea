//! Transactions in etcd's format, and their results.

use std::sync::Arc;

use super::keys::Keys;
use super::leases::Leases;
use super::proto::{self, Compare, Request, RequestOp, Response, Target, TxnRequest, TxnResponse};
use crate::embedded::is_satisfied;
use crate::{Committed, Entry, Error, Op, Precondition, Result, Revision, Write};

/// `leases` has the lease of each write, 0 for none. If an expectation does not hold, every key is read in the same
/// transaction, so that the conflict can be reported.
pub(crate) fn request(keys: &Keys, writes: &[Write], leases: &[i64]) -> TxnRequest {
    TxnRequest {
        compare: writes.iter().filter_map(|write| compare(keys, write)).collect(),
        success: writes.iter().zip(leases).map(|(write, &lease)| operation(keys, write, lease)).collect(),
        failure: writes.iter().map(|write| read(keys, &write.key)).collect(),
    }
}

fn compare(keys: &Keys, write: &Write) -> Option<Compare> {
    let revision = match write.expect {
        Precondition::Anything => return None,
        Precondition::Absent => 0,
        // No entry has revision 0, but for etcd it means that the key does not exist.
        Precondition::Revision(0) => i64::MAX,
        Precondition::Revision(revision) => revision as i64,
    };
    Some(Compare {
        result: proto::COMPARE_EQUAL,
        target: proto::TARGET_MOD,
        key: keys.full(&write.key),
        target_union: Some(Target::ModRevision(revision)),
    })
}

fn operation(keys: &Keys, write: &Write, lease: i64) -> RequestOp {
    let key = keys.full(&write.key);
    let request = match &write.op {
        // The placeholder stays empty, as in upstream: etcd provides the revision.
        Op::Put(template) => {
            Request::Put(proto::PutRequest { key, value: template.bytes.clone(), lease, prev_kv: true })
        }
        Op::Delete => Request::DeleteRange(proto::DeleteRangeRequest { key, prev_kv: true }),
        Op::Check => return read(keys, &write.key),
    };
    RequestOp { request: Some(request) }
}

fn read(keys: &Keys, key: &str) -> RequestOp {
    let range = proto::RangeRequest { key: keys.full(key), ..Default::default() };
    RequestOp { request: Some(Request::Range(range)) }
}

/// The result of each write.
pub(crate) fn committed(
    keys: &Keys,
    writes: Vec<Write>,
    lease_ids: &[i64],
    leases: &Leases,
    response: TxnResponse,
    revision: Revision,
) -> Vec<Committed> {
    let answers = writes.into_iter().zip(lease_ids).zip(response.responses);
    let outcome = |((write, &lease), answer): ((Write, &i64), proto::ResponseOp)| {
        let previous = match answer.response {
            Some(Response::Put(put)) => put.prev_kv,
            Some(Response::DeleteRange(delete)) => delete.prev_kvs.into_iter().next(),
            _ => None,
        };
        let expires = leases.expires(lease);
        let entry = match write.op {
            Op::Put(template) => {
                let (key, value) = (write.key.into(), template.bytes.into());
                Some(Arc::new(Entry { key, value, revision, expires }))
            }
            Op::Delete | Op::Check => None,
        };
        Committed { revision, entry, previous: previous.and_then(|kv| keys.entry(kv, leases)) }
    };
    answers.map(outcome).collect()
}

/// The first expectation that does not hold.
pub(crate) fn conflict(keys: &Keys, writes: &[Write], leases: &Leases, response: TxnResponse) -> Result<Error> {
    for (place, (write, answer)) in writes.iter().zip(response.responses).enumerate() {
        let Some(Response::Range(range)) = answer.response else {
            break;
        };
        let current = range.kvs.into_iter().next().and_then(|kv| keys.entry(kv, leases));
        if !is_satisfied(write.expect, current.as_ref().map(|entry| entry.revision)) {
            return Ok(Error::Conflict { write: place, current });
        }
    }
    Err(Error::Unavailable("etcd rejected a transaction without a reason".to_owned()))
}
