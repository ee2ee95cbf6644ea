//! Replaces a file as a whole: a reader, or a process that starts after a crash, gets the old content or the new one.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The data that has to be on the disk before the file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: a loss of power may leave an empty file, which the owner writes again.
    Cached,
    /// The content.
    Data,
    /// The content and all attributes of the file.
    All,
}

/// Permissions and durability of a file that is replaced.
#[derive(Debug, Clone, Copy)]
pub struct ReplaceOptions {
    /// The file's mode; by the process's umask if there is none.
    pub mode: Option<u32>,
    /// The data to sync.
    pub durability: Durability,
}

impl ReplaceOptions {
    /// A file that only its owner can read, and that is not synced.
    pub const PRIVATE: ReplaceOptions = ReplaceOptions { mode: Some(0o600), durability: Durability::Cached };

    /// The same with another durability.
    pub const fn durable(self, durability: Durability) -> ReplaceOptions {
        ReplaceOptions { durability, ..self }
    }

    /// Writes a hidden file beside `path` and renames it. Only one process writes this path at a time.
    pub fn write(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_through(hidden(path, "new")?, path, bytes)
    }

    /// Like [`ReplaceOptions::write`], where several processes may write the same path at once: the hidden file is of
    /// this process. One that is left by a crash stays, unless a process with the same id writes again.
    pub fn write_shared(self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_through(hidden(path, &std::process::id().to_string())?, path, bytes)
    }

    fn write_through(self, temporary: PathBuf, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let written = self.fill(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            // The next attempt removes what is left.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    fn fill(self, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open(temporary)?;
        file.write_all(bytes)?;
        match self.durability {
            Durability::Cached => Ok(()),
            Durability::Data => file.sync_data(),
            Durability::All => file.sync_all(),
        }
    }

    /// Always a new file: one that is there may be a link to another file, or may be open in a process that must not
    /// read the content.
    fn open(self, temporary: &Path) -> io::Result<File> {
        match std::fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let Some(mode) = self.mode else { return options.open(temporary) };
        let file = options.mode(mode).open(temporary)?;
        // The umask may have taken bits away.
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(file)
    }
}

/// `.name.new` in the same directory, which readers of directories skip.
fn hidden(path: &Path, extension: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(extension);
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn replaces_content_and_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        for durability in [Durability::Cached, Durability::Data, Durability::All] {
            std::fs::write(&path, "a much longer content").expect("a file");
            ReplaceOptions::PRIVATE.durable(durability).write(&path, b"new").expect("written");
            assert_eq!(std::fs::read(&path).expect("a file"), b"new");
            assert_eq!(mode(&path), 0o600);
        }
        let left = hidden(&path, "new").expect("a name");
        std::fs::write(&left, "left by a crash").expect("a file");
        std::fs::set_permissions(&left, Permissions::from_mode(0o644)).expect("a mode");
        ReplaceOptions::PRIVATE.write(&path, b"x").expect("written");
        assert_eq!((mode(&path), left.exists()), (0o600, false));
    }

    #[test]
    fn processes_that_write_the_same_file_have_their_own_hidden_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cache");
        let of_another = hidden(&path, "new").expect("a name");
        std::fs::write(&of_another, "half").expect("a file");
        ReplaceOptions::PRIVATE.write_shared(&path, b"whole").expect("written");
        assert_eq!(std::fs::read(&path).expect("a file"), b"whole");
        assert_eq!(std::fs::read(&of_another).expect("a file"), b"half", "another process still writes it");
    }

    #[test]
    fn does_not_follow_symbolic_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, other) = (dir.path().join("state"), dir.path().join("other"));
        std::fs::write(&other, "kept").expect("a file");
        std::os::unix::fs::symlink(&other, hidden(&path, "new").expect("a name")).expect("a link");
        ReplaceOptions::PRIVATE.write(&path, b"new").expect("written");
        assert_eq!(std::fs::read(&other).expect("a file"), b"kept");
        assert!(!path.is_symlink());
        assert_eq!(std::fs::read(&path).expect("a file"), b"new");
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        std::fs::create_dir(&path).expect("a directory in the way");
        ReplaceOptions::PRIVATE.write(&path, b"new").expect_err("a directory is not replaced");
        assert_eq!(std::fs::read_dir(dir.path()).expect("entries").count(), 1);
        ReplaceOptions::PRIVATE.write(Path::new("/"), b"new").expect_err("no name");
    }
}
