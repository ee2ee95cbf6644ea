//! Locks that end with their process: of a data directory, and of the claims of pod networks.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};

const DATA_FILE: &str = "lock";
/// How often a lock is tried while its holder is no process: then a reader tests whether it is held.
const READER_ATTEMPTS: u32 = 1000;

/// A file that this process alone has locked; its text names the process and its data directory.
pub struct Lock {
    /// Closing the file releases the lock.
    _file: File,
    /// The file to remove at the end, if it is not in a data directory.
    removed: Option<PathBuf>,
}

/// The process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub pid: String,
    pub data_dir: String,
}

/// Locks a data directory, so that one cluster at a time writes there.
pub(crate) fn lock_data_dir(data_dir: &Path) -> Result<Lock> {
    match lock(&data_dir.join(DATA_FILE), data_dir)? {
        Ok(file) => Ok(Lock { _file: file, removed: None }),
        Err(holder) => Err(Error::DataDirInUse { path: data_dir.to_path_buf(), pid: holder.pid }),
    }
}

/// The process that holds a data directory; None if none does.
pub(crate) fn holder(data_dir: &Path) -> Option<u32> {
    let claim = read_claim(&data_dir.join(DATA_FILE))?;
    claim.pid.parse().ok().filter(|_| claim.is_locked)
}

/// Whether a process has the lock file of a data directory open. The text of the file alone proves nothing: the owner
/// of the directory can write the number of any process.
pub(crate) fn is_open_in(pid: u32, data_dir: &Path) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let Ok(own) = fs::metadata(data_dir.join(DATA_FILE)) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::metadata(entry.path()).ok()).any(|open| same(&open, &own))
}

/// Waits for a lock that is held only for a moment.
pub(crate) fn lock_waiting(path: &Path) -> Result<Lock> {
    loop {
        let file = open(path)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| Error::file(path)(error.into()))?;
        if is_current(path, &file) {
            return Ok(Lock { _file: file, removed: Some(path.to_path_buf()) });
        }
    }
}

/// Locks the claim of a pod network. `text` describes it, in one line.
pub(crate) fn lock_claim(path: &Path, data_dir: &Path, text: &str) -> Result<Lock> {
    match lock_with(path, data_dir, text)? {
        Ok(file) => Ok(Lock { _file: file, removed: Some(path.to_path_buf()) }),
        Err(Holder { pid, data_dir }) => Err(Error::RangeInUse { range: text.to_string(), pid, data_dir }),
    }
}

/// The file of a claim.
pub(crate) struct ClaimFile {
    pub pid: String,
    pub data_dir: String,
    pub text: String,
    /// Whether its process still runs.
    pub is_locked: bool,
}

/// None if there is no claim.
pub(crate) fn read_claim(path: &Path) -> Option<ClaimFile> {
    let mut file = File::open(path).ok()?;
    let is_locked = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    let Holder { pid, data_dir } = read_holder(&mut file);
    let text = fs::read_to_string(path).ok()?.lines().nth(2).unwrap_or_default().to_string();
    Some(ClaimFile { pid, data_dir, text, is_locked })
}

impl Lock {
    /// Releases the lock, but leaves its file.
    pub fn keep_file(mut self) {
        self.removed = None;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is still locked: another process that has opened it notices that it was removed, and creates a new
        // one.
        if let Some(path) = &self.removed {
            let _ = fs::remove_file(path);
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

/// The locked file, or its holder.
fn lock(path: &Path, data_dir: &Path) -> Result<std::result::Result<File, Holder>> {
    lock_with(path, data_dir, "")
}

fn lock_with(path: &Path, data_dir: &Path, text: &str) -> Result<std::result::Result<File, Holder>> {
    let mut attempts_left = READER_ATTEMPTS;
    loop {
        let mut file = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let holder = read_holder(&mut file);
                attempts_left -= 1;
                if attempts_left == 0 || Path::new("/proc").join(&holder.pid).exists() {
                    return Ok(Err(holder));
                }
                std::thread::yield_now();
                continue;
            }
            locked => locked.map_err(|error| Error::file(path)(error.into()))?,
        }
        if is_current(path, &file) {
            let text = format!("{}\n{}\n{text}\n", std::process::id(), data_dir.display());
            let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
            written.map_err(Error::file(path))?;
            return Ok(Ok(file));
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(Error::file(path))
}

/// Whether the file is still the one at its path: its last holder may have removed it.
fn is_current(path: &Path, file: &File) -> bool {
    fs::metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|own| own.ino() == there.ino()))
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    let mut lines = text.lines().map(str::to_string);
    let mut next = || lines.next().filter(|line| !line.is_empty()).unwrap_or_else(|| "unknown".to_string());
    Holder { pid: next(), data_dir: next() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_names_the_holder() {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, states) = (dir.path().join("data"), dir.path().join("run"));
        fs::create_dir(&data).expect("a directory");
        let pid = std::process::id().to_string();

        let first = lock_data_dir(&data).expect("a lock");
        assert!(is_open_in(std::process::id(), &data) && !is_open_in(1, &data));
        let error = lock_data_dir(&data).err().expect("refused").describe();
        assert!(error.contains(&pid) && error.contains("--data-dir"), "{error}");
        drop(first);
        lock_data_dir(&data).expect("it is free again");

        fs::create_dir(&states).expect("a directory");
        let path = states.join("claim.lock");
        let first = lock_claim(&path, &data, "a network").expect("a lock");
        let error = lock_claim(&path, dir.path(), "a network").err().expect("refused").describe();
        for word in [data.to_str().expect("text"), &pid] {
            assert!(error.contains(word), "{error}");
        }
        let claim = read_claim(&path).expect("a claim");
        assert!(claim.is_locked && claim.text == "a network", "{}", claim.text);
        first.keep_file();
        assert!(!read_claim(&path).expect("a claim").is_locked);
        drop(lock_claim(&path, &data, "a network").expect("it is free again"));
        assert!(!states.exists(), "nothing is left");
    }

    #[test]
    fn ignores_the_lock_of_a_dead_process() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(DATA_FILE), "1\n/elsewhere\n").expect("a file");
        lock_data_dir(dir.path()).expect("a lock");
        let text = fs::read_to_string(dir.path().join(DATA_FILE)).expect("a file");
        assert_eq!(text.lines().next(), Some(std::process::id().to_string().as_str()));
    }
}
