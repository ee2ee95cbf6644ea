//! Carries out a plan on the node's file systems. All steps are idempotent.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use api::time::Timestamp;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};

use super::command::Command;
use super::disk::Disk;
use super::files::{self, Files};
use super::plan::{Failure, HostPathType, Medium, Plan, Step};
use super::{Owner, atomic, mountinfo, ownership};

/// A path of the node that does not meet the requirements of a volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error("{0:?} is not an absolute path")]
    NotAbsolute(PathBuf),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("{} is not a block device", .0.display())]
    NotBlockDevice(PathBuf),
    #[error("hostPath type check failed: {} is not {expected}", .path.display())]
    Type { path: PathBuf, expected: &'static str },
}

impl ActError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> ActError {
        let path = path.to_path_buf();
        move |source| ActError::Io { path, source }
    }
}

/// The location of a new volume, and its owner.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The volume's directory below the pod's.
    pub(crate) dir: PathBuf,
    /// This file exists once the directory was created and its owner set.
    pub(crate) ready: PathBuf,
    pub(crate) owner: Owner,
    pub(crate) now: Timestamp,
}

/// The result of a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PreparedVolume {
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
    /// A block device, which containers get as a device.
    pub(crate) is_device: bool,
    /// An image that the runtime mounts: its name, and when it is pulled.
    pub(crate) image: Option<(String, String)>,
    /// The kubelet may set the security label of all of it.
    pub(crate) relabel: bool,
}

pub(crate) fn execute(plan: Plan, place: &Target) -> Result<PreparedVolume, Failure> {
    let here = |read_only, relabel| PreparedVolume {
        path: place.dir.clone(),
        read_only,
        relabel,
        ..PreparedVolume::default()
    };
    match plan {
        Plan::Directory(backing) => directory(&backing, place).map(|()| here(false, true)),
        Plan::Files { files, backing, .. } => write(files, &backing, place).map(|()| here(true, true)),
        Plan::Host { path, expected, read_only } => {
            check_host_path_type(&path, expected)?;
            Ok(PreparedVolume { path, read_only, ..PreparedVolume::default() })
        }
        Plan::Bind { source, read_only, options } => {
            bind(&source, read_only, &options, place).map(|()| here(read_only, true))
        }
        Plan::Disk(disk) => mount_disk(&disk, place).map(|()| here(disk.read_only, true)),
        Plan::Device { path, read_only } => {
            device(&path)?;
            Ok(PreparedVolume { path, read_only, is_device: true, ..PreparedVolume::default() })
        }
        Plan::Run { command, read_only } => run(&command, place).map(|()| here(read_only, false)),
        Plan::Image { reference, pull_policy } => {
            Ok(PreparedVolume { read_only: true, image: Some((reference, pull_policy)), ..PreparedVolume::default() })
        }
        Plan::Made { path, read_only, give, .. } => {
            if give {
                ownership::change_group(&path, &place.owner, read_only)?;
            }
            Ok(PreparedVolume { path, read_only, relabel: true, ..PreparedVolume::default() })
        }
    }
}

fn directory(backing: &Medium, place: &Target) -> Result<(), Failure> {
    let stands = match backing {
        Medium::Disk => place.dir.is_dir(),
        _ => mountinfo::is_mounted(&place.dir)?,
    };
    if stands && place.ready.exists() {
        return Ok(());
    }
    create_medium(backing, &place.dir)?;
    ownership::change_group(&place.dir, &place.owner.always(), false)?;
    // From now on the volume belongs to the pod, which may have changed the owners of files.
    create_dirs(place.ready.parent().unwrap_or(&place.ready))?;
    Ok(fs::write(&place.ready, "")?)
}

fn write(files: Files, backing: &Medium, place: &Target) -> Result<(), Failure> {
    let files = files::checked(files)?;
    create_medium(backing, &place.dir)?;
    // The whole volume changes its owner, not only if the root's owner differs: symbolic links and the directory belong
    // to the group too, and new files are below a root that was changed long ago.
    let owner = place.owner.always();
    let own = |_: &Path| ownership::change_group(&place.dir, &owner, true);
    Ok(atomic::write(&place.dir, &files, place.now, own)?)
}

