//! What a container gets of an image: the directories of its stack, and one of its own to write to.
//!
//! A snapshot is a directory whose link `image` says which image and which stack it stands on. The link is there before
//! the stack is handed out, so that nothing it needs is ever collected.

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
    /// As overlayfs wants them: the top first.
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
}

const NONE: &str = "none";

impl Images {
    /// A snapshot that can be written to. Nothing is mounted.
    pub fn prepare(&self, key: &str, image_id: &str) -> Result<Rootfs> {
        let (directory, lower) = self.snapshot(key, image_id)?;
        let (upper, work) = (directory.join("upper"), directory.join("work"));
        let made = make_upper(&upper, &lower[0]).and_then(|()| make(&work, 0o700));
        if let Err(error) = made {
            self.release(key)?;
            return Err(error);
        }
        Ok(Rootfs { lower, upper, work })
    }

    /// A snapshot to be read only, for images as volumes.
    pub fn view(&self, key: &str, image_id: &str) -> Result<Vec<PathBuf>> {
        self.snapshot(key, image_id).map(|(_, lower)| lower)
    }

    fn snapshot(&self, key: &str, image_id: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
        check_key(key)?;
        let directory = self.root().join("snapshots").join(key);
        // Held until the link says what is needed.
        let _busy = self.inner.store.busy()?;
        let image = self.need(image_id)?;
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(Error::Exists(key.to_owned())),
            made => made.map_err(Error::at(&directory))?,
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

    /// Removes a snapshot and what was written to it. One that is not there is no error.
    pub fn release(&self, key: &str) -> Result<()> {
        check_key(key)?;
        let directory = self.root().join("snapshots").join(key);
        let image = image_of(&directory);
        self.inner.store.take(&directory)?;
        // The last user of an image that was removed takes its layers along.
        match image {
            Some((id, _)) if !self.known()?.images.contains_key(&id) => self.collect(),
            _ => Ok(()),
        }
    }

    /// The snapshots that there are.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.inner.store.names("snapshots").unwrap_or_default();
        keys.sort();
        keys
    }

    /// What a snapshot has written, on disk. It walks through all of it.
    pub fn usage(&self, key: &str) -> Usage {
        match check_key(key) {
            Ok(()) => usage(&self.root().join("snapshots").join(key).join("upper")),
            Err(_) => Usage::default(),
        }
    }

    /// What images take on disk: their layers and blobs.
    pub fn fs_usage(&self) -> Usage {
        let mut sum = Usage::default();
        for (_, info) in self.inner.store.layers().unwrap_or_default() {
            sum += info.usage;
        }
        sum += usage(&self.root().join("blobs"));
        sum
    }

    /// The images that snapshots were made of.
    pub(super) fn used(&self) -> Result<BTreeSet<Digest>> {
        Ok(self.links()?.into_iter().map(|(id, _)| id).collect())
    }

    /// The tops of the stacks that snapshots stand on.
    pub(super) fn tops(&self) -> Result<BTreeSet<Digest>> {
        Ok(self.links()?.into_iter().filter_map(|(_, top)| top).collect())
    }

    fn links(&self) -> Result<Vec<(Digest, Option<Digest>)>> {
        let directory = self.root().join("snapshots");
        // One without a link was never handed out.
        Ok(self.inner.store.names("snapshots")?.iter().filter_map(|key| image_of(&directory.join(key))).collect())
    }
}

/// The image that a snapshot was made of, and the top of its stack.
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
        return wrong("it has between 1 and 200 characters");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key.starts_with('.') || !key.bytes().all(plain) {
        true => wrong("it is made of letters, digits, dashes, dots and underscores, and begins with no dot"),
        false => Ok(()),
    }
}

fn make(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new().mode(mode).create(path).map_err(Error::at(path))
}

/// A container sees this directory's owner and mode as its root's.
fn make_upper(upper: &Path, top: &Path) -> Result<()> {
    let looks = fs::metadata(top).map_err(Error::at(top))?;
    make(upper, 0o755)?;
    if (looks.uid(), looks.gid()) != (0, 0) {
        let (uid, gid) = (Uid::from_raw(looks.uid()), Gid::from_raw(looks.gid()));
        rustix::fs::chown(upper, Some(uid), Some(gid)).map_err(Error::sys(upper))?;
    }
    // What was just made has what the process's mask left of it.
    rustix::fs::chmod(upper, Mode::from(looks.mode() & 0o7777)).map_err(Error::sys(upper))
}

/// What a tree takes on disk; files with several names count once a name, which is rare in what containers write.
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
    fn keys_cannot_leave_their_directory() {
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
