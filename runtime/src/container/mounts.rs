//! A container's file systems.
//!
//! In the host's mount namespace every source is opened as a detached mount; in the container's own they are
//! put together. So no mount is ever made on the host, and none of the host's is ever seen in the container.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_fd,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::rootfs::{Kind, Root, kind_of};
use super::sandbox_root;
use crate::error::{Context, Result, refused};
use crate::spec::{ContainerSpec, IdMap, IdMaps, MountOptions, MountSpec, Propagation, RootSpec, Source};
use crate::sys::{self, Attributes};
use crate::userns;
use cgroup::Hierarchies;

/// Sources opened on the host, in the order of the specification's mounts.
pub struct Opened {
    pub root: OwnedFd,
    mounts: Vec<Piece>,
}

impl Opened {
    /// The trees alone, in the order of the mounts.
    pub fn into_trees(self) -> Vec<Option<OwnedFd>> {
        let tree = |piece| if let Piece::Tree(fd) = piece { Some(fd) } else { None };
        self.mounts.into_iter().map(tree).collect()
    }
}

enum Piece {
    Tree(OwnedFd),
    /// One bind for each hierarchy of version 1, by name.
    Cgroups(Vec<(String, OwnedFd)>),
    /// Made inside, where its namespaces are the container's.
    Inside,
}

/// Opens everything that only the host's mount namespace can see.
pub fn open(spec: &ContainerSpec, cgroups: &Hierarchies, pod_userns: Option<BorrowedFd>) -> Result<Opened> {
    if let Some(maps) = &spec.userns {
        give_upper(&spec.root, maps)?;
    }
    let root = overlay(&spec.root, pod_userns)?;
    let mounts =
        spec.mounts.iter().map(|mount| open_source(mount, spec, cgroups, pod_userns)).collect::<Result<_>>()?;
    Ok(Opened { root, mounts })
}

fn open_source(
    mount: &MountSpec,
    spec: &ContainerSpec,
    cgroups: &Hierarchies,
    pod_userns: Option<BorrowedFd>,
) -> Result<Piece> {
    match &mount.source {
        Source::Bind(path) => bind(path, mount, spec, pod_userns).map(Piece::Tree),
        Source::Image { lower, sub_path } => image(lower, sub_path, pod_userns).map(Piece::Tree),
        Source::Cgroup if !cgroups.unified_only() => {
            let opened = cgroups.directories(&spec.cgroup.path).into_iter().map(|(name, directory)| {
                let fd = tree(&directory, false)?;
                Ok((name, fd))
            });
            opened.collect::<Result<_>>().map(Piece::Cgroups)
        }
        // Its process namespace may be one that only the host's root may mount it for.
        Source::Kernel { kind, .. } if kind == "proc" => kernel("proc", &[], flags(mount)).map(Piece::Tree),
        Source::Cgroup | Source::Kernel { .. } | Source::Shm => Ok(Piece::Inside),
    }
}

fn tree(path: &Path, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).context(|| format!("opening {} to mount it", path.display()))
}

fn bind(path: &Path, mount: &MountSpec, spec: &ContainerSpec, pod_userns: Option<BorrowedFd>) -> Result<OwnedFd> {
    propagation_allowed(path, mount.propagation)?;
    let fd = tree(path, true)?;
    if let Some(maps) = &mount.idmap {
        let own;
        let userns = match pod_userns {
            Some(fd) if spec.userns.as_ref() == Some(maps) => fd,
            _ => {
                own = userns::with_maps(maps)?;
                own.as_fd()
            }
        };
        let attributes = Attributes { userns: Some(userns), ..Attributes::default() };
        sys::mount_setattr(fd.as_fd(), &attributes).context(|| format!("mapping the owners of {}", path.display()))?;
    }
    Ok(fd)
}

