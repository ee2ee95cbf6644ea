//! Copies everything below the prefix out of etcd and into it. A key outside of the prefix marks a copy that is not
//! complete: no server starts on it, and the same copy continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stdx::backoff::Backoff;
use tonic::{Code, Status};

use super::client::{Client, failed, is_compacted, is_lost};
use super::keys::{END, Keys};
use super::leases::Leases;
use super::maintenance::newest;
use super::proto::{self, Compare, Request, RequestOp};
use super::{Config, pump};
use crate::contents::{Contents, Digest};
use crate::entries::Entries;
use crate::{Entry, Error, Result, Revision};

/// etcd's default limit of operations in a transaction is 128, and of its size 1.5 MiB.
const BATCH_OPERATIONS: usize = 100;
const BATCH_BYTES: usize = 1 << 20;
/// The number of writes in flight that only increase the revision.
const BUMPS_IN_FLIGHT: u64 = 256;
/// Increasing the revision further would take very long.
const MAX_BUMP: u64 = 20_000_000;
/// Retries of a write while etcd has no leader.
const ATTEMPTS: u32 = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The prefix of marks.
const MARK: &str = "tiphys-store-copy";

/// What happens to revisions, which clients know as resource versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionPolicy {
    /// Every revision of the destination is above those of the source: whatever version a client has seen, it is told
    /// that it is too old, and lists again.
    Above,
    /// The destination counts from where it is: clients that have seen higher versions must be restarted.
    Restart,
}

/// A step of a copy, for people who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyProgress {
    Read { entries: u64 },
    Written { entries: u64, of: u64 },
    Revision { at: Revision, of: Revision },
    Verifying,
}

/// Receives the progress of a copy.
pub type Progress<'a> = &'a (dyn Fn(CopyProgress) + Send + Sync);

/// A finished copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    pub digest: Digest,
    /// Entries that were there already, from an interrupted copy.
    pub kept: u64,
    pub revision: Revision,
}

/// Reads everything below the prefix at one revision. Entries with a lease have the time at which it expires.
pub async fn read(config: &Config, progress: Progress<'_>) -> Result<Contents> {
    let client = Client::new(config)?;
    refuse_incomplete(&client, &config.prefix).await?;
    read_with(&client, config, progress).await
}

async fn read_with(client: &Client, config: &Config, progress: Progress<'_>) -> Result<Contents> {
    let keys = Keys { prefix: config.prefix.clone() };
    let leases = Leases::default();
    let (kvs, revision) = pump::list_raw(client, &keys, &|entries| progress(CopyProgress::Read { entries })).await?;
    let ids: BTreeSet<i64> = kvs.iter().map(|kv| kv.lease).filter(|&id| id != 0).collect();
    for id in ids {
        let left = client.time_to_live(id).await.map_err(|status| failed(&status))?.ttl;
        // A lease that has expired meanwhile: its keys are about to be deleted.
        leases.learn(id, now() + left.max(1) as u64);
    }
    let mut entries = Entries::default();
    for kv in kvs {
        let key = String::from_utf8_lossy(&kv.key).into_owned();
        let entry = keys.entry(kv, &leases).ok_or_else(|| Error::Refused(format!("the key {key:?} is not UTF-8")))?;
        entries.insert(entry);
    }
    Ok(Contents { entries, revision })
}

/// Whether any key below the prefix was written or deleted after a revision.
pub async fn has_changed(config: &Config, after: &Contents) -> Result<bool> {
    let client = Client::new(config)?;
    let keys = Keys { prefix: config.prefix.clone() };
    let request = proto::RangeRequest {
        key: first_key(&keys),
        range_end: keys.end(""),
        limit: 1,
        min_mod_revision: after.revision as i64 + 1,
        keys_only: true,
        ..Default::default()
    };
    let changed = client.range(request).await.map_err(|status| failed(&status))?;
    if !changed.kvs.is_empty() {
        return Ok(true);
    }
    let count =
        proto::RangeRequest { key: first_key(&keys), range_end: keys.end(""), count_only: true, ..Default::default() };
    let count = client.range(count).await.map_err(|status| failed(&status))?.count as usize;
    // Leases expire without a server.
    let expiring = after.entries.iter().filter(|entry| entry.expires > 0).count();
    Ok(count > after.entries.len() || count + expiring < after.entries.len())
}

/// A value below the prefix.
pub async fn get(config: &Config, key: &str) -> Result<Option<Arc<Entry>>> {
    let client = Client::new(config)?;
    let keys = Keys { prefix: config.prefix.clone() };
    let request = proto::RangeRequest { key: keys.full(key), ..Default::default() };
    let response = client.range(request).await.map_err(|status| failed(&status))?;
    Ok(response.kvs.into_iter().next().and_then(|kv| keys.entry(kv, &Leases::default())))
}

