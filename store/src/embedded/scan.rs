//! Reads the files of a data directory, oldest first. Every batch is checked before it is used. Only the end of the
//! last log may be torn; damage anywhere else is reported and ends the read.

use std::path::{Path, PathBuf};

use super::files::{self, Listing};
use super::format::{BATCH_HEADER, BatchHeader, BatchKind, FileHeader, FileKind, HeaderError, Record, Records, SECTOR};
use crate::disk::{self, Disk, DiskFile};
use crate::{Result, Revision};

/// The read size; the buffer grows for larger batches.
const CHUNK: usize = 4 << 20;

/// The revision of an empty store: 0 is before every write, and no list may have it.
pub(super) const FIRST_REVISION: Revision = 1;

/// The end of the log, and what the next batch must continue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogEnd {
    /// The sequence of the newest file; the next log has the following one.
    pub sequence: u64,
    pub chain: u32,
    /// The newest revision on disk.
    pub revision: Revision,
    pub reserved: Revision,
    pub compacted: Revision,
    /// The store was closed; nothing that was visible is missing.
    pub clean: bool,
    /// The revision of the state file: older events are not on disk.
    pub base: Revision,
    /// The size of all batches.
    pub bytes: u64,
    /// The last log, its end, and the file size; anything after the end is truncated.
    pub tail: Option<Tail>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    pub sequence: u64,
    pub end: u64,
    pub size: u64,
}

/// Receives each record, and whether it is from a state or a log file.
pub(crate) type RecordVisitor<'a> = dyn FnMut(FileKind, Record<'_>) + 'a;

/// Reads a directory and visits each record in order. Changes nothing.
pub(crate) fn scan(
    disk: &dyn Disk,
    dir: &Path,
    listing: &Listing,
    id: u64,
    visit: &mut RecordVisitor<'_>,
) -> Result<LogEnd> {
    let mut end = LogEnd { revision: FIRST_REVISION, base: FIRST_REVISION, ..LogEnd::default() };
    if let Some(&sequence) = listing.states.last() {
        end = scan_state(disk, &files::state_path(dir, sequence), Some(id), visit)?;
    }
    let logs: Vec<u64> = listing.logs.iter().copied().filter(|&sequence| sequence > end.sequence).collect();
    let used = used_logs(disk, dir, &logs, id)?;
    for (place, &sequence) in used.iter().enumerate() {
        let path = files::log_path(dir, sequence);
        if sequence != end.sequence + 1 {
            return Err(files::damaged(&path, 0, "the previous log segment is missing"));
        }
        let last = place + 1 == used.len();
        scan_log(disk, path, id, last, &mut end, visit)?;
    }
    Ok(end)
}

/// A crash can leave a last log without a valid header. It has no batches then, since the header is synced first.
fn used_logs<'a>(disk: &dyn Disk, dir: &Path, logs: &'a [u64], id: u64) -> Result<&'a [u64]> {
    let Some((&last, before)) = logs.split_last() else {
        return Ok(logs);
    };
    let path = files::log_path(dir, last);
    let mut reader = Reader::open(disk, path)?;
    if reader.header().is_ok() || reader.finds_batch(SECTOR as u64, id)? {
        return Ok(logs);
    }
    Ok(before)
}

/// Reads a state file, or a snapshot, which has its own id.
pub(crate) fn scan_state(
    disk: &dyn Disk,
    path: &Path,
    id: Option<u64>,
    visit: &mut RecordVisitor<'_>,
) -> Result<LogEnd> {
    scan_records(disk, path, FileKind::State, id, visit)
}

/// The header of a file, and its size.
pub(super) fn read_header(disk: &dyn Disk, path: &Path, kind: FileKind, id: Option<u64>) -> Result<(FileHeader, u64)> {
    let mut reader = Reader::open(disk, path.to_owned())?;
    let header = reader.expect_header(kind, id)?;
    Ok((header, reader.size))
}

