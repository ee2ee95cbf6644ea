//! The end of the log: batches are appended to the newest file and synced, one at a time. Does not interpret records.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files;
use super::format::{BatchKind, BatchPosition, Builder, FileHeader, FileKind, SECTOR};
use super::scan::LogEnd;
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result, Revision};

/// Why a batch was not written.
pub(crate) enum AppendFailure {
    /// The batch will not be read; the next batch overwrites it.
    Refused(Error),
    /// The state of the disk is unknown: no write may follow.
    Fatal(Error),
}

pub(crate) struct Log {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub id: u64,
    pub written: Arc<AtomicU64>,
    segment_bytes: u64,
    allocate_bytes: u64,
    current: Option<Segment>,
    /// Something was written since the store was opened, so that its close must be written too.
    dirty: bool,
    /// The highest sequence ever used.
    sequence: u64,
    chain: u32,
    /// The newest revision on disk.
    revision: Revision,
    /// No higher revision may be visible before a batch that reserves it is on disk.
    reserved: Revision,
    /// The size of all batches on disk, live or not.
    bytes: u64,
}

struct Segment {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// The position of the next batch.
    end: u64,
    allocated: u64,
    /// The name may not be durable yet.
    fresh: bool,
}

/// The position that a state file records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub sequence: u64,
    pub chain: u32,
    pub revision: Revision,
    pub reserved: Revision,
}

impl Log {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, id: u64, end: &LogEnd, config: &super::Config) -> Self {
        Self {
            disk,
            dir,
            id,
            written: Arc::default(),
            segment_bytes: config.segment_bytes,
            allocate_bytes: config.allocate_bytes.max(SECTOR as u64),
            current: None,
            dirty: false,
            sequence: end.sequence,
            chain: end.chain,
            revision: end.revision,
            reserved: end.reserved,
            bytes: end.bytes,
        }
    }

    pub(super) fn reserved(&self) -> Revision {
        self.reserved
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the batch durable. Its revisions end at `last`; revisions up to `reserved` may then be visible.
    pub(super) fn commit(
        &mut self,
        builder: &mut Builder,
        last: Revision,
        reserved: Revision,
    ) -> Result<(), AppendFailure> {
        let first = last + 1 - Revision::from(builder.count());
        self.append(builder, BatchKind::Writes, first, last, reserved)
    }

    /// Records that nothing is missing, and releases unused reservations.
    pub(super) fn close(&mut self, compacted: Revision, revision: Revision) -> Result<(), AppendFailure> {
        if !self.dirty {
            return Ok(());
        }
        let mut builder = Builder::new();
        builder.push_raw(&compacted.to_le_bytes());
        self.reserved = revision;
        self.append(&mut builder, BatchKind::Close, revision, revision, revision)?;
        self.truncate_unused().map_err(AppendFailure::Refused)
    }

    fn append(
        &mut self,
        builder: &mut Builder,
        kind: BatchKind,
        first: Revision,
        last: Revision,
        reserved: Revision,
    ) -> Result<(), AppendFailure> {
        let reserved = reserved.max(self.reserved).max(last);
        let (bytes, crc) = builder.seal(BatchPosition { kind, id: self.id, chain: self.chain, first, last, reserved });
        let size = bytes.len() as u64;
        self.ensure_capacity(size).map_err(AppendFailure::Refused)?;
        self.write(bytes)?;
        self.written.fetch_add(size, Ordering::Relaxed);
        (self.chain, self.revision, self.reserved) = (crc, last, reserved);
        self.bytes += size;
        self.dirty = true;
        Ok(())
    }

    /// Opens the next file if there is none or the current one is full.
    fn ensure_capacity(&mut self, size: u64) -> Result<()> {
        if self.current.as_ref().is_some_and(|current| current.end + size > self.segment_bytes) {
            self.truncate_unused()?;
            self.current = None;
        }
        if self.current.is_none() {
            self.start()?;
        }
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let end = current.end + size;
        if end > current.allocated {
            let allocate = end.next_multiple_of(self.allocate_bytes);
            current.file.allocate(allocate).map_err(|error| files::failed("extend", &current.path, error))?;
            current.allocated = allocate;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let sequence = self.sequence + 1;
        let path = files::log_path(&self.dir, sequence);
        let header = FileHeader {
            kind: FileKind::Log,
            id: self.id,
            sequence,
            revision: self.revision,
            reserved: self.reserved,
            compacted: 0,
            chain: self.chain,
        };
        let create = || {
            let file = self.disk.create(&path)?;
            file.allocate(self.allocate_bytes)?;
            file.write_at(&header.encode(), 0)?;
            // Before the first batch: a batch after an invalid header is then damage, not a torn start.
            file.sync_data()?;
            Ok(file)
        };
        let file = create().map_err(|error| files::failed("create", &path, error))?;
        self.written.fetch_add(SECTOR as u64, Ordering::Relaxed);
        self.sequence = sequence;
        self.bytes += SECTOR as u64;
        self.current = Some(Segment { file, path, end: SECTOR as u64, allocated: self.allocate_bytes, fresh: true });
        Ok(())
    }

    /// After a failed sync the kernel may have dropped the pages and the error: a second sync would succeed and mean
    /// nothing.
    fn write(&mut self, bytes: &[u8]) -> Result<(), AppendFailure> {
        let Some(current) = &mut self.current else {
            return Err(AppendFailure::Refused(Error::Closed));
        };
        let written = current.file.write_at(bytes, current.end);
        written.map_err(|error| AppendFailure::Refused(files::failed("write", &current.path, error)))?;
        let fatal = |error| AppendFailure::Fatal(files::failed("sync", &current.path, error));
        current.file.sync_data().map_err(fatal)?;
        if current.fresh {
            self.disk.sync_dir(&self.dir).map_err(fatal)?;
        }
        current.fresh = false;
        current.end += bytes.len() as u64;
        Ok(())
    }

    /// Releases unused allocated space, including the remains of a failed write.
    fn truncate_unused(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let cut = current.file.truncate(current.end).and_then(|()| current.file.sync_data());
        current.allocated = current.end;
        cut.map_err(|error| files::failed("truncate", &current.path, error))
    }

    /// Closes the current file, so that a state file can replace everything up to here.
    pub(super) fn rotate(&mut self) -> Result<Position> {
        self.truncate_unused()?;
        self.current = None;
        Ok(Position { sequence: self.sequence, chain: self.chain, revision: self.revision, reserved: self.reserved })
    }

    /// The state file has replaced older files.
    pub(super) fn compacted(&mut self, before: u64, after: u64) {
        self.bytes = self.bytes.saturating_sub(before) + after;
    }
}