/// Writes the contents below the prefix, which must be empty, or have an interrupted copy of the same source.
pub async fn write(
    config: &Config,
    contents: &Contents,
    source: &str,
    policy: RevisionPolicy,
    progress: Progress<'_>,
) -> Result<CopyReport> {
    let client = Client::new(config)?;
    let writer = Writer { client, keys: Keys { prefix: config.prefix.clone() }, source, progress };
    writer.write(config, contents, policy).await
}

/// Fails if a copy into this prefix is not complete.
pub(super) async fn refuse_incomplete(client: &Client, prefix: &str) -> Result<()> {
    match read_mark(client, prefix).await? {
        None => Ok(()),
        Some(source) => Err(Error::Refused(format!(
            "etcd has an incomplete copy of the store {source} below {prefix}: repeat `tiphys store copy`, which \
             continues it"
        ))),
    }
}

async fn read_mark(client: &Client, prefix: &str) -> Result<Option<String>> {
    let request = proto::RangeRequest { key: mark(prefix), ..Default::default() };
    let response = client.range(request).await.map_err(|status| failed(&status))?;
    Ok(response.kvs.into_iter().next().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
}

fn mark(prefix: &str) -> Vec<u8> {
    format!("{MARK}{prefix}").into_bytes()
}

fn first_key(keys: &Keys) -> Vec<u8> {
    match keys.full("") {
        key if key.is_empty() => END.to_vec(),
        key => key,
    }
}

struct Writer<'a> {
    client: Client,
    keys: Keys,
    source: &'a str,
    progress: Progress<'a>,
}

