//! Causes in etcd: each has a key of its own outside of the store's prefix, written in the same transaction, so that
//! its revision is that of the write, and with a lease that ends it. The suffix is random, since the revision is not
//! known before the write.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::client::{Client, failed};
use super::keys::Keys;
use super::proto::{KeyValue, PutRequest, RangeRequest, Request, RequestOp};
use crate::{Durability, Op, Result, Revision, Write};

const PREFIX: &str = "tiphys-cause";
/// Separates a key from the suffix. A name may contain it, so a suffix has a fixed length.
const SEPARATOR: char = '#';
const SUFFIX: usize = 16;
/// The length of the time before a cause.
const TIME: usize = 8;
/// The page size of a search by time.
const PAGE: i64 = 5000;

/// When and why something was written.
#[derive(Debug, Clone)]
pub(crate) struct StoredCause {
    pub time: Duration,
    pub cause: Bytes,
}

/// What expires by itself, and what may be lost, is not worth a second key.
pub(crate) fn is_recorded(write: &Write) -> bool {
    let changes = !matches!(write.op, Op::Check);
    changes && write.ttl.is_none() && write.durability == Durability::Durable && !write.cause.is_empty()
}

/// The additional operations of a transaction.
pub(crate) fn puts(keys: &Keys, writes: &[Write], lease: i64) -> Vec<RequestOp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let put = |write: &Write| {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let key = format!("{PREFIX}{}{}{SEPARATOR}{random:0SUFFIX$x}", keys.prefix, write.key).into_bytes();
        let value = [&now.to_le_bytes()[..], &write.cause].concat();
        RequestOp { request: Some(Request::Put(PutRequest { key, value, lease, prev_kv: false })) }
    };
    writes.iter().filter(|write| is_recorded(write)).map(put).collect()
}

/// The causes of the writes of a key, by revision.
pub(crate) async fn read(client: &Client, keys: &Keys, key: &str) -> Result<BTreeMap<Revision, StoredCause>> {
    let prefix = format!("{PREFIX}{}{key}{SEPARATOR}", keys.prefix).into_bytes();
    let length = prefix.len() + SUFFIX;
    let mut causes = BTreeMap::new();
    visit(client, prefix, &mut |kv| {
        if let Some(cause) = decode(&kv.value).filter(|_| kv.key.len() == length) {
            causes.insert(kv.mod_revision as u64, cause);
        }
    })
    .await?;
    Ok(causes)
}

/// The oldest recorded revision, and the newest one that was written until this time.
pub(crate) async fn find_time(
    client: &Client,
    keys: &Keys,
    time: Duration,
) -> Result<Option<(Revision, Option<Revision>)>> {
    let (mut oldest, mut found) = (None, None);
    visit(client, format!("{PREFIX}{}", keys.prefix).into_bytes(), &mut |kv| {
        let Some(cause) = decode(&kv.value) else { return };
        let revision = kv.mod_revision as u64;
        oldest = Some(oldest.map_or(revision, |oldest: Revision| oldest.min(revision)));
        if cause.time <= time {
            found = found.max(Some(revision));
        }
    })
    .await?;
    Ok(oldest.map(|oldest| (oldest, found)))
}

async fn visit(client: &Client, prefix: Vec<u8>, visit: &mut (dyn FnMut(KeyValue) + Send)) -> Result<()> {
    let end = super::keys::prefix_end(&prefix);
    let mut start = prefix;
    loop {
        let request = RangeRequest { key: start, range_end: end.clone(), limit: PAGE, ..Default::default() };
        let response = client.range(request).await.map_err(|status| failed(&status))?;
        start = match response.kvs.last() {
            Some(last) => [&last.key[..], b"\0"].concat(),
            None => return Ok(()),
        };
        response.kvs.into_iter().for_each(&mut *visit);
        if !response.more {
            return Ok(());
        }
    }
}

fn decode(value: &[u8]) -> Option<StoredCause> {
    let (time, cause) = value.split_first_chunk::<TIME>()?;
    let time = Duration::from_millis(u64::from_le_bytes(*time));
    Some(StoredCause { time, cause: Bytes::copy_from_slice(cause) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precondition;

    fn write(op: Op, durability: Durability, ttl: Option<Duration>, cause: &[u8]) -> Write {
        Write { key: "/a".to_owned(), op, expect: Precondition::Anything, durability, ttl, cause: cause.to_vec() }
    }

    #[test]
    fn only_lasting_writes_have_a_cause() {
        let hour = Some(Duration::from_secs(3600));
        for (write, expected) in [
            (write(Op::Delete, Durability::Durable, None, b"me"), true),
            (write(Op::Delete, Durability::Durable, None, b""), false),
            (write(Op::Delete, Durability::Durable, hour, b"me"), false),
            (write(Op::Delete, Durability::Relaxed, None, b"me"), false),
            (write(Op::Check, Durability::Durable, None, b"me"), false),
        ] {
            assert_eq!(is_recorded(&write), expected, "{write:?}");
        }
    }

    #[test]
    fn keys_are_outside_of_the_prefix_and_differ() {
        let keys = Keys { prefix: "/registry".to_owned() };
        let write = write(Op::Delete, Durability::Durable, None, b"me");
        let puts = puts(&keys, &[write.clone(), write], 7);
        let key = |at: usize| match puts.get(at).and_then(|put| put.request.clone()) {
            Some(Request::Put(put)) => String::from_utf8(put.key).unwrap_or_default(),
            _ => String::new(),
        };
        assert!(key(0).starts_with("tiphys-cause/registry/a#") && key(0).len() == 24 + SUFFIX, "{}", key(0));
        assert_ne!(key(0), key(1));
    }
}
