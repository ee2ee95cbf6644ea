//! The floor under the start of a pod: what the kernel alone needs for it. Namespaces, a pair of network devices,
//! cgroups, a stacked root with its mounts, and the program; no record, no log, no check.

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

const CGROUP: &str = "/tiphys-floor";
const DEVICE: &str = "tiphysfloor";

/// How long each of some pods takes. The process must have one thread; `image` holds the program `/pause`, and
/// `work` is a directory of the caller's.
pub fn measure(image: &Path, work: &Path, rounds: usize) -> Result<Vec<Duration>> {
    let cgroups = Hierarchies::detect()?;
    (0..rounds).map(|round| one(&cgroups, image, &work.join(round.to_string()))).collect()
}

fn one(cgroups: &Hierarchies, image: &Path, work: &Path) -> Result<Duration> {
    for directory in ["upper", "work"] {
        std::fs::create_dir_all(work.join(directory)).context(|| format!("making {}", work.display()))?;
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

/// The pid of a container that runs its program.
fn pod(cgroups: &Hierarchies, holder: i32, image: &Path, work: &Path) -> Result<i32> {
    plug(holder)?;
    cgroups.create(CGROUP)?;
    // In a namespace of its own the container could not find it.
    let holder = init::process_of(holder)?;
    let (said, says) = pipe_with(PipeFlags::CLOEXEC).at("making a pipe")?;
    let group = cgroups.entry(CGROUP)?;
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    match sys::fork_in(flags, group.as_ref().map(|fd| fd.as_fd())).at("cloning")? {
        Fork::Child => {
            drop(said);
            let error = contained(cgroups, holder.as_fd(), image, work).err().map(|error| error.to_string());
            let _ = rustix::io::write(&says, error.unwrap_or_default().as_bytes());
            sys::exit(127)
        }
        Fork::Parent(pid) => {
            drop(says);
            // It is closed by the program's start, or tells what failed.
            let mut text = [0; 512];
            match rustix::io::read(&said, &mut text).at("hearing from the container")? {
                0 => Ok(pid),
                length => refused(String::from_utf8_lossy(&text[..length]).into_owned()),
            }
        }
    }
}

/// A pair of devices, one of them in the pod.
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
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).at("parting from the host")?;
    let root = stacked(image, work)?;
    let place = work.join("upper");
    move_mount(&root, "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at("mounting the root")?;
    let root = rustix::fs::open(&place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("opening the root")?;
    for (kind, name) in [("proc", "proc"), ("tmpfs", "dev"), ("sysfs", "sys")] {
        rustix::fs::mkdirat(&root, name, Mode::from(0o755)).at("making a directory")?;
        mount(kind, place.join(name), kind, MountFlags::empty(), None).context(|| format!("mounting {kind}"))?;
    }
    init::pivot(root.as_fd())?;
    let program = CString::new("/pause").unwrap_or_default();
    Err(sys::execve(&program, std::slice::from_ref(&program), &[])).at("running the program")
}

fn stacked(image: &Path, work: &Path) -> Result<OwnedFd> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("opening an overlay")?;
    for (key, path) in
        [("lowerdir", image.to_path_buf()), ("upperdir", work.join("upper")), ("workdir", work.join("work"))]
    {
        fsconfig_set_string(overlay.as_fd(), key, path.as_path()).context(|| format!("setting {key}"))?;
    }
    fsconfig_create(overlay.as_fd()).at("making the overlay")?;
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).at("mounting the overlay")
}

/// Nothing is left; it is not measured.
fn end(cgroups: &Hierarchies, holder: i32, container: Option<i32>) -> Result<()> {
    for pid in [container, Some(holder)].into_iter().flatten() {
        let _ = sys::kill(pid, libc::SIGKILL);
        sys::wait(pid);
    }
    let removed = Rtnl::open().and_then(|mut netlink| netlink.delete_link(DEVICE));
    removed.map(|_| ()).or_else(|error| refused::<()>(error.to_string()))?;
    Ok(cgroups.remove_when_empty(CGROUP, Duration::from_secs(5))?)
}