/// What is mounted later on the host can only arrive over a shared mount.
fn propagation_allowed(path: &Path, propagation: Propagation) -> Result<()> {
    if propagation == Propagation::Private {
        return Ok(());
    }
    let fields = mount_fields(path)?;
    let shared = fields.iter().any(|f| f.starts_with("shared:"));
    let slave = fields.iter().any(|f| f.starts_with("master:"));
    match propagation {
        Propagation::Bidirectional if !shared => {
            refused(format!("path {:?} is mounted on a mount that is not shared", path.display()))
        }
        Propagation::HostToContainer if !shared && !slave => {
            refused(format!("path {:?} is mounted on a mount that is neither shared nor slave", path.display()))
        }
        _ => Ok(()),
    }
}

/// The optional fields of the mount that a path is on.
fn mount_fields(path: &Path) -> Result<Vec<String>> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let stat =
        statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).context(|| format!("looking at {}", path.display()))?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").at("reading the mounts")?;
    let id = stat.stx_mnt_id.to_string();
    let line = table.lines().find(|line| line.split(' ').next() == Some(&id)).unwrap_or_default();
    Ok(line.split(' ').skip(6).take_while(|f| *f != "-").map(str::to_string).collect())
}

/// The container's root: its image's layers below its own writable directory.
fn overlay(root: &RootSpec, userns: Option<BorrowedFd>) -> Result<OwnedFd> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("opening an overlay")?;
    // A detached mount lasts as long as it is open, and must until the overlay stands.
    let mut held = Vec::new();
    for lower in &root.lower {
        held.extend(layer(&fs, lower, userns)?);
    }
    fsconfig_set_string(&fs, "upperdir", &root.upper).at("overlay's upperdir")?;
    fsconfig_set_string(&fs, "workdir", &root.work).at("overlay's workdir")?;
    // The directory is never mounted twice, so nobody depends on it being on disk when the container ends.
    fsconfig_set_flag(&fs, "volatile").at("overlay's volatile")?;
    fsconfig_set_string(&fs, "index", "off").at("overlay's index")?;
    explained(&fs, fsconfig_create(&fs)).context(|| format!("mounting the root over {} layers", root.lower.len()))?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting the root")
}

/// The writable directory is seen as it is on disk, so its top must be the user namespace's root's.
fn give_upper(root: &RootSpec, maps: &IdMaps) -> Result<()> {
    let host = |maps: &[IdMap]| maps.iter().find(|m| m.container == 0).map(|m| m.host);
    let (Some(uid), Some(gid)) = (host(&maps.uids), host(&maps.gids)) else {
        return refused("the user namespace has no root");
    };
    std::os::unix::fs::chown(&root.upper, Some(uid), Some(gid))
        .context(|| format!("giving {} away", root.upper.display()))
}

/// Adds a layer. What it returns must stay open until the overlay is mounted.
fn layer(fs: &OwnedFd, path: &PathBuf, userns: Option<BorrowedFd>) -> Result<Option<OwnedFd>> {
    const KEY: &str = "lowerdir+";
    let mapped = userns.map(|userns| mapped_tree(path, userns)).transpose()?;
    match &mapped {
        None => fsconfig_set_string(fs, KEY, path),
        Some(tree) => fsconfig_set_fd(fs, KEY, tree),
    }
    .context(|| format!("overlay's layer {}", path.display()))?;
    Ok(mapped)
}

/// A directory whose files belong to the user namespace's users, as they belong to the host's on disk.
fn mapped_tree(path: &Path, userns: BorrowedFd) -> Result<OwnedFd> {
    let fd = tree(path, false)?;
    let attributes = Attributes { userns: Some(userns), ..Attributes::default() };
    sys::mount_setattr(fd.as_fd(), &attributes).context(|| format!("mapping the owners of {}", path.display()))?;
    Ok(fd)
}

