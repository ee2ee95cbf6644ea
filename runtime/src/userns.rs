//! User namespaces: their ID maps, and namespaces that only serve for ID-mapped mounts.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::error::{Context, Result};
use crate::spec::{IdMap, IdMaps};
use crate::sys::{self, Fork};

/// A user namespace with these maps and without processes, for ID-mapped mounts.
pub(crate) fn with_maps(maps: &IdMaps) -> Result<OwnedFd> {
    let child = match sys::fork(libc::CLONE_NEWUSER).at("creating a user namespace")? {
        Fork::Child => loop {
            sys::pause();
        },
        Fork::Parent(pid) => pid,
    };
    let made = write_maps(child, maps).and_then(|()| open(child));
    let _ = sys::kill(child, libc::SIGKILL);
    sys::wait(child);
    made
}

pub(crate) fn open(pid: i32) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/user");
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at("opening a user namespace")
}

pub(crate) fn write_maps(pid: i32, maps: &IdMaps) -> Result<()> {
    for (file, lines) in [("uid_map", &maps.uids), ("gid_map", &maps.gids)] {
        std::fs::write(format!("/proc/{pid}/{file}"), text(lines)).context(|| format!("writing the {file}"))?;
    }
    Ok(())
}

fn text(maps: &[IdMap]) -> String {
    maps.iter().map(|m| format!("{} {} {}\n", m.container, m.host, m.length)).collect()
}

/// Becomes root of the user namespace that this process has joined.
pub(crate) fn become_root() -> Result<()> {
    sys::setgroups(&[]).at("leaving the host's groups")?;
    sys::setresgid(0).at("becoming the user namespace's root group")?;
    sys::setresuid(0).at("becoming the user namespace's root")
}
