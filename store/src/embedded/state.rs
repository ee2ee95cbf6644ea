//! State files: the entries of one revision. Compaction writes one to replace old logs, a snapshot is one, and a
//! restore starts from one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files;
use super::format::{BatchKind, BatchPosition, Builder, FileHeader, FileKind, Record, SECTOR};
use super::scan;
use crate::disk::{Disk, DiskFile, RealDisk};
use crate::entries::Entries;
use crate::{Entry, Result, Revision};

const BATCH_BYTES: usize = 1 << 20;
/// Synced in steps, so that the writer's small syncs are not delayed by all of it.
const SYNC_BYTES: u64 = 8 << 20;
/// How far a restored store starts above its snapshot. Revisions that were used after the snapshot must not be
/// reused.
const RESTORE_GAP: Revision = 1_000_000_000;

/// Writes the entries to a temporary file, then renames it. Returns its size.
pub(crate) fn write(
    disk: &dyn Disk,
    path: &Path,
    header: FileHeader,
    entries: impl Iterator<Item = io::Result<Arc<Entry>>>,
    written: &AtomicU64,
) -> io::Result<u64> {
    let mut file = RecordFile::create(disk, path, header)?;
    for entry in entries {
        let entry = entry?;
        file.push(|builder| builder.push_entry(&entry))?;
    }
    file.finish(written)
}

/// A file of records that has its name only once it is complete. Dropping it before removes it.
pub(super) struct RecordFile<'a> {
    disk: &'a dyn Disk,
    path: &'a Path,
    file: Box<dyn DiskFile>,
    header: FileHeader,
    builder: Builder,
    /// The number of records.
    count: u64,
    offset: u64,
    synced: u64,
    chain: u32,
    is_finished: bool,
}

impl<'a> RecordFile<'a> {
    pub(super) fn create(disk: &'a dyn Disk, path: &'a Path, header: FileHeader) -> io::Result<RecordFile<'a>> {
        let file = disk.create(&files::temporary(path))?;
        let (builder, offset) = (Builder::new(), SECTOR as u64);
        let chain = header.chain;
        let created =
            RecordFile { disk, path, file, header, builder, count: 0, offset, synced: 0, chain, is_finished: false };
        created.file.write_at(&header.encode(), 0)?;
        Ok(created)
    }

    pub(super) fn push(&mut self, push: impl FnOnce(&mut Builder)) -> io::Result<()> {
        push(&mut self.builder);
        self.count += 1;
        if self.builder.len() >= BATCH_BYTES { self.write(BatchKind::Entries, None) } else { Ok(()) }
    }

    /// Writes the rest, and renames the file. Returns its size.
    pub(super) fn finish(mut self, written: &AtomicU64) -> io::Result<u64> {
        self.write(BatchKind::Entries, None)?;
        self.write(BatchKind::End, Some(self.count as u32))?;
        self.file.sync_data()?;
        written.fetch_add(self.offset, Ordering::Relaxed);
        self.disk.rename(&files::temporary(self.path), self.path)?;
        self.is_finished = true;
        // A lone file name has an empty parent.
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        self.disk.sync_dir(dir.unwrap_or(Path::new(".")))?;
        Ok(self.offset)
    }

    fn write(&mut self, kind: BatchKind, count: Option<u32>) -> io::Result<()> {
        let FileHeader { id, revision, reserved, .. } = self.header;
        let seal = BatchPosition { kind, id, chain: self.chain, first: revision, last: revision, reserved };
        let count = count.unwrap_or(self.builder.count());
        let (bytes, crc) = self.builder.seal_counted(seal, count);
        self.file.write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        self.chain = crc;
        self.builder.clear();
        if self.offset - self.synced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(())
    }
}

impl Drop for RecordFile<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // The space is needed; if it cannot be removed now, it is at the next start.
            let _ = self.disk.remove(&files::temporary(self.path));
        }
    }
}

/// Creates a data directory from a snapshot. The directory must not contain a store. Returns the initial revision.
pub(super) fn restore(snapshot: &Path, dir: &Path, disk: &dyn Disk) -> Result<Revision> {
    let mut entries = Entries::default();
    let mut insert = |_, record: Record<'_>| drop(entries.insert(Arc::new(super::load::entry(&record))));
    let end = scan::scan_state(disk, snapshot, None, &mut insert)?;
    disk.create_dir(dir).map_err(|error| files::failed("create", dir, error))?;
    let _lock = files::lock(disk, dir)?;
    let listing = files::list(disk, dir)?;
    if listing.has_version || !listing.logs.is_empty() || !listing.states.is_empty() {
        return Err(files::failed("restore into", dir, io::ErrorKind::AlreadyExists.into()));
    }
    let revision = end.revision.max(end.reserved) + RESTORE_GAP;
    write_created(disk, dir, &entries, revision)?;
    Ok(revision)
}

/// Writes the files of a new store. The version is written last: if this is interrupted, the directory does not open.
pub(super) fn write_created(disk: &dyn Disk, dir: &Path, entries: &Entries, revision: Revision) -> Result<()> {
    let id = files::new_identity();
    let header = FileHeader {
        kind: FileKind::State,
        id,
        sequence: 1,
        revision,
        reserved: revision,
        compacted: revision,
        chain: 0,
    };
    let path = files::state_path(dir, 1);
    write(disk, &path, header, entries.iter().cloned().map(Ok), &AtomicU64::new(0))
        .map_err(|error| files::failed("write", &path, error))?;
    files::write_version(disk, dir, id)
}

/// Writes a snapshot to the local file system, also from a store in memory.
pub(crate) fn snapshot(path: &Path, entries: &Entries, revision: Revision) -> Result<Revision> {
    let header = FileHeader {
        kind: FileKind::State,
        id: files::new_identity(),
        sequence: 0,
        revision,
        reserved: revision,
        compacted: revision,
        chain: 0,
    };
    write(&RealDisk, path, header, entries.iter().cloned().map(Ok), &AtomicU64::new(0))
        .map_err(|error| files::failed("write", path, error))?;
    Ok(revision)
}
