//! A path below a volume, bound where no container can replace it. The volume may contain symbolic links that lead out
//! of it: the kernel resolves the path within the volume, and the result is bound by its descriptor.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::mountinfo;

pub(crate) struct Subpath {
    pub(crate) volume: PathBuf,
    /// Relative, without `..`.
    pub(crate) path: PathBuf,
    /// The path of the bind mount.
    pub(crate) target: PathBuf,
}

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

fn open_within(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), WITHIN)
}

/// The content of a file below a volume; an error if it is larger than the limit.
pub(crate) fn read(volume: &Path, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    use io::Read;
    let root = rustix::fs::openat(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // A pipe would be waited for.
    let file = fs::File::from(open_within(&root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?);
    let stat = file.metadata()?;
    if !stat.is_file() || stat.len() > most {
        return Err(io::Error::other("not a regular file, or its path is too long"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Subpath {
    /// Creates a missing path, and bind-mounts it.
    pub(crate) fn bind(&self) -> io::Result<()> {
        let root = rustix::fs::openat(CWD, &self.volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = match open_within(&root, &self.path, OFlags::PATH) {
            Err(rustix::io::Errno::NOENT) => {
                create_dirs(&root, &self.path)?;
                open_within(&root, &self.path, OFlags::PATH)?
            }
            found => found?,
        };
        let stat = rustix::fs::fstat(&found)?;
        if self.is_bound(&stat)? {
            return Ok(());
        }
        mountinfo::unmount(&self.target)?;
        self.create_target(FileType::from_raw_mode(stat.st_mode))?;
        Ok(rustix::mount::mount_bind(format!("/proc/self/fd/{}", found.as_raw_fd()), &self.target)?)
    }

    /// Whether this very file is bound there already.
    fn is_bound(&self, wanted: &Stat) -> io::Result<bool> {
        if !mountinfo::is_mounted(&self.target)? {
            return Ok(false);
        }
        let bound = rustix::fs::statat(CWD, &self.target, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((bound.st_dev, bound.st_ino) == (wanted.st_dev, wanted.st_ino))
    }

    /// A directory for a directory, a file for anything else; a target of the wrong type is replaced.
    fn create_target(&self, kind: FileType) -> io::Result<()> {
        let parent = self.target.parent().unwrap_or(&self.target);
        fs::DirBuilder::new().recursive(true).mode(0o750).create(parent)?;
        let there = fs::symlink_metadata(&self.target).ok();
        let fits = there.as_ref().map(|there| there.is_dir() == (kind == FileType::Directory));
        match (fits, kind) {
            (Some(true), _) => return Ok(()),
            (Some(false), FileType::Directory) => fs::remove_file(&self.target)?,
            (Some(false), _) => fs::remove_dir(&self.target)?,
            (None, _) => {}
        }
        match kind {
            FileType::Directory => fs::DirBuilder::new().mode(0o750).create(&self.target),
            _ => fs::File::options().write(true).create_new(true).open(&self.target).map(|_| ()),
        }
    }
}

/// Creates the missing directories of a path, with the mode of the volume's root.
fn create_dirs(root: &OwnedFd, path: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(root)?.st_mode & 0o7777);
    let mut here = open_within(root, Path::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
    let mut at = PathBuf::new();
    for part in path.components() {
        at.push(part);
        here = match open_within(root, &at, OFlags::PATH | OFlags::DIRECTORY) {
            Err(rustix::io::Errno::NOENT) => create_one(&here, Path::new(part.as_os_str()), mode)?,
            next => next?,
        };
    }
    Ok(())
}

fn create_one(parent: &OwnedFd, name: &Path, mode: Mode) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // Only the new directory is opened: a symbolic link that replaced it is not followed.
    let made = open_within(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    rustix::fs::fchmod(&made, mode)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn reads_files_only_within_the_volume() {
        let temp = tempfile::tempdir().unwrap();
        let volume = temp.path().join("v");
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::write(temp.path().join("secret"), "s").unwrap();
        fs::write(volume.join("a/f"), "text").unwrap();
        symlink("a/f", volume.join("inside")).unwrap();
        symlink("../secret", volume.join("outside")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(volume.join("pipe")).status().unwrap();
        assert!(pipe.success());
        let read = |path: &str| read(&volume, Path::new(path), 4).ok();
        assert_eq!((read("a/f"), read("inside")), (Some(b"text".to_vec()), Some(b"text".to_vec())));
        for path in ["outside", "../secret", "/etc/hostname", "a", "pipe", "none"] {
            assert_eq!(read(path), None, "{path}");
        }
        fs::write(volume.join("a/f"), "longer").unwrap();
        assert_eq!(read("a/f"), None);
    }

    #[test]
    fn creates_directories_only_within_the_volume() {
        let temp = tempfile::tempdir().unwrap();
        let (volume, outside) = (temp.path().join("v"), temp.path().join("o"));
        fs::create_dir(&volume).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2775)).unwrap();
        symlink(&outside, volume.join("absolute")).unwrap();
        symlink("../o", volume.join("relative")).unwrap();
        symlink("a", volume.join("inside")).unwrap();
        let root = rustix::fs::openat(CWD, &volume, OFlags::PATH, Mode::empty()).unwrap();
        let create = |path: &str| create_dirs(&root, Path::new(path));
        create("a/b/c").unwrap();
        let mode = fs::metadata(volume.join("a/b/c")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o2775);
        create("inside/d").unwrap();
        assert!(volume.join("a/d").is_dir());
        assert!(create("absolute/x").is_err() && create("relative/x").is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
