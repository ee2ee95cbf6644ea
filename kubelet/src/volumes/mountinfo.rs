//! The kernel's mount table.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

/// The mount points at or below a directory, the deepest and latest first: they can be unmounted in this order.
pub(crate) fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    // The mount table has no symbolic links: with a link as the root, nothing would be found.
    let dir = match dir.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?, &dir))
}

fn parse(table: &[u8], dir: &Path) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let places = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescape);
    let mut places: Vec<PathBuf> = places.filter(|place| place.starts_with(dir)).collect();
    // Later lines are mounted over earlier ones.
    places.reverse();
    places.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
    places
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
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
    fn deepest_mount_comes_first() {
        let table = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            23 22 0:21 / /k/pods/u/volumes/a rw - tmpfs tmpfs rw\n\
            24 23 0:22 / /k/pods/u/volumes/a/deep\\040er rw - tmpfs tmpfs rw\n\
            25 22 0:23 / /k/pods/u2/volumes/a rw - tmpfs tmpfs rw\n";
        let found = parse(table, Path::new("/k/pods/u"));
        assert_eq!(found, [Path::new("/k/pods/u/volumes/a/deep er"), Path::new("/k/pods/u/volumes/a")]);
    }

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
