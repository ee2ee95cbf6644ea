//! Applies the operations of a layer's entries below one open directory.
//!
//! Directories are opened with `openat2` and RESOLVE_IN_ROOT: the kernel resolves every symlink as if the layer were the
//! root of the file system, so that nothing in a layer can refer to a file outside of it. The last component of a path
//! is only used with system calls that do not follow symlinks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown,
    fsetxattr, futimens, linkat, lsetxattr, makedev, mkdirat, mknodat, openat, openat2, readlinkat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;

use super::plan::{self, Op, display_path, plan, split};
use super::tar::{Entry, Reader};
use super::{Cancel, InvalidEntry, LayerError, Limits, Usage};

pub(crate) const OPAQUE: &str = "trusted.overlay.opaque";
const BUFFER: usize = 256 << 10;
/// The kernel's own limit of symlinks in a path.
const MAX_LINKS: u32 = 40;

type Result<T> = std::result::Result<T, LayerError>;

/// A layer under construction.
pub struct Unpacker {
    pub(super) root: OwnedFd,
    limits: Limits,
    usage: Usage,
    entries: u64,
    /// The directory of the last entry, which the next entry often shares.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// The times of directories are set at the end, since every new file in a directory changes them.
    times: BTreeMap<Vec<u8>, Timestamps>,
    /// Directories without an entry: their metadata comes from the layers below.
    pub(super) implied: BTreeSet<Vec<u8>>,
    /// Whether there is an entry for the root.
    pub(super) has_root: bool,
    /// Hard links (path, target) whose target exists only in a layer below.
    pub(super) links_below: Vec<(Vec<u8>, Vec<u8>)>,
    skipped_xattrs: u64,
    buffer: Vec<u8>,
}

impl Unpacker {
    /// Unpacks into a directory.
    pub fn open(directory: &Path, limits: Limits) -> Result<Unpacker> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(LayerError::at(b"."))?;
        Ok(Unpacker {
            root,
            limits,
            usage: Usage::default(),
            entries: 0,
            last: None,
            times: BTreeMap::new(),
            implied: BTreeSet::new(),
            has_root: false,
            links_below: Vec::new(),
            skipped_xattrs: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// The size of the unpacked files so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Unpacks a layer.
    pub fn apply<R: Read>(&mut self, reader: &mut Reader<R>, cancel: &Cancel) -> Result<()> {
        while let Some(entry) = reader.next_entry()? {
            cancel.check()?;
            self.count(&entry)?;
            self.apply_operation(plan(&entry, self.limits.devices)?, &entry, reader)?;
        }
        if self.skipped_xattrs > 0 {
            tracing::warn!(count = self.skipped_xattrs, "skipped reserved extended attributes");
        }
        Ok(())
    }

    fn count(&mut self, entry: &Entry) -> Result<()> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(LayerError::Limit { what: "files", limit: self.limits.entries });
        }
        self.usage.bytes = self.usage.bytes.saturating_add(entry.size);
        if self.usage.bytes > self.limits.bytes {
            return Err(LayerError::Limit { what: "bytes in files", limit: self.limits.bytes });
        }
        self.usage.inodes += 1;
        Ok(())
    }

    fn apply_operation<R: Read>(&mut self, op: Op, entry: &Entry, reader: &mut Reader<R>) -> Result<()> {
        match op {
            Op::Directory(path) => self.directory(&path, entry),
            Op::File(path) => self.file(&path, entry, reader),
            Op::Symlink { path, target } => {
                self.create(&path, |directory, name| symlinkat(target.as_slice(), directory, name))?;
                self.set_node_metadata(&path, entry)
            }
            Op::Hardlink { path, target } => self.hardlink(&path, &target),
            Op::Device { path, block, major, minor } => {
                let kind = if block { FileType::BlockDevice } else { FileType::CharacterDevice };
                self.node(&path, kind, makedev(major, minor))?;
                self.set_node_metadata(&path, entry)
            }
            Op::Fifo(path) => {
                self.node(&path, FileType::Fifo, 0)?;
                self.set_node_metadata(&path, entry)
            }
            Op::Whiteout(path) => self.whiteout(&path),
            Op::Opaque(path) => self.opaque(&path),
            Op::Skip => Ok(()),
        }
    }

    fn directory(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        if !path.is_empty() {
            self.create_directory(path)?;
        }
        let directory = self.open_at(path)?;
        self.set_metadata(directory.as_fd(), path, entry)?;
        self.has_root |= path.is_empty();
        self.implied.remove(path);
        self.times.insert(path.to_vec(), times(entry));
        Ok(())
    }

