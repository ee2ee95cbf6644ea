//! Container logs on disk, opened and changed through no symbolic link.
//!
//! Pods that mount the host's log directory, as collectors of logs do, may write there. A link that one of them puts in
//! the place of a log must not make the kubelet read, compress or remove another file of the host.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// `POD/CONTAINER`, below the directory of all logs. Links above that are the administrator's.
const DIRECTORIES: usize = 2;

/// The directory of a container's logs.
pub(crate) struct LogDir(OwnedFd);

impl LogDir {
    /// The directory that a log is in.
    pub(crate) fn of(log: &Path) -> io::Result<LogDir> {
        let dir = log.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (above, below) = split(dir, DIRECTORIES);
        if below.as_os_str().is_empty() {
            return Ok(LogDir(rustix::fs::openat(CWD, above, flags, Mode::empty())?));
        }
        let above = rustix::fs::openat(CWD, above, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(LogDir(rustix::fs::openat2(above, below, flags, Mode::empty(), STRICT)?))
    }

    /// A file of the directory to read; only a regular one is a log.
    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.0, name, flags, Mode::empty(), STRICT)?;
        regular(file)
    }

    /// A new file of the directory to write.
    pub(crate) fn create(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.0, name, flags, mode, STRICT)?;
        regular(file)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// Creates a directory of logs, `POD` or `POD/CONTAINER`, below the directory of all logs. A link in its place is
/// refused: it would make the kubelet and the runtime write somewhere else.
pub(crate) fn create_dir(all: &Path, below: &Path) -> io::Result<()> {
    std::fs::create_dir_all(all)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, all, flags, Mode::empty())?;
    for name in below {
        match rustix::fs::mkdirat(&dir, name, Mode::from(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        dir = rustix::fs::openat2(&dir, name, flags, Mode::empty(), STRICT)?;
    }
    Ok(())
}

const STRICT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// A log to read.
pub(crate) fn open(log: &Path) -> io::Result<File> {
    LogDir::of(log)?.open(&name(log))
}

/// The same, off the threads that must not wait.
pub(crate) async fn open_async(log: PathBuf) -> io::Result<tokio::fs::File> {
    let opened = tokio::task::spawn_blocking(move || open(&log)).await;
    opened.map_err(io::Error::other)?.map(tokio::fs::File::from_std)
}

pub(crate) fn name(log: &Path) -> String {
    log.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn regular(file: OwnedFd) -> io::Result<File> {
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Splits the last components from a path.
fn split(path: &Path, last: usize) -> (PathBuf, PathBuf) {
    let mut above = path.to_path_buf();
    let mut below = PathBuf::new();
    for _ in 0..last {
        let Some(name) = above.file_name().map(PathBuf::from) else { break };
        below = if below.as_os_str().is_empty() { name } else { name.join(below) };
        above.pop();
    }
    let above = if above.as_os_str().is_empty() { PathBuf::from(".") } else { above };
    (above, below)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn does_not_follow_symbolic_links() {
        let temporary = tempfile::tempdir().expect("a directory");
        let at = |name: &str| temporary.path().join(name);
        std::fs::create_dir_all(at("real/pods/p/c")).expect("directories");
        symlink(at("real"), at("log")).expect("a link of the administrator's");
        std::fs::write(at("secret"), "secret").expect("a file");
        std::fs::write(at("real/pods/p/c/0.log"), "log").expect("a log");
        symlink(at("secret"), at("real/pods/p/c/1.log")).expect("a link");
        symlink(at("real/pods/p/c"), at("real/pods/p/linked")).expect("a link");
        symlink(at("real/pods/p"), at("real/pods/q")).expect("a link");
        let check = |log: &str, expected: Option<&str>| {
            let text = open(&at(log)).ok().map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).expect("a text");
                text
            });
            assert_eq!(text.as_deref(), expected, "{log}");
        };
        check("log/pods/p/c/0.log", Some("log"));
        check("log/pods/p/c/1.log", None);
        check("log/pods/p/linked/0.log", None);
        check("log/pods/q/c/0.log", None);
        check("log/pods/p/c", None);
        let dir = LogDir::of(&at("log/pods/p/c/0.log")).expect("a directory");
        assert!(dir.create("1.log", Mode::from(0o600)).is_err(), "nor is it written");
        dir.remove("1.log").expect("the link goes");
        assert_eq!(std::fs::read_to_string(at("secret")).expect("a file"), "secret");
    }

    #[test]
    fn no_directory_is_created_through_a_link() {
        let temporary = tempfile::tempdir().expect("a directory");
        let at = |name: &str| temporary.path().join(name);
        std::fs::create_dir_all(at("real")).expect("a directory");
        std::fs::create_dir(at("outside")).expect("a directory");
        symlink(at("real"), at("log")).expect("a link of the administrator's");
        let create = |below: &str| create_dir(&at("log/pods"), Path::new(below)).is_ok();
        assert!(create("p") && create("p/c") && create("p/c"), "they may be there already");
        assert!(at("real/pods/p/c").is_dir());
        for (link, below) in [("q", "q"), ("q", "q/c"), ("p/d", "p/d"), ("p/e", "p/e/f"), ("..", "../x")] {
            let _ = symlink(at("outside"), at("real/pods").join(link));
            assert!(!create(below), "{below}");
        }
        let outside: Vec<_> = std::fs::read_dir(at("outside")).expect("a directory").collect();
        assert!(outside.is_empty(), "{outside:?}");
        assert!(!at("real/x").exists());
    }

    #[test]
    fn finds_the_pods_part_of_a_path() {
        let check = |path: &str, expected: (&str, &str)| {
            assert_eq!(split(Path::new(path), 2), (expected.0.into(), expected.1.into()), "{path}");
        };
        check("/var/log/pods/p/c", ("/var/log/pods", "p/c"));
        check("/c", ("/", "c"));
        check("/", ("/", ""));
        check("c", (".", "c"));
    }
}
