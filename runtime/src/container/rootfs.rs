//! Paths below a container's root, found without ever leaving it, whatever links the image holds.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, refused};

/// As many links as the kernel itself follows.
const MOST_LINKS: usize = 40;

/// What shall stand where something is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Directory,
    File,
}

pub struct Root {
    fd: OwnedFd,
}

impl Root {
    pub fn new(fd: OwnedFd) -> Root {
        Root { fd }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn open(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        retried(|| rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// As `open`, where a link on the way would change what is meant.
    pub fn open_straight(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        retried(|| rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// A small text file of the image's, empty if it is not there.
    pub fn read(&self, path: &str) -> Result<String> {
        const LONGEST: u64 = 4 << 20;
        match self.open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(String::new()),
            Err(error) => Err(error).context(|| format!("opening {path} of the image")),
            Ok(fd) => {
                let stat = rustix::fs::fstat(&fd).context(|| format!("looking at {path} of the image"))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size as u64 > LONGEST {
                    return refused(format!("{path} of the image is no small file"));
                }
                let bytes = read_all(std::fs::File::from(fd)).context(|| format!("reading {path} of the image"))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// The place at `path`, made with its parents if it is missing.
    pub fn place(&self, path: &str, kind: Kind) -> Result<OwnedFd> {
        let wanted = format!("making {path} in the container");
        let mut links = 0;
        let mut path = normal(Path::new(path));
        'again: loop {
            let mut directory = self.fd.try_clone().at(&wanted)?;
            let mut walked = PathBuf::from("/");
            let parts: Vec<_> = path.iter().skip(1).map(OsStr::to_os_string).collect();
            for (index, part) in parts.iter().enumerate() {
                let last = index + 1 == parts.len();
                walked.push(part);
                directory = match self.open(&walked.to_string_lossy(), OFlags::PATH) {
                    Ok(fd) => fd,
                    Err(Errno::NOENT) => match make(&directory, part, if last { kind } else { Kind::Directory }) {
                        Ok(fd) => fd,
                        // A link that leads nowhere: what it names is made.
                        Err(Errno::EXIST) => {
                            links += 1;
                            if links > MOST_LINKS {
                                return Err(Errno::LOOP).at(&wanted);
                            }
                            path = relinked(&directory, &walked, part, &parts[index + 1..]).at(&wanted)?;
                            continue 'again;
                        }
                        Err(error) => return Err(error).at(&wanted),
                    },
                    Err(error) => return Err(error).at(&wanted),
                };
            }
            return Ok(directory);
        }
    }
}

/// A lookup that raced a rename elsewhere asks to be tried again.
fn retried<T>(attempt: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
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

fn make(directory: impl AsFd, name: &OsStr, kind: Kind) -> rustix::io::Result<OwnedFd> {
    match kind {
        Kind::Directory => rustix::fs::mkdirat(&directory, name, Mode::from(0o755))?,
        Kind::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&directory, name, flags, Mode::from(0o644))?);
        }
    }
    rustix::fs::openat(&directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn relinked(
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
    Ok(normal(&path))
}

/// Absolute, with `.` and `..` taken out.
fn normal(path: &Path) -> PathBuf {
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

/// Whether the thing behind a descriptor is a directory.
pub fn kind_of(fd: impl AsFd) -> rustix::io::Result<Kind> {
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

    /// `links` are (name, target) below the root; afterwards `made` must be there and nothing outside.
    fn check(links: &[(&str, &str)], place: &str, kind: Kind, made: &str) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("root");
        std::fs::create_dir_all(directory.join("usr")).unwrap();
        for (name, target) in links {
            std::os::unix::fs::symlink(target, directory.join(name)).unwrap();
        }
        root(&directory).place(place, kind).unwrap();
        let found = std::fs::symlink_metadata(directory.join(made)).unwrap();
        assert_eq!(found.is_dir(), kind == Kind::Directory, "{place}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1, "{place} left the root");
    }

    #[test]
    fn places_are_made_below_the_root() {
        check(&[], "/a/b/c", Kind::Directory, "a/b/c");
        check(&[], "/usr/../file", Kind::File, "file");
        check(&[], "/../../x", Kind::Directory, "x");
        check(&[("run", "../../escape")], "/run/x", Kind::Directory, "escape/x");
        check(&[("run", "/escape")], "/run", Kind::File, "escape");
        check(&[("one", "two"), ("two", "usr")], "/one/x", Kind::File, "usr/x");
    }

    #[test]
    fn a_link_to_itself_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", temporary.path().join("loop")).unwrap();
        let error = root(temporary.path()).place("/loop/x", Kind::Directory).unwrap_err().to_string();
        assert!(error.contains("making /loop/x in the container"), "{error}");
    }

    #[test]
    fn a_text_is_read_within_the_root() {
        let temporary = tempfile::tempdir().unwrap();
        std::fs::write(temporary.path().join("passwd"), "mine").unwrap();
        std::fs::create_dir(temporary.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("../../../passwd", temporary.path().join("etc/passwd")).unwrap();
        assert_eq!(root(temporary.path()).read("/etc/passwd").unwrap(), "mine");
        assert_eq!(root(temporary.path()).read("/etc/group").unwrap(), "");
    }
}
