//! Files and directories that only root may read. Records and specs contain environments, and so values of Secrets.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The permissions of all users but the owner.
const OTHERS: u32 = 0o077;

/// Creates a directory that must not exist yet.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Creates a directory and its parents, and restricts it if it exists.
pub(crate) fn ensure_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)?;
    restrict(path)
}

/// Writes a file. Its mode is restricted from the moment it is created.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE).open(path)?;
    // A file of an earlier version may be readable by all users.
    file.set_permissions(Permissions::from_mode(FILE))?;
    file.write_all(bytes)
}

/// Removes all permissions of users other than the owner.
pub(crate) fn restrict(path: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(path)?.mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS))
}

/// Restricts a directory and the regular files and directories directly in it, except for those (`open`) that other
/// users need.
pub(crate) fn restrict_all(path: &Path, open: &[&str]) -> io::Result<()> {
    restrict(path)?;
    for entry in fs::read_dir(path)?.flatten() {
        let kind = entry.file_type()?;
        let is_open = open.iter().any(|name| entry.file_name() == *name);
        if !is_open && (kind.is_file() || kind.is_dir()) {
            restrict(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn creates_with_permissions_for_root_only() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        ensure_dir(&at("a/b")).unwrap();
        create_dir(&at("a/c")).unwrap();
        write(&at("a/file"), b"secret").unwrap();
        assert_eq!(
            [mode(&at("a")), mode(&at("a/b")), mode(&at("a/c")), mode(&at("a/file"))],
            [0o700, 0o700, 0o700, 0o600]
        );
    }

    #[test]
    fn restricts_files_of_earlier_versions() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("state/below")).unwrap();
        for name in ["state/record", "state/hostname"] {
            fs::write(at(name), "x").unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(0o644)).unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", at("state/link")).unwrap();
        let outside = mode(Path::new("/etc/hostname"));
        restrict_all(&at("state"), &["hostname"]).unwrap();
        let modes = ["state", "state/below", "state/record", "state/hostname"].map(|name| mode(&at(name)));
        assert_eq!(modes, [0o700, 0o700, 0o600, 0o644]);
        assert_eq!(mode(Path::new("/etc/hostname")), outside, "links are not followed");
        write(&at("state/hostname"), b"").unwrap();
        assert_eq!(mode(&at("state/hostname")), 0o600);
    }
}
