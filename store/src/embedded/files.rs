//! File names in a data directory, its lock and its version.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use super::format;
use crate::disk::{self, Disk, DiskFile};
use crate::{Error, Result};

pub(crate) const VERSION_FILE: &str = "VERSION";
const LOCK_FILE: &str = "LOCK";
const TEMPORARY: &str = ".tmp";

pub(crate) fn log_path(dir: &Path, sequence: u64) -> PathBuf {
    dir.join(format!("log-{sequence:016x}"))
}

pub(crate) fn state_path(dir: &Path, sequence: u64) -> PathBuf {
    dir.join(format!("state-{sequence:016x}"))
}

pub(crate) fn history_path(dir: &Path, sequence: u64) -> PathBuf {
    dir.join(format!("history-{sequence:016x}"))
}

/// Incomplete files with this name are removed at the next start.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

/// The files of a data directory, each type sorted by sequence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub logs: Vec<u64>,
    pub states: Vec<u64>,
    pub histories: Vec<u64>,
    pub temporary: Vec<String>,
    pub has_version: bool,
}

pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing> {
    let names = disk.list(dir).map_err(|error| failed("list", dir, error))?;
    let mut listing = Listing::default();
    for name in names {
        if let Some(sequence) = sequence(&name, "log-") {
            listing.logs.push(sequence);
        } else if let Some(sequence) = sequence(&name, "state-") {
            listing.states.push(sequence);
        } else if let Some(sequence) = sequence(&name, "history-") {
            listing.histories.push(sequence);
        } else if name.ends_with(TEMPORARY) {
            listing.temporary.push(name);
        } else if name == VERSION_FILE {
            listing.has_version = true;
        }
    }
    listing.logs.sort_unstable();
    listing.states.sort_unstable();
    listing.histories.sort_unstable();
    Ok(listing)
}

fn sequence(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Two processes on one directory would overwrite each other's log.
pub(crate) fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn Send + Sync>> {
    disk.lock(&dir.join(LOCK_FILE)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            Error::Io { what: format!("{} is in use by another process", dir.display()), source: error }
        }
        _ => failed("lock", dir, error),
    })
}

/// The id of the store in this directory, created if missing.
pub(crate) fn identity(disk: &dyn Disk, dir: &Path, listing: &Listing) -> Result<u64> {
    let path = dir.join(VERSION_FILE);
    if listing.has_version {
        let bytes = disk::read_file(disk, &path).map_err(|error| failed("read", &path, error))?;
        return read_version(&path, &String::from_utf8_lossy(&bytes));
    }
    if !listing.logs.is_empty() || !listing.states.is_empty() {
        return Err(damaged(&path, 0, "the file is missing but data files exist"));
    }
    let id = new_identity();
    write_version(disk, dir, id)?;
    Ok(id)
}

pub(crate) fn new_identity() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// The file is text, so that a person can identify the directory.
pub(crate) fn write_version(disk: &dyn Disk, dir: &Path, id: u64) -> Result<()> {
    let path = dir.join(VERSION_FILE);
    let text = format!("tiphys-store {}\nid {id:016x}\n", format::VERSION);
    let write = || -> io::Result<()> {
        let file = disk.create(&temporary(&path))?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync_data()?;
        disk.rename(&temporary(&path), &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(|error| failed("write", &path, error))
}

fn read_version(path: &Path, text: &str) -> Result<u64> {
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix("tiphys-store "));
    let version: u32 = match version.map(str::parse) {
        Some(Ok(version)) => version,
        _ => return Err(damaged(path, 0, "not a store version file")),
    };
    if version != format::VERSION {
        let what =
            format!("{} has data format {version}; this version reads format {}", path.display(), format::VERSION);
        return Err(Error::Io { what, source: io::ErrorKind::Unsupported.into() });
    }
    let id = lines.next().and_then(|line| line.strip_prefix("id ")).map(|id| u64::from_str_radix(id, 16));
    id.and_then(std::result::Result::ok).ok_or_else(|| damaged(path, 0, "the store id is invalid"))
}

pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Box<dyn DiskFile>> {
    disk.open(path).map_err(|error| failed("open", path, error))
}

pub(crate) fn damaged(path: &Path, offset: u64, what: &str) -> Error {
    Error::Damaged { file: path.display().to_string(), offset, what: what.to_owned() }
}

/// A disk error with the attempted action; lack of space is a separate error.
pub(crate) fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full(error),
        _ => Error::Io { what: format!("cannot {what} {}", path.display()), source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, &str>) {
        let result = read_version(Path::new("/d/VERSION"), text).map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn reads_and_checks_the_version() {
        check("tiphys-store 1\nid 00000000000000ff\n", Ok(255));
        check("tiphys-store 2\nid 1\n", Err("/d/VERSION has data format 2; this version reads format 1"));
        check("hello", Err("/d/VERSION is damaged at offset 0: not a store version file"));
        check("tiphys-store 1\n", Err("/d/VERSION is damaged at offset 0: the store id is invalid"));
    }

    #[test]
    fn ignores_foreign_names() {
        assert_eq!(sequence("log-00000000000000ff", "log-"), Some(255));
        assert_eq!(sequence("log-ff", "log-"), None);
        assert_eq!(sequence("log-00000000000000ff.tmp", "log-"), None);
    }
}
