//! Reads tar streams of the POSIX, GNU and old formats. [`super::tar_writer`] writes POSIX streams.
//!
//! The module is independent of layers and directories: names and numbers are returned as they are in the stream.

use std::io::{self, Read};

pub use super::tar_writer::Writer;

/// The block size of the format.
pub const BLOCK: usize = 512;
/// The size limit of extended headers and long names.
const MAX_EXTENSION: u64 = 1 << 20;

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    #[error("the archive has {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("failed to read the archive")]
    Io(#[from] io::Error),
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Hardlink,
    CharDevice,
    BlockDevice,
    Fifo,
}

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    /// The target of a link.
    pub target: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The size of the data that follows; only files have data.
    pub size: u64,
    pub seconds: i64,
    pub nanoseconds: u32,
    pub major: u32,
    pub minor: u32,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// An entry that belongs to root and has no data.
    pub fn new(path: &str, kind: Kind, mode: u32) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            target: Vec::new(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            seconds: 0,
            nanoseconds: 0,
            major: 0,
            minor: 0,
            xattrs: Vec::new(),
        }
    }
}

/// An extended header, which applies to the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    time: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads the entries of an archive.
pub struct Reader<R> {
    inner: R,
    /// The remaining data of the current entry, and its padding.
    left: u64,
    padding: u64,
    /// The position in the stream.
    offset: u64,
}

impl<R: Read> Reader<R> {
    /// Reads an archive from a stream.
    pub fn new(inner: R) -> Reader<R> {
        Reader { inner, left: 0, padding: 0, offset: 0 }
    }

    /// The stream.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// The position of the current entry's data, after [`Reader::next_entry`].
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next entry; skips the remaining data of the previous one. None at the end of the archive.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extension = Extension::default();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = number(&header[124..136])?;
            match header[156] {
                b'x' => pax(&self.extension(size)?, &mut extension)?,
                b'g' => {
                    // A global header. Tools that create layers only use it for comments.
                    self.extension(size)?;
                }
                b'L' => extension.path = Some(until_nul(&self.extension(size)?).to_vec()),
                b'K' => extension.target = Some(until_nul(&self.extension(size)?).to_vec()),
                _ => return self.entry(&header, extension).map(Some),
            }
        }
    }

    /// Reads data of the current entry; 0 at its end.
    pub fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(TarError::Damaged("unexpected end of a file"));
        }
        self.left -= read as u64;
        self.offset += read as u64;
        Ok(read)
    }

    /// Reads to the end of the stream, which may be after the end of the archive.
    pub fn drain(&mut self) -> Result<(), TarError> {
        io::copy(&mut self.inner, &mut io::sink())?;
        Ok(())
    }

    fn skip_rest(&mut self) -> Result<(), TarError> {
        let rest = self.left + self.padding;
        let skipped = io::copy(&mut (&mut self.inner).take(rest), &mut io::sink())?;
        self.offset += skipped;
        // The padding of the last entry is often missing.
        if skipped < self.left {
            return Err(TarError::Damaged("unexpected end of a file"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(TarError::Damaged("unexpected end of a header")),
                read => filled += read,
            }
        }
        self.offset += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        check_sum(&block)?;
        Ok(Some(block))
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_EXTENSION {
            return Err(TarError::Damaged("an extended header is larger than 1 MiB"));
        }
        let mut data = Vec::new();
        (&mut self.inner).take(size).read_to_end(&mut data)?;
        if (data.len() as u64) < size {
            return Err(TarError::Damaged("unexpected end of an extended header"));
        }
        self.offset += size;
        self.padding = padding(size);
        Ok(data)
    }

    fn entry(&mut self, header: &[u8; BLOCK], extension: Extension) -> Result<Entry, TarError> {
        let path = extension.path.unwrap_or_else(|| name(header));
        let kind = match header[156] {
            // The oldest format marks directories only by a trailing slash.
            0 | b'0' | b'7' if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::Hardlink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => return Err(TarError::Unsupported("a sparse file")),
            _ => return Err(TarError::Unsupported("an entry of an unknown type")),
        };
        let stated = extension.size.map_or_else(|| number(&header[124..136]), Ok)?;
        let size = if kind == Kind::File { stated } else { 0 };
        // Old archives state a size for directories, although no data follows.
        self.left = if matches!(kind, Kind::File) { stated } else { 0 };
        self.padding = padding(self.left);
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let part = |from, to| if device { narrow(&header[from..to]) } else { Ok(0) };
        let (seconds, nanoseconds) = match extension.time {
            Some(time) => time,
            None => (i64::try_from(number(&header[136..148])?).unwrap_or(0), 0),
        };
        Ok(Entry {
            path,
            target: extension.target.unwrap_or_else(|| until_nul(&header[157..257]).to_vec()),
            kind,
            mode: narrow(&header[100..108])? & 0o7777,
            uid: extension.uid.map_or_else(|| narrow(&header[108..116]), Ok)?,
            gid: extension.gid.map_or_else(|| narrow(&header[116..124]), Ok)?,
            size,
            seconds,
            nanoseconds,
            major: part(329, 337)?,
            minor: part(337, 345)?,
            xattrs: extension.xattrs,
        })
    }
}

pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn name(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    let prefix = until_nul(&header[345..500]);
    // The GNU format uses the field of the POSIX prefix for other data.
    if &header[257..263] != b"ustar\0" || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), TarError> {
    let stated = number(&block[148..156])?;
    if stated == sum(block) { Ok(()) } else { Err(TarError::Damaged("wrong header checksum")) }
}

/// The sum of all bytes, with blanks in the checksum field.
pub(super) fn sum(block: &[u8; BLOCK]) -> u64 {
    let all = |range: std::ops::Range<usize>| block[range].iter().map(|byte| u64::from(*byte)).sum::<u64>();
    all(0..148) + 8 * u64::from(b' ') + all(156..BLOCK)
}

fn narrow(field: &[u8]) -> Result<u32, TarError> {
    u32::try_from(number(field)?).map_err(|_| TarError::Damaged("a number is too large"))
}

/// Octal digits, or binary if the first bit is set.
fn number(field: &[u8]) -> Result<u64, TarError> {
    let bad = TarError::Damaged("invalid number in a header");
    if field[0] & 0x80 != 0 {
        let mut value = u64::from(field[0] & 0x7f);
        for byte in &field[1..] {
            value = value.checked_mul(256).ok_or(TarError::Damaged("a number is too large"))? + u64::from(*byte);
        }
        return Ok(value);
    }
    let text = until_nul(field).trim_ascii();
    if text.is_empty() {
        return Ok(0);
    }
    let text = std::str::from_utf8(text).map_err(|_| TarError::Damaged("invalid number in a header"))?;
    u64::from_str_radix(text, 8).map_err(|_| bad)
}

/// Records of the form `LENGTH KEY=VALUE\n`, where the length includes itself.
fn pax(mut data: &[u8], into: &mut Extension) -> Result<(), TarError> {
    const BAD: TarError = TarError::Damaged("invalid extended header");
    while !data.is_empty() {
        let blank = data.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
        let length: usize = text(&data[..blank])?.parse().map_err(|_| BAD)?;
        if length <= blank + 1 || length > data.len() || data[length - 1] != b'\n' {
            return Err(BAD);
        }
        let record = &data[blank + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
        pax_record(&record[..equals], &record[equals + 1..], into)?;
        data = &data[length..];
    }
    Ok(())
}

fn pax_record(key: &[u8], value: &[u8], into: &mut Extension) -> Result<(), TarError> {
    const BAD: TarError = TarError::Damaged("invalid number in an extended header");
    match key {
        b"path" => into.path = Some(value.to_vec()),
        b"linkpath" => into.target = Some(value.to_vec()),
        b"uid" => into.uid = Some(text(value)?.parse().map_err(|_| BAD)?),
        b"gid" => into.gid = Some(text(value)?.parse().map_err(|_| BAD)?),
        b"size" => into.size = Some(text(value)?.parse().map_err(|_| BAD)?),
        b"mtime" => into.time = Some(time(text(value)?).ok_or(BAD)?),
        _ if key.starts_with(b"GNU.sparse.") => return Err(TarError::Unsupported("a sparse file")),
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                into.xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, TarError> {
    std::str::from_utf8(bytes).map_err(|_| TarError::Damaged("invalid extended header"))
}

/// Seconds with a fraction, possibly before 1970.
fn time(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    match whole.starts_with('-') && nanoseconds > 0 {
        true => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)),
        false => Some((seconds, nanoseconds)),
    }
}
