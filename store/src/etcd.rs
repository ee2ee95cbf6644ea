//! The etcd v3 engine, with upstream's key layout. One watch over everything feeds the sink; reads are quorum reads;
//! a write is acknowledged after the sink has its revision.

mod causes;
mod channels;
mod client;
mod compactor;
mod keys;
mod leases;
pub mod maintenance;
mod past;
mod proto;
mod pump;
mod snapshot;
pub mod transfer;
mod txn;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::{Code, Status};

use crate::feed::Feed;
use crate::history::{History, HistoryLimits};
use crate::{
    BoxFuture, Committed, Entry, Error, Page, Range, Result, Revision, Sink, Store, VersionQuery, Versions, Watch,
    Write,
};
use client::{Client, failed, is_compacted};
use keys::{END, Keys};
use leases::Leases;

/// The page size of ranges without a limit, which are assembled here.
const PAGE: usize = 5000;
/// How long the watch may be behind a revision of etcd before its connection is considered dead.
const WATCH_DELAY: Duration = Duration::from_secs(2);
/// etcd's default request size limit.
const MAX_REQUEST: usize = 3 << 19;

/// How an etcd cluster is reached.
#[derive(Debug, Clone)]
pub struct Config {
    /// `http://` or `https://` with host and port.
    pub endpoints: Vec<String>,
    /// The prefix of every key, `/registry` for upstream's layout; the store's keys do not contain it.
    pub prefix: String,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// For a single call, and for the watch to reach a write or read.
    pub timeout: Duration,
    /// None disables compaction by this process.
    pub compact_interval: Option<Duration>,
    /// How long the cause of a write is kept, beside the keys of the store; None to keep none. Not without a prefix: the
    /// causes would be keys of the store.
    pub causes: Option<Duration>,
    pub history: HistoryLimits,
    pub progress_interval: Duration,
}

impl Config {
    /// The defaults for these endpoints.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: String::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            timeout: Duration::from_secs(10),
            compact_interval: Some(Duration::from_secs(300)),
            causes: None,
            history: HistoryLimits::default(),
            progress_interval: Duration::from_secs(5),
        }
    }
}

/// Reads everything under the prefix and watches from there. Its tasks run on the current runtime.
pub async fn connect(config: Config, sink: Arc<dyn Sink>) -> Result<Etcd> {
    let client = Client::new(&config)?;
    transfer::refuse_incomplete(&client, &config.prefix).await?;
    let keys = Arc::new(Keys { prefix: config.prefix.clone() });
    let leases = Arc::new(Leases::default());
    let (entries, revision) = pump::list(&client, &keys, &leases).await?;
    let history = History::new(config.history, revision);
    let feed = Feed::new(entries.clone(), revision, history, config.progress_interval);
    let closed = watch::Sender::new(false);
    let missing = watch::Sender::new(0);
    let pump = pump::Pump {
        client: client.clone(),
        keys: keys.clone(),
        leases: leases.clone(),
        feed: feed.clone(),
        sink,
        limits: config.history,
        entries,
        revision,
        missing: missing.subscribe(),
    };
    tokio::spawn(pump.run(closed.subscribe()));
    if let Some(interval) = config.compact_interval {
        let compactor = compactor::Compactor { client: client.clone(), feed: feed.clone(), interval };
        tokio::spawn(compactor.run(closed.subscribe()));
    }
    let causes = config.causes.filter(|_| !config.prefix.is_empty());
    Ok(Etcd { client, keys, leases, feed, closed, missing, causes, timeout: config.timeout })
}

/// A store on etcd. Dropping it stops its tasks.
pub struct Etcd {
    client: Client,
    keys: Arc<Keys>,
    leases: Arc<Leases>,
    feed: Arc<Feed>,
    closed: watch::Sender<bool>,
    /// The newest revision that the watch should have delivered, and has not.
    missing: watch::Sender<Revision>,
    /// How long causes are kept.
    causes: Option<Duration>,
    timeout: Duration,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.closed.send_replace(true);
        self.feed.close();
    }
}