/// A directory that all users may use, and its file system.
fn create_medium(backing: &Medium, dir: &Path) -> io::Result<()> {
    if *backing != Medium::Disk && mountinfo::is_mounted(dir)? {
        return Ok(());
    }
    create_dirs(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
    match backing {
        Medium::Disk => Ok(()),
        Medium::Memory(size) => mount_memory(dir, *size),
        Medium::HugePages { page_bytes } => {
            mount_with("nodev", dir, "hugetlbfs", &format!("pagesize={page_bytes}")).map_err(io::Error::from)
        }
    }
}

/// Files in memory must not be swapped out; kernels before 6.4 have no option for that.
fn mount_memory(dir: &Path, size: Option<u64>) -> io::Result<()> {
    let size = size.map(|bytes| format!("size={bytes}")).unwrap_or_default();
    let unswapped = format!("{size},noswap");
    let mounted = match mount_with("tmpfs", dir, "tmpfs", unswapped.trim_start_matches(',')) {
        Err(rustix::io::Errno::INVAL) => mount_with("tmpfs", dir, "tmpfs", &size),
        mounted => mounted,
    };
    Ok(mounted?)
}

fn mount_with(source: &str, dir: &Path, kind: &str, data: &str) -> rustix::io::Result<()> {
    let data = std::ffi::CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    mount(source, dir, kind, MountFlags::empty(), Some(data.as_c_str()))
}

/// Directories of the kubelet are not open to other users.
pub(crate) fn create_dirs(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)
}

/// A new file that only root reads, whatever was there before.
fn private_file(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut private_file(path)?, bytes)
}

/// Removes permissions of other users, which an earlier version set.
pub(crate) fn restrict_permissions(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::symlink_metadata(path)?.permissions().mode() & 0o7777;
    if mode & 0o007 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !0o007))
}

fn bind(source: &Path, read_only: bool, options: &[String], place: &Target) -> Result<(), Failure> {
    if mountinfo::is_mounted(&place.dir)? {
        return Ok(());
    }
    if !source.is_absolute() {
        return Err(ActError::NotAbsolute(source.to_path_buf()).into());
    }
    let stat = fs::metadata(source).map_err(ActError::io(source))?;
    if !stat.is_dir() {
        return Err(ActError::NotDirectory(source.to_path_buf()).into());
    }
    create_dirs(&place.dir)?;
    match options {
        [] => mount_bind(source, &place.dir).map_err(io::Error::from)?,
        options => Command::bind(options, &text(source), &text(&place.dir)).run()?,
    }
    if read_only {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        mount_remount(&place.dir, flags, c"").map_err(io::Error::from)?;
        return Ok(());
    }
    Ok(ownership::change_group(&place.dir, &place.owner, read_only)?)
}

fn mount_disk(disk: &Disk, place: &Target) -> Result<(), Failure> {
    if mountinfo::is_mounted(&place.dir)? {
        return Ok(());
    }
    create_dirs(&place.dir)?;
    disk.mount(&place.dir)?;
    match disk.read_only {
        true => Ok(()),
        false => Ok(ownership::change_group(&place.dir, &place.owner, false)?),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn device(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path).map_err(ActError::io(path)) {
        Ok(stat) if stat.file_type().is_block_device() => Ok(()),
        Ok(_) => Err(Failure::at(Step::MapDevice, ActError::NotBlockDevice(path.to_path_buf()))),
        Err(error) => Err(Failure::at(Step::MapDevice, error)),
    }
}

/// The owner of a network file system is not changed: it may be used by many pods of many nodes.
fn run(command: &Command, place: &Target) -> Result<(), Failure> {
    if mountinfo::is_mounted(&place.dir)? {
        return Ok(());
    }
    create_dirs(&place.dir)?;
    Ok(command.run()?)
}

/// Checks the type of a path of the node. Two types create a missing path.
fn check_host_path_type(path: &Path, expected: HostPathType) -> Result<(), ActError> {
    let stat = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_missing_path(path, expected)?,
        stat => stat.ok(),
    };
    let kind = stat.map(|stat| stat.file_type());
    let is = |test: fn(&fs::FileType) -> bool| kind.as_ref().is_some_and(test);
    let (right, wanted) = match expected {
        HostPathType::Anything => return Ok(()),
        HostPathType::Directory | HostPathType::DirectoryOrCreate => (is(fs::FileType::is_dir), "a directory"),
        HostPathType::File | HostPathType::FileOrCreate => (is(fs::FileType::is_file), "a file"),
        HostPathType::Socket => (is(FileTypeExt::is_socket), "a socket file"),
        HostPathType::CharDevice => (is(FileTypeExt::is_char_device), "a character device"),
        HostPathType::BlockDevice => (is(FileTypeExt::is_block_device), "a block device"),
    };
    if right { Ok(()) } else { Err(ActError::Type { path: path.to_path_buf(), expected: wanted }) }
}

