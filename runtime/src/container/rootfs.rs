//! Path lookups below a container's root. They never leave it, whatever symlinks the image contains.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, refused};

/// The kernel's own limit of symlinks in a path.
const MAX_LINKS: usize = 40;

/// The type of a mount's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// An open directory that is the root of all lookups.
pub(crate) struct Root {
    fd: OwnedFd,
}

impl Root {
    pub(crate) fn new(fd: OwnedFd) -> Root {
        Root { fd }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn open(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        retry(|| rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// As `open`, but refuses symlinks anywhere in the path.
    pub(crate) fn open_no_symlinks(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        retry(|| rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// Reads a small text file of the image; empty if it does not exist.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        const MAX_FILE_BYTES: u64 = 4 << 20;
        match self.open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(String::new()),
            Err(error) => Err(error).context(|| format!("opening {path} of the image")),
            Ok(fd) => {
                let stat = rustix::fs::fstat(&fd).context(|| format!("stat of {path} of the image"))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
                    || stat.st_size as u64 > MAX_FILE_BYTES
                {
                    return refused(format!("{path} of the image is not a regular file of at most 4 MiB"));
                }
                let bytes = read_all(std::fs::File::from(fd)).context(|| format!("reading {path} of the image"))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// Opens `path`, and creates it with its parents if it is missing.
    pub(crate) fn ensure(&self, path: &str, kind: Kind) -> Result<OwnedFd> {
        let what = format!("creating {path} in the container");
        let mut links = 0;
        let mut path = normalize(Path::new(path));
        'again: loop {
            let mut directory = self.fd.try_clone().at(&what)?;
            let mut walked = PathBuf::from("/");
            let parts: Vec<_> = path.iter().skip(1).map(OsStr::to_os_string).collect();
            for (index, part) in parts.iter().enumerate() {
                let last = index + 1 == parts.len();
                walked.push(part);
                directory = match self.open(&walked.to_string_lossy(), OFlags::PATH) {
                    Ok(fd) => fd,
                    Err(Errno::NOENT) => match create(&directory, part, if last { kind } else { Kind::Directory }) {
                        Ok(fd) => fd,
                        // A dangling symlink: create its target.
                        Err(Errno::EXIST) => {
                            links += 1;
                            if links > MAX_LINKS {
                                return Err(Errno::LOOP).at(&what);
                            }
                            path = resolve_link(&directory, &walked, part, &parts[index + 1..]).at(&what)?;
                            continue 'again;
                        }
                        Err(error) => return Err(error).at(&what),
                    },
                    Err(error) => return Err(error).at(&what),
                };
            }
            return Ok(directory);
        }
    }
}

/// openat2 returns EAGAIN if a concurrent rename might have affected the lookup.
fn retry<T>(attempt: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..16 {
        match attempt() {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    attempt()
}

fn read_all(mut file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

fn create(directory: impl AsFd, name: &OsStr, kind: Kind) -> rustix::io::Result<OwnedFd> {
    match kind {
        Kind::Directory => rustix::fs::mkdirat(&directory, name, Mode::from(0o755))?,
        Kind::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&directory, name, flags, Mode::from(0o644))?);
        }
    }
    rustix::fs::openat(&directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn resolve_link(
    directory: impl AsFd,
    walked: &Path,
    name: &OsStr,
    rest: &[std::ffi::OsString],
) -> std::io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let target = rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes();
    let target = PathBuf::from(std::ffi::OsString::from_vec(target));
    let mut path = walked.parent().unwrap_or(Path::new("/")).join(target);
    path.extend(rest);
    Ok(normalize(&path))
}

/// Makes a path absolute and removes `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            _ => {}
        }
    }
    normal
}

/// Whether a descriptor refers to a directory.
pub(crate) fn kind_of(fd: impl AsFd) -> rustix::io::Result<Kind> {
    let stat = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Ok(if directory { Kind::Directory } else { Kind::File })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(directory: &Path) -> Root {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Root::new(rustix::fs::open(directory, flags, Mode::empty()).unwrap())
    }

    /// `links` are (name, target) below the root. Afterwards `created` must exist, and nothing outside of the root.
    fn check(links: &[(&str, &str)], place: &str, kind: Kind, created: &str) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("root");
        std::fs::create_dir_all(directory.join("usr")).unwrap();
        for (name, target) in links {
            std::os::unix::fs::symlink(target, directory.join(name)).unwrap();
        }
        root(&directory).ensure(place, kind).unwrap();
        let found = std::fs::symlink_metadata(directory.join(created)).unwrap();
        assert_eq!(found.is_dir(), kind == Kind::Directory, "{place}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1, "{place} left the root");
    }

    #[test]
    fn creates_paths_below_the_root() {
        check(&[], "/a/b/c", Kind::Directory, "a/b/c");
        check(&[], "/usr/../file", Kind::File, "file");
        check(&[], "/../../x", Kind::Directory, "x");
        check(&[("run", "../../escape")], "/run/x", Kind::Directory, "escape/x");
        check(&[("run", "/escape")], "/run", Kind::File, "escape");
        check(&[("one", "two"), ("two", "usr")], "/one/x", Kind::File, "usr/x");
    }

    #[test]
    fn refuses_a_link_to_itself() {
        let temporary = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", temporary.path().join("loop")).unwrap();
        let error = root(temporary.path()).ensure("/loop/x", Kind::Directory).unwrap_err().to_string();
        assert!(error.contains("creating /loop/x in the container"), "{error}");
    }

    #[test]
    fn reads_files_within_the_root() {
        let temporary = tempfile::tempdir().unwrap();
        std::fs::write(temporary.path().join("passwd"), "mine").unwrap();
        std::fs::create_dir(temporary.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("../../../passwd", temporary.path().join("etc/passwd")).unwrap();
        assert_eq!(root(temporary.path()).read("/etc/passwd").unwrap(), "mine");
        assert_eq!(root(temporary.path()).read("/etc/group").unwrap(), "");
    }
}
