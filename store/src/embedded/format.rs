//! The binary format of the log. A file is a header sector and batches. A batch is one checksummed unit that starts at
//! a sector boundary: a torn write never affects an acknowledged batch. Numbers are little-endian. No I/O here.

use thiserror::Error;

use crate::{Entry, Revision};

/// The version of the data directory format. Others are rejected.
pub(crate) const VERSION: u32 = 1;
/// The atomic write unit of a disk; batches start at this boundary.
pub(crate) const SECTOR: usize = 512;
pub(crate) const BATCH_HEADER: usize = 48;
/// Larger than any batch of the writer; a larger length is damage.
pub(crate) const MAX_BATCH: usize = 256 << 20;

const FILE_MAGIC: [u8; 8] = *b"TIPHYSST";
const BATCH_MAGIC: u32 = 0x4843_5442;
const FILE_HEADER: usize = 68;
const RECORD_HEADER: usize = 37;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Batches as they were committed.
    Log = 1,
    /// The entries of one revision, which replace every log file up to `sequence`.
    State = 2,
    /// The writes between two revisions, behind the entries that they have changed. `revision` is that before the
    /// writes, `reserved` that of the last one, and `compacted` is the time of the last one.
    History = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub kind: FileKind,
    /// Random, equal in all files of a store and included in every checksum: neither a file of another store nor
    /// bytes in a client's value are mistaken for ours.
    pub id: u64,
    pub sequence: u64,
    /// The newest revision before the batches of a log file, or of the entries of a state file.
    pub revision: Revision,
    pub reserved: Revision,
    pub compacted: Revision,
    /// The checksum of the last batch before this file, which detects missing or truncated files.
    pub chain: u32,
}

/// Why a file header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum HeaderError {
    #[error("invalid header")]
    Unreadable,
    #[error("not a store file")]
    NotAStoreFile,
    #[error("header checksum mismatch")]
    Checksum,
    #[error("unsupported file format version")]
    Version,
    #[error("unknown file type")]
    FileType,
}

impl FileHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SECTOR);
        out.extend_from_slice(&FILE_MAGIC);
        put_u32(&mut out, 0);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.kind as u32);
        for number in [self.id, self.sequence, self.revision, self.reserved, self.compacted] {
            put_u64(&mut out, number);
        }
        put_u32(&mut out, self.chain);
        put_u32(&mut out, 0);
        out.resize(SECTOR, 0);
        let crc = crc32c::crc32c(&out[12..FILE_HEADER]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < SECTOR || bytes[..8] != FILE_MAGIC {
            return Err(HeaderError::NotAStoreFile);
        }
        let mut fields = Fields(&bytes[8..FILE_HEADER]);
        let (crc, version, kind) = (fields.u32(), fields.u32(), fields.u32());
        if crc != crc32c::crc32c(&bytes[12..FILE_HEADER]) {
            return Err(HeaderError::Checksum);
        }
        if version != VERSION {
            return Err(HeaderError::Version);
        }
        let kind = match kind {
            1 => FileKind::Log,
            2 => FileKind::State,
            3 => FileKind::History,
            _ => return Err(HeaderError::FileType),
        };
        let (id, sequence, revision) = (fields.u64(), fields.u64(), fields.u64());
        let (reserved, compacted, chain) = (fields.u64(), fields.u64(), fields.u32());
        Ok(Self { kind, id, sequence, revision, reserved, compacted, chain })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Writes in order, with contiguous revisions; empty if it only reserves revisions.
    Writes = 1,
    /// Entries of a state file, sorted by key.
    Entries = 2,
    /// The end of a state file; `count` is the number of its entries.
    End = 3,
    /// The store was closed after everything before this; the payload is the compacted revision.
    Close = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub crc: u32,
    /// The length of the records; the batch fills whole sectors.
    pub payload: usize,
    pub kind: BatchKind,
    pub count: u32,
    /// The checksum of the previous batch.
    pub chain: u32,
    pub first: Revision,
    pub last: Revision,
    /// Revisions up to here may have been shown to clients.
    pub reserved: Revision,
}

