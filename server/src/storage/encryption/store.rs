//! A layer between the server and its store: values are encrypted on write and decrypted on read. Neither side depends
//! on the other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::{
    BoxFuture, Committed, Content, Entry, Error, Event, Op, Page, Range, Result, Revision, Sink, Store, Template,
    Version, VersionQuery, Versions, Watch, WatchResponse, Write,
};

use super::{Encryption, ValueError};

pub(crate) struct EncryptedStore {
    pub inner: Arc<dyn Store>,
    pub encryption: Arc<Encryption>,
}

impl EncryptedStore {
    async fn sealed(&self, mut writes: Vec<Write>) -> Result<Vec<Write>> {
        for write in &mut writes {
            let Op::Put(template) = &mut write.op else { continue };
            if let Some(bytes) = self.encryption.seal(&write.key, &template.bytes).await.map_err(unavailable)? {
                *template = Template { bytes, hole: None };
            }
        }
        Ok(writes)
    }

    fn opened_page(&self, mut page: Page) -> Result<Page> {
        let open = |entry| self.encryption.open_past(entry).map(|(entry, _)| entry).map_err(unavailable);
        page.entries = page.entries.into_iter().map(open).collect::<Result<_>>()?;
        Ok(page)
    }

    /// A past value, or why it cannot be read: its key may no longer exist.
    fn readable(&self, key: &str, version: &Version) -> Content {
        let Content::Value(value) = &version.content else { return version.content.clone() };
        let (key, value, revision) = (key.into(), value.clone(), version.revision);
        match self.encryption.open_past(Arc::new(Entry { key, value, revision, expires: 0 })) {
            Ok((entry, _)) => Content::Value(entry.value.clone()),
            Err(problem) => Content::Unreadable(problem.to_string()),
        }
    }

    fn opened(&self, entry: Arc<Entry>) -> Result<Arc<Entry>> {
        self.encryption.open(entry).map_err(unavailable)
    }
}

/// The previous value; its key may no longer exist.
fn past(encryption: &Encryption, entry: Arc<Entry>) -> Option<Arc<Entry>> {
    encryption.open_past(entry).ok().map(|(entry, _)| entry)
}

fn unavailable(problem: ValueError) -> Error {
    Error::Unavailable(problem.to_string())
}

impl Store for EncryptedStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.inner.revision()
    }

    fn compacted(&self) -> Revision {
        self.inner.compacted()
    }

    /// A value that cannot be decrypted aborts the start: an existing object must not seem to be missing.
    fn load(&self) -> BoxFuture<'_, Result<(Vec<Arc<Entry>>, Revision)>> {
        Box::pin(async {
            let (entries, revision) = self.inner.load().await?;
            let entries: Result<_> = entries.into_iter().map(|entry| self.opened(entry)).collect();
            Ok((entries?, revision))
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Arc<Entry>>>> {
        Box::pin(async move { self.inner.get(key).await?.map(|entry| self.opened(entry)).transpose() })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.opened_page(self.inner.range(range).await?) })
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<Committed>>> {
        Box::pin(async move {
            let mut committed = self.inner.commit(self.sealed(writes).await?).await?;
            for one in &mut committed {
                one.entry = one.entry.take().map(|entry| self.opened(entry)).transpose()?;
                one.previous = one.previous.take().and_then(|entry| past(&self.encryption, entry));
            }
            Ok(committed)
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>> {
        let inner = self.inner.watch(prefix, after)?;
        Ok(Box::new(DecryptingWatch { inner, encryption: self.encryption.clone() }))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        self.inner.compact(revision)
    }

    fn versions(&self, query: VersionQuery) -> BoxFuture<'_, Result<Versions>> {
        Box::pin(async move {
            let key = query.key.clone();
            let mut found = self.inner.versions(query).await?;
            for version in &mut found.versions {
                version.content = self.readable(&key, version);
            }
            Ok(found)
        })
    }

    fn past_range(&self, range: Range) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.opened_page(self.inner.past_range(range).await?) })
    }

    fn revision_at(&self, time: Duration) -> BoxFuture<'_, Result<Revision>> {
        self.inner.revision_at(time)
    }

    /// The snapshot contains the encrypted values.
    fn snapshot<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Revision>> {
        self.inner.snapshot(path)
    }

    fn bytes_written(&self) -> u64 {
        self.inner.bytes_written()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

struct DecryptingWatch {
    inner: Box<dyn Watch>,
    encryption: Arc<Encryption>,
}

impl Watch for DecryptingWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<WatchResponse>> {
        Box::pin(async {
            Ok(match self.inner.next().await? {
                WatchResponse::Events(events) => WatchResponse::Events(opened_events(&self.encryption, &events)),
                progress => progress,
            })
        })
    }
}

/// The sink of the engine; hands plain events on.
pub(crate) struct DecryptingSink {
    pub inner: Arc<dyn Sink>,
    pub encryption: Arc<Encryption>,
}

impl Sink for DecryptingSink {
    fn publish(&self, events: &[Event]) {
        if events.iter().any(|event| self.encryption.covers(&event.key)) {
            self.inner.publish(&opened_events(&self.encryption, events));
        } else {
            self.inner.publish(events);
        }
    }

    fn progress(&self, revision: Revision) {
        self.inner.progress(revision);
    }
}

fn opened_events(encryption: &Encryption, events: &[Event]) -> Vec<Event> {
    events.iter().map(|event| opened_event(encryption, event)).collect()
}

/// A new value that cannot be decrypted removes the old one from the cache: the old one must not be served as the
/// newest.
fn opened_event(encryption: &Encryption, event: &Event) -> Event {
    let open = |entry: &Arc<Entry>| match encryption.open(entry.clone()) {
        Ok(entry) => Some(entry),
        Err(problem) => {
            tracing::error!(%problem, "failed to decrypt stored value, skipping it");
            None
        }
    };
    let previous = event.previous.clone().and_then(|entry| past(encryption, entry));
    let entry = event.entry.as_ref().and_then(open);
    if event.entry.is_none() {
        encryption.remove_writer(&event.key);
    }
    Event { revision: event.revision, key: event.key.clone(), entry, previous }
}
