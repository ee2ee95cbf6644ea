//! Work on the files of a data directory, and on snapshots, without opening the store: reading, checking, creating,
//! compacting. Reading takes no lock, and also works while a server writes to the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::files::{self, Listing};
use super::format::{self, FileHeader, FileKind, Record};
use super::scan::{self, LogEnd};
use super::{load, state};
use crate::contents::Contents;
use crate::disk::{Disk, RealDisk};
use crate::entries::Entries;
use crate::{Error, Result, Revision};

/// A server that writes replaces files and extends the log: a read that collides with that is repeated.
const READ_ATTEMPTS: u32 = 20;
const READ_PAUSE: Duration = Duration::from_millis(50);

/// What is in a data directory.
#[derive(Debug, Clone)]
pub struct DirectoryStatus {
    /// Random; each store has its own.
    pub id: u64,
    /// The format of the files.
    pub format: u32,
    pub revision: Revision,
    /// Older revisions cannot be read or watched.
    pub compacted: Revision,
    /// Whether the store was closed after its last write.
    pub is_closed: bool,
    /// Whether a process has the store open.
    pub is_locked: bool,
    pub entries: u64,
    /// The size of the entries in a state file.
    pub live_bytes: u64,
    /// Names and sizes of the files.
    pub files: Vec<(String, u64)>,
}

/// The lock of a data directory: no other process opens the store until it is dropped.
pub struct DirectoryLock {
    dir: PathBuf,
    _lock: Box<dyn Send + Sync>,
}

impl DirectoryLock {
    /// Fails if a process has the store open.
    pub fn take(dir: &Path) -> Result<DirectoryLock> {
        let listing = files::list(&RealDisk, dir)?;
        check_exists(dir, &listing)?;
        Ok(DirectoryLock { dir: dir.to_owned(), _lock: files::lock(&RealDisk, dir)? })
    }

    /// Replaces all files by one state file. Older revisions cannot be read afterwards. Returns the sizes before and
    /// after.
    pub fn compact(&self) -> Result<(u64, u64)> {
        let dir = &self.dir;
        let scanned = Scanned::read(dir)?;
        let before = sizes(dir, &scanned.listing)?.iter().map(|(_, size)| size).sum();
        let header = FileHeader {
            kind: FileKind::State,
            id: scanned.id,
            sequence: scanned.end.sequence,
            revision: scanned.end.revision,
            reserved: scanned.end.reserved.max(scanned.end.revision),
            compacted: scanned.end.revision,
            chain: scanned.end.chain,
        };
        if scanned.listing.logs.is_empty() && scanned.listing.histories.is_empty() {
            return Ok((before, before));
        }
        let path = files::state_path(dir, header.sequence);
        let entries = scanned.contents.entries.iter().cloned().map(Ok);
        state::write(&RealDisk, &path, header, entries, &AtomicU64::new(0))
            .map_err(|error| files::failed("write", &path, error))?;
        let listing = files::list(&RealDisk, dir)?;
        load::remove_remains(&RealDisk, dir, &listing, &LogEnd { sequence: header.sequence, ..LogEnd::default() })?;
        for &sequence in &listing.histories {
            let path = files::history_path(dir, sequence);
            RealDisk.remove(&path).map_err(|error| files::failed("remove", &path, error))?;
        }
        let after = sizes(dir, &files::list(&RealDisk, dir)?)?.iter().map(|(_, size)| size).sum();
        Ok((before, after))
    }
}

/// Reads and checks all files of a data directory. While a server writes there, the result is what the disk had at
/// some time during the read.
pub fn read(dir: &Path) -> Result<Contents> {
    Ok(read_repeatedly(dir)?.contents)
}

/// Reads and checks a snapshot.
pub fn read_snapshot(path: &Path) -> Result<Contents> {
    let mut entries = Entries::default();
    let mut insert = |_, record: Record<'_>| drop(entries.insert(Arc::new(load::entry(&record))));
    let end = scan::scan_state(&RealDisk, path, None, &mut insert)?;
    Ok(Contents { entries, revision: end.revision })
}

/// Writes a snapshot under a temporary name, syncs it, and renames it.
pub fn write_snapshot(path: &Path, contents: &Contents) -> Result<()> {
    state::snapshot(path, &contents.entries, contents.revision).map(|_| ())
}