/// Reads a file that was written as a whole.
pub(super) fn scan_records(
    disk: &dyn Disk,
    path: &Path,
    kind: FileKind,
    id: Option<u64>,
    visit: &mut RecordVisitor<'_>,
) -> Result<LogEnd> {
    let mut reader = Reader::open(disk, path.to_owned())?;
    let header = reader.expect_header(kind, id)?;
    let (mut chain, mut count) = (header.chain, 0u64);
    loop {
        let batch = match reader.next(header.id)? {
            NextBatch::Batch(batch) if batch.chain == chain => batch,
            _ => return Err(reader.damaged("the checksum of a batch does not match")),
        };
        chain = batch.crc;
        match batch.kind {
            BatchKind::Entries => count += reader.visit(&batch, visit)?,
            BatchKind::End if u64::from(batch.count) == count & u64::from(u32::MAX) => break,
            _ => return Err(reader.damaged("entries are missing")),
        }
    }
    Ok(LogEnd {
        sequence: header.sequence,
        chain: header.chain,
        revision: header.revision,
        reserved: header.reserved,
        compacted: header.compacted,
        clean: false,
        base: header.revision,
        bytes: reader.offset,
        tail: None,
    })
}

fn scan_log(
    disk: &dyn Disk,
    path: PathBuf,
    id: u64,
    last: bool,
    end: &mut LogEnd,
    visit: &mut RecordVisitor<'_>,
) -> Result<()> {
    let mut reader = Reader::open(disk, path)?;
    let header = reader.expect_header(FileKind::Log, Some(id))?;
    if header.chain != end.chain || header.revision < end.revision {
        return Err(reader.damaged_at(0, "the previous log segment does not end where this one begins"));
    }
    (end.sequence, end.revision, end.clean) = (header.sequence, header.revision, false);
    end.reserved = end.reserved.max(header.reserved);
    while let NextBatch::Batch(batch) = reader.next(id)? {
        if batch.chain != end.chain {
            return Err(reader.damaged("the previous batch is missing"));
        }
        follow(&mut reader, &batch, end, visit)?;
    }
    end.bytes += reader.offset;
    end.tail = Some(Tail { sequence: end.sequence, end: reader.offset, size: reader.size });
    reader.check_rest(id, last)
}

fn follow(reader: &mut Reader, batch: &BatchHeader, end: &mut LogEnd, visit: &mut RecordVisitor<'_>) -> Result<()> {
    match batch.kind {
        BatchKind::Writes => {
            let count = reader.visit(batch, visit)?;
            let contiguous = count == 0 || batch.last.wrapping_sub(batch.first) == count - 1;
            if !contiguous || batch.last < end.revision || (count > 0 && batch.first <= end.revision) {
                return Err(reader.damaged("revisions are not consecutive"));
            }
            end.revision = batch.last;
        }
        BatchKind::Close => {
            end.compacted = reader.payload(batch).try_into().map_or(0, u64::from_le_bytes);
        }
        _ => return Err(reader.damaged("unexpected batch type in a log")),
    }
    end.chain = batch.crc;
    end.clean = batch.kind == BatchKind::Close;
    // Unused reservations of a closed store were never visible.
    end.reserved = if end.clean { batch.reserved } else { end.reserved.max(batch.reserved) };
    Ok(())
}

enum NextBatch {
    /// Its checksum matches; the reader is after it.
    Batch(BatchHeader),
    /// There is no complete batch here.
    Nothing,
}

/// Reads a file sequentially in large chunks.
struct Reader {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    size: u64,
    /// The position of the next batch.
    offset: u64,
    /// Bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
}

impl Reader {
    fn open(disk: &dyn Disk, path: PathBuf) -> Result<Self> {
        let file = files::open(disk, &path)?;
        let size = file.size().map_err(|error| files::failed("read", &path, error))?;
        Ok(Self { file, path, size, offset: 0, buffer: Vec::new(), start: 0 })
    }

    fn header(&mut self) -> Result<FileHeader, HeaderError> {
        self.offset = SECTOR as u64;
        match self.fill(0, SECTOR) {
            Ok(bytes) => FileHeader::decode(bytes),
            Err(_) => Err(HeaderError::Unreadable),
        }
    }

