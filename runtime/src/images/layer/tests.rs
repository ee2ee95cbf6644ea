//! These tests create devices and change owners, so they need root.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::super::digest::Digest;
use super::tar::{Entry, Kind, Writer};
use super::{Cancel, LayerError, Limits, Usage, unpack};

type Item = (Entry, Vec<u8>);

fn file(path: &str, data: &str) -> Item {
    (Entry { size: data.len() as u64, ..Entry::new(path, Kind::File, 0o644) }, data.into())
}

fn directory(path: &str, mode: u32) -> Item {
    (Entry::new(path, Kind::Directory, mode), Vec::new())
}

fn link(kind: Kind, path: &str, target: &str) -> Item {
    (Entry { target: target.into(), ..Entry::new(path, kind, 0o777) }, Vec::new())
}

fn soft(path: &str, target: &str) -> Item {
    link(Kind::Symlink, path, target)
}

fn hard(path: &str, target: &str) -> Item {
    link(Kind::Hardlink, path, target)
}

fn tar(items: &[Item]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (entry, data) in items {
        writer.entry(entry).unwrap();
        std::io::Write::write_all(writer.data(), data).unwrap();
    }
    writer.finish().unwrap()
}

/// A directory with the layer in `layer/`, and a file next to it that must not be touched.
struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("layer")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        fs::write(directory.path().join("outside/secret"), "secret").unwrap();
        Fixture { directory }
    }

    fn layer(&self) -> PathBuf {
        self.directory.path().join("layer")
    }

    fn unpack_bytes(
        &self,
        blob: &[u8],
        diff_id: &Digest,
        limits: &Limits,
        below: &[PathBuf],
    ) -> Result<Usage, LayerError> {
        let path = self.directory.path().join("blob");
        fs::write(&path, blob).unwrap();
        unpack(&path, &self.layer(), diff_id, limits, &Cancel::default())?.complete(below)
    }

    fn unpack(&self, items: &[Item], below: &[PathBuf]) -> Result<Usage, LayerError> {
        let blob = tar(items);
        self.unpack_bytes(&blob, &Digest::of(&blob), &Limits::default(), below)
    }

    fn is_clean(&self) -> bool {
        let outside = self.directory.path().join("outside");
        let names = fs::read_dir(&outside).unwrap().count();
        let meta = fs::metadata(outside.join("secret")).unwrap();
        fs::read_to_string(outside.join("secret")).unwrap() == "secret"
            && (names, meta.nlink(), meta.uid(), meta.mode() & 0o7777) == (1, 1, 0, 0o644)
            && fs::metadata(&outside).unwrap().mode() & 0o7777 == 0o755
    }
}

/// A directory tree as lines of text: type, mode, owner, path and content.
fn show(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(root, Path::new(""), &mut lines);
    lines.sort();
    lines
}

fn walk(root: &Path, inner: &Path, lines: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(inner)).unwrap() {
        let inner = inner.join(entry.unwrap().file_name());
        let path = root.join(&inner);
        let meta = fs::symlink_metadata(&path).unwrap();
        let (kind, rest) = match meta.file_type() {
            kind if kind.is_dir() => ("dir", if is_opaque(&path) { " opaque".to_owned() } else { String::new() }),
            kind if kind.is_symlink() => ("link", format!(" -> {}", fs::read_link(&path).unwrap().display())),
            kind if kind.is_char_device() && meta.rdev() == 0 => ("hidden", String::new()),
            kind if kind.is_char_device() => ("char", format!(" {}", meta.rdev())),
            kind if kind.is_block_device() => ("block", format!(" {}", meta.rdev())),
            kind if kind.is_fifo() => ("fifo", String::new()),
            _ => ("file", format!(" {:?}", fs::read_to_string(&path).unwrap())),
        };
        let looks = match kind {
            "hidden" | "link" => String::new(),
            _ => format!(" {:o} {}:{}", meta.mode() & 0o7777, meta.uid(), meta.gid()),
        };
        lines.push(format!("{} {kind}{looks}{rest}", inner.display()));
        if meta.is_dir() {
            walk(root, &inner, lines);
        }
    }
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 4];
    rustix::fs::getxattr(path, super::apply::OPAQUE, &mut value).is_ok()
}

