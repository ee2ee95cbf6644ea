//! Applies the pod's fsGroup to a volume: the group, its permissions, and setgid on directories, so that new files
//! belong to the group too.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use api::Tree;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};

use crate::model::pod;

/// The owner of files that the kubelet creates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) fs_group: Option<u32>,
    /// The volume is not changed if the owner of its root is correct.
    pub(crate) on_root_mismatch: bool,
    /// The user, if all containers run as the same one.
    pub(crate) fs_user: Option<u32>,
}

impl Owner {
    pub(crate) fn of(pod: &Tree) -> Owner {
        let context = pod.at("spec.securityContext");
        let of_pod = context.int("runAsUser");
        let mut users = pod::containers(pod).map(|container| container.int("securityContext.runAsUser").or(of_pod));
        let first = users.next().flatten();
        Owner {
            fs_group: id(context.int("fsGroup")),
            on_root_mismatch: context.str("fsGroupChangePolicy") == "OnRootMismatch",
            fs_user: id(first.filter(|user| users.all(|other| other == Some(*user)))),
        }
    }

    /// For volumes that live as long as their pod: `fsGroupChangePolicy` is for volumes that have files already.
    pub(crate) fn always(&self) -> Owner {
        Owner { on_root_mismatch: false, ..self.clone() }
    }
}

fn id(value: Option<i64>) -> Option<u32> {
    value.filter(|value| pod::IDS.contains(value)).and_then(|value| u32::try_from(value).ok())
}

/// The permissions that are added to a file or directory.
fn mask(kind: FileType, read_only: bool) -> u32 {
    let plain = if read_only { 0o440 } else { 0o660 };
    if kind == FileType::Directory { plain | 0o2110 } else { plain }
}

/// Whether the ownership of the root is correct, which stands for the whole volume.
fn has_ownership(root: &Stat, group: u32, read_only: bool) -> bool {
    let kind = FileType::from_raw_mode(root.st_mode);
    let wanted = mask(kind, read_only);
    kind == FileType::Directory && root.st_gid == group && root.st_mode & wanted == wanted
}

/// Changes the group of a whole volume. The root comes last: as long as it differs, the whole change is repeated.
pub(crate) fn change_group(root: &Path, owner: &Owner, read_only: bool) -> io::Result<()> {
    let Some(group) = owner.fs_group else { return Ok(()) };
    let root = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if owner.on_root_mismatch && has_ownership(&rustix::fs::fstat(&root)?, group, read_only) {
        return Ok(());
    }
    let mut directories = vec![PathBuf::from(".")];
    while let Some(directory) = directories.pop() {
        for name in names(&root, &directory)? {
            let path = directory.join(name);
            if change_group_of_file(&root, &path, group, read_only)? == FileType::Directory {
                directories.push(path);
            }
        }
    }
    change_group_of_file(&root, Path::new("."), group, read_only).map(|_| ())
}

/// Opens below the root, through no link: a pod that has the volume too could set one in the meantime.
fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), how)
}

fn names(root: &OwnedFd, directory: &Path) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    let entries = match open(root, directory, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(directory) => Dir::read_from(directory)?,
        // The directory was removed meanwhile.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        }
    }
    Ok(names)
}

fn change_group_of_file(root: &OwnedFd, path: &Path, group: u32, read_only: bool) -> io::Result<FileType> {
    let file = match open(root, path, OFlags::PATH) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(FileType::Unknown),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        return Ok(kind);
    }
    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(group));
    rustix::fs::chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    let mode = Mode::from_raw_mode((stat.st_mode & 0o7777) | mask(kind, read_only));
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn state(path: &Path) -> (u32, u32) {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.gid(), meta.mode() & 0o7777)
    }

    fn group(id: u32, on_root_mismatch: bool) -> Owner {
        Owner { fs_group: Some(id), on_root_mismatch, fs_user: None }
    }

    #[test]
    fn changes_the_group_of_a_volume_but_not_of_links() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        let root = temp.path().join("v");
        fs::write(&outside, "").unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/c"), "").unwrap();
        fs::set_permissions(root.join("a/b/c"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&outside, root.join("a/link")).unwrap();
        let before = state(&outside);
        change_group(&root, &group(1234, false), false).unwrap();
        assert_eq!(state(&root), (1234, 0o2775));
        assert_eq!(state(&root.join("a/b")), (1234, 0o2775));
        assert_eq!(state(&root.join("a/b/c")), (1234, 0o660));
        assert_eq!(state(&outside), before);
        fs::write(root.join("later"), "").unwrap();
        assert_eq!(state(&root.join("later")).0, 1234, "setgid");
        // A root with the correct owner leaves all other files unchanged.
        std::os::unix::fs::chown(root.join("a/b/c"), None, Some(0)).unwrap();
        change_group(&root, &group(1234, true), false).unwrap();
        assert_eq!(state(&root.join("a/b/c")).0, 0);
        change_group(&root, &group(1235, true), true).unwrap();
        assert_eq!(state(&root.join("a/b/c")), (1235, 0o660));
    }

    #[test]
    fn reads_the_owner_from_the_pod() {
        let check = |text: &str, wanted: Owner| {
            assert_eq!(Owner::of(&api::yaml::decode(text.as_bytes()).unwrap()), wanted, "{text}");
        };
        check("spec: {containers: [{name: a}]}", Owner::default());
        let user = |user| Owner { fs_user: Some(user), ..Owner::default() };
        check("spec: {securityContext: {runAsUser: 5}, containers: [{name: a}, {name: b}]}", user(5));
        check(
            "spec: {securityContext: {runAsUser: 5}, containers: [{name: a}, {name: b, securityContext: {runAsUser: 6}}]}",
            Owner::default(),
        );
        check("spec: {containers: [{name: a, securityContext: {runAsUser: 6}}, {name: b}]}", Owner::default());
        check(
            "spec: {securityContext: {fsGroup: 7, fsGroupChangePolicy: OnRootMismatch}, containers: [{name: a}]}",
            Owner { fs_group: Some(7), on_root_mismatch: true, fs_user: None },
        );
    }
}
