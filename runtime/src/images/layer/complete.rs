//! Completes a layer with what depends on the layers below it.
//!
//! Layers are unpacked concurrently, each into its own directory. A directory without an entry has to get the metadata
//! of the same directory below, and a hard link may refer to a file that exists only below. Both are done here, when the
//! layers below are complete.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, futimens, linkat, openat, openat2,
};
use rustix::io::Errno;

use super::apply::{OPAQUE, Unpacker};
use super::plan::{refused, split};
use super::{InvalidEntry, LayerError};

type Result<T> = std::result::Result<T, LayerError>;

/// The kernel's limit of an attribute's value.
const MAX_XATTR: usize = 64 << 10;

impl Unpacker {
    /// Completes a layer; `below` are the directories of the layers below it, top first.
    pub fn complete(mut self, below: &[impl AsRef<Path>]) -> Result<super::Usage> {
        let below = LowerLayers::open(below)?;
        for (path, target) in std::mem::take(&mut self.links_below) {
            self.link_below(&path, &target, &below)?;
        }
        self.finish()?;
        for path in std::mem::take(&mut self.implied) {
            self.copy_metadata_from_below(&path, &below)?;
        }
        self.set_root_metadata(&below)?;
        Ok(self.usage())
    }

    fn link_below(&mut self, path: &[u8], target: &[u8], below: &LowerLayers) -> Result<()> {
        let found = below.find(target)?;
        let Some((source, stat)) = found.filter(|(_, stat)| kind(stat) == FileType::RegularFile) else {
            return Err(refused(path, InvalidEntry::LinkToNothing));
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = self.create(target, |directory, name| openat(directory, name, flags, Mode::from(0o600)))?;
        copy_data(&source, &copy).map_err(LayerError::at(target))?;
        copy_metadata(&source, &stat, &copy).map_err(LayerError::at(target))?;
        let (directory, name) = split(target);
        let directory = self.open_directory(directory).map_err(LayerError::at(target))?;
        self.create(path, |into, own| linkat(&directory, name, into, own, AtFlags::empty()))
    }

    fn copy_metadata_from_below(&mut self, path: &[u8], below: &LowerLayers) -> Result<()> {
        let Some((source, stat)) = below.find(path)? else { return Ok(()) };
        if kind(&stat) != FileType::Directory {
            return Ok(());
        }
        let own = self.open_directory(path).map_err(LayerError::at(path))?;
        copy_metadata(&source, &stat, &own).map_err(LayerError::at(path))
    }

    /// The root without an entry gets the metadata of the root below, or defaults.
    fn set_root_metadata(&mut self, below: &LowerLayers) -> Result<()> {
        if self.has_root {
            return Ok(());
        }
        match below.layers.first() {
            Some(nearest) => {
                let stat = fstat(nearest).map_err(LayerError::at(b"."))?;
                copy_metadata(nearest, &stat, &self.root).map_err(LayerError::at(b"."))
            }
            None => fchmod(&self.root, Mode::from(0o755)).map_err(LayerError::at(b".")),
        }
    }
}

struct LowerLayers {
    layers: Vec<OwnedFd>,
}

impl LowerLayers {
    fn open(layers: &[impl AsRef<Path>]) -> Result<LowerLayers> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |path: &Path| {
            let name = path.as_os_str().as_encoded_bytes();
            rustix::fs::open(path, flags, Mode::empty()).map_err(LayerError::at(name))
        };
        Ok(LowerLayers { layers: layers.iter().map(|path| open(path.as_ref())).collect::<Result<_>>()? })
    }

    /// The file at a path in the stack of layers, as overlayfs would show it. Symlinks are not followed.
    fn find(&self, path: &[u8]) -> Result<Option<(OwnedFd, Stat)>> {
        for layer in &self.layers {
            match lookup(layer, path).map_err(LayerError::at(path))? {
                Lookup::Found(file, stat) => return Ok(Some((file, stat))),
                Lookup::Hidden => return Ok(None),
                Lookup::Below => {}
            }
        }
        Ok(None)
    }
}

enum Lookup {
    Found(OwnedFd, Stat),
    /// The path exists neither in this layer nor below.
    Hidden,
    Below,
}

fn lookup(layer: &OwnedFd, path: &[u8]) -> rustix::io::Result<Lookup> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = |path: &[u8], flags| openat2(layer, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    match open(path, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(file) => {
            let stat = fstat(&file)?;
            match kind(&stat) {
                FileType::Directory | FileType::RegularFile => Ok(Lookup::Found(open(path, OFlags::RDONLY)?, stat)),
                FileType::CharacterDevice if stat.st_rdev == 0 => Ok(Lookup::Hidden),
                _ => Ok(Lookup::Found(file, stat)),
            }
        }
        Err(Errno::NOENT) => hidden_above(layer, path),
        // A parent is not a directory in this layer.
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(Lookup::Hidden),
        Err(errno) => Err(errno),
    }
}

/// Whether an opaque directory above the path hides it in the layers below.
fn hidden_above(layer: &OwnedFd, path: &[u8]) -> rustix::io::Result<Lookup> {
    let mut directory = split(path).0;
    loop {
        let shown: &[u8] = if directory.is_empty() { b"." } else { directory };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat2(layer, shown, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
            Ok(open) => {
                let mut value = [0; 1];
                if fgetxattr(&open, OPAQUE, &mut value).is_ok() && &value == b"y" {
                    return Ok(Lookup::Hidden);
                }
            }
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Lookup::Hidden),
            Err(errno) => return Err(errno),
        }
        if directory.is_empty() {
            return Ok(Lookup::Below);
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

/// Copies owner, mode, attributes and times.
fn copy_metadata(from: &OwnedFd, stat: &Stat, to: &OwnedFd) -> rustix::io::Result<()> {
    fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode))?;
    let mut names = vec![0; MAX_XATTR];
    let length = flistxattr(from, &mut names)?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"trusted.") {
            continue;
        }
        let mut value = vec![0; MAX_XATTR];
        let length = fgetxattr(from, name, &mut value)?;
        fsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    let time = Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ };
    futimens(to.as_fd(), &Timestamps { last_access: time, last_modification: time })
}