    fn expect_header(&mut self, kind: FileKind, id: Option<u64>) -> Result<FileHeader> {
        let header = self.header().map_err(|error| self.damaged_at(0, &error.to_string()))?;
        if header.kind != kind {
            return Err(self.damaged_at(0, "the file type does not match the file name"));
        }
        if id.is_some_and(|id| id != header.id) {
            return Err(self.damaged_at(0, "the file belongs to another store"));
        }
        Ok(header)
    }

    fn next(&mut self, id: u64) -> Result<NextBatch> {
        let offset = self.offset;
        let Some(header) = self.batch_at(offset, id)? else {
            return Ok(NextBatch::Nothing);
        };
        self.offset += header.size() as u64;
        Ok(NextBatch::Batch(header))
    }

    fn batch_at(&mut self, offset: u64, id: u64) -> Result<Option<BatchHeader>> {
        let Some(header) = BatchHeader::decode(self.fill(offset, BATCH_HEADER)?) else {
            return Ok(None);
        };
        let length = BATCH_HEADER + header.payload;
        if offset + length as u64 > self.size {
            return Ok(None);
        }
        Ok(header.matches(self.fill(offset, length)?, id).then_some(header))
    }

    /// The records of the last batch.
    fn visit(&mut self, batch: &BatchHeader, visit: &mut RecordVisitor<'_>) -> Result<u64> {
        let start = self.offset - batch.size() as u64;
        let kind = if batch.kind == BatchKind::Writes { FileKind::Log } else { FileKind::State };
        let mut revision = batch.first;
        for record in Records(self.payload(batch)) {
            let record = record.ok_or_else(|| self.damaged_at(start, "invalid record"))?;
            if batch.kind == BatchKind::Writes && record.revision != revision {
                return Err(self.damaged_at(start, "unexpected record revision"));
            }
            revision += 1;
            visit(kind, record);
        }
        match u32::try_from(revision - batch.first) {
            Ok(count) if count == batch.count => Ok(u64::from(count)),
            _ => Err(self.damaged_at(start, "batch record count mismatch")),
        }
    }

    /// The reader is after the batch, whose bytes are still in the buffer.
    fn payload(&self, batch: &BatchHeader) -> &[u8] {
        let start = (self.offset - batch.size() as u64 - self.start) as usize + BATCH_HEADER;
        self.buffer.get(start..start + batch.payload).unwrap_or_default()
    }

    /// Checks the bytes after the last complete batch. A batch that was being written in a crash was the last one: if
    /// another follows, the file is damaged.
    fn check_rest(&mut self, id: u64, last: bool) -> Result<()> {
        let wrong = if last { self.finds_batch(self.offset, id)? } else { !self.rest_is_zero()? };
        if wrong {
            return Err(self.damaged("the checksum of a batch does not match"));
        }
        Ok(())
    }

    fn finds_batch(&mut self, from: u64, id: u64) -> Result<bool> {
        let mut offset = from;
        while offset < self.size {
            if self.batch_at(offset, id)?.is_some() {
                return Ok(true);
            }
            offset += SECTOR as u64;
        }
        Ok(false)
    }

    fn rest_is_zero(&mut self) -> Result<bool> {
        let mut offset = self.offset;
        while offset < self.size {
            let bytes = self.fill(offset, SECTOR)?;
            if bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            offset += SECTOR as u64;
        }
        Ok(true)
    }

    /// The bytes at an offset, fewer at the end of the file. The buffer only moves forward, except to search a torn
    /// end.
    fn fill(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let held = offset >= self.start && offset + length as u64 <= self.start + self.buffer.len() as u64;
        if !held {
            let rest = self.size.saturating_sub(offset) as usize;
            self.buffer.resize(length.max(CHUNK).min(rest), 0);
            let count = disk::read_up_to(&*self.file, &mut self.buffer, offset)
                .map_err(|error| files::failed("read", &self.path, error))?;
            self.buffer.truncate(count);
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..self.buffer.len().min(from + length)])
    }

    fn damaged(&self, what: &str) -> crate::Error {
        self.damaged_at(self.offset, what)
    }

    fn damaged_at(&self, offset: u64, what: &str) -> crate::Error {
        files::damaged(&self.path, offset, what)
    }
}