fn create_missing_path(path: &Path, expected: HostPathType) -> Result<Option<fs::Metadata>, ActError> {
    let made = match expected {
        HostPathType::DirectoryOrCreate => fs::create_dir_all(path),
        HostPathType::FileOrCreate => {
            fs::File::options().write(true).create(true).truncate(false).open(path).map(|_| ())
        }
        _ => return Ok(None),
    };
    made.and_then(|()| fs::metadata(path)).map(Some).map_err(ActError::io(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::mount_namespace;
    use super::*;

    #[test]
    fn checks_host_path_types() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("sock")).unwrap();
        std::os::unix::fs::symlink(at("dir"), at("link")).unwrap();
        let null = PathBuf::from("/dev/null");
        let cases = [
            (at("none"), HostPathType::Anything, true),
            (at("none"), HostPathType::Directory, false),
            (at("none"), HostPathType::File, false),
            (at("dir"), HostPathType::Directory, true),
            (at("link"), HostPathType::Directory, true),
            (at("file"), HostPathType::Directory, false),
            (at("file"), HostPathType::DirectoryOrCreate, false),
            (at("new/er"), HostPathType::DirectoryOrCreate, true),
            (at("fresh"), HostPathType::FileOrCreate, true),
            (at("no/parent"), HostPathType::FileOrCreate, false),
            (at("dir"), HostPathType::FileOrCreate, false),
            (at("file"), HostPathType::File, true),
            (at("sock"), HostPathType::Socket, true),
            (at("file"), HostPathType::Socket, false),
            (null.clone(), HostPathType::CharDevice, true),
            (null, HostPathType::BlockDevice, false),
        ];
        for (path, expected, right) in cases {
            assert_eq!(check_host_path_type(&path, expected).is_ok(), right, "{} {expected:?}", path.display());
        }
        assert!(at("new/er").is_dir() && at("fresh").is_file() && !at("none").exists());
        let error = check_host_path_type(&at("file"), HostPathType::Directory).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("hostPath type check failed: {} is not a directory", at("file").display())
        );
    }

    fn place(root: &Path, name: &str) -> Target {
        Target {
            dir: root.join("pods/u/volumes").join(name),
            ready: root.join("pods/u/plugins").join(name).join("ready"),
            owner: Owner { fs_group: Some(77), ..Owner::default() },
            now: Timestamp { seconds: 0, nanos: 0 },
        }
    }

    #[test]
    fn mounts_once_and_unmounts_without_removing_content() {
        if !mount_namespace::is_in_own_mount_namespace(
            "volumes::execute::tests::mounts_once_and_unmounts_without_removing_content",
        ) {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (root, outside) = (temp.path(), temp.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let bind = |read_only, options: &[&str]| Plan::Bind {
            source: outside.clone(),
            read_only,
            options: options.iter().map(|option| option.to_string()).collect(),
        };
        let plans = [
            ("writable", bind(false, &[])),
            ("fixed", bind(true, &[])),
            ("tight", bind(false, &["noexec", "nosuid"])),
            ("memory", Plan::Directory(Medium::Memory(Some(1 << 20)))),
            ("pages", Plan::Directory(Medium::HugePages { page_bytes: 2 << 20 })),
        ];
        for (name, plan) in plans.iter().chain(&plans) {
            execute(plan.clone(), &place(root, name)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        assert_eq!(mountinfo::below(&root.join("pods")).unwrap().len(), plans.len(), "twice is once");
        let at = |name: &str| place(root, name).dir;
        fs::write(at("writable").join("new"), "").unwrap();
        assert_eq!(fs::metadata(outside.join("new")).unwrap().gid(), 77);
        assert_eq!(fs::write(at("fixed").join("no"), "").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        let flags = rustix::fs::statvfs(at("tight")).unwrap().f_flag;
        assert!(flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC | rustix::fs::StatVfsMountFlags::NOSUID));
        assert_eq!(rustix::fs::statvfs(at("memory")).unwrap().f_blocks * 4096, 1 << 20);
        // A file is still open: nothing is removed, and above all no content of the mount.
        let busy = fs::File::open(at("writable").join("kept")).unwrap();
        let refused = super::super::remove::clear(&root.join("pods/u")).unwrap_err();
        assert!(refused.to_string().contains("writable cannot be unmounted"), "{refused}");
        drop(busy);
        super::super::remove::clear(&root.join("pods/u")).unwrap();
        assert!(!root.join("pods/u").exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    }

    #[test]
    fn binds_read_only() {
        let temp = tempfile::tempdir().unwrap();
        for read_only in [false, true] {
            let plan = Plan::Host { path: temp.path().into(), expected: HostPathType::Directory, read_only };
            assert_eq!(execute(plan, &place(temp.path(), "h")).unwrap().read_only, read_only);
        }
    }

    #[test]
    fn rewritten_files_belong_to_the_group() {
        let temp = tempfile::tempdir().unwrap();
        let mut place = place(temp.path(), "t");
        place.owner.on_root_mismatch = true;
        for (second, token) in [(0, "old"), (1, "new")] {
            place.now.seconds = second;
            let file = files::File { data: token.into(), mode: 0o600, user: None };
            let files = Files::from([("token".to_string(), file)]);
            execute(Plan::Files { files, backing: Medium::Disk, due: None }, &place).unwrap();
            let path = place.dir.join("token");
            assert_eq!(fs::read_to_string(&path).unwrap(), token);
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.gid(), stat.mode() & 0o7777), (77, 0o640), "{token}");
        }
    }

    #[test]
    fn program_mounts_keep_their_owner() {
        let temp = tempfile::tempdir().unwrap();
        let place = place(temp.path(), "n");
        let file = place.dir.join("kept");
        let command = Command { program: "touch", arguments: vec![file.display().to_string()] };
        execute(Plan::Run { command, read_only: false }, &place).unwrap();
        let of = |path: &Path| fs::metadata(path).unwrap().gid();
        assert_eq!((of(&file), of(&place.dir)), (0, 0));
    }

    #[test]
    fn changes_the_group_of_a_directory_once() {
        let temp = tempfile::tempdir().unwrap();
        let place = place(temp.path(), "e");
        let made = execute(Plan::Directory(Medium::Disk), &place).unwrap();
        let mode = || fs::metadata(&made.path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o2777);
        fs::set_permissions(&made.path, fs::Permissions::from_mode(0o700)).unwrap();
        execute(Plan::Directory(Medium::Disk), &place).unwrap();
        assert_eq!(mode(), 0o700, "what the pod did since stays");
    }

    #[test]
    fn kubelet_files_are_closed_to_other_users() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        create_dirs(&at("pods/a")).unwrap();
        fs::write(at("state"), "old").unwrap();
        fs::set_permissions(at("state"), fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&at("state"), b"new").unwrap();
        assert_eq!((mode("pods/a"), mode("state")), (0o750, 0o600));
        assert_eq!(fs::read(at("state")).unwrap(), b"new");
        for (before, after) in [(0o755, 0o750), (0o1777, 0o1770), (0o700, 0o700)] {
            fs::set_permissions(at("pods/a"), fs::Permissions::from_mode(before)).unwrap();
            restrict_permissions(&at("pods/a")).unwrap();
            assert_eq!(mode("pods/a"), after, "{before:o}");
        }
    }
}