impl Etcd {
    fn check_open(&self) -> Result<()> {
        if self.feed.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits until the sink has this revision.
    async fn published(&self, revision: Revision) -> Result<()> {
        let patience = WATCH_DELAY.min(self.timeout);
        if let Ok(reached) = tokio::time::timeout(patience, self.feed.wait_for_revision(revision)).await {
            return reached;
        }
        // The connection of the watch may be dead: it is opened again, at another endpoint.
        self.missing.send_replace(revision);
        let rest = self.timeout.saturating_sub(patience);
        match tokio::time::timeout(rest, self.feed.wait_for_revision(revision)).await {
            Ok(reached) => reached,
            Err(_elapsed) => Err(Error::Unavailable(format!("the etcd watch has not reached revision {revision}"))),
        }
    }

    /// The newest revision, from a linearizable read of any key.
    async fn newest(&self) -> Result<Revision> {
        let request = proto::RangeRequest { key: self.keys.full("\0"), keys_only: true, ..Default::default() };
        let response = self.client.range(request).await.map_err(|status| failed(&status))?;
        Ok(response.header.map_or(0, |header| header.revision) as u64)
    }

    async fn seen_revision(&self) -> Result<Revision> {
        self.check_open()?;
        let revision = self.newest().await?;
        self.published(revision).await?;
        Ok(revision)
    }

    async fn read(&self, key: &str) -> Result<Option<Arc<Entry>>> {
        self.check_open()?;
        let request = proto::RangeRequest { key: self.keys.full(key), ..Default::default() };
        let response = self.client.range(request).await.map_err(|status| failed(&status))?;
        Ok(response.kvs.into_iter().next().and_then(|kv| self.keys.entry(kv, &self.leases)))
    }

    async fn read_range(&self, range: Range) -> Result<Page> {
        self.check_open()?;
        let mut page = Page { entries: Vec::new(), revision: range.revision, remaining: 0 };
        let (mut start, end) = (self.keys.full(&range.start), self.keys.end(&range.end));
        if start.is_empty() {
            start = END.to_vec();
        }
        if end != END && end <= start {
            page.revision = if range.revision == 0 { self.newest().await? } else { range.revision };
            return Ok(page);
        }
        loop {
            let wanted = if range.limit == 0 { PAGE } else { (range.limit - page.entries.len()).min(PAGE) };
            let request = proto::RangeRequest {
                key: start,
                range_end: end.clone(),
                limit: wanted as i64,
                revision: page.revision as i64,
                ..Default::default()
            };
            let response = self.client.range(request).await.map_err(|status| self.refused(&status, &page))?;
            let header = response.header.map_or(0, |header| header.revision) as u64;
            page.revision = if page.revision == 0 { header } else { page.revision };
            page.remaining = (response.count as u64).saturating_sub(response.kvs.len() as u64);
            start = response.kvs.last().map(|last| [&last.key[..], END].concat()).unwrap_or_default();
            page.entries.extend(response.kvs.into_iter().filter_map(|kv| self.keys.entry(kv, &self.leases)));
            let enough = range.limit != 0 && page.entries.len() >= range.limit;
            if enough || !response.more || start.is_empty() {
                return Ok(page);
            }
        }
    }

    fn refused(&self, status: &Status, page: &Page) -> Error {
        let asked = page.revision;
        match status.code() {
            Code::OutOfRange if is_compacted(status) => Error::Compacted { asked, oldest: self.feed.compacted() },
            Code::OutOfRange => Error::Future { asked, newest: self.feed.revision() },
            _ => failed(status),
        }
    }

    async fn write(&self, writes: Vec<Write>) -> Result<Vec<Committed>> {
        self.check_open()?;
        crate::embedded::refuse_duplicates(&writes)?;
        let mut leases = Vec::with_capacity(writes.len());
        for write in &writes {
            leases.push(match write.ttl {
                Some(ttl) => self.leases.lease(&self.client, ttl).await?,
                None => 0,
            });
        }
        let mut request = txn::request(&self.keys, &writes, &leases);
        // After the writes, whose results are found by their position.
        request.success.extend(self.record_causes(&writes).await?);
        let size = prost::Message::encoded_len(&request);
        let response = self.client.txn(request).await.map_err(|status| too_large(&status, size))?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision) as u64;
        self.published(revision).await?;
        if !response.succeeded {
            return Err(txn::conflict(&self.keys, &writes, &self.leases, response)?);
        }
        Ok(txn::committed(&self.keys, writes, &leases, &self.leases, response, revision))
    }

    /// The operations that keep the causes of writes.
    async fn record_causes(&self, writes: &[Write]) -> Result<Vec<proto::RequestOp>> {
        match self.causes.filter(|_| writes.iter().any(causes::is_recorded)) {
            Some(ttl) => Ok(causes::puts(&self.keys, writes, self.leases.lease(&self.client, ttl).await?)),
            None => Ok(Vec::new()),
        }
    }

    async fn compact_history(&self, revision: Revision) -> Result<()> {
        self.check_open()?;
        match self.client.compact(revision).await {
            Ok(_) => {}
            Err(status) if is_compacted(&status) => {}
            Err(status) if status.code() == Code::OutOfRange => {
                return Err(Error::Future { asked: revision, newest: self.feed.revision() });
            }
            Err(status) => return Err(failed(&status)),
        }
        self.published(revision).await?;
        self.feed.compact(revision)
    }

    /// etcd's own snapshot format with checksum, which `etcdctl snapshot restore` reads.
    async fn save(&self, path: &Path) -> Result<Revision> {
        self.check_open()?;
        snapshot::save(&self.client, path).await
    }

    /// The version of the connected etcd.
    pub async fn version(&self) -> Result<String> {
        Ok(self.client.status().await.map_err(|status| failed(&status))?.version)
    }
}

/// Large requests are rejected by etcd or by gRPC, with different messages.
fn too_large(status: &Status, size: usize) -> Error {
    let says_so = status.message().contains("too large") || status.message().contains("larger than max");
    match status.code() {
        Code::InvalidArgument | Code::ResourceExhausted if says_so => Error::TooLarge { size, limit: MAX_REQUEST },
        _ => failed(status),
    }
}

impl Store for Etcd {
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        Box::pin(self.seen_revision())
    }

    fn compacted(&self) -> Revision {
        self.feed.compacted()
    }

    fn load(&self) -> BoxFuture<'_, Result<(Vec<Arc<Entry>>, Revision)>> {
        Box::pin(async {
            self.seen_revision().await?;
            let (entries, revision) = self.feed.state();
            Ok((entries.iter().cloned().collect(), revision))
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Arc<Entry>>>> {
        Box::pin(self.read(key))
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.read_range(range))
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<Committed>>> {
        Box::pin(self.write(writes))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>> {
        self.feed.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.compact_history(revision))
    }

    fn versions(&self, query: VersionQuery) -> BoxFuture<'_, Result<Versions>> {
        Box::pin(past::versions(self, query))
    }

    /// etcd keeps old revisions until it is compacted.
    fn past_range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.read_range(range))
    }

    fn revision_at(&self, time: Duration) -> BoxFuture<'_, Result<Revision>> {
        Box::pin(past::revision_at(self, time))
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Revision>> {
        Box::pin(self.save(path))
    }

    fn bytes_written(&self) -> u64 {
        0
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.check_open()?;
            self.closed.send_replace(true);
            self.feed.close();
            Ok(())
        })
    }
}
