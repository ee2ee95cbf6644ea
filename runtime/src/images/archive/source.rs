//! The files of an archive: in a directory, or at offsets of a tar file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::error::{Error, Result};
use super::super::layer::apply::follow;
use super::super::layer::compress::Decoder;
use super::super::layer::plan::{Op, plan, split};
use super::super::layer::tar::{Entry, Kind, Reader};
use super::super::store::{IngestPath, Store};

const MAX_ENTRIES: usize = 100_000;
const MAX_LINKS: usize = 8;

/// How much of an archive was read, for progress reports.
#[derive(Clone, Default)]
pub(super) struct Read(Arc<(AtomicU64, AtomicU64)>);

impl Read {
    pub(super) fn done(&self) -> u64 {
        // Some files are read in addition to those of the expected size.
        let done = self.0.0.load(Ordering::Relaxed);
        if self.all() == 0 { done } else { done.min(self.all()) }
    }

    /// The expected size; 0 if it is unknown.
    pub(super) fn all(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }

    fn expect(&self, all: u64) {
        self.0.1.store(all, Ordering::Relaxed);
    }

    fn count<R: io::Read>(&self, from: R) -> CountingReader<R> {
        CountingReader { from, read: self.clone() }
    }
}

/// Counts the bytes that are read.
struct CountingReader<R> {
    from: R,
    read: Read,
}

impl<R: io::Read> io::Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.read.0.0.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

pub(super) struct Source {
    files: Files,
    read: Read,
}

enum Files {
    Directory(PathBuf),
    /// The offsets in a tar file. Bytes are counted while it is unpacked to a temporary file, or else while it is read.
    Tar {
        file: File,
        entries: BTreeMap<Vec<u8>, Location>,
        temp: Option<IngestPath>,
    },
}

pub(super) enum Location {
    At {
        offset: u64,
        size: u64,
    },
    /// Old archives contain links to layers that several images share.
    Link(Vec<u8>),
}

impl Source {
    /// Opens a directory or a tar file; `-` is standard input. Compressed archives are unpacked to a temporary file.
    pub(super) fn open(store: &Store, path: &Path, read: Read) -> Result<Source> {
        if path.is_dir() {
            read.expect(size_of_blobs(path));
            return Ok(Source { files: Files::Directory(path.to_owned()), read });
        }
        if path == Path::new("-") {
            return Source::from_stream(store, Box::new(io::stdin().lock()), path, read);
        }
        let file = File::open(path).map_err(Error::at(path))?;
        let plain = matches!(Decoder::new(BufReader::new(&file)).map_err(Error::at(path))?, Decoder::Plain(_));
        let mut file = file;
        file.rewind().map_err(Error::at(path))?;
        let meta = file.metadata().map_err(Error::at(path))?;
        if meta.is_file() {
            read.expect(meta.len());
        }
        if plain && meta.is_file() {
            return Source::from_tar(file, path, None, read);
        }
        Source::from_stream(store, Box::new(file), path, read)
    }

    fn from_stream(store: &Store, from: Box<dyn io::Read>, path: &Path, read: Read) -> Result<Source> {
        let (temp, mut file) = store.temp_file()?;
        let mut decoder = Decoder::new(BufReader::new(read.count(from))).map_err(Error::at(path))?;
        std::io::copy(&mut decoder, &mut file).map_err(Error::at(path))?;
        let file = File::open(temp.path()).map_err(Error::at(temp.path()))?;
        Source::from_tar(file, path, Some(temp), read)
    }

    fn from_tar(file: File, path: &Path, temp: Option<IngestPath>, read: Read) -> Result<Source> {
        let wrong = |why: String| Error::Archive { what: path.display().to_string(), why };
        let mut reader = Reader::new(BufReader::new(&file));
        let mut entries = BTreeMap::new();
        while let Some(entry) = reader.next_entry().map_err(|error| wrong(error.to_string()))? {
            if entries.len() >= MAX_ENTRIES {
                return Err(wrong(format!("more than {MAX_ENTRIES} files")));
            }
            if let Some((name, location)) = locate(&entry, reader.offset()).map_err(|error| wrong(error.to_string()))? {
                entries.insert(name, location);
            }
        }
        drop(reader);
        Ok(Source { files: Files::Tar { file, entries, temp }, read })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match &self.files {
            Files::Directory(directory) => directory.join(name).is_file(),
            Files::Tar { entries, .. } => entries.contains_key(name.as_bytes()),
        }
    }

    /// Reads a file. Its name comes from the archive, and must not lead outside of it.
    pub(super) fn read(&self, name: &str) -> Result<Box<dyn io::Read + '_>> {
        let missing = |why: &str| Error::Archive { what: name.to_owned(), why: why.to_owned() };
        let clean = plan(&Entry::new(name, Kind::File, 0), false).map_err(|error| missing(&error.to_string()))?;
        let Op::File(clean) = clean else { return Err(missing("not the name of a file")) };
        match &self.files {
            Files::Directory(directory) => {
                let path = directory.join(name);
                let file = File::open(&path).map_err(Error::at(&path))?;
                Ok(Box::new(self.read.count(file)))
            }
            Files::Tar { file, entries, temp } => {
                let (offset, size) = find(entries, clean).ok_or_else(|| missing("not in the archive"))?;
                let mut file = file;
                file.seek(SeekFrom::Start(offset)).map_err(|error| missing(&error.to_string()))?;
                let content = file.take(size);
                Ok(if temp.is_some() { Box::new(content) } else { Box::new(self.read.count(content)) })
            }
        }
    }

    pub(super) fn read_small(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let wrong = |why: String| Error::Archive { what: name.to_owned(), why };
        self.read(name)?.take(most + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > most { Err(wrong(format!("larger than {most} bytes"))) } else { Ok(bytes) }
    }
}

/// The size of all blobs of a layout, including those for other platforms.
fn size_of_blobs(directory: &Path) -> u64 {
    let files = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let blobs = files(directory.join("blobs")).flat_map(|algorithm| files(algorithm.path()));
    blobs.filter_map(|blob| blob.metadata().ok()).map(|meta| meta.len()).sum()
}

fn locate(entry: &Entry, offset: u64) -> Result<Option<(Vec<u8>, Location)>, super::super::layer::LayerError> {
    Ok(match plan(entry, false)? {
        Op::File(path) => Some((path, Location::At { offset, size: entry.size })),
        Op::Symlink { path, target } => {
            let target = follow(split(&path).0, &target);
            Some((path, Location::Link(target)))
        }
        Op::Hardlink { path, target } => Some((path, Location::Link(target))),
        _ => None,
    })
}

fn find(entries: &BTreeMap<Vec<u8>, Location>, mut name: Vec<u8>) -> Option<(u64, u64)> {
    for _ in 0..MAX_LINKS {
        match entries.get(&name)? {
            Location::At { offset, size } => return Some((*offset, *size)),
            Location::Link(target) => name = target.clone(),
        }
    }
    None
}
