//! Turns an entry of a layer into an operation. Pure: every resulting path is relative and has no `.`, `..`, empty
//! components or reserved names, so that applying it only has to deal with symlinks.

use super::tar::{Entry, Kind};
use super::{InvalidEntry, LayerError};

/// Longer paths cannot be opened in one system call.
const MAX_PATH: usize = 4000;
const MAX_NAME: usize = 255;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of aufs's own files in old layers.
const AUFS: &[u8] = b".wh..wh.";

/// An operation of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Directory(Vec<u8>),
    File(Vec<u8>),
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    Hardlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    Device {
        path: Vec<u8>,
        block: bool,
        major: u32,
        minor: u32,
    },
    Fifo(Vec<u8>),
    /// Removes the name that exists in the layers below.
    Whiteout(Vec<u8>),
    /// Hides everything of this directory in the layers below.
    Opaque(Vec<u8>),
    /// An obsolete entry.
    Skip,
}

/// The operation of an entry, or why the entry is refused.
pub(crate) fn plan(entry: &Entry, devices: bool) -> Result<Op, LayerError> {
    let path = normalize(&entry.path).map_err(|why| refused(&entry.path, why))?;
    if let Some(op) = whiteout(&path).map_err(|why| refused(&entry.path, why))? {
        return Ok(op);
    }
    if path.is_empty() && entry.kind != Kind::Directory {
        return Err(refused(&entry.path, InvalidEntry::RootIsNoDirectory));
    }
    let device = |block| match (devices, block, entry.major, entry.minor) {
        (false, ..) => Err(refused(&entry.path, InvalidEntry::Device)),
        // overlayfs would interpret it as a whiteout, but layer scanners would not.
        (_, false, 0, 0) => Err(refused(&entry.path, InvalidEntry::DeviceLikeWhiteout)),
        (_, _, major, minor) => Ok(Op::Device { path: path.clone(), block, major, minor }),
    };
    match entry.kind {
        Kind::Directory => Ok(Op::Directory(path)),
        Kind::File => Ok(Op::File(path)),
        Kind::Symlink if entry.target.is_empty() || entry.target.len() > MAX_PATH => {
            Err(refused(&entry.path, InvalidEntry::SymlinkLength))
        }
        Kind::Symlink if entry.target.contains(&0) => Err(refused(&entry.path, InvalidEntry::TargetWithZero)),
        Kind::Symlink => Ok(Op::Symlink { path, target: entry.target.clone() }),
        Kind::Hardlink => hardlink(entry, path),
        Kind::CharDevice => device(false),
        Kind::BlockDevice => device(true),
        Kind::Fifo => Ok(Op::Fifo(path)),
    }
}

pub(crate) fn refused(path: &[u8], why: InvalidEntry) -> LayerError {
    LayerError::Refused { path: display_path(path), why }
}

/// A path for messages: shortened, and without control characters.
pub(crate) fn display_path(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut short: String = text.chars().take(200).flat_map(char::escape_default).collect();
    if text.chars().nth(200).is_some() {
        short.push('…');
    }
    short
}

fn hardlink(entry: &Entry, path: Vec<u8>) -> Result<Op, LayerError> {
    let target = normalize(&entry.target).map_err(|why| refused(&entry.target, why))?;
    if target.is_empty() || target == path {
        return Err(refused(&entry.path, InvalidEntry::LinkToItself));
    }
    if target.split(|byte| *byte == b'/').any(|part| part.starts_with(WHITEOUT)) {
        return Err(refused(&entry.path, InvalidEntry::LinkToWhiteout));
    }
    Ok(Op::Hardlink { path, target })
}

/// Normalizes a path; refuses `..`.
fn normalize(path: &[u8]) -> Result<Vec<u8>, InvalidEntry> {
    let mut normal = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(InvalidEntry::PathLeavesRoot),
            part if part.len() > MAX_NAME => return Err(InvalidEntry::NameTooLong),
            part if part.contains(&0) => return Err(InvalidEntry::PathWithZero),
            part => {
                if !normal.is_empty() {
                    normal.push(b'/');
                }
                normal.extend_from_slice(part);
            }
        }
    }
    if normal.len() > MAX_PATH { Err(InvalidEntry::PathTooLong) } else { Ok(normal) }
}

fn whiteout(path: &[u8]) -> Result<Option<Op>, InvalidEntry> {
    let (directory, name) = split(path);
    let mut parts = path.split(|byte| *byte == b'/');
    if parts.clone().any(|part| part.starts_with(AUFS) && part != OPAQUE) {
        return Ok(Some(Op::Skip));
    }
    if parts.next_back().is_some() && parts.any(|part| part.starts_with(WHITEOUT)) {
        return Err(InvalidEntry::BelowWhiteout);
    }
    match name.strip_prefix(WHITEOUT) {
        None => Ok(None),
        Some(_) if name == OPAQUE => Ok(Some(Op::Opaque(directory.to_vec()))),
        Some(b"" | b"." | b"..") => Err(InvalidEntry::WhiteoutWithoutName),
        Some(hidden) => Ok(Some(Op::Whiteout(join(directory, hidden)))),
    }
}