/// An image's files as a volume, read-only.
fn image(lower: &[PathBuf], sub_path: &str, userns: Option<BorrowedFd>) -> Result<OwnedFd> {
    let whole = match (lower, userns) {
        ([one], None) => tree(one, false)?,
        ([one], Some(mapped)) => mapped_tree(one, mapped)?,
        _ => {
            let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("opening an overlay")?;
            let mut held = Vec::new();
            for path in lower {
                held.extend(layer(&fs, path, userns)?);
            }
            explained(&fs, fsconfig_create(&fs)).at("mounting an image's files")?;
            fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting an image's files")?
        }
    };
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    sys::mount_setattr(whole.as_fd(), &readonly).at("making an image's files read-only")?;
    if sub_path.is_empty() {
        return Ok(whole);
    }
    // Its mount lasts as long as it is open.
    let whole = Root::new(whole);
    let directory = whole
        .open(sub_path, OFlags::PATH | OFlags::DIRECTORY)
        .context(|| format!("opening {sub_path:?} of the image"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&directory, "", flags).context(|| format!("mounting {sub_path:?} of the image (this needs Linux 6.15)"))
}

/// The kernel's own words for what it did not like, if it has any.
fn explained(fs: &OwnedFd, result: rustix::io::Result<()>) -> std::io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    let mut said = [0u8; 1024];
    match rustix::io::read(fs, &mut said) {
        Ok(length @ 3..) => {
            let text = String::from_utf8_lossy(&said[2..length]).trim().to_string();
            Err(std::io::Error::other(format!("{text} ({error})")))
        }
        _ => Err(error.into()),
    }
}

/// A new file system of the kernel's, not yet at any place.
pub fn kernel(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd> {
    let what = || format!("mounting {kind}");
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).context(what)?;
    for (key, value) in options {
        let set = if value.is_empty() { fsconfig_set_flag(&fs, *key) } else { fsconfig_set_string(&fs, *key, *value) };
        set.context(|| format!("mounting {kind}: option {key}={value}"))?;
    }
    explained(&fs, fsconfig_create(&fs)).context(what)?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags).context(what)
}

/// Puts a detached mount at a place that is already open.
pub fn attach(mount: impl AsFd, place: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place, "", flags)
}

pub fn attach_path(mount: impl AsFd, path: &str) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", CWD, path, flags).context(|| format!("mounting at {path}"))
}

/// Mounts everything below the root, in the specification's order, and makes the devices.
pub fn assemble(root: &Root, spec: &ContainerSpec, opened: Opened) -> Result<()> {
    for (mount, piece) in spec.mounts.iter().zip(opened.mounts) {
        place(root, mount, piece).map_err(|error| named(error, mount))?;
        if mount.target == "/dev" && matches!(mount.source, Source::Kernel { .. }) {
            super::devices::make(root, spec)?;
        }
    }
    Ok(())
}

fn named(error: crate::error::Error, mount: &MountSpec) -> crate::error::Error {
    crate::error::Error::Refused(format!("mounting {}: {error}", mount.target))
}

fn place(root: &Root, mount: &MountSpec, piece: Piece) -> Result<()> {
    let tree = match (piece, &mount.source) {
        (Piece::Tree(fd), _) => fd,
        (Piece::Cgroups(directories), _) => return cgroups(root, mount, directories),
        (Piece::Inside, Source::Kernel { kind, options }) => {
            let options: Vec<_> = options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            kernel(kind, &options, flags(mount))?
        }
        (Piece::Inside, Source::Shm) => shm()?,
        (Piece::Inside, _) => kernel("cgroup2", &[], flags(mount))?,
    };
    set(&tree, mount)?;
    let kind = kind_of(&tree).at("looking at the source")?;
    let place = root.place(&mount.target, kind)?;
    if matches!(mount.target.as_str(), "/proc" | "/sys") {
        // Masked and read-only paths are named below these; a link would lead them astray.
        root.open_straight(&mount.target, OFlags::PATH).at("a link stands in its place")?;
    }
    attach(&tree, &place).at("attaching")
}

