//! Tar archives: reading what a container sends, and packing local files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result, message};

const BLOCK: usize = 512;
/// Names and links in extension headers.
const MAX_EXTENSION: usize = 1024 * 1024;
const MAX_DEPTH: usize = 256;

/// A header of an archive.
#[derive(Debug, Clone, Default)]
struct Header {
    name: String,
    size: u64,
    mode: u32,
    kind: u8,
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn octal(bytes: &[u8]) -> Option<u64> {
    if bytes[0] & 0x80 != 0 {
        return Some(bytes[1..].iter().fold(0, |value: u64, byte| value.wrapping_mul(256) | u64::from(*byte)));
    }
    let digits = text(bytes);
    let digits = digits.trim_matches([' ', '\0']);
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

impl Header {
    fn parse(block: &[u8]) -> Option<Header> {
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if octal(&block[148..156])? != sum {
            return None;
        }
        let mut name = text(&block[..100]);
        let prefix = text(&block[345..500]);
        if &block[257..262] == b"ustar" && !prefix.is_empty() {
            name = format!("{prefix}/{name}");
        }
        let mode = u32::try_from(octal(&block[100..108])? & 0o777).ok()?;
        Some(Header { name, size: octal(&block[124..136])?, mode, kind: block[156] })
    }
}

/// Where the data of the current entry goes.
enum Sink {
    Skip,
    File(fs::File),
    /// An extension header: its kind and content.
    Extension(u8, Vec<u8>),
}

/// Extracts an archive as it arrives.
pub(super) struct Extractor {
    /// What the container was asked for, as the archive names it.
    prefix: String,
    target: PathBuf,
    buffer: Vec<u8>,
    left: u64,
    padding: usize,
    sink: Sink,
    long_name: Option<String>,
    warnings: Vec<String>,
    count: usize,
}

impl Extractor {
    /// For an archive of `source`, into `target`, or below it if that is a directory.
    pub(super) fn new(source: &str, target: &Path) -> Result<Extractor> {
        let prefix = clean(source);
        let base = prefix.rsplit('/').next().unwrap_or_default().to_string();
        let is_whole = matches!(base.as_str(), "" | "." | "..");
        let target = if target.is_dir() && !is_whole { target.join(base) } else { target.to_path_buf() };
        let sink = Sink::Skip;
        Ok(Extractor {
            prefix,
            target,
            buffer: Vec::new(),
            left: 0,
            padding: 0,
            sink,
            long_name: None,
            warnings: Vec::new(),
            count: 0,
        })
    }

    /// What was left out.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The next part of the archive.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(part);
        loop {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(self.buffer.len());
                if count == 0 {
                    return Ok(());
                }
                let data: Vec<u8> = self.buffer.drain(..count).collect();
                self.left -= count as u64;
                self.write(&data)?;
                if self.left == 0 {
                    self.end_entry()?;
                }
                continue;
            }
            if self.padding > 0 {
                let count = self.padding.min(self.buffer.len());
                if count == 0 {
                    return Ok(());
                }
                self.buffer.drain(..count);
                self.padding -= count;
                continue;
            }
            if self.buffer.len() < BLOCK {
                return Ok(());
            }
            let block: Vec<u8> = self.buffer.drain(..BLOCK).collect();
            if block.iter().any(|byte| *byte != 0) {
                self.start_entry(&block)?;
            }
        }
    }

    /// At the end of the archive.
    pub(super) fn finish(&self) -> Result<()> {
        if self.left > 0 {
            return message("unexpected EOF");
        }
        if self.count == 0 { message("the container sent no file") } else { Ok(()) }
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Skip => Ok(()),
            Sink::File(file) => Ok(file.write_all(data)?),
            Sink::Extension(_, content) => {
                if content.len() + data.len() > MAX_EXTENSION {
                    return message("an extension header of the archive is too long");
                }
                content.extend_from_slice(data);
                Ok(())
            }
        }
    }

    fn start_entry(&mut self, block: &[u8]) -> Result<()> {
        let Some(mut header) = Header::parse(block) else { return message("the container sent an invalid archive") };
        if matches!(header.kind, b'L' | b'x' | b'K' | b'g') {
            self.sink = Sink::Extension(header.kind, Vec::new());
        } else {
            if let Some(name) = self.long_name.take() {
                header.name = name;
            }
            self.sink = self.open(&header)?;
        }
        self.left = header.size;
        self.padding = usize::try_from((BLOCK as u64 - header.size % BLOCK as u64) % BLOCK as u64).unwrap_or(0);
        if self.left == 0 {
            self.end_entry()?;
        }
        Ok(())
    }

    fn end_entry(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.sink, Sink::Skip) {
            Sink::Extension(b'L', content) => self.long_name = Some(text(&content)),
            Sink::Extension(b'x', content) => {
                if let Some(name) = pax_path(&content) {
                    self.long_name = Some(name);
                }
            }
            Sink::File(file) => file.sync_data().or(Ok::<(), Error>(()))?,
            _ => {}
        }
        Ok(())
    }

    /// The local path of an entry; None if it is not below the requested path, or leads out of it.
    fn path_of(&self, name: &str) -> Option<PathBuf> {
        let name = name.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
        let rest = if self.prefix.is_empty() || self.prefix == "." {
            name
        } else {
            let rest = name.strip_prefix(self.prefix.as_str())?;
            if !rest.is_empty() && !rest.starts_with('/') {
                return None;
            }
            rest.trim_start_matches('/')
        };
        let relative = Path::new(rest);
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        is_inside.then(|| if rest.is_empty() { self.target.clone() } else { self.target.join(relative) })
    }

    fn open(&mut self, header: &Header) -> Result<Sink> {
        let Some(path) = self.path_of(&header.name) else {
            self.warnings
                .push(format!("file {} is outside target destination, skipping", api::field::go_quote(&header.name)));
            return Ok(Sink::Skip);
        };
        self.count += 1;
        // A link that an earlier copy or another program left here must not lead the data elsewhere.
        if self.has_link(&path) {
            self.warnings
                .push(format!("file {} is behind a symbolic link, skipping", api::field::go_quote(&header.name)));
            return Ok(Sink::Skip);
        }
        match header.kind {
            b'5' => {
                fs::create_dir_all(&path)?;
                Ok(Sink::Skip)
            }
            b'0' | 0 => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let mode = if header.mode == 0 { 0o644 } else { header.mode };
                let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&path)?;
                Ok(Sink::File(file))
            }
            b'1' | b'2' => {
                self.warnings.push(format!(
                    "skipping symlink: {} (consider using \"kubectl exec -n NS POD -- tar cf - FILE | tar xf -\")",
                    api::field::go_quote(&header.name)
                ));
                Ok(Sink::Skip)
            }
            _ => Ok(Sink::Skip),
        }
    }

    /// Whether a part of the path below the target is a symbolic link.
    fn has_link(&self, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.target) else { return true };
        let mut current = self.target.clone();
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        relative.components().any(|part| {
            current.push(part);
            is_link(&current)
        })
    }
}

