//! Where an archive's files are: in a directory, or at offsets of a tar file.

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
use super::super::store::{Store, Temp};

const MOST_ENTRIES: usize = 100_000;
const MOST_LINKS: usize = 8;

/// How much of an archive was read, for those who wait for it.
#[derive(Clone, Default)]
pub struct Read(Arc<(AtomicU64, AtomicU64)>);

impl Read {
    pub fn done(&self) -> u64 {
        // Lists are read beside what was expected.
        let done = self.0.0.load(Ordering::Relaxed);
        if self.all() == 0 { done } else { done.min(self.all()) }
    }

    /// 0 where it is not known.
    pub fn all(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }

    fn expect(&self, all: u64) {
        self.0.1.store(all, Ordering::Relaxed);
    }

    fn count<R: io::Read>(&self, from: R) -> Counted<R> {
        Counted { from, read: self.clone() }
    }
}

/// A reader whose bytes are counted.
struct Counted<R> {
    from: R,
    read: Read,
}

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.read.0.0.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

pub struct Source {
    files: Files,
    read: Read,
}

enum Files {
    Directory(PathBuf),
    /// The offsets of a tar file; it is counted while it is unpacked to a temporary one, or else while it is read.
    Tar {
        file: File,
        entries: BTreeMap<Vec<u8>, Place>,
        temp: Option<Temp>,
    },
}

pub enum Place {
    At {
        offset: u64,
        size: u64,
    },
    /// Old archives link layers that several images share.
    Link(Vec<u8>),
}

impl Source {
    /// Opens a directory or a tar file; `-` is standard input. What is compressed is unpacked to a temporary file.
    pub fn open(store: &Store, path: &Path, read: Read) -> Result<Source> {
        if path.is_dir() {
            read.expect(size_of_blobs(path));
            return Ok(Source { files: Files::Directory(path.to_owned()), read });
        }
        if path == Path::new("-") {
            return Source::spooled(store, Box::new(io::stdin().lock()), path, read);
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
            return Source::indexed(file, path, None, read);
        }
        Source::spooled(store, Box::new(file), path, read)
    }

    fn spooled(store: &Store, from: Box<dyn io::Read>, path: &Path, read: Read) -> Result<Source> {
        let (temp, mut file) = store.temp_file()?;
        let mut decoder = Decoder::new(BufReader::new(read.count(from))).map_err(Error::at(path))?;
        std::io::copy(&mut decoder, &mut file).map_err(Error::at(path))?;
        let file = File::open(temp.path()).map_err(Error::at(temp.path()))?;
        Source::indexed(file, path, Some(temp), read)
    }

    fn indexed(file: File, path: &Path, temp: Option<Temp>, read: Read) -> Result<Source> {
        let wrong = |why: String| Error::Archive { what: path.display().to_string(), why };
        let mut reader = Reader::new(BufReader::new(&file));
        let mut entries = BTreeMap::new();
        while let Some(entry) = reader.next_entry().map_err(|error| wrong(error.to_string()))? {
            if entries.len() >= MOST_ENTRIES {
                return Err(wrong(format!("it has more than {MOST_ENTRIES} files")));
            }
            if let Some((name, place)) = place(&entry, reader.offset()).map_err(|error| wrong(error.to_string()))? {
                entries.insert(name, place);
            }
        }
        drop(reader);
        Ok(Source { files: Files::Tar { file, entries, temp }, read })
    }

    pub fn has(&self, name: &str) -> bool {
        match &self.files {
            Files::Directory(directory) => directory.join(name).is_file(),
            Files::Tar { entries, .. } => entries.contains_key(name.as_bytes()),
        }
    }

    /// A file's content. Names come from the archive itself, and cannot lead out of it.
    pub fn read(&self, name: &str) -> Result<Box<dyn io::Read + '_>> {
        let missing = |why: &str| Error::Archive { what: name.to_owned(), why: why.to_owned() };
        let clean = plan(&Entry::new(name, Kind::File, 0), false).map_err(|error| missing(&error.to_string()))?;
        let Op::File(clean) = clean else { return Err(missing("is no name of a file")) };
        match &self.files {
            Files::Directory(directory) => {
                let path = directory.join(name);
                let file = File::open(&path).map_err(Error::at(&path))?;
                Ok(Box::new(self.read.count(file)))
            }
            Files::Tar { file, entries, temp } => {
                let (offset, size) = find(entries, clean).ok_or_else(|| missing("is not in the archive"))?;
                let mut file = file;
                file.seek(SeekFrom::Start(offset)).map_err(|error| missing(&error.to_string()))?;
                let content = file.take(size);
                Ok(if temp.is_some() { Box::new(content) } else { Box::new(self.read.count(content)) })
            }
        }
    }

    pub fn read_small(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let wrong = |why: String| Error::Archive { what: name.to_owned(), why };
        self.read(name)?.take(most + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > most { Err(wrong(format!("is longer than {most} bytes"))) } else { Ok(bytes) }
    }
}

/// What a layout's images are made of, those of other machines included.
fn size_of_blobs(directory: &Path) -> u64 {
    let files = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let blobs = files(directory.join("blobs")).flat_map(|algorithm| files(algorithm.path()));
    blobs.filter_map(|blob| blob.metadata().ok()).map(|meta| meta.len()).sum()
}

fn place(entry: &Entry, offset: u64) -> Result<Option<(Vec<u8>, Place)>, super::super::layer::LayerError> {
    Ok(match plan(entry, false)? {
        Op::File(path) => Some((path, Place::At { offset, size: entry.size })),
        Op::Symlink { path, target } => {
            let target = follow(split(&path).0, &target);
            Some((path, Place::Link(target)))
        }
        Op::Hardlink { path, target } => Some((path, Place::Link(target))),
        _ => None,
    })
}

fn find(entries: &BTreeMap<Vec<u8>, Place>, mut name: Vec<u8>) -> Option<(u64, u64)> {
    for _ in 0..MOST_LINKS {
        match entries.get(&name)? {
            Place::At { offset, size } => return Some((*offset, *size)),
            Place::Link(target) => name = target.clone(),
        }
    }
    None
}
