//! The file system abstraction of the embedded engine, so that tests can lose, tear and refuse writes. Blocking by
//! design: the writer has its own thread.

mod memory;
mod real;

use std::io;
use std::path::Path;

pub use memory::MemoryDisk;
pub use real::RealDisk;

/// A file system. Creating, changing or removing a name is durable only after `sync_dir` of its directory.
pub trait Disk: Send + Sync + 'static {
    /// Creates a directory with its parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names of the files in a directory, unordered.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates an empty file, truncating an existing one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file to read and write.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, and replaces one with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes created, renamed and removed names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks a directory through this file until the guard is dropped; fails with `WouldBlock` if another process
    /// holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// A file. Writes are durable only after `sync_data`, which includes the file's length.
pub trait DiskFile: Send + Sync {
    /// The size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads up to `buffer.len()` bytes; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes or fails; after a failure any part may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Preallocates: the file is at least `size` long, and new bytes read as zeros.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Cuts the file off.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Makes written data durable.
    fn sync_data(&self) -> io::Result<()>;
}

/// Reads `length` bytes, or fewer at the end of the file.
pub(crate) fn read_up_to(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let mut bytes = vec![0; file.size()? as usize];
    let count = read_up_to(&*file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