#[test]
fn unpacks_layers() {
    let owned = (Entry { uid: 1000, gid: 2000, ..file("owned", "x").0 }, b"x".to_vec());
    let setuid = (Entry { mode: 0o4755, uid: 33, ..file("su", "x").0 }, b"x".to_vec());
    let null = (Entry { major: 1, minor: 3, ..Entry::new("null", Kind::CharDevice, 0o666) }, Vec::new());
    let cases: &[(&str, &[Item], &[&str])] = &[
        ("files", &[directory("a/", 0o700), file("a/b", "1")], &["a dir 700 0:0", "a/b file 644 0:0 \"1\""]),
        ("owners", &[owned], &["owned file 644 1000:2000 \"x\""]),
        ("special bits outlive a new owner", &[setuid], &["su file 4755 33:0 \"x\""]),
        ("a sticky directory", &[directory("tmp", 0o1777)], &["tmp dir 1777 0:0"]),
        ("hard links", &[file("a", "1"), hard("b", "/a")], &["a file 644 0:0 \"1\"", "b file 644 0:0 \"1\""]),
        (
            "devices and pipes",
            &[null, (Entry::new("p", Kind::Fifo, 0o640), vec![])],
            &["null char 666 0:0 259", "p fifo 640 0:0"],
        ),
        ("a later file wins", &[file("a", "1"), file("a", "2")], &["a file 644 0:0 \"2\""]),
        ("a file for a directory", &[file("a/b", "1"), file("a", "2")], &["a file 644 0:0 \"2\""]),
        (
            "a directory for a file",
            &[file("a", "1"), directory("a", 0o711), file("a/b", "2")],
            &["a dir 711 0:0", "a/b file 644 0:0 \"2\""],
        ),
        ("a directory for a link", &[soft("a", "x"), directory("a", 0o755)], &["a dir 755 0:0"]),
        ("a link for a file", &[file("a", "1"), soft("a", "x")], &["a link -> x"]),
        ("whiteouts", &[file("a/.wh.b", ""), file(".wh.c", "")], &["a dir 755 0:0", "a/b hidden", "c hidden"]),
        ("own content beats a whiteout", &[file("b", "1"), file(".wh.b", "")], &["b file 644 0:0 \"1\""]),
        ("and after it", &[file(".wh.b", ""), file("b", "1")], &["b file 644 0:0 \"1\""]),
        ("a hidden directory given anew", &[file(".wh.d", ""), directory("d", 0o755)], &["d dir 755 0:0 opaque"]),
        (
            "and spoken of by what is in it",
            &[file(".wh.d", ""), file("d/e/x", "1")],
            &["d dir 755 0:0 opaque", "d/e dir 755 0:0", "d/e/x file 644 0:0 \"1\""],
        ),
        ("and before", &[file("d/x", "1"), file(".wh.d", "")], &["d dir 755 0:0 opaque", "d/x file 644 0:0 \"1\""]),
        (
            "opaque",
            &[file("d/.wh..wh..opq", ""), file("d/x", "1")],
            &["d dir 755 0:0 opaque", "d/x file 644 0:0 \"1\""],
        ),
        (
            "through a link of its own",
            &[soft("lib", "usr/lib"), file("lib/x", "1")],
            &["lib link -> usr/lib", "usr dir 755 0:0", "usr/lib dir 755 0:0", "usr/lib/x file 644 0:0 \"1\""],
        ),
        ("no entry at all", &[], &[]),
    ];
    for (name, items, expected) in cases {
        let place = Fixture::new();
        place.unpack(items, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(show(&place.layer()), *expected, "{name}");
        assert!(place.is_clean(), "{name}");
    }
}

#[test]
fn hostile_layers_stay_inside() {
    let zero = (Entry::new("d", Kind::CharDevice, 0o666), Vec::new());
    // Either it is refused for this reason, or it is applied inside.
    let cases: &[(&str, &[Item], Option<&str>)] = &[
        ("climbing", &[file("../outside/secret", "x")], Some("`..`")),
        ("climbing later", &[file("a/../../outside/secret", "x")], Some("`..`")),
        ("an absolute path", &[file("/outside/secret", "x")], None),
        ("a link up", &[soft("a", "../outside"), file("a/secret", "x")], None),
        ("a link up, replaced", &[soft("a", "../outside/secret"), file("a", "x")], None),
        ("a chain of links", &[soft("a", "b"), soft("b", "../outside"), file("a/secret", "x")], None),
        ("links in a circle", &[soft("a", "b"), soft("b", "a"), file("a/x", "x")], Some("a")),
        ("a directory through a link", &[soft("a", "../outside"), directory("a/", 0o777)], None),
        (
            "a mode through a link",
            &[soft("a", "../outside/secret"), (Entry::new("a", Kind::File, 0o777), vec![])],
            None,
        ),
        ("a hard link up", &[hard("a", "../outside/secret"), file("a", "x")], Some("`..`")),
        ("a hard link through a link", &[soft("l", "../outside"), hard("a", "l/secret")], Some("does not exist")),
        ("a hard link to a link", &[soft("l", "../outside/secret"), hard("a", "l"), file("a", "x")], None),
        ("a hard link to nothing", &[hard("a", "b")], Some("does not exist")),
        ("a hard link to a directory", &[directory("d", 0o755), hard("a", "d")], Some("to a directory")),
        ("a whiteout upwards", &[file("../outside/.wh.secret", "")], Some("`..`")),
        ("a whiteout of the parent", &[file("a/.wh...", "")], Some("without a name")),
        ("a whiteout through a link", &[soft("a", "../outside"), file("a/.wh.secret", "")], None),
        ("opaque through a link", &[soft("a", "../outside"), file("a/.wh..wh..opq", "")], None),
        ("removal through a link", &[soft("a", "../outside"), file("a", "x"), directory("a", 0o755)], None),
        ("a file below a file", &[file("a", "1"), file("a/b", "2")], Some("a")),
        ("a disguised whiteout", &[zero], Some("0:0")),
        ("the root as a link", &[soft("/", "x")], Some("root")),
    ];
    for (name, items, expected) in cases {
        let place = Fixture::new();
        let found = place.unpack(items, &[]);
        match (&found, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{name}: {error}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
        assert!(place.is_clean(), "{name}");
    }
}

#[test]
fn does_not_follow_an_existing_link() {
    // Even a symlink to an absolute path outside is resolved within the layer.
    let place = Fixture::new();
    let outside = place.directory.path().join("outside");
    place.unpack(&[soft("a", outside.to_str().unwrap()), file("a/secret", "x")], &[]).unwrap();
    assert!(place.is_clean());
    let inside = place.layer().join(outside.strip_prefix("/").unwrap()).join("secret");
    assert_eq!(fs::read_to_string(inside).unwrap(), "x");
}

#[test]
fn enforces_limits() {
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    };
    let zeros = tar(&[file("zeros", &"\0".repeat(8 << 20))]);
    let many: Vec<Item> = (0..200).map(|number| file(&format!("f{number}"), "")).collect();
    let tight = Limits { bytes: 16 << 20, entries: 100, ratio: 10, free_bytes: 1 << 20, devices: false };
    let device = (Entry { major: 1, minor: 3, ..Entry::new("null", Kind::CharDevice, 0o666) }, Vec::new());
    let cases: &[(&str, Vec<u8>, Vec<u8>, &str)] = &[
        ("a bomb", gzip(&zeros), zeros.clone(), "bytes when unpacked"),
        ("many files", tar(&many), tar(&many), "more than 100 files"),
        ("a device", tar(std::slice::from_ref(&device)), tar(&[device]), "not allowed"),
    ];
    for (name, blob, plain, why) in cases {
        let place = Fixture::new();
        let error = place.unpack_bytes(blob, &Digest::of(plain), &tight, &[]).unwrap_err();
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
    let large = Limits { bytes: 1 << 20, ..Limits::default() };
    let error = Fixture::new().unpack_bytes(&zeros, &Digest::of(&zeros), &large, &[]).unwrap_err();
    assert!(matches!(error, LayerError::Limit { what: "bytes in files", .. }), "{error}");
    // A stated size that exceeds the limit is refused before anything is written.
    let mut lie = Entry::new("lie", Kind::File, 0o644);
    lie.size = u64::MAX / 2;
    let lie = tar(&[(lie, Vec::new())]);
    let error = Fixture::new().unpack_bytes(&lie, &Digest::of(&lie), &Limits::default(), &[]).unwrap_err();
    assert!(matches!(error, LayerError::Limit { .. }), "{error}");
}

#[test]
fn verifies_the_content() {
    let place = Fixture::new();
    let blob = tar(&[file("a", "1")]);
    let error = place.unpack_bytes(&blob, &Digest::of(b"other"), &Limits::default(), &[]).unwrap_err();
    assert!(matches!(error, LayerError::Content { .. }), "{error}");
    // Data after the end of the archive is part of the content.
    let more = [&blob[..], b"more"].concat();
    assert!(Fixture::new().unpack_bytes(&more, &Digest::of(&more), &Limits::default(), &[]).is_ok());
    assert!(Fixture::new().unpack_bytes(&more, &Digest::of(&blob), &Limits::default(), &[]).is_err());
}

#[test]
fn attributes() {
    let capability = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec();
    let xattrs = vec![
        (b"security.capability".to_vec(), capability.clone()),
        (b"user.mark".to_vec(), b"1".to_vec()),
        (b"trusted.overlay.redirect".to_vec(), b"/etc".to_vec()),
        (b"user.overlay.opaque".to_vec(), b"y".to_vec()),
    ];
    let place = Fixture::new();
    let entry = Entry { xattrs, uid: 5, seconds: 1_000_000_000, nanoseconds: 5, ..file("a", "").0 };
    let dated = Entry { seconds: 999, ..directory("d", 0o755).0 };
    place.unpack(&[(entry, Vec::new()), (dated, Vec::new()), file("d/x", "1")], &[]).unwrap();
    let path = place.layer().join("a");
    let get = |name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(&path, name, &mut value).map(|length| value[..length].to_vec()).ok()
    };
    assert_eq!(get("security.capability"), Some(capability));
    assert_eq!(get("user.mark"), Some(b"1".to_vec()));
    assert_eq!((get("trusted.overlay.redirect"), get("user.overlay.opaque")), (None, None));
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 5));
    assert_eq!(fs::metadata(place.layer().join("d")).unwrap().mtime(), 999, "a file made in it does not show");
}

