//! The image store on disk: blobs and layers by digest, and work in progress.
//!
//! ```text
//! blobs/sha256/HEX     verified blobs from registries
//! layers/HEX/fs        the content of a layer, by its chain ID; its `info` is next to it
//! snapshots/KEY/       the snapshots of containers
//! ingest/OWNER/        the work in progress of a process, removed when it exits
//! index.json           the images and their names, replaced atomically
//! lock, busy           locks for changing the index, and for content that the index does not reference yet
//! ```
//!
//! Several processes may use one store concurrently. Everything outside of `ingest` is complete.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::error::{Error, Result};
use super::layer::{Usage, content};
use super::manifest::Descriptor;

/// The layer of images that have none: overlayfs needs at least one lower directory.
const EMPTY: &str = "empty";

pub(crate) struct Store {
    root: PathBuf,
    /// The directory for this process's work in progress, locked until it exits.
    ingest: PathBuf,
    _owner: OwnedFd,
    count: AtomicU64,
    boot: String,
}

/// Metadata of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerInfo {
    pub diff_id: Digest,
    pub parent: Option<Digest>,
    #[serde(flatten)]
    pub usage: Usage,
    /// The boot in which the layer was unpacked, until it is synced: it is not trusted after another boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// A file lock, released when dropped.
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Store {
    /// Opens a store, creates it if necessary, and removes unfinished work of processes that have exited.
    pub(crate) fn open(root: &Path) -> Result<Store> {
        for name in ["", "blobs", "blobs/sha256", "blobs/sha512", "layers", "snapshots", "ingest", "layers/empty"] {
            create_directory(&root.join(name), 0o700)?;
        }
        create_directory(&content(&root.join("layers").join(EMPTY)), 0o755)?;
        let root = std::path::absolute(root).map_err(Error::at(root))?;
        let lock = lock(&root.join("lock"), FlockOperation::LockExclusive)?;
        clear(&root.join("ingest"))?;
        let (ingest, owner) = own_directory(&root.join("ingest"))?;
        drop(lock);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        let store = Store { root, ingest, _owner: owner, count: AtomicU64::new(0), boot };
        store.remove_unsynced_layers()?;
        Ok(store)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The lock for changing the index.
    pub(crate) fn lock(&self) -> Result<Lock> {
        lock(&self.root.join("lock"), FlockOperation::LockExclusive)
    }

    /// While it is held, there is no garbage collection.
    pub(crate) fn busy(&self) -> Result<Lock> {
        lock(&self.root.join("busy"), FlockOperation::LockShared)
    }

    /// The lock for garbage collection; None while any process is busy.
    pub(crate) fn idle(&self) -> Result<Option<Lock>> {
        match lock(&self.root.join("busy"), FlockOperation::NonBlockingLockExclusive) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            lock => lock.map(Some),
        }
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.algorithm()).join(digest.hex())
    }

    pub(crate) fn has_blob(&self, descriptor: &Descriptor) -> bool {
        fs::metadata(self.blob(&descriptor.digest)).is_ok_and(|meta| meta.len() == descriptor.size)
    }

    /// Reads a small blob, and verifies it again.
    pub(crate) fn read_blob(&self, digest: &Digest, most: u64) -> Result<Vec<u8>> {
        let path = self.blob(digest);
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(Error::at(&path))?;
        file.take(most).read_to_end(&mut bytes).map_err(Error::at(&path))?;
        let mut hasher = digest.hasher();
        hasher.update(&bytes);
        check(&path.display().to_string(), digest, hasher.finish())?;
        Ok(bytes)
    }

    pub(crate) fn write_blob(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        let (temp, mut file) = self.temp_file()?;
        file.write_all(bytes).map_err(Error::at(temp.path()))?;
        self.commit_blob(temp, &digest)?;
        Ok(digest)
    }

    /// Commits a verified file as a blob.
    pub(crate) fn commit_blob(&self, temp: IngestPath, digest: &Digest) -> Result<()> {
        temp.rename(&self.blob(digest))
    }

    pub(crate) fn layer(&self, chain: &Digest) -> PathBuf {
        self.root.join("layers").join(chain.hex())
    }

    pub(crate) fn has_layer(&self, chain: &Digest) -> bool {
        self.layer(chain).is_dir()
    }

    /// The content directories of a stack, top first. At least one.
    pub(crate) fn lower(&self, chain: &[Digest]) -> Vec<PathBuf> {
        if chain.is_empty() {
            return vec![content(&self.root.join("layers").join(EMPTY))];
        }
        chain.iter().rev().map(|chain| content(&self.layer(chain))).collect()
    }

    /// Commits a complete layer. Another process may have committed the same layer already.
    pub(crate) fn commit_layer(&self, temp: IngestPath, chain: &Digest, mut info: LayerInfo) -> Result<()> {
        info.boot = Some(self.boot.clone());
        let path = temp.path().join("info");
        fs::write(&path, to_json(&info)).map_err(Error::at(&path))?;
        match temp.rename(&self.layer(chain)) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => done,
        }
    }

    /// Syncs all unpacked layers, so that they are still trusted after a power failure.
    pub(crate) fn sync(&self) -> Result<()> {
        let unsynced: Vec<_> = self.layers()?.into_iter().filter(|(_, info)| info.boot.is_some()).collect();
        if unsynced.is_empty() {
            return Ok(());
        }
        let directory = File::open(&self.root).map_err(Error::at(&self.root))?;
        rustix::fs::syncfs(&directory).map_err(Error::sys(&self.root))?;
        for (path, info) in unsynced {
            let (temp, mut file) = self.temp_file()?;
            file.write_all(&to_json(&LayerInfo { boot: None, ..info })).map_err(Error::at(temp.path()))?;
            match temp.rename(&path.join("info")) {
                // Removed by garbage collection in the meantime.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// All layers, with their directories.
    pub(crate) fn layers(&self) -> Result<Vec<(PathBuf, LayerInfo)>> {
        let directories = entries(&self.root.join("layers"))?;
        let named = directories.into_iter().filter(|path| path.file_name().is_some_and(|name| name != EMPTY));
        Ok(named.filter_map(|path| read_info(&path).ok().map(|info| (path, info))).collect())
    }

    /// The names of all entries in a directory of the store.
    pub(crate) fn names(&self, directory: &str) -> Result<Vec<String>> {
        let paths = entries(&self.root.join(directory))?;
        Ok(paths.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    pub(crate) fn temp_file(&self) -> Result<(IngestPath, File)> {
        let temp = self.temp();
        let file = File::options().write(true).create_new(true).mode(0o600).open(temp.path());
        let file = file.map_err(Error::at(temp.path()))?;
        Ok((temp, file))
    }

    pub(crate) fn temp_directory(&self) -> Result<IngestPath> {
        let temp = self.temp();
        create_directory(temp.path(), 0o700)?;
        Ok(temp)
    }

    fn temp(&self) -> IngestPath {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        IngestPath { path: Some(self.ingest.join(number.to_string())) }
    }

    /// Removes something at once. Its content is deleted when the result is dropped.
    pub(crate) fn take(&self, path: &Path) -> Result<Option<IngestPath>> {
        let temp = self.temp();
        match fs::rename(path, temp.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            done => done.map(|()| Some(temp)).map_err(Error::at(path)),
        }
    }

    /// Removes layers of an earlier boot that were not synced and may be incomplete.
    fn remove_unsynced_layers(&self) -> Result<()> {
        for path in entries(&self.root.join("layers"))? {
            if path.file_name().is_some_and(|name| name == EMPTY) {
                continue;
            }
            let trusted = read_info(&path).is_ok_and(|info| info.boot.is_none_or(|boot| boot == self.boot));
            if !trusted {
                tracing::warn!(layer = %path.display(), "removing layer that may not have been synced to disk");
                self.take(&path)?;
            }
        }
        Ok(())
    }
}

/// A file or directory in `ingest`, removed when dropped.
pub(crate) struct IngestPath {
    path: Option<PathBuf>,
}

impl IngestPath {
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    pub(crate) fn rename(mut self, to: &Path) -> Result<()> {
        fs::rename(self.path(), to).map_err(Error::at(to))?;
        self.path = None;
        Ok(())
    }
}

impl Drop for IngestPath {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            remove(path);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        remove(&self.ingest);
    }
}

pub(super) fn check(what: &str, expected: &Digest, found: Digest) -> Result<()> {
    if *expected == found {
        return Ok(());
    }
    Err(Error::Digest { what: what.to_owned(), expected: expected.clone(), found: found.into() })
}

/// Replaces a file atomically.
pub(super) fn replace(store: &Store, path: &Path, bytes: &[u8]) -> Result<()> {
    let (temp, mut file) = store.temp_file()?;
    file.write_all(bytes).and_then(|()| file.sync_data()).map_err(Error::at(temp.path()))?;
    temp.rename(path)
}

pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Serializing maps with string keys and plain fields cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn read_info(layer: &Path) -> Result<LayerInfo> {
    let path = layer.join("info");
    let bytes = fs::read(&path).map_err(Error::at(&path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::at(&path)(error.into()))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(directory).map_err(Error::at(directory))?;
    read.map(|entry| entry.map(|entry| entry.path()).map_err(Error::at(directory))).collect()
}

fn create_directory(path: &Path, mode: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(mode).recursive(path.file_name().is_none()).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().mode(mode).recursive(true).create(path).map_err(Error::at(path))
        }
        made => made.map_err(Error::at(path)),
    }
}

fn lock(path: &Path, operation: FlockOperation) -> Result<Lock> {
    let file = File::options().create(true).append(true).mode(0o600).open(path).map_err(Error::at(path))?;
    flock(&file, operation).map_err(Error::sys(path))?;
    Ok(Lock(file))
}

fn own_directory(ingest: &Path) -> Result<(PathBuf, OwnedFd)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = ingest.join(name);
    // A process that has exited may have had the same pid.
    remove(&path);
    create_directory(&path, 0o700)?;
    let owner = open_directory(&path)?;
    flock(&owner, FlockOperation::NonBlockingLockExclusive).map_err(Error::sys(&path))?;
    Ok((path, owner))
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(Error::sys(path))
}

/// Removes the directories of processes that have exited, which are not locked any more.
fn clear(ingest: &Path) -> Result<()> {
    for path in entries(ingest)? {
        match open_directory(&path) {
            Ok(owner) if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() => remove(&path),
            Ok(_) => {}
            Err(_) => remove(&path),
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "failed to remove");
    }
}
