//! Exports images as an OCI layout that is also a Docker archive, as Docker itself does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::super::digest::Digest;
use super::super::error::{Error, Result};
use super::super::layer::tar::{Entry, Kind, Writer};
use super::super::manifest::{Descriptor, Index, OCI_INDEX};
use super::super::records::Record;
use super::super::store::{Store, to_json};
use super::super::{Images, blocking};
use super::{DockerImage, FULL_NAME, REF_NAME};

/// The target of an export.
pub enum Output {
    /// A tar stream into a file.
    File(PathBuf),
    /// A tar stream to standard output.
    Standard,
    /// A layout in a directory, which must be new or empty.
    Directory(PathBuf),
}

/// Writes the files of a layout.
enum Sink {
    Tar { writer: Writer<Box<dyn Write + Send>>, path: PathBuf },
    Directory(PathBuf),
}

impl Images {
    /// Exports images, each with all its tags.
    pub async fn export(&self, references: &[String], output: Output) -> Result<()> {
        // Garbage collection must not remove blobs while they are read.
        let _busy = self.inner.store.busy()?;
        let mut chosen = Vec::new();
        for reference in references {
            let image = match self.get(reference) {
                Some(image) => image,
                None => self.require(reference)?,
            };
            let known = self.known()?;
            let id = Digest::parse(&image.id).map_err(|_| Error::NotFound(reference.clone()))?;
            let record = known.index.images.get(&id).cloned().ok_or_else(|| Error::NotFound(reference.clone()))?;
            chosen.push((id, image.repo_tags.clone(), record));
        }
        let images = self.clone();
        blocking(move || images.write_all(&chosen, output)).await
    }

    fn write_all(&self, chosen: &[(Digest, Vec<String>, Record)], output: Output) -> Result<()> {
        let store = &self.inner.store;
        for (_, _, record) in chosen {
            self.complete_blobs(record)?;
        }
        let mut sink = Sink::open(output)?;
        sink.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let mut written = BTreeSet::new();
        for (id, _, record) in chosen {
            let blobs = record.layers.iter().map(|layer| &layer.digest).chain([id, &record.manifest.digest]);
            for digest in blobs {
                if written.insert(digest.clone()) {
                    sink.blob(store, digest)?;
                }
            }
        }
        sink.file("index.json", &to_json(&index(chosen)))?;
        let docker: Vec<DockerImage> = chosen.iter().map(docker).collect();
        sink.file("manifest.json", &to_json(&docker))?;
        sink.finish()
    }

    /// Writes missing blobs. Images that were built here have no blobs until an export; others may not have been kept.
    fn complete_blobs(&self, record: &Record) -> Result<()> {
        for (at, layer) in record.layers.iter().enumerate() {
            if self.inner.store.has_blob(layer) {
                continue;
            }
            if record.made_from.is_none() {
                let why = "the blob was not kept when it was unpacked: pull the image again".to_owned();
                return Err(Error::Archive { what: format!("layer {}", layer.digest), why });
            }
            self.write_layer_blob(&record.chain[at], layer)?;
        }
        Ok(())
    }
}

fn index(chosen: &[(Digest, Vec<String>, Record)]) -> Index {
    let descriptors = chosen.iter().flat_map(|(_, tags, record)| {
        let plain = Descriptor { annotations: None, platform: None, ..record.manifest.clone() };
        if tags.is_empty() {
            return vec![plain];
        }
        let named = |tag: &String| {
            let short = tag.rsplit_once(':').map_or("", |(_, tag)| tag).to_owned();
            let names = [(FULL_NAME.to_owned(), tag.clone()), (REF_NAME.to_owned(), short)];
            Descriptor { annotations: Some(BTreeMap::from(names)), ..plain.clone() }
        };
        tags.iter().map(named).collect()
    });
    Index { schema_version: 2, media_type: OCI_INDEX.to_owned(), manifests: descriptors.collect() }
}

fn docker((id, tags, record): &(Digest, Vec<String>, Record)) -> DockerImage {
    let layers = record.layers.iter().map(|layer| blob_name(&layer.digest)).collect();
    DockerImage { config: blob_name(id), repo_tags: Some(tags.clone()), layers }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.hex())
}

impl Sink {
    fn open(output: Output) -> Result<Sink> {
        let tar =
            |inner: Box<dyn Write + Send>, path: &Path| Sink::Tar { writer: Writer::new(inner), path: path.to_owned() };
        match output {
            Output::Standard => Ok(tar(Box::new(BufWriter::new(std::io::stdout())), Path::new("standard output"))),
            Output::File(path) => {
                let file = File::create(&path).map_err(Error::at(&path))?;
                Ok(tar(Box::new(BufWriter::with_capacity(256 << 10, file)), &path))
            }
            Output::Directory(path) => {
                let used = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
                if used {
                    let why = "the directory is not empty".to_owned();
                    return Err(Error::Archive { what: path.display().to_string(), why });
                }
                std::fs::create_dir_all(path.join("blobs/sha256")).map_err(Error::at(&path))?;
                Ok(Sink::Directory(path))
            }
        }
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        match self {
            Sink::Tar { writer, path } => writer.file(name, bytes).map_err(Error::at(path)),
            Sink::Directory(directory) => {
                let path = directory.join(name);
                std::fs::write(&path, bytes).map_err(Error::at(&path))
            }
        }
    }

    fn blob(&mut self, store: &Store, digest: &Digest) -> Result<()> {
        let (from, name) = (store.blob(digest), blob_name(digest));
        match self {
            Sink::Tar { writer, path } => {
                let mut file = File::open(&from).map_err(Error::at(&from))?;
                let mut entry = Entry::new(&name, Kind::File, 0o644);
                entry.size = file.metadata().map_err(Error::at(&from))?.len();
                writer.entry(&entry).map_err(Error::at(path))?;
                std::io::copy(&mut file, writer.data()).map(drop).map_err(Error::at(path))
            }
            Sink::Directory(directory) => {
                let to = directory.join(name);
                let parent = to.parent().unwrap_or(directory);
                std::fs::create_dir_all(parent).map_err(Error::at(parent))?;
                std::fs::copy(&from, &to).map(drop).map_err(Error::at(&to))
            }
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Sink::Tar { writer, path } => writer.finish().map(drop).map_err(Error::at(&path)),
            Sink::Directory(_) => Ok(()),
        }
    }
}