impl BatchHeader {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.get(..BATCH_HEADER)?);
        let (magic, crc, payload, kind) = (fields.u32(), fields.u32(), fields.u32() as usize, fields.u32());
        let (count, chain) = (fields.u32(), fields.u32());
        let (first, last, reserved) = (fields.u64(), fields.u64(), fields.u64());
        let kind = match kind {
            1 => BatchKind::Writes,
            2 => BatchKind::Entries,
            3 => BatchKind::End,
            4 => BatchKind::Close,
            _ => return None,
        };
        (magic == BATCH_MAGIC && payload <= MAX_BATCH).then_some(Self {
            crc,
            payload,
            kind,
            count,
            chain,
            first,
            last,
            reserved,
        })
    }

    /// The length on disk.
    pub(super) fn size(&self) -> usize {
        (BATCH_HEADER + self.payload).next_multiple_of(SECTOR)
    }

    /// Whether the checksum matches the batch, which starts with its header.
    pub(super) fn matches(&self, batch: &[u8], id: u64) -> bool {
        batch.get(8..BATCH_HEADER + self.payload).is_some_and(|bytes| checksum(bytes, id) == self.crc)
    }
}

/// Builds a batch: records are appended, then it is sealed once.
pub(crate) struct Builder {
    /// Space for the header, the records, and after `seal` the padding.
    bytes: Vec<u8>,
    /// The end of the records.
    end: usize,
    count: u32,
}

/// A position for `Builder::rewind`.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    end: usize,
    count: u32,
}

/// The position of a batch in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPosition {
    pub kind: BatchKind,
    pub id: u64,
    pub chain: u32,
    pub first: Revision,
    pub last: Revision,
    pub reserved: Revision,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BATCH_HEADER], end: BATCH_HEADER, count: 0 }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { end: self.end, count: self.count }
    }

    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.end);
        self.end = mark.end;
        self.count = mark.count;
    }

    pub(super) fn clear(&mut self) {
        self.rewind(Mark { end: BATCH_HEADER, count: 0 });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The length of the records.
    pub(super) fn len(&self) -> usize {
        self.end - BATCH_HEADER
    }

    /// An entry of a state file.
    pub(crate) fn push_entry(&mut self, entry: &Entry) {
        self.push_record(&Record::of(entry, &[], 0, false));
    }

    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
    }

    pub(crate) fn push_record(&mut self, record: &Record<'_>) {
        self.bytes.truncate(self.end);
        let out = &mut self.bytes;
        let (tag, value) = match record.value {
            Some(value) => (Tag::Put, value),
            None => (Tag::Delete, &[][..]),
        };
        out.push(tag as u8);
        put_u64(out, record.revision);
        put_u64(out, record.expires);
        for length in [record.key.len(), value.len(), record.cause.len()] {
            put_u32(out, length as u32);
        }
        put_u64(out, record.time << 1 | u64::from(record.is_relaxed));
        out.extend_from_slice(record.key.as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(record.cause);
        self.end = self.bytes.len();
        self.count += 1;
    }

    /// The whole batch in whole sectors, and its checksum. Can be called again after a failed write.
    pub(super) fn seal(&mut self, seal: BatchPosition) -> (&[u8], u32) {
        self.seal_counted(seal, self.count)
    }

    pub(crate) fn seal_counted(&mut self, seal: BatchPosition, count: u32) -> (&[u8], u32) {
        let length = self.end;
        self.bytes.truncate(length);
        let mut header = Vec::with_capacity(BATCH_HEADER);
        put_u32(&mut header, BATCH_MAGIC);
        put_u32(&mut header, 0);
        for number in [(length - BATCH_HEADER) as u32, seal.kind as u32, count, seal.chain] {
            put_u32(&mut header, number);
        }
        for number in [seal.first, seal.last, seal.reserved] {
            put_u64(&mut header, number);
        }
        self.bytes[..BATCH_HEADER].copy_from_slice(&header);
        let crc = checksum(&self.bytes[8..length], seal.id);
        self.bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        self.bytes.resize(length.next_multiple_of(SECTOR), 0);
        (&self.bytes, crc)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Put = 1,
    Delete = 2,
}

/// One record of a log or state file, borrowed from the file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub revision: Revision,
    pub key: &'a str,
    /// None for a deletion.
    pub value: Option<&'a [u8]>,
    /// In seconds since the Unix epoch; 0 for never.
    pub expires: u64,
    /// The cause of the write; empty if there is none or compaction has dropped it.
    pub cause: &'a [u8],
    /// The time of the write in milliseconds since the Unix epoch; 0 if it is not known.
    pub time: u64,
    /// The writer did not wait for the disk.
    pub is_relaxed: bool,
}

impl<'a> Record<'a> {
    pub(crate) fn of(entry: &'a Entry, cause: &'a [u8], time: u64, is_relaxed: bool) -> Record<'a> {
        let Entry { key, value, revision, expires } = entry;
        Record { revision: *revision, key, value: Some(value), expires: *expires, cause, time, is_relaxed }
    }

    pub(crate) fn size(&self) -> u64 {
        (RECORD_HEADER + self.key.len() + self.value.map_or(0, <[u8]>::len) + self.cause.len()) as u64
    }
}