/// A stack of lower layers, top first.
fn below(place: &Fixture) -> Vec<PathBuf> {
    let make = |name: &str| {
        let path = place.directory.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (top, bottom) = (make("top"), make("bottom"));
    for (directory, mode) in [("etc", 0o700), ("var", 0o711), ("gone", 0o701), ("closed", 0o702)] {
        fs::create_dir(bottom.join(directory)).unwrap();
        fs::set_permissions(bottom.join(directory), fs::Permissions::from_mode(mode)).unwrap();
        fs::write(bottom.join(directory).join("file"), "below").unwrap();
    }
    rustix::fs::chown(bottom.join("etc"), Some(rustix::fs::Uid::from_raw(7)), None).unwrap();
    fs::create_dir(top.join("var")).unwrap();
    fs::set_permissions(top.join("var"), fs::Permissions::from_mode(0o750)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, top.join("gone"), rustix::fs::FileType::CharacterDevice, 0.into(), 0).unwrap();
    fs::create_dir(top.join("closed")).unwrap();
    rustix::fs::setxattr(top.join("closed"), super::apply::OPAQUE, b"y", rustix::fs::XattrFlags::empty()).unwrap();
    symlink("etc", bottom.join("link")).unwrap();
    vec![top, bottom]
}

#[test]
fn directories_without_an_entry_get_the_metadata_below() {
    let place = Fixture::new();
    let below = below(&place);
    let items = [file("etc/new", ""), file("var/new", ""), file("gone/new", ""), file("other/new", "")];
    place.unpack(&items, &below).unwrap();
    let found = show(&place.layer());
    for expected in ["etc dir 700 7:0", "var dir 750 0:0", "gone dir 755 0:0", "other dir 755 0:0"] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:?}");
    }
}

#[test]
fn links_to_files_in_layers_below() {
    let cases = [
        ("etc/file", true),
        ("var/file", true),
        ("gone/file", false),
        ("closed/file", false),
        ("etc", false),
        ("link", false),
    ];
    for (target, expected) in cases {
        let place = Fixture::new();
        let below = below(&place);
        let found = place.unpack(&[hard("new", target)], &below);
        assert_eq!(found.is_ok(), expected, "{target}: {found:?}");
        if expected {
            let (new, old) = (place.layer().join("new"), place.layer().join(target));
            assert_eq!(fs::read_to_string(&new).unwrap(), "below");
            assert_eq!(fs::metadata(new).unwrap().ino(), fs::metadata(old).unwrap().ino());
        }
    }
}

#[test]
fn stops_when_cancelled() {
    let place = Fixture::new();
    let blob = tar(&[file("a", "1")]);
    let path = place.directory.path().join("blob");
    fs::write(&path, &blob).unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    let found = unpack(&path, &place.layer(), &Digest::of(&blob), &Limits::default(), &cancel);
    assert!(matches!(found.err(), Some(LayerError::Cancelled)));
}
