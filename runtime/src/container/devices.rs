//! The contents of a container's /dev.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::mounts;
use super::rootfs::{Kind, Root};
use crate::error::{Context, Result, refused};
use crate::spec::{ContainerSpec, DeviceSpec};
use crate::sys;

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// Creates the links and device nodes of a container.
pub(crate) fn create(root: &Root, spec: &ContainerSpec) -> Result<()> {
    let dev = root.open("/dev", OFlags::PATH | OFlags::DIRECTORY).at("opening /dev of the container")?;
    for (target, name) in LINKS {
        rustix::fs::symlinkat(target, &dev, name).context(|| format!("linking /dev/{name}"))?;
    }
    for device in &spec.devices {
        // A user namespace cannot create device nodes: bind-mount the sandbox's nodes instead.
        if spec.userns.is_some() { bind_node(root, device) } else { create_node(root, device) }?;
    }
    Ok(())
}

fn create_node(root: &Root, device: &DeviceSpec) -> Result<()> {
    let what = || format!("creating the device {}", device.path);
    let path = Path::new(&device.path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return refused(format!("invalid device path {}", device.path));
    };
    let directory = root.ensure(&parent.to_string_lossy(), Kind::Directory)?;
    let kind = match device.kind.as_str() {
        "c" => libc::S_IFCHR,
        "b" => libc::S_IFBLK,
        "p" => libc::S_IFIFO,
        other => return refused(format!("device {} has the unknown type {other:?}", device.path)),
    };
    // The mode must not be reduced by the umask.
    let before = rustix::process::umask(Mode::empty());
    let created = sys::mknodat(directory.as_fd(), Path::new(name), kind | device.mode, device.major, device.minor);
    rustix::process::umask(before);
    created.context(what)?;
    if (device.uid, device.gid) != (0, 0) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(device.uid), rustix::fs::Gid::from_raw(device.gid));
        rustix::fs::chownat(&directory, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .context(what)?;
    }
    Ok(())
}

fn bind_node(root: &Root, device: &DeviceSpec) -> Result<()> {
    let what = || format!("binding the device {}", device.path);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Only the sandbox's own copies of the default devices are reachable here.
    let source = format!("{}{}", super::sandbox_root::DEVICES, device.path);
    let tree = open_tree(CWD, source.as_str(), flags).context(what)?;
    mounts::attach(&tree, root.ensure(&device.path, Kind::File)?).context(what)
}
