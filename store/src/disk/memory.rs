//! An in-memory file system. Clones share the files, so that a store can be reopened.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stdx::sync::{Mutex, MutexGuard};

use super::{Disk, DiskFile};

type Content = Arc<Mutex<Vec<u8>>>;

/// A disk in memory.
#[derive(Default, Clone)]
pub struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<PathBuf, Content>>>,
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A panic elsewhere leaves the bytes intact; there is no invariant to protect.
fn lock_state<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = lock_state(&self.files);
        let here = files.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let content = Content::default();
        lock_state(&self.files).insert(path.to_owned(), content.clone());
        Ok(Box::new(MemoryFile(content)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let content = lock_state(&self.files).get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile(content)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = lock_state(&self.files);
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock_state(&self.files).remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        if !lock_state(&self.locks).insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(MemoryLock { locks: self.locks.clone(), path: path.to_owned() }))
    }
}

struct MemoryLock {
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
    path: PathBuf,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        lock_state(&self.locks).remove(&self.path);
    }
}

struct MemoryFile(Content);

impl DiskFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(lock_state(&self.0).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock_state(&self.0);
        let rest = content.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = lock_state(&self.0);
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Memory grows on write and needs no preallocation.
    fn allocate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        lock_state(&self.0).resize(size as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
