//! Snapshots: the layers of an image for a container, and its writable layer.
//!
//! A snapshot is a directory with a symlink `image` that names the image and the top of its layers. The link is created
//! before the snapshot is returned, so that garbage collection keeps the layers.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, Uid};

use super::digest::Digest;
use super::error::{Error, Result};
use super::{Image, Images, Usage};

/// The directories for a container's overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rootfs {
    /// Top layer first, as overlayfs expects.
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
}

const NONE: &str = "none";

impl Images {
    /// Creates a writable snapshot. Does not mount anything.
    pub fn prepare(&self, key: &str, image_id: &str) -> Result<Rootfs> {
        let (directory, lower) = self.snapshot(key, image_id)?;
        let (upper, work) = (directory.join("upper"), directory.join("work"));
        let created = create_upper(&upper, &lower[0]).and_then(|()| create_dir(&work, 0o700));
        if let Err(error) = created {
            self.release(key)?;
            return Err(error);
        }
        Ok(Rootfs { lower, upper, work })
    }

    /// Creates a read-only snapshot, for image volumes.
    pub fn view(&self, key: &str, image_id: &str) -> Result<Vec<PathBuf>> {
        self.snapshot(key, image_id).map(|(_, lower)| lower)
    }

    fn snapshot(&self, key: &str, image_id: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
        check_key(key)?;
        let directory = self.root().join("snapshots").join(key);
        // Held until the link protects the layers.
        let _busy = self.inner.store.busy()?;
        let image = self.require(image_id)?;
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(Error::Exists(key.to_owned())),
            created => created.map_err(Error::at(&directory))?,
        }
        let link = directory.join("image");
        symlink(link_text(&image), &link).map_err(Error::at(&link))?;
        let lower = self.inner.store.lower(&image.chain);
        match lower.iter().find(|path| !path.is_dir()) {
            None => Ok((directory, lower)),
            Some(_) => {
                self.release(key)?;
                Err(Error::NotFound(image_id.to_owned()))
            }
        }
    }

    /// Removes a snapshot and its writable layer. It is not an error if it does not exist.
    pub fn release(&self, key: &str) -> Result<()> {
        check_key(key)?;
        let directory = self.root().join("snapshots").join(key);
        let image = image_of(&directory);
        self.inner.store.take(&directory)?;
        // The last snapshot of a removed image releases its layers.
        match image {
            Some((id, _)) if !self.known()?.images.contains_key(&id) => self.collect_garbage(),
            _ => Ok(()),
        }
    }

    /// The keys of all snapshots.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.inner.store.names("snapshots").unwrap_or_default();
        keys.sort();
        keys
    }

    /// The disk usage of a snapshot's writable layer. Walks all its files.
    pub fn usage(&self, key: &str) -> Usage {
        match check_key(key) {
            Ok(()) => usage(&self.root().join("snapshots").join(key).join("upper")),
            Err(_) => Usage::default(),
        }
    }

    /// The disk usage of all layers and blobs.
    pub fn fs_usage(&self) -> Usage {
        let mut sum = Usage::default();
        for (_, info) in self.inner.store.layers().unwrap_or_default() {
            sum += info.usage;
        }
        sum += usage(&self.root().join("blobs"));
        sum
    }

    /// The images of all snapshots.
    pub(super) fn used(&self) -> Result<BTreeSet<Digest>> {
        Ok(self.links()?.into_iter().map(|(id, _)| id).collect())
    }

    /// The top layers of all snapshots.
    pub(super) fn tops(&self) -> Result<BTreeSet<Digest>> {
        Ok(self.links()?.into_iter().filter_map(|(_, top)| top).collect())
    }

    fn links(&self) -> Result<Vec<(Digest, Option<Digest>)>> {
        let directory = self.root().join("snapshots");
        // A snapshot without a link was never returned to a caller.
        Ok(self.inner.store.names("snapshots")?.iter().filter_map(|key| image_of(&directory.join(key))).collect())
    }
}

/// The image of a snapshot, and its top layer.
fn image_of(snapshot: &Path) -> Option<(Digest, Option<Digest>)> {
    let text = fs::read_link(snapshot.join("image")).ok()?;
    let (id, top) = text.to_str()?.split_once('+')?;
    Some((Digest::parse(id).ok()?, Digest::parse(top).ok()))
}

fn link_text(image: &Image) -> String {
    format!("{}+{}", image.id, image.chain.last().map_or(NONE, Digest::as_str))
}

fn check_key(key: &str) -> Result<()> {
    let wrong = |why| Err(Error::Key { key: key.to_owned(), why });
    if key.is_empty() || key.len() > 200 {
        return wrong("it must have 1 to 200 characters");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key.starts_with('.') || !key.bytes().all(plain) {
        true => wrong("it must consist of letters, digits, dashes, dots and underscores, and not start with a dot"),
        false => Ok(()),
    }
}

fn create_dir(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new().mode(mode).create(path).map_err(Error::at(path))
}

/// The owner and mode of this directory are those of the container's root directory.
fn create_upper(upper: &Path, top: &Path) -> Result<()> {
    let metadata = fs::metadata(top).map_err(Error::at(top))?;
    create_dir(upper, 0o755)?;
    if (metadata.uid(), metadata.gid()) != (0, 0) {
        let (uid, gid) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
        rustix::fs::chown(upper, Some(uid), Some(gid)).map_err(Error::sys(upper))?;
    }
    // The umask has reduced the mode of the new directory.
    rustix::fs::chmod(upper, Mode::from(metadata.mode() & 0o7777)).map_err(Error::sys(upper))
}

/// The disk usage of a directory. Hard links are counted once per name, but containers rarely create them.
fn usage(root: &Path) -> Usage {
    let mut sum = Usage::default();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            sum += Usage { bytes: meta.blocks() * 512, inodes: 1 };
            if meta.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cannot_leave_the_directory() {
        let long = "a".repeat(201);
        let cases = [
            ("0a1b", true),
            ("pod-1_x.y", true),
            ("", false),
            (".", false),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("a\0", false),
            ("ä", false),
            (&long, false),
        ];
        for (key, expected) in cases {
            assert_eq!(check_key(key).is_ok(), expected, "{key:?}");
        }
    }
}
