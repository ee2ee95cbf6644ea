//! A non-persistent store for tests: the embedded engine on a disk that stores nothing, with the same code path. It has
//! no thread: tests with simulated time are reproducible.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::embedded::{self, Config, EmbeddedStore, Retention, WriterMode};
use crate::{Result, Sink};
use stdx::clock::{Clock, RuntimeClock};

/// Entries expire in the runtime's time, also if a test has paused it.
pub fn open(sink: Arc<dyn Sink>) -> Result<EmbeddedStore> {
    open_at(Arc::new(RuntimeClock::default()), sink)
}

/// Like `open`, with a clock of the caller.
pub fn open_at(clock: Arc<dyn Clock>, sink: Arc<dyn Sink>) -> Result<EmbeddedStore> {
    // There are no files to compact.
    let config = Config {
        clock,
        writer_mode: WriterMode::Inline,
        compact_bytes: u64::MAX,
        retention: Retention::OFF,
        ..Config::new("/memory")
    };
    embedded::open(config, Arc::new(NullDisk), sink)
}

/// Accepts all writes and stores nothing.
struct NullDisk;

impl Disk for NullDisk {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn create(&self, _path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(NullDisk))
    }

    fn open(&self, _path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl DiskFile for NullDisk {
    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