/// The path of a PAX header: `30 path=...`.
fn pax_path(content: &[u8]) -> Option<String> {
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(space + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
        rest = rest.get(length..)?;
    }
    None
}

/// A path of the container as tar names it: without slashes around it.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// An archive of a file or directory under another name.
pub(super) fn pack(path: &Path, name: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    pack_into(path, name, 0, &mut out)?;
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn pack_into(path: &Path, name: &str, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    if depth > MAX_DEPTH {
        return message(format!("{}: directories are nested too deep", path.display()));
    }
    let metadata = fs::symlink_metadata(path)?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_dir() {
        push_header(out, &format!("{name}/"), b'5', mode, 0, "");
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        entries.sort();
        for entry in entries {
            let child = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pack_into(&entry, &format!("{name}/{child}"), depth + 1, out)?;
        }
    } else if metadata.is_symlink() {
        let to = fs::read_link(path)?;
        push_header(out, name, b'2', mode, 0, &to.to_string_lossy());
    } else if metadata.is_file() {
        let bytes = fs::read(path)?;
        push_header(out, name, b'0', mode, bytes.len() as u64, "");
        out.extend_from_slice(&bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    Ok(())
}

fn push_header(out: &mut Vec<u8>, name: &str, kind: u8, mode: u32, size: u64, link: &str) {
    if name.len() > 100 {
        let mut long = name.as_bytes().to_vec();
        long.push(0);
        push_header(out, "././@LongLink", b'L', 0o644, long.len() as u64, "");
        out.extend_from_slice(&long);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8], limit: usize| {
        let count = bytes.len().min(limit);
        block[at..at + count].copy_from_slice(&bytes[..count]);
    };
    put(0, name.as_bytes(), 100);
    put(100, format!("{mode:07o}\0").as_bytes(), 8);
    put(108, b"0000000\0", 8);
    put(116, b"0000000\0", 8);
    put(124, format!("{size:011o}\0").as_bytes(), 12);
    put(136, b"00000000000\0", 12);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, link.as_bytes(), 100);
    put(257, b"ustar\x0000", 8);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(archive: &[u8], source: &str, target: &Path, size: usize) -> Vec<String> {
        let mut extractor = Extractor::new(source, target).expect("an extractor");
        archive.chunks(size).for_each(|part| extractor.push(part).expect("an archive"));
        extractor.warnings().to_vec()
    }

    #[test]
    fn packed_files_come_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("sub")).expect("made");
        let long = "x".repeat(150);
        fs::write(from.join("a"), vec![7; 1500]).expect("written");
        fs::write(from.join("sub").join(&long), b"deep").expect("written");
        let archive = pack(&from, "tree").expect("packed");
        for (number, size) in [1, 511, 512, 100_000].into_iter().enumerate() {
            let to = dir.path().join(format!("to{number}"));
            assert!(extract(&archive, "/tree", &to, size).is_empty());
            assert_eq!(fs::read(to.join("a")).expect("read"), vec![7; 1500]);
            assert_eq!(fs::read(to.join("sub").join(&long)).expect("read"), b"deep");
        }
    }

    #[test]
    fn archives_cannot_write_outside() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("target");
        fs::create_dir_all(&target).expect("made");
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).expect("made");
        std::os::unix::fs::symlink(&outside, target.join("link")).expect("linked");
        let mut archive = Vec::new();
        for name in ["tree/../../evil", "../evil", "/etc/evil", "other/evil", "tree/link/evil"] {
            push_header(&mut archive, name, b'0', 0o644, 1, "");
            archive.push(b'!');
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        }
        push_header(&mut archive, "tree/l2", b'2', 0o777, 0, "/etc");
        let mut extractor = Extractor::new("tree", dir.path()).expect("an extractor");
        extractor.target = target.clone();
        extractor.push(&archive).expect("an archive");
        assert_eq!(extractor.warnings().len(), 6, "{:?}", extractor.warnings());
        assert!(fs::read_dir(&outside).expect("read").next().is_none());
        assert!(!dir.path().join("evil").exists() && !target.join("l2").exists());
    }
}