    /// Creates a directory unless it exists; replaces anything else with its name.
    fn create_directory(&mut self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let directory = self.parent(directory)?;
        match kind_at(directory, name).map_err(LayerError::at(path))? {
            Some(ExistingEntry::Directory) => return Ok(()),
            Some(_) => {}
            None => return mkdirat(directory, name, Mode::from(0o755)).map_err(LayerError::at(path)),
        }
        let hidden = kind_at(directory, name).map_err(LayerError::at(path))? == Some(ExistingEntry::Whiteout);
        self.remove(path)?;
        let directory = self.parent(split(path).0)?;
        mkdirat(directory, name, Mode::from(0o755)).map_err(LayerError::at(path))?;
        // The layer removes a name and adds it again: the directory below must not show through.
        if hidden { self.opaque(path) } else { Ok(()) }
    }

    fn file<R: Read>(&mut self, path: &[u8], entry: &Entry, reader: &mut Reader<R>) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.create(path, |directory, name| openat(directory, name, flags, Mode::from(0o600)))?;
        loop {
            let read = reader.read_data(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            write_all(&file, &self.buffer[..read]).map_err(LayerError::at(path))?;
        }
        self.set_metadata(file.as_fd(), path, entry)?;
        futimens(&file, &times(entry)).map_err(LayerError::at(path))
    }

    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let (directory, name) = split(target);
        let source = match self.open_directory(directory) {
            Ok(source) => source,
            Err(Errno::NOENT) => return self.defer_link(path, target),
            Err(errno) => return Err(LayerError::at(target)(errno)),
        };
        match kind_at(source.as_fd(), name).map_err(LayerError::at(target))? {
            None | Some(ExistingEntry::Whiteout) => return self.defer_link(path, target),
            Some(ExistingEntry::Directory) => return Err(plan::refused(path, InvalidEntry::LinkToDirectory)),
            Some(ExistingEntry::Other) => {}
        }
        self.create(path, |directory, own| linkat(&source, name, directory, own, AtFlags::empty()))
    }

    fn defer_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        self.links_below.push((path.to_vec(), target.to_vec()));
        Ok(())
    }

    fn node(&mut self, path: &[u8], kind: FileType, device: u64) -> Result<()> {
        self.create(path, |directory, name| mknodat(directory, name, kind, Mode::from(0o600), device))
    }

    /// The content of a layer takes precedence over its whiteouts, in any order.
    fn whiteout(&mut self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let directory = self.parent(directory)?;
        match kind_at(directory, name).map_err(LayerError::at(path))? {
            None => mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0).map_err(LayerError::at(path)),
            Some(ExistingEntry::Directory) => self.opaque(path),
            Some(_) => Ok(()),
        }
    }

    fn opaque(&mut self, path: &[u8]) -> Result<()> {
        let directory = if path.is_empty() { self.open_at(path)? } else { self.own_directory(path)? };
        fsetxattr(&directory, OPAQUE, b"y", XattrFlags::empty()).map_err(LayerError::at(path))
    }

    fn own_directory(&mut self, path: &[u8]) -> Result<OwnedFd> {
        self.parent(path)?;
        self.open_at(path)
    }

    /// Creates something in a directory; replaces anything else with its name.
    pub(super) fn create<T>(
        &mut self,
        path: &[u8],
        create: impl Fn(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let (directory, name) = split(path);
        match create(self.parent(directory)?, name) {
            Err(Errno::EXIST) => self.remove(path)?,
            created => return created.map_err(LayerError::at(path)),
        }
        create(self.parent(directory)?, name).map_err(LayerError::at(path))
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let (directory, name) = split(path);
        let directory = self.parent(directory)?;
        if kind_at(directory, name).map_err(LayerError::at(path))? != Some(ExistingEntry::Directory) {
            return unlinkat(directory, name, AtFlags::empty()).map_err(LayerError::at(path));
        }
        let whole = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let whole = Path::new(&whole).join(std::ffi::OsStr::new(as_os(name)));
        std::fs::remove_dir_all(whole).map_err(|source| LayerError::Io { path: display_path(path), source })?;
        // The cached state of the directory is invalid now.
        self.last = None;
        self.forget_directory(path);
        Ok(())
    }

    /// Drops the cached state of a directory and its subdirectories, which are adjacent in byte order.
    fn forget_directory(&mut self, path: &[u8]) {
        self.times.remove(path);
        self.implied.remove(path);
        let inside = [path, b"/"].concat()..[path, b"0"].concat();
        let directories: Vec<_> = self.times.range(inside.clone()).map(|(directory, _)| directory.clone()).collect();
        let implied: Vec<_> = self.implied.range(inside).cloned().collect();
        for directory in directories.iter().chain(&implied) {
            self.times.remove(directory);
            self.implied.remove(directory);
        }
    }

    /// Opens a directory; creates it with its parents if it is missing.
    pub(super) fn parent(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            let opened = match self.open_directory(path) {
                Err(Errno::NOTDIR) => {
                    self.recreate_removed_directory(path)?;
                    self.open_directory(path)
                }
                opened => opened,
            };
            let directory = match opened {
                Err(Errno::NOENT) => self.create_directories(path, 0)?,
                opened => opened.map_err(LayerError::at(path))?,
            };
            self.last = Some((path.to_vec(), directory));
        }
        match &self.last {
            Some((_, directory)) => Ok(directory.as_fd()),
            None => Ok(self.root.as_fd()),
        }
    }

    /// A layer may remove a directory and then add something in it: the directory is created again, and is opaque.
    fn recreate_removed_directory(&mut self, path: &[u8]) -> Result<()> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in slashes.chain([path.len()]) {
            let (above, name) = split(&path[..end]);
            let directory = self.open_at(above)?;
            if kind_at(directory.as_fd(), name).map_err(LayerError::at(path))? == Some(ExistingEntry::Whiteout) {
                return self.create_directory(&path[..end]);
            }
        }
        Ok(())
    }

    fn create_directories(&mut self, path: &[u8], links: u32) -> Result<OwnedFd> {
        if links > MAX_LINKS {
            return Err(LayerError::at(path)(Errno::LOOP));
        }
        let (above, name) = split(path);
        let directory = match self.open_directory(above) {
            Err(Errno::NOENT) => self.create_directories(above, links)?,
            opened => opened.map_err(LayerError::at(above))?,
        };
        match mkdirat(&directory, name, Mode::from(0o755)) {
            Ok(()) => drop(self.implied.insert(path.to_vec())),
            // A symlink to a directory that exists only in a layer below: it is dangling here.
            Err(Errno::EXIST) => {
                let target = readlinkat(&directory, name, Vec::new()).map_err(LayerError::at(path))?;
                return self.create_directories(&follow(above, target.as_bytes()), links + 1);
            }
            Err(errno) => return Err(LayerError::at(path)(errno)),
        }
        self.open_at(path)
    }

    pub(super) fn open_directory(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    fn open_at(&self, path: &[u8]) -> Result<OwnedFd> {
        self.open_directory(path).map_err(LayerError::at(path))
    }

    /// Sets owner, mode and attributes, in this order: a change of owner clears the special bits and capabilities.
    pub(super) fn set_metadata(&mut self, file: BorrowedFd<'_>, path: &[u8], entry: &Entry) -> Result<()> {
        let at = LayerError::at(path);
        fchown(file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid))).map_err(&at)?;
        fchmod(file, Mode::from(entry.mode)).map_err(&at)?;
        for (name, value) in &entry.xattrs {
            if self.is_allowed(name) {
                supported(fsetxattr(file, name.as_slice(), value, XattrFlags::empty())).map_err(&at)?;
            }
        }
        Ok(())
    }

    /// The same for files that cannot be opened.
    fn set_node_metadata(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let at = LayerError::at(path);
        let (directory, name) = split(path);
        let directory = rustix::io::fcntl_dupfd_cloexec(self.parent(directory)?, 3).map_err(&at)?;
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        chownat(&directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(&at)?;
        if entry.kind != super::tar::Kind::Symlink {
            rustix::fs::chmodat(&directory, name, Mode::from(entry.mode), AtFlags::empty()).map_err(&at)?;
        }
        for (key, value) in &entry.xattrs {
            if self.is_allowed(key) {
                let whole = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
                let whole = Path::new(&whole).join(as_os(name));
                supported(lsetxattr(whole, key.as_slice(), value, XattrFlags::empty())).map_err(&at)?;
            }
        }
        utimensat(&directory, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW).map_err(&at)
    }

    /// `trusted` attributes belong to the machine, and overlayfs would interpret its own attributes.
    fn is_allowed(&mut self, name: &[u8]) -> bool {
        let allowed = !name.starts_with(b"trusted.") && !name.starts_with(b"user.overlay.");
        self.skipped_xattrs += u64::from(!allowed);
        allowed
    }

    /// Sets the times of directories.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.last = None;
        for (path, times) in std::mem::take(&mut self.times).iter().rev() {
            let directory = self.open_at(path)?;
            futimens(&directory, times).map_err(LayerError::at(path))?;
        }
        Ok(())
    }
}

/// Ignores attributes that the file system or kernel does not support.
fn supported(set: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match set {
        Err(Errno::NOTSUP) => Ok(()),
        other => other,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingEntry {
    Directory,
    Whiteout,
    Other,
}

pub(super) fn kind_at(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Option<ExistingEntry>> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => ExistingEntry::Directory,
        FileType::CharacterDevice if stat.st_rdev == 0 => ExistingEntry::Whiteout,
        _ => ExistingEntry::Other,
    }))
}

/// The target of a symlink in `directory`, as a normalized path below the root.
pub(crate) fn follow(directory: &[u8], target: &[u8]) -> Vec<u8> {
    let start: &[u8] = if target.starts_with(b"/") { b"" } else { directory };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in start.split(|byte| *byte == b'/').chain(target.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

pub(super) fn as_os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec { tv_sec: entry.seconds, tv_nsec: entry.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Err(Errno::INTR) => {}
            written => bytes = &bytes[written?..],
        }
    }
    Ok(())
}