/// The directory and the name of a normalized path.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    /// An operation as one line of text.
    fn line(entry: &Entry, devices: bool) -> String {
        match plan(entry, devices) {
            Ok(Op::Directory(path)) => format!("dir {}", text(&path)),
            Ok(Op::File(path)) => format!("file {}", text(&path)),
            Ok(Op::Symlink { path, target }) => format!("symlink {} -> {}", text(&path), text(&target)),
            Ok(Op::Hardlink { path, target }) => format!("link {} = {}", text(&path), text(&target)),
            Ok(Op::Device { path, block, major, minor }) => format!("device {} {block} {major}:{minor}", text(&path)),
            Ok(Op::Fifo(path)) => format!("fifo {}", text(&path)),
            Ok(Op::Whiteout(path)) => format!("hide {}", text(&path)),
            Ok(Op::Opaque(path)) => format!("opaque {:?}", text(&path)),
            Ok(Op::Skip) => "skip".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn files_and_whiteouts() {
        let long = "a".repeat(256);
        let deep = "a/".repeat(2100);
        let cases: &[(&str, &str)] = &[
            ("a/b", "file a/b"),
            ("/etc/passwd", "file etc/passwd"),
            ("./a//./b", "file a/b"),
            ("", "root can only be"),
            ("/", "root can only be"),
            ("../a", "`..`"),
            ("a/../../b", "`..`"),
            ("a/..", "`..`"),
            ("..", "`..`"),
            ("a/...", "file a/..."),
            ("a\0b", "zero byte"),
            (&long, "longer than 255"),
            (&deep, "too long"),
            (".wh.a", "hide a"),
            ("x/y/.wh.a", "hide x/y/a"),
            ("/.wh.a", "hide a"),
            (".wh.", "without a name"),
            (".wh..", "without a name"),
            (".wh...", "without a name"),
            ("x/.wh...", "without a name"),
            (".wh.a/b", "used as a directory"),
            ("x/.wh.a/.wh.b", "used as a directory"),
            (".wh..wh..opq", "opaque \"\""),
            ("x/.wh..wh..opq", "opaque \"x\""),
            ("x/.wh..wh..opq/y", "used as a directory"),
            (".wh..wh.plnk/1.2", "skip"),
            (".wh..wh.aufs", "skip"),
            ("x/.wh..wh.orph", "skip"),
        ];
        for (path, expected) in cases {
            let found = line(&Entry::new(path, Kind::File, 0o644), true);
            assert!(found.contains(expected), "{path:?}: {found}");
        }
    }

    #[test]
    fn links_and_devices() {
        let entry = |kind, path: &str, target: &str| Entry { target: target.into(), ..Entry::new(path, kind, 0o644) };
        let node = |kind, major, minor| Entry { major, minor, ..Entry::new("dev/x", kind, 0o644) };
        let cases: &[(Entry, bool, &str)] = &[
            // The target of a symlink is not restricted; it is resolved in the container.
            (entry(Kind::Symlink, "a", "/etc/passwd"), true, "symlink a -> /etc/passwd"),
            (entry(Kind::Symlink, "a", "../../x"), true, "symlink a -> ../../x"),
            (entry(Kind::Symlink, "a", ""), true, "empty"),
            (entry(Kind::Hardlink, "a", "/b/c"), true, "link a = b/c"),
            (entry(Kind::Hardlink, "a", "../../etc/shadow"), true, "`..`"),
            (entry(Kind::Hardlink, "a", "b/../../c"), true, "`..`"),
            (entry(Kind::Hardlink, "a", "./a"), true, "to itself"),
            (entry(Kind::Hardlink, "a", "/"), true, "to itself or to the root"),
            (entry(Kind::Hardlink, "a", ".wh..wh.plnk/1"), true, "aufs"),
            (entry(Kind::Directory, "./", ""), true, "dir "),
            (entry(Kind::Fifo, "a", ""), true, "fifo a"),
            (node(Kind::CharDevice, 1, 3), true, "device dev/x false 1:3"),
            (node(Kind::BlockDevice, 8, 0), true, "device dev/x true 8:0"),
            (node(Kind::CharDevice, 1, 3), false, "not allowed"),
            (node(Kind::CharDevice, 0, 0), true, "0:0"),
        ];
        for (entry, devices, expected) in cases {
            let found = line(entry, *devices);
            assert!(found.contains(expected), "{entry:?}: {found}");
        }
    }

    #[test]
    fn messages_contain_no_control_characters() {
        assert_eq!(display_path(b"a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert!(display_path("x".repeat(5000).as_bytes()).chars().count() < 300);
    }
}
