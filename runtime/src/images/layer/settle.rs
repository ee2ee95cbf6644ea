//! What a layer takes from those below it.
//!
//! Layers are unpacked beside each other, each into its own directory. A directory that a layer passes through without
//! speaking of it must look as it does below, and a hard link may lead to a file that only a layer below has:
//! both are settled here, once the layers below stand.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, futimens, linkat, openat, openat2,
};
use rustix::io::Errno;

use super::LayerError;
use super::apply::{OPAQUE, Unpacker};
use super::plan::{refused, split};

type Result<T> = std::result::Result<T, LayerError>;

/// Longer values of attributes are not taken along; the kernel allows 64 KiB.
const MOST_XATTR: usize = 64 << 10;

impl Unpacker {
    /// Completes a layer; `below` are the directories of the layers under it, the nearest first.
    pub fn settle(mut self, below: &[impl AsRef<Path>]) -> Result<super::Usage> {
        let below = Below::open(below)?;
        for (path, target) in std::mem::take(&mut self.links_below) {
            self.link_below(&path, &target, &below)?;
        }
        self.finish()?;
        for path in std::mem::take(&mut self.implied) {
            self.dress_as_below(&path, &below)?;
        }
        self.dress_root(&below)?;
        Ok(self.usage())
    }

    fn link_below(&mut self, path: &[u8], target: &[u8], below: &Below) -> Result<()> {
        let found = below.find(target)?;
        let Some((source, stat)) = found.filter(|(_, stat)| kind(stat) == FileType::RegularFile) else {
            return Err(refused(path, "a hard link to a file that does not exist"));
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = self.place(target, |directory, name| openat(directory, name, flags, Mode::from(0o600)))?;
        copy_data(&source, &copy).map_err(LayerError::at(target))?;
        take_looks(&source, &stat, &copy).map_err(LayerError::at(target))?;
        let (directory, name) = split(target);
        let directory = self.open_directory(directory).map_err(LayerError::at(target))?;
        self.place(path, |into, own| linkat(&directory, name, into, own, AtFlags::empty()))
    }

    fn dress_as_below(&mut self, path: &[u8], below: &Below) -> Result<()> {
        let Some((source, stat)) = below.find(path)? else { return Ok(()) };
        if kind(&stat) != FileType::Directory {
            return Ok(());
        }
        let own = self.open_directory(path).map_err(LayerError::at(path))?;
        take_looks(&source, &stat, &own).map_err(LayerError::at(path))
    }

    /// The root is always there; where no entry spoke of it, it looks as below, or plain.
    fn dress_root(&mut self, below: &Below) -> Result<()> {
        if self.has_root {
            return Ok(());
        }
        match below.layers.first() {
            Some(nearest) => {
                let stat = fstat(nearest).map_err(LayerError::at(b"."))?;
                take_looks(nearest, &stat, &self.root).map_err(LayerError::at(b"."))
            }
            None => fchmod(&self.root, Mode::from(0o755)).map_err(LayerError::at(b".")),
        }
    }
}

struct Below {
    layers: Vec<OwnedFd>,
}

impl Below {
    fn open(layers: &[impl AsRef<Path>]) -> Result<Below> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |path: &Path| {
            let name = path.as_os_str().as_encoded_bytes();
            rustix::fs::open(path, flags, Mode::empty()).map_err(LayerError::at(name))
        };
        Ok(Below { layers: layers.iter().map(|path| open(path.as_ref())).collect::<Result<_>>()? })
    }

    /// What the stack of layers has at a path, as overlayfs would show it; links are not followed.
    fn find(&self, path: &[u8]) -> Result<Option<(OwnedFd, Stat)>> {
        for layer in &self.layers {
            match look(layer, path).map_err(LayerError::at(path))? {
                Look::Found(file, stat) => return Ok(Some((file, stat))),
                Look::Hidden => return Ok(None),
                Look::Below => {}
            }
        }
        Ok(None)
    }
}

enum Look {
    Found(OwnedFd, Stat),
    /// It does not exist here nor anywhere below.
    Hidden,
    Below,
}

fn look(layer: &OwnedFd, path: &[u8]) -> rustix::io::Result<Look> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = |path: &[u8], flags| openat2(layer, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    match open(path, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(file) => {
            let stat = fstat(&file)?;
            match kind(&stat) {
                FileType::Directory | FileType::RegularFile => Ok(Look::Found(open(path, OFlags::RDONLY)?, stat)),
                FileType::CharacterDevice if stat.st_rdev == 0 => Ok(Look::Hidden),
                _ => Ok(Look::Found(file, stat)),
            }
        }
        Err(Errno::NOENT) => hidden_above(layer, path),
        // Something else than a directory stands above it.
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(Look::Hidden),
        Err(errno) => Err(errno),
    }
}

/// Whether a directory above the path hides what is below it.
fn hidden_above(layer: &OwnedFd, path: &[u8]) -> rustix::io::Result<Look> {
    let mut directory = split(path).0;
    loop {
        let shown: &[u8] = if directory.is_empty() { b"." } else { directory };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat2(layer, shown, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
            Ok(open) => {
                let mut value = [0; 1];
                if fgetxattr(&open, OPAQUE, &mut value).is_ok() && &value == b"y" {
                    return Ok(Look::Hidden);
                }
            }
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Look::Hidden),
            Err(errno) => return Err(errno),
        }
        if directory.is_empty() {
            return Ok(Look::Below);
        }
        directory = split(directory).0;
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn copy_data(from: &OwnedFd, to: &OwnedFd) -> rustix::io::Result<()> {
    loop {
        match rustix::fs::copy_file_range(from, None, to, None, 1 << 30) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Owner, mode, attributes and times.
fn take_looks(from: &OwnedFd, stat: &Stat, to: &OwnedFd) -> rustix::io::Result<()> {
    fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode))?;
    let mut names = vec![0; MOST_XATTR];
    let length = flistxattr(from, &mut names)?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"trusted.") {
            continue;
        }
        let mut value = vec![0; MOST_XATTR];
        let length = fgetxattr(from, name, &mut value)?;
        fsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    let time = Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ };
    futimens(to.as_fd(), &Timestamps { last_access: time, last_modification: time })
}