/// The records of a batch with a valid checksum. `None` instead of a record ends the iteration: no version of this
/// program wrote the bytes.
pub(crate) struct Records<'a>(pub &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Option<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_none() {
            self.0 = &[];
        }
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Option<Record<'a>> {
        let (head, rest) = self.0.split_at_checked(RECORD_HEADER)?;
        let tag = head[0];
        let mut fields = Fields(&head[1..]);
        let (revision, expires) = (fields.u64(), fields.u64());
        let (key, value, cause) = (fields.u32() as usize, fields.u32() as usize, fields.u32() as usize);
        // Earlier versions wrote 0.
        let stamp = fields.u64();
        let (key, rest) = rest.split_at_checked(key)?;
        let (value, rest) = rest.split_at_checked(value)?;
        let (cause, rest) = rest.split_at_checked(cause)?;
        self.0 = rest;
        let value = match tag {
            1 => Some(value),
            2 => None,
            _ => return None,
        };
        let key = std::str::from_utf8(key).ok()?;
        Some(Record { revision, key, value, expires, cause, time: stamp >> 1, is_relaxed: stamp & 1 == 1 })
    }
}

/// The size of an entry in a state file.
pub(crate) fn record_size(entry: &Entry) -> u64 {
    (RECORD_HEADER + entry.key.len() + entry.value.len()) as u64
}

fn checksum(bytes: &[u8], id: u64) -> u32 {
    crc32c::crc32c_append((id ^ (id >> 32)) as u32, bytes)
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Reads numbers from the front of a slice; zeros at the end, which callers prevent.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> u32 {
        self.0.split_off(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn u64(&mut self) -> u64 {
        self.0.split_off(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal() -> BatchPosition {
        BatchPosition { kind: BatchKind::Writes, id: 7, chain: 3, first: 10, last: 11, reserved: 20 }
    }

    const DELETE: Record<'_> =
        Record { revision: 11, key: "c", value: None, expires: 0, cause: b"", time: u64::MAX >> 1, is_relaxed: false };

    fn sample() -> Builder {
        let mut builder = Builder::new();
        let entry = Entry { key: "a/b".into(), value: vec![1, 2, 3].into(), revision: 10, expires: 99 };
        builder.push_record(&Record::of(&entry, b"why", 5, true));
        builder.push_record(&DELETE);
        builder
    }

    #[test]
    fn batches_round_trip() {
        let mut builder = sample();
        let (bytes, crc) = builder.seal(seal());
        let header = BatchHeader::decode(bytes).expect("a header");
        assert!(header.matches(bytes, 7));
        assert!(!header.matches(bytes, 8), "another store's id must not match");
        assert_eq!((header.crc, header.count, header.chain), (crc, 2, 3));
        assert_eq!((header.first, header.last, header.reserved), (10, 11, 20));
        assert_eq!(header.size(), SECTOR);
        let records: Option<Vec<_>> = Records(&bytes[BATCH_HEADER..BATCH_HEADER + header.payload]).collect();
        let value = Some(&[1, 2, 3][..]);
        let put = Record { revision: 10, key: "a/b", value, expires: 99, cause: b"why", time: 5, is_relaxed: true };
        assert_eq!(records, Some(vec![put, DELETE]));
    }

    #[test]
    fn detects_every_flipped_bit() {
        let mut builder = sample();
        let length = BATCH_HEADER + builder.len();
        let (bytes, _) = builder.seal(seal());
        for bit in 0..length * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let fine = BatchHeader::decode(&damaged).is_some_and(|header| header.matches(&damaged, 7));
            assert!(!fine, "bit {bit} was flipped and not detected");
        }
    }

    #[test]
    fn file_headers_round_trip() {
        let header =
            FileHeader { kind: FileKind::State, id: 1, sequence: 2, revision: 3, reserved: 4, compacted: 5, chain: 6 };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for byte in 0..FILE_HEADER {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x10;
            assert!(FileHeader::decode(&damaged).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn refuses_truncated_records() {
        let builder = sample();
        let whole = &builder.bytes[BATCH_HEADER..];
        for length in 1..whole.len() {
            let last = Records(&whole[..length]).last().expect("something");
            assert!(last.is_none() || length == RECORD_HEADER + 9, "cut at {length}");
        }
    }
}
