//! The kernel's mount table.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use stdx::mountinfo::mounts_below;

/// The mount points at or below a directory, the deepest and latest first: they can be unmounted in this order.
pub(crate) fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    // The mount table has no symbolic links: with a link as the root, nothing would be found.
    let dir = match dir.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    Ok(mounts_below(&std::fs::read("/proc/self/mountinfo")?, &dir))
}

/// Whether the path itself is a mount point; false if it does not exist. A path that does not respond is a mount whose
/// server or driver has failed: such a mount has to be unmounted too.
pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    let stat = match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::STALE | rustix::io::Errno::IO) => return Ok(true),
        stat => stat?,
    };
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    let path = path.canonicalize()?;
    Ok(below(&path)?.contains(&path))
}

/// Unmounts everything that is mounted at a path.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    while is_mounted(path)? {
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::NOFOLLOW)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_mount_counts_as_mounted() {
        if !super::super::mount_namespace::is_in_own_mount_namespace(
            "volumes::mountinfo::tests::dead_mount_counts_as_mounted",
        ) {
            return;
        }
        use std::os::fd::AsRawFd;
        let temp = tempfile::tempdir().unwrap();
        let server = std::fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("dead", temp.path(), "fuse", flags, Some(options.as_c_str())).unwrap();
        drop(server);
        assert!(std::fs::metadata(temp.path()).is_err(), "its server does not respond");
        assert!(is_mounted(temp.path()).unwrap());
        unmount(temp.path()).unwrap();
        assert!(!is_mounted(temp.path()).unwrap());
    }

    #[test]
    fn finds_mounts() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(Path::new("/proc/self/nothing")).unwrap());
        assert!(!is_mounted(tempfile::tempdir().unwrap().path()).unwrap());
    }
}
