//! Files that are used with all rights of the machine: only their owner decides what is in them.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const OTHERS_WRITE: u32 = 0o002;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    #[error("user {owner} owns the file, and it would be used with all rights: `chown {user} FILE` trusts it")]
    Owner { owner: u32, user: u32 },
    #[error("every user may write to the file, and it would be used with all rights: `chmod o-w FILE` prevents it")]
    Writable,
}

/// The metadata of a file that belongs to this user or to root, and that others cannot change.
pub(crate) fn trusted(path: &Path) -> Result<Metadata, TrustError> {
    let found = fs::metadata(path)?;
    check(found.uid(), found.mode(), rustix::process::geteuid().as_raw())?;
    Ok(found)
}

fn check(owner: u32, mode: u32, user: u32) -> Result<(), TrustError> {
    match (owner, mode & OTHERS_WRITE) {
        (owner, _) if owner != user && owner != 0 => Err(TrustError::Owner { owner, user }),
        (_, OTHERS_WRITE) => Err(TrustError::Writable),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_not_trusted() {
        for (owner, mode, user, want) in [
            (0, 0o644, 0, true),
            (0, 0o644, 1000, true),
            (1000, 0o664, 1000, true),
            (1000, 0o644, 0, false),
            (1001, 0o644, 1000, false),
            (0, 0o666, 0, false),
        ] {
            assert_eq!(check(owner, mode, user).is_ok(), want, "{owner} {mode:o} {user}");
        }
        assert!(matches!(trusted(Path::new("/none")), Err(TrustError::Read(_))));
    }
}