/// Creates a data directory with these entries, which must not contain a store. Each entry keeps its revision, and
/// the store starts at the revision of the contents. An interrupted creation leaves no store that would open, and can
/// be repeated.
pub fn create(dir: &Path, contents: &Contents) -> Result<()> {
    RealDisk.create_dir(dir).map_err(|error| files::failed("create", dir, error))?;
    let _lock = files::lock(&RealDisk, dir)?;
    let listing = files::list(&RealDisk, dir)?;
    if listing.has_version || !listing.logs.is_empty() {
        return Err(files::failed("write a store into", dir, io::ErrorKind::AlreadyExists.into()));
    }
    // State files without a version are those of an interrupted creation.
    for sequence in listing.states {
        let path = files::state_path(dir, sequence);
        RealDisk.remove(&path).map_err(|error| files::failed("remove", &path, error))?;
    }
    state::write_created(&RealDisk, dir, &contents.entries, contents.revision)
}

/// Describes a data directory.
pub fn status(dir: &Path) -> Result<DirectoryStatus> {
    let scanned = read_repeatedly(dir)?;
    Ok(DirectoryStatus {
        id: scanned.id,
        format: format::VERSION,
        revision: scanned.end.revision,
        compacted: scanned.end.base.max(scanned.end.compacted),
        is_closed: scanned.end.clean || scanned.listing.logs.is_empty(),
        is_locked: files::lock(&RealDisk, dir).is_err(),
        entries: scanned.contents.entries.len() as u64,
        live_bytes: scanned.contents.entries.iter().map(|entry| format::record_size(entry)).sum(),
        files: sizes(dir, &scanned.listing)?,
    })
}

/// The id of the store in a directory.
pub fn identity(dir: &Path) -> Result<u64> {
    let listing = files::list(&RealDisk, dir)?;
    check_exists(dir, &listing)?;
    files::identity(&RealDisk, dir, &listing)
}

struct Scanned {
    id: u64,
    listing: Listing,
    contents: Contents,
    end: LogEnd,
}

impl Scanned {
    fn read(dir: &Path) -> Result<Scanned> {
        let listing = files::list(&RealDisk, dir)?;
        check_exists(dir, &listing)?;
        let id = files::identity(&RealDisk, dir, &listing)?;
        let mut entries = Entries::default();
        let mut apply = |_, record: Record<'_>| match record.value {
            Some(_) => drop(entries.insert(Arc::new(load::entry(&record)))),
            None => drop(entries.remove(record.key)),
        };
        let end = scan::scan(&RealDisk, dir, &listing, id, &mut apply)?;
        Ok(Scanned { id, listing, contents: Contents { entries, revision: end.revision }, end })
    }
}

#[allow(clippy::disallowed_methods, reason = "it reads files, and blocks anyway")]
fn read_repeatedly(dir: &Path) -> Result<Scanned> {
    let mut attempt = 1;
    loop {
        match Scanned::read(dir) {
            Ok(scanned) => return Ok(scanned),
            Err(error) if attempt >= READ_ATTEMPTS || !is_in_use(dir) => return Err(error),
            Err(_) => attempt += 1,
        }
        std::thread::sleep(READ_PAUSE);
    }
}

/// Without a writer, the files do not change: another read fails in the same way.
fn is_in_use(dir: &Path) -> bool {
    files::lock(&RealDisk, dir).is_err()
}

fn check_exists(dir: &Path, listing: &Listing) -> Result<()> {
    match listing.has_version {
        true => Ok(()),
        false => Err(Error::Io {
            what: format!("{} contains no store", dir.display()),
            source: io::ErrorKind::NotFound.into(),
        }),
    }
}

fn sizes(dir: &Path, listing: &Listing) -> Result<Vec<(String, u64)>> {
    let states = listing.states.iter().map(|&sequence| files::state_path(dir, sequence));
    let logs = listing.logs.iter().map(|&sequence| files::log_path(dir, sequence));
    let histories = listing.histories.iter().map(|&sequence| files::history_path(dir, sequence));
    let size = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match std::fs::metadata(&path) {
            Ok(file) => Ok((name, file.len())),
            // A server has replaced it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((name, 0)),
            Err(error) => Err(files::failed("read", &path, error)),
        }
    };
    states.chain(logs).chain(histories).map(size).collect()
}
