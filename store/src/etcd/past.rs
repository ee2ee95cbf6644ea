//! The past in etcd: values until etcd is compacted, and causes as long as their keys exist.

use std::collections::BTreeMap;
use std::time::Duration;

use super::causes::{self, StoredCause};
use super::{Etcd, proto};
use crate::versions::{Content, Version, VersionQuery, Versions};
use crate::{Error, Result, Revision};

/// Each version is a request.
const MAX_VERSIONS: usize = 1000;

/// The versions of a key, found from the newest to the oldest: a version names the revision before it.
pub(super) async fn versions(store: &Etcd, query: VersionQuery) -> Result<Versions> {
    store.check_open()?;
    let causes = causes::read(&store.client, &store.keys, &query.key).await?;
    let limit = if query.limit == 0 { MAX_VERSIONS } else { query.limit.min(MAX_VERSIONS) };
    let mut found = Versions::default();
    let mut at = if query.until == 0 { store.newest().await? } else { query.until };
    while at > query.after && !found.is_limited {
        let value = match value_at(store, &query.key, at).await {
            Err(Error::Compacted { .. }) => {
                found.floor = store.feed.compacted().max(at);
                break;
            }
            result => result?,
        };
        let version = match value {
            Some((revision, value)) => described(revision, Content::Value(value), &causes),
            // Only a recorded write is known of a key that does not exist.
            None => match causes.range(..=at).next_back() {
                Some((&revision, _)) if revision == at => described(revision, Content::Deleted, &causes),
                Some((&revision, _)) => {
                    at = revision;
                    continue;
                }
                None => break,
            },
        };
        at = version.revision - 1;
        if version.revision > query.after {
            found.is_limited = found.versions.len() == limit;
            found.versions.push(version);
        }
    }
    found.versions.truncate(limit);
    found.versions.reverse();
    Ok(found)
}

async fn value_at(store: &Etcd, key: &str, at: Revision) -> Result<Option<(Revision, bytes::Bytes)>> {
    let request = proto::RangeRequest { key: store.keys.full(key), revision: at as i64, ..Default::default() };
    let page = crate::Page { entries: Vec::new(), revision: at, remaining: 0 };
    let response = store.client.range(request).await.map_err(|status| store.refused(&status, &page))?;
    Ok(response.kvs.into_iter().next().map(|kv| (kv.mod_revision as u64, kv.value.into())))
}

fn described(revision: Revision, content: Content, causes: &BTreeMap<Revision, StoredCause>) -> Version {
    let cause = causes.get(&revision);
    Version {
        revision,
        time: cause.map_or(Duration::ZERO, |cause| cause.time),
        cause: cause.map(|cause| cause.cause.clone()).unwrap_or_default(),
        content,
    }
}

pub(super) async fn revision_at(store: &Etcd, time: Duration) -> Result<Revision> {
    store.check_open()?;
    if store.causes.is_none() {
        return Err(Error::NoHistory);
    }
    match causes::find_time(&store.client, &store.keys, time).await? {
        Some((_, Some(revision))) => Ok(revision),
        Some((oldest, None)) => Err(Error::Compacted { asked: 0, oldest }),
        None => Err(Error::NoHistory),
    }
}
