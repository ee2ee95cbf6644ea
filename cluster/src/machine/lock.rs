//! Locks that end with their process: of a data directory, and of the pod network of a network namespace.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};

const DATA_FILE: &str = "lock";

/// A file that this process alone has locked; its text names the process and its data directory.
pub struct Lock {
    /// Its end releases the lock.
    _file: File,
    /// Removed at the end, where the file is not in a data directory.
    removed: Option<PathBuf>,
}

/// The process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: String,
    pub data_dir: String,
}

/// Locks a data directory, so that one cluster at a time writes there.
pub fn lock_data_dir(data_dir: &Path) -> Result<Lock> {
    match lock(&data_dir.join(DATA_FILE), data_dir)? {
        Ok(file) => Ok(Lock { _file: file, removed: None }),
        Err(holder) => Err(Error::DataDirInUse { path: data_dir.to_path_buf(), pid: holder.pid }),
    }
}

/// Locks the built-in pod network of this network namespace: its bridge and its addresses are one cluster's. `states`
/// is where the machine keeps what a reboot ends.
pub fn lock_pod_network(data_dir: &Path, states: &Path) -> Result<Lock> {
    let namespace = fs::metadata("/proc/self/ns/net").map_err(Error::file("/proc/self/ns/net"))?.ino();
    fs::create_dir_all(states).map_err(Error::file(states))?;
    let path = states.join(format!("pod-network-{namespace}.lock"));
    match lock(&path, data_dir)? {
        Ok(file) => Ok(Lock { _file: file, removed: Some(path) }),
        Err(Holder { pid, data_dir }) => Err(Error::PodNetworkInUse { pid, data_dir }),
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked: another process that has opened this file sees that it was removed, and creates a new one.
        if let Some(path) = &self.removed {
            let _ = fs::remove_file(path);
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

/// The locked file, or its holder.
fn lock(path: &Path, data_dir: &Path) -> Result<std::result::Result<File, Holder>> {
    loop {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.map_err(Error::file(path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(Err(read_holder(&mut file))),
            locked => locked.map_err(|error| Error::file(path)(error.into()))?,
        }
        let is_current =
            fs::metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|own| own.ino() == there.ino()));
        if is_current {
            let text = format!("{}\n{}\n", std::process::id(), data_dir.display());
            let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
            written.map_err(Error::file(path))?;
            return Ok(Ok(file));
        }
    }
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
        let error = lock_data_dir(&data).err().expect("refused").describe();
        assert!(error.contains(&pid) && error.contains("--data-dir"), "{error}");
        drop(first);
        lock_data_dir(&data).expect("it is free again");

        let first = lock_pod_network(&data, &states).expect("a lock");
        let error = lock_pod_network(dir.path(), &states).err().expect("refused").describe();
        for word in [data.to_str().expect("text"), &pid, "--disable-agent"] {
            assert!(error.contains(word), "{error}");
        }
        drop(first);
        assert!(!states.exists(), "nothing is left");
        lock_pod_network(&data, &states).expect("it is free again");
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
