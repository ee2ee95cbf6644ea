//! A container's mounts.
//!
//! All sources are opened as detached mounts in the host's mount namespace, and attached in the container's. So nothing
//! is ever mounted on the host, and no mount of the host is visible in the container.

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

/// Sources that were opened on the host, in the order of the spec's mounts.
pub(crate) struct OpenedMounts {
    pub root: OwnedFd,
    mounts: Vec<MountSource>,
}

impl OpenedMounts {
    /// The detached mounts, in the order of the spec's mounts.
    pub(crate) fn into_trees(self) -> Vec<Option<OwnedFd>> {
        let tree = |source| if let MountSource::Tree(fd) = source { Some(fd) } else { None };
        self.mounts.into_iter().map(tree).collect()
    }
}

enum MountSource {
    Tree(OwnedFd),
    /// One bind mount per cgroup v1 hierarchy, by name.
    Cgroups(Vec<(String, OwnedFd)>),
    /// Created in the container, with its namespaces.
    Inside,
}

/// Opens everything that is only visible in the host's mount namespace.
pub(crate) fn open(
    spec: &ContainerSpec,
    cgroups: &Hierarchies,
    pod_userns: Option<BorrowedFd>,
) -> Result<OpenedMounts> {
    if let Some(maps) = &spec.userns {
        chown_upper(&spec.root, maps)?;
    }
    let root = overlay(&spec.root, pod_userns)?;
    let mounts =
        spec.mounts.iter().map(|mount| open_source(mount, spec, cgroups, pod_userns)).collect::<Result<_>>()?;
    Ok(OpenedMounts { root, mounts })
}

fn open_source(
    mount: &MountSpec,
    spec: &ContainerSpec,
    cgroups: &Hierarchies,
    pod_userns: Option<BorrowedFd>,
) -> Result<MountSource> {
    match &mount.source {
        Source::Bind(path) => bind(path, mount, spec, pod_userns).map(MountSource::Tree),
        Source::Image { lower, sub_path } => image(lower, sub_path, pod_userns).map(MountSource::Tree),
        Source::Cgroup if !cgroups.unified_only() => {
            let opened = cgroups.directories(&spec.cgroup.path).into_iter().map(|(name, directory)| {
                let fd = tree(&directory, false)?;
                Ok((name, fd))
            });
            opened.collect::<Result<_>>().map(MountSource::Cgroups)
        }
        // If the container shares a PID namespace of the host, only the host's root may mount proc for it.
        Source::Kernel { kind, .. } if kind == "proc" => kernel("proc", &[], flags(mount)).map(MountSource::Tree),
        Source::Cgroup | Source::Kernel { .. } | Source::Shm => Ok(MountSource::Inside),
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

/// Later mounts of the host can only propagate over a shared mount.
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

/// The optional fields of the mount that contains a path.
fn mount_fields(path: &Path) -> Result<Vec<String>> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let stat =
        statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).context(|| format!("stat of {}", path.display()))?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").at("reading the mounts")?;
    let id = stat.stx_mnt_id.to_string();
    let line = table.lines().find(|line| line.split(' ').next() == Some(&id)).unwrap_or_default();
    Ok(line.split(' ').skip(6).take_while(|f| *f != "-").map(str::to_string).collect())
}

/// The container's root file system: the layers of its image below its writable layer.
fn overlay(root: &RootSpec, userns: Option<BorrowedFd>) -> Result<OwnedFd> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("opening an overlay")?;
    // A detached mount exists as long as it is open, so it must stay open until the overlay is created.
    let mut held = Vec::new();
    for lower in &root.lower {
        held.extend(layer(&fs, lower, userns)?);
    }
    fsconfig_set_string(&fs, "upperdir", &root.upper).at("overlay's upperdir")?;
    fsconfig_set_string(&fs, "workdir", &root.work).at("overlay's workdir")?;
    // The writable layer is never mounted again, so it need not be synced when the container ends.
    fsconfig_set_flag(&fs, "volatile").at("overlay's volatile")?;
    fsconfig_set_string(&fs, "index", "off").at("overlay's index")?;
    with_kernel_log(&fs, fsconfig_create(&fs))
        .context(|| format!("mounting the root over {} layers", root.lower.len()))?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting the root")
}

/// The writable layer is not ID-mapped, so its top directory must belong to root of the user namespace.
fn chown_upper(root: &RootSpec, maps: &IdMaps) -> Result<()> {
    let host = |maps: &[IdMap]| maps.iter().find(|m| m.container == 0).map(|m| m.host);
    let (Some(uid), Some(gid)) = (host(&maps.uids), host(&maps.gids)) else {
        return refused("the user namespace does not map root");
    };
    std::os::unix::fs::chown(&root.upper, Some(uid), Some(gid))
        .context(|| format!("changing the owner of {}", root.upper.display()))
}

/// Adds a layer. The returned descriptor must stay open until the overlay is created.
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

/// A detached mount of a directory that maps the owners of its files into the user namespace.
fn mapped_tree(path: &Path, userns: BorrowedFd) -> Result<OwnedFd> {
    let fd = tree(path, false)?;
    let attributes = Attributes { userns: Some(userns), ..Attributes::default() };
    sys::mount_setattr(fd.as_fd(), &attributes).context(|| format!("mapping the owners of {}", path.display()))?;
    Ok(fd)
}

