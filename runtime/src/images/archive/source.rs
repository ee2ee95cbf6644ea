//! Where an archive's files are: in a folder, or at offsets of a tar file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::super::error::{Error, Result};
use super::super::layer::apply::follow;
use super::super::layer::compress::Decoder;
use super::super::layer::plan::{Op, plan, split};
use super::super::layer::tar::{Entry, Kind, Reader};
use super::super::store::{Store, Temp};

const MOST_ENTRIES: usize = 100_000;
const MOST_LINKS: usize = 8;

pub enum Source {
    Folder(PathBuf),
    Tar { file: File, entries: BTreeMap<Vec<u8>, Place>, _temp: Option<Temp> },
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
    /// Opens a folder or a tar file; `-` is standard input. What is compressed is unpacked to a temporary file.
    pub fn open(store: &Store, path: &Path) -> Result<Source> {
        if path.is_dir() {
            return Ok(Source::Folder(path.to_owned()));
        }
        if path == Path::new("-") {
            return Source::spooled(store, Box::new(std::io::stdin().lock()), path);
        }
        let file = File::open(path).map_err(Error::at(path))?;
        let plain = matches!(Decoder::new(BufReader::new(&file)).map_err(Error::at(path))?, Decoder::Plain(_));
        let mut file = file;
        file.rewind().map_err(Error::at(path))?;
        if plain && file.metadata().map_err(Error::at(path))?.is_file() {
            return Source::indexed(file, path, None);
        }
        Source::spooled(store, Box::new(file), path)
    }

    fn spooled(store: &Store, from: Box<dyn Read>, path: &Path) -> Result<Source> {
        let (temp, mut file) = store.temp_file()?;
        let mut decoder = Decoder::new(BufReader::new(from)).map_err(Error::at(path))?;
        std::io::copy(&mut decoder, &mut file).map_err(Error::at(path))?;
        let file = File::open(temp.path()).map_err(Error::at(temp.path()))?;
        Source::indexed(file, path, Some(temp))
    }

    fn indexed(file: File, path: &Path, temp: Option<Temp>) -> Result<Source> {
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
        Ok(Source::Tar { file, entries, _temp: temp })
    }

    pub fn has(&self, name: &str) -> bool {
        match self {
            Source::Folder(folder) => folder.join(name).is_file(),
            Source::Tar { entries, .. } => entries.contains_key(name.as_bytes()),
        }
    }

    /// A file's content. Names come from the archive itself, and cannot lead out of it.
    pub fn read(&self, name: &str) -> Result<Box<dyn Read + '_>> {
        let missing = |why: &str| Error::Archive { what: name.to_owned(), why: why.to_owned() };
        let clean = plan(&Entry::new(name, Kind::File, 0), false).map_err(|error| missing(&error.to_string()))?;
        let Op::File(clean) = clean else { return Err(missing("is no name of a file")) };
        match self {
            Source::Folder(folder) => {
                let path = folder.join(name);
                let file = File::open(&path).map_err(Error::at(&path))?;
                Ok(Box::new(file))
            }
            Source::Tar { file, entries, .. } => {
                let (offset, size) = find(entries, clean).ok_or_else(|| missing("is not in the archive"))?;
                let mut file = file;
                file.seek(SeekFrom::Start(offset)).map_err(|error| missing(&error.to_string()))?;
                Ok(Box::new(file.take(size)))
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
