//! The log files of a data directory: one that grows, and older ones, all of limited size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stdx::sync::Mutex;

const DIRECTORY: &str = "logs";
const FILE: &str = "tiphys.log";
const MAX_BYTES: u64 = 16 << 20;
/// Older files, besides the one that grows.
const OLDER: u32 = 2;

/// The file to which a process appends; it is rotated by size.
pub(crate) struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    current: Mutex<Current>,
}

struct Current {
    file: File,
    bytes: u64,
}

impl LogFile {
    pub(crate) fn open(data_dir: &Path) -> io::Result<LogFile> {
        LogFile::open_with(data_dir, MAX_BYTES)
    }

    fn open_with(data_dir: &Path, max_bytes: u64) -> io::Result<LogFile> {
        let path = path(data_dir);
        let directory = path.parent().unwrap_or(data_dir);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let current = Mutex::new(open(&path)?);
        Ok(LogFile { path, max_bytes, current })
    }

    /// Appends a whole line.
    pub(crate) fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut current = self.current.lock();
        if current.bytes > 0 && current.bytes + line.len() as u64 > self.max_bytes {
            rotate(&self.path)?;
            *current = open(&self.path)?;
        }
        current.file.write_all(line)?;
        current.bytes += line.len() as u64;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Current> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Current { file, bytes })
}

/// Renames `tiphys.log` to `tiphys.log.1`, and that to `tiphys.log.2`.
fn rotate(path: &Path) -> io::Result<()> {
    for number in (1..OLDER).rev() {
        let older = numbered(path, number);
        if older.exists() {
            fs::rename(&older, numbered(path, number + 1))?;
        }
    }
    fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    path.with_file_name(format!("{FILE}.{number}"))
}

/// The log file of a data directory.
pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(DIRECTORY).join(FILE)
}

/// The files that exist, oldest first.
pub(crate) fn files(data_dir: &Path) -> Vec<PathBuf> {
    let path = path(data_dir);
    let older = (1..=OLDER).rev().map(|number| numbered(&path, number));
    older.chain([path.clone()]).filter(|file| file.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_rotated_by_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = LogFile::open_with(dir.path(), 10).expect("a file");
        for line in ["one\n", "two\n", "three\n", "four\n", "five5\n", "six\n"] {
            log.append(line.as_bytes()).expect("a line");
        }
        let texts: Vec<String> =
            files(dir.path()).iter().map(|file| fs::read_to_string(file).expect("a file")).collect();
        assert_eq!(texts, ["three\n", "four\n", "five5\nsix\n"].map(str::to_string).to_vec());
        drop(log);
        let log = LogFile::open_with(dir.path(), 16).expect("a file");
        log.append(b"seven\n").expect("a line");
        let last = fs::read_to_string(path(dir.path())).expect("a file");
        assert_eq!(last, "five5\nsix\nseven\n", "a restart appends");
    }
}