/// The files of an image as a read-only volume.
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
            with_kernel_log(&fs, fsconfig_create(&fs)).at("mounting an image's files")?;
            fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting an image's files")?
        }
    };
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    sys::mount_setattr(whole.as_fd(), &readonly).at("making an image's files read-only")?;
    if sub_path.is_empty() {
        return Ok(whole);
    }
    // The detached mount exists as long as it is open.
    let whole = Root::new(whole);
    let directory = whole
        .open(sub_path, OFlags::PATH | OFlags::DIRECTORY)
        .context(|| format!("opening {sub_path:?} of the image"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&directory, "", flags).context(|| format!("mounting {sub_path:?} of the image (this needs Linux 6.15)"))
}

/// Adds the kernel's explanation to an error, if it has one.
fn with_kernel_log(fs: &OwnedFd, result: rustix::io::Result<()>) -> std::io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    let mut log = [0u8; 1024];
    match rustix::io::read(fs, &mut log) {
        Ok(length @ 3..) => {
            let text = String::from_utf8_lossy(&log[2..length]).trim().to_string();
            Err(std::io::Error::other(format!("{text} ({error})")))
        }
        _ => Err(error.into()),
    }
}

/// A new, detached file system of a type of the kernel.
pub(crate) fn kernel(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd> {
    let what = || format!("mounting {kind}");
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).context(what)?;
    for (key, value) in options {
        let set = if value.is_empty() { fsconfig_set_flag(&fs, *key) } else { fsconfig_set_string(&fs, *key, *value) };
        set.context(|| format!("mounting {kind}: option {key}={value}"))?;
    }
    with_kernel_log(&fs, fsconfig_create(&fs)).context(what)?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags).context(what)
}

/// Attaches a detached mount at an open target.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

pub(crate) fn attach_path(mount: impl AsFd, path: &str) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", CWD, path, flags).context(|| format!("mounting at {path}"))
}

/// Attaches all mounts below the root, in the spec's order, and creates the devices.
pub(crate) fn assemble(root: &Root, spec: &ContainerSpec, opened: OpenedMounts) -> Result<()> {
    for (mount, source) in spec.mounts.iter().zip(opened.mounts) {
        attach_mount(root, mount, source).map_err(|error| with_target(error, mount))?;
        if mount.target == "/dev" && matches!(mount.source, Source::Kernel { .. }) {
            super::devices::create(root, spec)?;
        }
    }
    Ok(())
}

fn with_target(error: crate::error::Error, mount: &MountSpec) -> crate::error::Error {
    crate::error::Error::Refused(format!("mounting {}: {error}", mount.target))
}

fn attach_mount(root: &Root, mount: &MountSpec, source: MountSource) -> Result<()> {
    let tree = match (source, &mount.source) {
        (MountSource::Tree(fd), _) => fd,
        (MountSource::Cgroups(directories), _) => return cgroups(root, mount, directories),
        (MountSource::Inside, Source::Kernel { kind, options }) => {
            let options: Vec<_> = options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            kernel(kind, &options, flags(mount))?
        }
        (MountSource::Inside, Source::Shm) => shm()?,
        (MountSource::Inside, _) => kernel("cgroup2", &[], flags(mount))?,
    };
    set(&tree, mount)?;
    let kind = kind_of(&tree).at("stat of the source")?;
    let target = root.ensure(&mount.target, kind)?;
    if matches!(mount.target.as_str(), "/proc" | "/sys") {
        // Masked and read-only paths are below these: a symlink would redirect them.
        root.open_no_symlinks(&mount.target, OFlags::PATH).at("a link stands in its target")?;
    }
    attach(&tree, &target).at("attaching")
}

/// The pod's shared memory, from the copy of the sandbox's mount namespace.
pub(crate) fn shm() -> Result<OwnedFd> {
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
        sys::mount_setattr(tree.as_fd(), &attributes).at("setting the mount propagation")?;
    }
    let set = flags(mount);
    if !set.is_empty() {
        let attributes =
            Attributes { set: u64::from(set.bits()), recursive: mount.recursive_readonly, ..Attributes::default() };
        sys::mount_setattr(tree.as_fd(), &attributes).at("setting the mount options")?;
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

/// With cgroup v1, the container sees its own cgroup of each hierarchy below one directory.
fn cgroups(root: &Root, mount: &MountSpec, directories: Vec<(String, OwnedFd)>) -> Result<()> {
    let top = kernel("tmpfs", &[("mode", "755")], flags(mount) - MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    attach(&top, root.ensure(&mount.target, Kind::Directory)?).at("attaching")?;
    for (name, directory) in directories {
        set(&directory, mount)?;
        let target = root.ensure(&format!("{}/{name}", mount.target), Kind::Directory)?;
        attach(&directory, &target).context(|| format!("attaching {name}"))?;
    }
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    if mount.readonly {
        sys::mount_setattr(top.as_fd(), &readonly).at("making the mount read-only")?;
    }
    Ok(())
}

/// Masks paths: a file with the null device, a directory with an empty one.
pub(crate) fn mask(root: &Root, paths: &[String]) -> Result<()> {
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
    let stat = rustix::fs::fstat(&device).at("stat of /dev/null")?;
    if stat.st_rdev != rustix::fs::makedev(1, 3) {
        return refused("the container's /dev/null is not the null device");
    }
    clone_mount(&device).at("opening /dev/null to mask with it")
}

pub(crate) fn clone_mount(fd: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(fd, "", flags)
}

/// Bind-mounts each path read-only over itself.
pub(crate) fn make_readonly(root: &Root, paths: &[String]) -> Result<()> {
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