/// The pod's shared memory, which the sandbox's mount namespace holds; ours is a copy of it.
pub fn shm() -> Result<OwnedFd> {
    tree(Path::new(sandbox_root::SHM), false)
}

fn set(tree: &OwnedFd, mount: &MountSpec) -> Result<()> {
    let binding = matches!(mount.source, Source::Bind(_) | Source::Image { .. });
    let attributes = Attributes {
        propagation: match mount.propagation {
            Propagation::Private => libc::MS_PRIVATE,
            Propagation::HostToContainer => libc::MS_SLAVE,
            Propagation::Bidirectional => libc::MS_SHARED,
        },
        recursive: true,
        ..Attributes::default()
    };
    if binding {
        sys::mount_setattr(tree.as_fd(), &attributes).at("setting its propagation")?;
    }
    let set = flags(mount);
    if !set.is_empty() {
        let attributes =
            Attributes { set: u64::from(set.bits()), recursive: mount.recursive_readonly, ..Attributes::default() };
        sys::mount_setattr(tree.as_fd(), &attributes).at("setting its options")?;
    }
    Ok(())
}

fn flags(mount: &MountSpec) -> MountAttrFlags {
    let MountOptions { nosuid, nodev, noexec } = mount.options;
    [
        (mount.readonly || mount.recursive_readonly, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (nosuid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (nodev, MountAttrFlags::MOUNT_ATTR_NODEV),
        (noexec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(MountAttrFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// Version 1 shows the container its own group of each hierarchy below one directory.
fn cgroups(root: &Root, mount: &MountSpec, directories: Vec<(String, OwnedFd)>) -> Result<()> {
    let top = kernel("tmpfs", &[("mode", "755")], flags(mount) - MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    attach(&top, root.place(&mount.target, Kind::Directory)?).at("attaching")?;
    for (name, directory) in directories {
        set(&directory, mount)?;
        let place = root.place(&format!("{}/{name}", mount.target), Kind::Directory)?;
        attach(&directory, &place).context(|| format!("attaching {name}"))?;
    }
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    if mount.readonly {
        sys::mount_setattr(top.as_fd(), &readonly).at("making it read-only")?;
    }
    Ok(())
}

/// Hides paths: a file behind the null device, a directory behind an empty one.
pub fn mask(root: &Root, paths: &[String]) -> Result<()> {
    for path in paths {
        let fd = match root.open(path, OFlags::PATH) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
            other => other.context(|| format!("masking {path}"))?,
        };
        let cover = match kind_of(&fd).context(|| format!("masking {path}"))? {
            Kind::Directory => kernel("tmpfs", &[("size", "0")], MountAttrFlags::MOUNT_ATTR_RDONLY)?,
            Kind::File => null(root)?,
        };
        attach(&cover, &fd).context(|| format!("masking {path}"))?;
    }
    Ok(())
}

fn null(root: &Root) -> Result<OwnedFd> {
    let device = root.open("/dev/null", OFlags::PATH).at("opening /dev/null to mask with it")?;
    let stat = rustix::fs::fstat(&device).at("looking at /dev/null")?;
    if stat.st_rdev != rustix::fs::makedev(1, 3) {
        return refused("the container's /dev/null is not the null device");
    }
    clone_of(&device).at("opening /dev/null to mask with it")
}

pub fn clone_of(fd: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(fd, "", flags)
}

/// Lays a read-only view of each path over itself.
pub fn make_readonly(root: &Root, paths: &[String]) -> Result<()> {
    for path in paths {
        let fd = match root.open(path, OFlags::PATH) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            other => other.context(|| format!("making {path} read-only"))?,
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let view = open_tree(&fd, "", flags).context(|| format!("making {path} read-only"))?;
        let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
        sys::mount_setattr(view.as_fd(), &readonly).context(|| format!("making {path} read-only"))?;
        attach(&view, &fd).context(|| format!("making {path} read-only"))?;
    }
    Ok(())
}
