//! The kernel's table of mounts, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mount points of a table at or below a directory, the deepest and latest first: they can be unmounted in this
/// order. The table has no symbolic links.
pub fn mounts_below(table: &[u8], dir: &Path) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescape);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(dir)).collect();
    // Later lines are mounted over earlier ones.
    points.reverse();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deepest_mount_comes_first() {
        let table = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            23 22 0:21 / /k/pods/u/volumes/a rw - tmpfs tmpfs rw\n\
            24 23 0:22 / /k/pods/u/volumes/a/deep\\040er rw - tmpfs tmpfs rw\n\
            25 22 0:23 / /k/pods/u2/volumes/a rw - tmpfs tmpfs rw\n\
            26 22 0:24 / /k/pods/u rw - tmpfs tmpfs rw\n";
        let found = mounts_below(table, Path::new("/k/pods/u"));
        let expected = ["/k/pods/u/volumes/a/deep er", "/k/pods/u/volumes/a", "/k/pods/u"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
