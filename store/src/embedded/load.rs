//! Opens a data directory: reads the files into entries, history and the end of the log.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::files::{self, Listing};
use super::format::{FileKind, Record};
use super::scan::{self, LogEnd, Tail};
use crate::disk::{Disk, RealDisk};
use crate::entries::Entries;
use crate::history::{History, HistoryLimits};
use crate::{Entry, Event, Result, Revision};

pub(crate) struct LoadedStore {
    pub entries: Entries,
    pub history: History,
    /// The initial revision for readers.
    pub revision: Revision,
    pub end: LogEnd,
}

pub(crate) fn load(
    disk: &dyn Disk,
    dir: &Path,
    id: u64,
    listing: &Listing,
    limits: HistoryLimits,
) -> Result<LoadedStore> {
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
        // New reservations must be written before they are used.
        end.reserved = revision;
        history.compact(end.base.max(end.compacted));
    } else {
        history = History::new(limits, revision);
    }
    Ok(LoadedStore { entries, history, revision, end })
}

/// A relaxed write that was visible and lost had a reserved revision: a store that was not closed starts after the
/// reservation, so that no revision has two meanings.
fn start_revision(end: &LogEnd) -> Revision {
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

/// The value is copied to memory of its exact size: the read buffer is reused.
pub(crate) fn entry(record: &Record<'_>) -> Entry {
    let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
    Entry { key: record.key.into(), value, revision: record.revision, expires: record.expires }
}

/// Removes the remains of a crash: a torn end, replaced files, incomplete files.
pub(crate) fn remove_remains(disk: &dyn Disk, dir: &Path, listing: &Listing, end: &LogEnd) -> Result<()> {
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

/// The file may already have been removed, such as a reused temporary file.
fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(files::failed("remove", path, error)),
        _ => Ok(()),
    }
}

/// Only reads, checks and copies each record of a directory: the lower bound of a load. Returns the number of records
/// and the bytes of their values.
pub fn check_and_copy(dir: &Path) -> Result<(u64, u64)> {
    let mut copies: Vec<Box<[u8]>> = Vec::new();
    history(dir, &mut |record| copies.push(record.value.unwrap_or_default().into()))?;
    Ok((copies.len() as u64, copies.iter().map(|copy| copy.len() as u64).sum()))
}

/// Visits every record on disk, oldest first: the entries of the state file, then later writes with their causes.
/// Takes no lock: for stores that are not open.
pub fn history(dir: &Path, visit: &mut dyn FnMut(Record<'_>)) -> Result<()> {
    let listing = files::list(&RealDisk, dir)?;
    if !listing.has_version {
        return Err(files::damaged(&dir.join(files::VERSION_FILE), 0, "no store in this directory"));
    }
    let id = files::identity(&RealDisk, dir, &listing)?;
    scan::scan(&RealDisk, dir, &listing, id, &mut |_, record| visit(record))?;
    Ok(())
}