impl Writer<'_> {
    async fn write(&self, config: &Config, contents: &Contents, policy: RevisionPolicy) -> Result<CopyReport> {
        let start = newest(&self.client).await?;
        if policy == RevisionPolicy::Above && contents.revision.saturating_sub(start) > MAX_BUMP {
            return Err(Error::Refused(format!(
                "the source is at revision {}, and etcd at {start}: a copy with lower revisions needs \
                 `--revisions restart`, and clients that are restarted",
                contents.revision
            )));
        }
        self.begin().await?;
        // Before the objects: their versions are above those of the source too.
        if policy == RevisionPolicy::Above {
            self.raise_revision(contents.revision).await?;
        }
        let there = read_with(&self.client, config, &|_| {}).await?;
        let kept = self.put_missing(contents, &there).await?;
        self.delete_others(contents, &there).await?;
        (self.progress)(CopyProgress::Verifying);
        let copied = read_with(&self.client, config, &|_| {}).await?;
        let (want, have) = (contents.digest(), copied.digest());
        if !have.matches(&want) {
            return Err(Error::Refused(format!("the copy differs from its source: it has {have} instead of {want}")));
        }
        let revision = self.finish().await?;
        Ok(CopyReport { digest: have, kept, revision })
    }

    /// Sets the mark, before any other key.
    async fn begin(&self) -> Result<()> {
        let prefix = &self.keys.prefix;
        match read_mark(&self.client, prefix).await? {
            Some(source) if source == self.source => return Ok(()),
            Some(source) => {
                return Err(Error::Refused(format!(
                    "etcd has an incomplete copy of another store, {source}, below {prefix}: delete its keys by \
                     `etcdctl del --prefix {prefix}/` and `etcdctl del {}` first",
                    String::from_utf8_lossy(&mark(prefix))
                )));
            }
            None => {}
        }
        let (start, end) = (first_key(&self.keys), self.keys.end(""));
        let count = proto::RangeRequest { key: start, range_end: end, count_only: true, ..Default::default() };
        let count = self.client.range(count).await.map_err(|status| failed(&status))?.count;
        if count > 0 {
            return Err(Error::Refused(format!("etcd has {count} keys below {prefix} already: nothing was copied")));
        }
        self.commit(vec![self.mark_request()]).await
    }

    fn mark_request(&self) -> RequestOp {
        let (key, value) = (mark(&self.keys.prefix), self.source.as_bytes().to_vec());
        RequestOp { request: Some(Request::Put(proto::PutRequest { key, value, ..Default::default() })) }
    }

    /// Writes in the order of revisions: what was written later has a higher revision afterwards too. Returns the
    /// number of entries that were there.
    async fn put_missing(&self, contents: &Contents, there: &Contents) -> Result<u64> {
        let all = contents.by_revision();
        let (mut done, of, mut kept) = (0, all.len() as u64, 0);
        let mut leases = BTreeMap::new();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for entry in all {
            done += 1;
            if there.entries.get(&entry.key).is_some_and(|other| other.value == entry.value) {
                kept += 1;
                continue;
            }
            let Some(lease) = self.lease(&mut leases, entry.expires).await? else { continue };
            let size = entry.key.len() + entry.value.len();
            if batch.len() >= BATCH_OPERATIONS || (bytes + size > BATCH_BYTES && !batch.is_empty()) {
                self.commit(std::mem::take(&mut batch)).await?;
                bytes = 0;
                (self.progress)(CopyProgress::Written { entries: done - 1, of });
            }
            bytes += size;
            let put = proto::PutRequest {
                key: self.keys.full(&entry.key),
                value: entry.value.to_vec(),
                lease,
                prev_kv: false,
            };
            batch.push(RequestOp { request: Some(Request::Put(put)) });
        }
        self.commit(batch).await?;
        (self.progress)(CopyProgress::Written { entries: done, of });
        Ok(kept)
    }

    /// A lease for entries that expire in the same minute; 0 for an entry that does not, None if it already has.
    async fn lease(&self, leases: &mut BTreeMap<u64, i64>, expires: u64) -> Result<Option<i64>> {
        const SHARED_SECONDS: u64 = 60;
        if expires == 0 {
            return Ok(Some(0));
        }
        let now = now();
        if expires <= now {
            return Ok(None);
        }
        let until = expires.next_multiple_of(SHARED_SECONDS);
        if let Some(&lease) = leases.get(&until) {
            return Ok(Some(lease));
        }
        let granted = self.client.grant((until - now).max(1) as i64).await.map_err(|status| failed(&status))?;
        leases.insert(until, granted.id);
        Ok(Some(granted.id))
    }

    /// Removes what an interrupted copy wrote and the source has deleted since.
    async fn delete_others(&self, contents: &Contents, there: &Contents) -> Result<()> {
        let others = there.entries.iter().filter(|entry| contents.entries.get(&entry.key).is_none());
        let delete = |entry: &Arc<Entry>| {
            let key = self.keys.full(&entry.key);
            RequestOp { request: Some(Request::DeleteRange(proto::DeleteRangeRequest { key, prev_kv: false })) }
        };
        let deletes: Vec<_> = others.map(delete).collect();
        for batch in deletes.chunks(BATCH_OPERATIONS) {
            self.commit(batch.to_vec()).await?;
        }
        Ok(())
    }

    /// A transaction has one revision, however many operations it has: the mark is written again and again.
    async fn raise_revision(&self, above: Revision) -> Result<()> {
        loop {
            let at = newest(&self.client).await?;
            (self.progress)(CopyProgress::Revision { at, of: above });
            if at > above {
                return Ok(());
            }
            let mut writes = tokio::task::JoinSet::new();
            for _ in 0..(above + 1 - at).min(BUMPS_IN_FLIGHT) {
                let (client, put) = (self.client.clone(), self.mark_request());
                writes.spawn(async move { commit(&client, vec![put]).await });
            }
            while let Some(written) = writes.join_next().await {
                written.map_err(|_| Error::Closed)??;
            }
        }
    }

    /// History would end in the middle of the copy: it is compacted, and clients list again. Then the mark is removed.
    async fn finish(&self) -> Result<Revision> {
        let delete = proto::DeleteRangeRequest { key: mark(&self.keys.prefix), prev_kv: false };
        self.commit(vec![RequestOp { request: Some(Request::DeleteRange(delete)) }]).await?;
        let revision = newest(&self.client).await?;
        match self.client.compact(revision).await {
            Err(status) if !is_compacted(&status) => Err(failed(&status)),
            _ => Ok(revision),
        }
    }

    async fn commit(&self, operations: Vec<RequestOp>) -> Result<()> {
        commit(&self.client, operations).await
    }
}

/// Puts and deletions without a condition can be repeated, which is necessary while etcd elects a leader.
async fn commit(client: &Client, operations: Vec<RequestOp>) -> Result<()> {
    if operations.is_empty() {
        return Ok(());
    }
    let request = proto::TxnRequest { compare: Vec::<Compare>::new(), success: operations, failure: Vec::new() };
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut attempt = 1;
    loop {
        match client.txn(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(status) if attempt < ATTEMPTS && may_be_repeated(&status) => attempt += 1,
            Err(status) => return Err(failed(&status)),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

fn may_be_repeated(status: &Status) -> bool {
    is_lost(status) || (status.code() == Code::ResourceExhausted && status.message().contains("too many requests"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
