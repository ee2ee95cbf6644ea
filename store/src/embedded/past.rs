//! Reads the past from history files, the state file and the logs, oldest first. Blocks, and one reader at a time: it
//! reads files, not memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::archive::{Archive, base};
use super::files;
use super::format::{FileKind, Record};
use super::load;
use super::scan;
use crate::entries::{Entries, contains};
use crate::feed::page;
use crate::versions::{Content, Version, VersionQuery, Versions};
use crate::{Entry, Error, Page, Range, Result, Revision};

/// The writer replaces files and extends the log: a read that collides with that is repeated.
const ATTEMPTS: u32 = 5;

/// Which files a search needs.
#[derive(Clone, Copy)]
struct Interval {
    after: Revision,
    until: Revision,
}

impl Archive {
    /// The versions of a key.
    pub(super) fn versions(&self, query: &VersionQuery) -> Result<Versions> {
        let until = if query.until == 0 { Revision::MAX } else { query.until };
        self.read(|| {
            let mut search = VersionSearch { query, found: VecDeque::new(), is_limited: false };
            let interval = Interval { after: query.after, until };
            let floor = self.visit(interval, &mut |record| search.add(record))?;
            Ok(Versions { versions: search.found.into(), floor, is_limited: search.is_limited })
        })
    }

    /// The entries of a range at a revision. `now` are those of the newest.
    pub(super) fn range(&self, range: &Range, now: &Entries) -> Result<Page> {
        let at = range.revision;
        let undo = self.read(|| {
            let mut undo = BTreeMap::new();
            let interval = Interval { after: at, until: Revision::MAX };
            let floor = self.visit(interval, &mut |record| undo_to(at, range, record, &mut undo))?;
            if at < floor { Err(Error::Compacted { asked: at, oldest: floor }) } else { Ok(undo) }
        })?;
        // What was written since is not in a file only if it expires, or has not reached the disk yet.
        let is_same = |entry: &&Arc<Entry>| entry.revision <= at && !undo.contains_key(&entry.key);
        let mut then: Vec<Arc<Entry>> = now.range(&range.start, &range.end).filter(is_same).cloned().collect();
        then.extend(undo.into_values().flatten());
        then.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(page(then.into_iter(), range.limit, at))
    }

    /// The newest revision that was written until a time.
    pub(super) fn revision_at(&self, time: Duration) -> Result<Revision> {
        let time = time.as_millis() as u64;
        self.read(|| {
            let mut found = 0;
            let interval = Interval { after: 0, until: Revision::MAX };
            let floor = self.visit(interval, &mut |record| {
                if record.time != 0 && record.time <= time {
                    found = record.revision.max(found);
                }
            })?;
            // An older entry says nothing about the writes between it and the first known one.
            if found > floor { Ok(found) } else { Err(Error::Compacted { asked: 0, oldest: floor }) }
        })
    }

    /// Repeats a read while the writer replaces files.
    fn read<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let _files = self.lock();
        let mut attempt = 1;
        loop {
            match read() {
                Err(Error::Io { .. } | Error::Damaged { .. }) if attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Visits every known write in an interval, and the entries before them. A record may be visited twice. Returns the
    /// revision up to which writes are unknown.
    fn visit(&self, interval: Interval, visit: &mut dyn FnMut(&Record<'_>)) -> Result<Revision> {
        let listing = files::list(&*self.disk, &self.dir)?;
        let base = base(&*self.disk, &self.dir, &listing)?;
        let histories = self.list(&listing, base)?;
        let floor = histories.first().map_or(base, |file| file.start);
        for file in histories.iter().filter(|file| file.end > interval.after && file.start < interval.until) {
            let path = files::history_path(&self.dir, file.sequence);
            let mut each = |_: FileKind, record: Record<'_>| visit(&record);
            scan::scan_records(&*self.disk, &path, FileKind::History, Some(self.id), &mut each)?;
        }
        if interval.until > base {
            scan::scan(&*self.disk, &self.dir, &listing, self.id, &mut |_, record| visit(&record))?;
        }
        Ok(floor)
    }
}

struct VersionSearch<'a> {
    query: &'a VersionQuery,
    found: VecDeque<Version>,
    is_limited: bool,
}

impl VersionSearch<'_> {
    fn add(&mut self, record: &Record<'_>) {
        let is_known = self.found.back().is_some_and(|last| last.revision >= record.revision);
        if record.key != self.query.key || !self.query.selects(record.revision) || is_known {
            return;
        }
        let content = record.value.map_or(Content::Deleted, |value| Content::Value(Bytes::copy_from_slice(value)));
        let (time, cause) = (Duration::from_millis(record.time), Bytes::copy_from_slice(record.cause));
        self.found.push_back(Version { revision: record.revision, time, cause, content });
        if self.query.limit > 0 && self.found.len() > self.query.limit {
            self.found.pop_front();
            self.is_limited = true;
        }
    }
}

/// The state at a revision of each key that was written since. Records come in order: the last one until the revision
/// counts, and a key that is only written later did not exist.
fn undo_to(at: Revision, range: &Range, record: &Record<'_>, undo: &mut BTreeMap<Box<str>, Option<Arc<Entry>>>) {
    if !contains(&range.start, &range.end, record.key) {
        return;
    }
    if record.revision > at {
        undo.entry(record.key.into()).or_default();
        return;
    }
    let entry = record.value.map(|_| Arc::new(load::entry(record)));
    undo.insert(record.key.into(), entry);
}
