//! Opening a data directory: the files become entries, history and the place where the log goes on.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::files::{self, Listing};
use super::format::{FileKind, Record};
use super::scan::{self, End, Tail};
use crate::disk::{Disk, RealDisk};
use crate::entries::Entries;
use crate::history::{History, HistoryLimits};
use crate::{Entry, Event, Result, Revision};

pub(crate) struct Loaded {
    pub entries: Entries,
    pub history: History,
    /// What readers see first.
    pub revision: Revision,
    pub end: End,
}

pub(crate) fn load(disk: &dyn Disk, dir: &Path, id: u64, listing: &Listing, limits: HistoryLimits) -> Result<Loaded> {
    let mut entries = Entries::default();
    let mut history = History::new(limits, 0);
    let mut end = scan::scan(disk, dir, listing, id, &mut |kind, record| {
        let event = apply(&mut entries, &record);
        if kind == FileKind::Log {
            history.push(event);
        }
    })?;
    let revision = start_revision(&end);
    if end.clean {
        // What is reserved from here on has to be written again before it is used.
        end.reserved = revision;
        history.compact(end.base.max(end.compacted));
    } else {
        history = History::new(limits, revision);
    }
    Ok(Loaded { entries, history, revision, end })
}

/// A relaxed write that was shown and lost had a revision of the reserved block: a store that was
/// not closed starts behind it, so that no revision ever means two things.
fn start_revision(end: &End) -> Revision {
    match end.reserved > end.revision && !end.clean {
        true => end.reserved + 1,
        false => end.revision,
    }
}

fn apply(entries: &mut Entries, record: &Record<'_>) -> Event {
    let (revision, key) = (record.revision, record.key.into());
    match record.value {
        Some(_) => {
            let entry = Arc::new(entry(record));
            let previous = entries.insert(entry.clone());
            Event { revision, key, entry: Some(entry), previous }
        }
        None => Event { revision, key, entry: None, previous: entries.remove(record.key) },
    }
}

/// The value is copied into memory of exactly its size: the buffer it is read from is reused.
pub(crate) fn entry(record: &Record<'_>) -> Entry {
    let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
    Entry { key: record.key.into(), value, revision: record.revision, expires: record.expires }
}

/// Removes what a crash left: a torn end, files that a state file stands for, half-written ones.
pub(crate) fn tidy(disk: &dyn Disk, dir: &Path, listing: &Listing, end: &End) -> Result<()> {
    if let Some(Tail { sequence, end, size }) = end.tail
        && end < size
    {
        let path = files::log_path(dir, sequence);
        let cut = disk.open(&path).and_then(|file| file.truncate(end).and_then(|()| file.sync_data()));
        cut.map_err(|error| files::failed("truncate", &path, error))?;
    }
    let newest = listing.states.last().copied().unwrap_or(0);
    let states = listing.states.iter().filter(|&&sequence| sequence < newest);
    let logs = listing.logs.iter().filter(|&&sequence| sequence <= newest || sequence > end.sequence);
    let paths = states.map(|&sequence| files::state_path(dir, sequence));
    let paths = paths.chain(logs.map(|&sequence| files::log_path(dir, sequence)));
    let mut paths = paths.chain(listing.temporary.iter().map(|name| dir.join(name)));
    paths.try_for_each(|path| remove(disk, &path))
}

/// What is gone already, as a temporary file that was used again, is as good as removed.
fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(files::failed("remove", path, error)),
        _ => Ok(()),
    }
}

/// Reads, checks and copies each record of a directory, and does nothing else: what no load can be
/// faster than. Returns the number of records and the bytes of their values.
pub fn check_and_copy(dir: &Path) -> Result<(u64, u64)> {
    let mut copies: Vec<Box<[u8]>> = Vec::new();
    history(dir, &mut |record| copies.push(record.value.unwrap_or_default().into()))?;
    Ok((copies.len() as u64, copies.iter().map(|copy| copy.len() as u64).sum()))
}

/// Shows every record that is on disk, oldest first: the entries of the state file, then the writes
/// since, each with its cause. Takes no lock: meant for a store that nobody has open.
pub fn history(dir: &Path, visit: &mut dyn FnMut(Record<'_>)) -> Result<()> {
    let listing = files::list(&RealDisk, dir)?;
    if !listing.has_version {
        return Err(files::damaged(&dir.join(files::VERSION_FILE), 0, "no store in this directory"));
    }
    let id = files::identity(&RealDisk, dir, &listing)?;
    scan::scan(&RealDisk, dir, &listing, id, &mut |_, record| visit(record))?;
    Ok(())
}
