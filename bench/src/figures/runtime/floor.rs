//! The minimum cost of a pod's start: the kernel's work alone, with namespaces, a veth pair, cgroups, an overlay root
//! with its mounts, and the program, but without records, logs and checks.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use network::netlink::{Rtnl, Veth};
use network::ns::Netns;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount,
};
use rustix::pipe::{PipeFlags, pipe_with};

use cgroup::Hierarchies;
use runtime::container::init;
use runtime::error::{Context, Result, refused};
use runtime::sys::{self, Fork};

/// Below the cgroup that the benchmark removes however it ends.
const CGROUP: &str = "/tiphys-bench/floor";
const DEVICE: &str = "tiphysfloor";

/// Measures the start of several pods. The process must be single-threaded. `image` is a directory with the program
/// `/pause`, and `work` an empty directory.
pub(super) fn measure(image: &Path, work: &Path, rounds: usize) -> Result<Vec<Duration>> {
    let cgroups = Hierarchies::detect()?;
    // The parent of all rounds is not measured.
    cgroups.create(crate::inside::CGROUP)?;
    (0..rounds).map(|round| one(&cgroups, image, &work.join(round.to_string()))).collect()
}

fn one(cgroups: &Hierarchies, image: &Path, work: &Path) -> Result<Duration> {
    for directory in ["upper", "work"] {
        std::fs::create_dir_all(work.join(directory)).context(|| format!("creating {}", work.display()))?;
    }
    let began = Instant::now();
    let holder = match sys::fork(libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS).at("cloning")? {
        Fork::Child => loop {
            sys::pause();
        },
        Fork::Parent(pid) => pid,
    };
    let made = pod(cgroups, holder, image, work);
    let took = began.elapsed();
    let ended = end(cgroups, holder, made.as_ref().ok().copied());
    made.and(ended).map(|()| took)
}

/// Starts a container, and returns its pid when its program runs.
fn pod(cgroups: &Hierarchies, holder: i32, image: &Path, work: &Path) -> Result<i32> {
    plug(holder)?;
    cgroups.create(CGROUP)?;
    // Opened here, since the pid has no meaning in the container's PID namespace.
    let holder = init::process_of(holder)?;
    let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).at("creating a pipe")?;
    let group = cgroups.entry(CGROUP)?;
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    match sys::fork_in(flags, group.as_ref().map(|fd| fd.as_fd())).at("cloning")? {
        Fork::Child => {
            drop(report);
            let error = contained(cgroups, holder.as_fd(), image, work).err().map(|error| error.to_string());
            let _ = rustix::io::write(&reporter, error.unwrap_or_default().as_bytes());
            sys::exit(127)
        }
        Fork::Parent(pid) => {
            drop(reporter);
            // The exec closes the pipe. Before that, the process reports errors.
            let mut text = [0; 512];
            match rustix::io::read(&report, &mut text).at("receiving from the container")? {
                0 => Ok(pid),
                length => refused(String::from_utf8_lossy(&text[..length]).into_owned()),
            }
        }
    }
}

/// Creates a veth pair with one end in the pod.
fn plug(holder: i32) -> Result<()> {
    let namespace = Netns::open(Path::new(&format!("/proc/{holder}/ns/net"))).at("opening the namespace")?;
    let veth = Veth { name: DEVICE, peer: "eth0", peer_netns: &namespace, peer_mac: None, master: None, mtu: None };
    let plugged = Rtnl::open().and_then(|mut netlink| netlink.add_veth(&veth));
    plugged.or_else(|error| refused(error.to_string()))
}

fn contained(cgroups: &Hierarchies, holder: BorrowedFd, image: &Path, work: &Path) -> Result<()> {
    cgroups.join_v1(CGROUP)?;
    let flags = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    sys::setns(holder, flags).at("joining the pod")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .at("detaching mount propagation from the host")?;
    let root = mount_overlay(image, work)?;
    let target = work.join("upper");
    move_mount(&root, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at("mounting the root")?;
    let root = rustix::fs::open(&target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("opening the root")?;
    for (kind, name) in [("proc", "proc"), ("tmpfs", "dev"), ("sysfs", "sys")] {
        rustix::fs::mkdirat(&root, name, Mode::from(0o755)).at("creating a directory")?;
        mount(kind, target.join(name), kind, MountFlags::empty(), None).context(|| format!("mounting {kind}"))?;
    }
    init::pivot(root.as_fd())?;
    let program = CString::new("/pause").unwrap_or_default();
    Err(sys::execve(&program, std::slice::from_ref(&program), &[])).at("running the program")
}

fn mount_overlay(image: &Path, work: &Path) -> Result<OwnedFd> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("opening an overlay")?;
    for (key, path) in
        [("lowerdir", image.to_path_buf()), ("upperdir", work.join("upper")), ("workdir", work.join("work"))]
    {
        fsconfig_set_string(overlay.as_fd(), key, path.as_path()).context(|| format!("setting {key}"))?;
    }
    fsconfig_create(overlay.as_fd()).at("creating the overlay")?;
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting the overlay")
}

/// Removes everything. It is not measured.
fn end(cgroups: &Hierarchies, holder: i32, container: Option<i32>) -> Result<()> {
    for pid in [container, Some(holder)].into_iter().flatten() {
        let _ = sys::kill(pid, libc::SIGKILL);
        sys::wait(pid);
    }
    let unplugged = Rtnl::open().and_then(|mut netlink| netlink.delete_link(DEVICE));
    cgroups.remove_when_empty(CGROUP, Duration::from_secs(5))?;
    unplugged.map(|_| ()).or_else(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_below_that_of_the_benchmark() {
        assert!(CGROUP.strip_prefix(crate::inside::CGROUP).is_some_and(|rest| rest.starts_with('/')), "{CGROUP}");
    }
}
