//! Writes tar streams.

use std::io::{self, Write};

use super::tar::{BLOCK, Entry, Kind, padding, sum};

/// Writes entries reproducibly.
pub struct Writer<W> {
    inner: W,
    padding: u64,
}

impl<W: Write> Writer<W> {
    /// Writes an archive to a stream.
    pub fn new(inner: W) -> Writer<W> {
        Writer { inner, padding: 0 }
    }

    /// Writes a header. The caller then writes as many bytes as the size of the entry, through [`Writer::data`].
    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.pad()?;
        let extended = extended(entry);
        if !extended.is_empty() {
            let mut header = Entry::new("././@PaxHeader", Kind::File, 0o644);
            header.size = extended.len() as u64;
            self.inner.write_all(&block(&header, b'x'))?;
            self.inner.write_all(&extended)?;
            self.padding = padding(header.size);
            self.pad()?;
        }
        self.inner.write_all(&block(entry, type_of(entry.kind)))?;
        self.padding = padding(entry.size);
        Ok(())
    }

    /// The stream, for the data of the current entry.
    pub fn data(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Writes a file with its data.
    pub fn file(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        let mut entry = Entry::new(path, Kind::File, 0o644);
        entry.size = data.len() as u64;
        self.entry(&entry)?;
        self.inner.write_all(data)
    }

    /// Writes the end of the archive, and returns the stream.
    pub fn finish(mut self) -> io::Result<W> {
        self.pad()?;
        self.inner.write_all(&[0; 2 * BLOCK])?;
        self.inner.flush()?;
        Ok(self.inner)
    }

    fn pad(&mut self) -> io::Result<()> {
        let padding = std::mem::take(&mut self.padding) as usize;
        self.inner.write_all(&[0; BLOCK][..padding])
    }
}

fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::Hardlink => b'1',
        Kind::Symlink => b'2',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

fn block(entry: &Entry, kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block[..100], &entry.path);
    octal(&mut block[100..108], u64::from(entry.mode));
    octal(&mut block[108..116], u64::from(entry.uid));
    octal(&mut block[116..124], u64::from(entry.gid));
    octal(&mut block[124..136], entry.size);
    octal(&mut block[136..148], u64::try_from(entry.seconds).unwrap_or(0));
    block[156] = kind;
    put(&mut block[157..257], &entry.target);
    block[257..265].copy_from_slice(b"ustar\x0000");
    if matches!(entry.kind, Kind::CharDevice | Kind::BlockDevice) {
        octal(&mut block[329..337], u64::from(entry.major));
        octal(&mut block[337..345], u64::from(entry.minor));
    }
    let sum = format!("{:06o}\0 ", sum(&block));
    block[148..156].copy_from_slice(sum.as_bytes());
    block
}

fn put(field: &mut [u8], bytes: &[u8]) {
    let most = bytes.len().min(field.len());
    field[..most].copy_from_slice(&bytes[..most]);
}

/// Octal if it fits, otherwise binary.
fn octal(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}");
    if text.len() == digits {
        field[..digits].copy_from_slice(text.as_bytes());
        return;
    }
    let start = field.len() - 8;
    field[start..].copy_from_slice(&value.to_be_bytes());
    field[0] |= 0x80;
}

/// The extended header for what does not fit into a plain header.
fn extended(entry: &Entry) -> Vec<u8> {
    let mut data = Vec::new();
    if entry.path.len() > 100 {
        record(&mut data, b"path", &entry.path);
    }
    if entry.target.len() > 100 {
        record(&mut data, b"linkpath", &entry.target);
    }
    if entry.nanoseconds > 0 && entry.seconds >= 0 {
        record(&mut data, b"mtime", format!("{}.{:09}", entry.seconds, entry.nanoseconds).as_bytes());
    }
    for (name, value) in &entry.xattrs {
        record(&mut data, &[b"SCHILY.xattr.", name.as_slice()].concat(), value);
    }
    data
}

fn record(into: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    into.extend_from_slice(format!("{length} ").as_bytes());
    into.extend_from_slice(key);
    into.push(b'=');
    into.extend_from_slice(value);
    into.push(b'\n');
}
