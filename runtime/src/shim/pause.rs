//! The pause process, which holds a pod's namespaces: it sets them up, waits, and reaps orphaned processes.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use serde::{Deserialize, Serialize};

use crate::container::sandbox_root::{DEVICES, ROOT, SHM};
use crate::container::{init, mounts, process};
use crate::error::{Context, Result};
use crate::spec::SandboxSpec;
use crate::sys::{self, CapSets, Fork};
use crate::{ipc, title, userns};
use cgroup::Hierarchies;

const DEFAULT_DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Ready { warnings: Vec<String> },
    Failed(String),
}

/// Starts the pause process, and returns its pid once the sandbox is set up.
pub(crate) fn start(
    spec: &SandboxSpec,
    pod: &str,
    directory: &Path,
    cgroups: &Hierarchies,
) -> Result<(i32, Vec<String>)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).at("creating a socket")?;
    // The client sets the limits of the pod's cgroup.
    cgroups.create(&spec.cgroup)?;
    let group = cgroups.entry(&spec.cgroup)?;
    let pid =
        match sys::fork_in(flags(spec), group.as_ref().map(|fd| fd.as_fd())).at("creating the sandbox's namespaces")? {
            Fork::Child => {
                drop(ours);
                title::set("tiphys: pause", pod);
                run_pause(spec, directory, cgroups, theirs)
            }
            Fork::Parent(pid) => pid,
        };
    drop(theirs);
    let ready = wait_until_ready(spec, pid, &ours);
    match ready {
        Ok(warnings) => Ok((pid, warnings)),
        Err(error) => {
            let _ = sys::kill(pid, libc::SIGKILL);
            sys::wait(pid);
            Err(error)
        }
    }
}

/// Writes the ID maps, which has to be done from outside, and waits until the sandbox is ready.
fn wait_until_ready(spec: &SandboxSpec, pid: i32, socket: &OwnedFd) -> Result<Vec<String>> {
    if let Some(maps) = &spec.userns {
        userns::write_maps(pid, maps)?;
        ipc::send(socket, &(), &[]).at("notifying the sandbox of its ID maps")?;
    }
    match ipc::receive::<Report>(socket).at("receiving from the sandbox")? {
        Some((Report::Ready { warnings }, _)) => Ok(warnings),
        Some((Report::Failed(reason), _)) => crate::error::refused(reason),
        None => crate::error::refused("the pause process exited before the sandbox was ready"),
    }
}

fn flags(spec: &SandboxSpec) -> i32 {
    let mut flags = libc::CLONE_NEWNS;
    for (wanted, flag) in [
        (spec.network, libc::CLONE_NEWNET),
        (spec.hostname.is_some(), libc::CLONE_NEWUTS),
        (spec.ipc, libc::CLONE_NEWIPC),
        (spec.pid, libc::CLONE_NEWPID),
        (spec.userns.is_some(), libc::CLONE_NEWUSER),
    ] {
        flags |= if wanted { flag } else { 0 };
    }
    flags
}

fn run_pause(spec: &SandboxSpec, directory: &Path, cgroups: &Hierarchies, socket: OwnedFd) -> ! {
    // The sandbox's root has no /proc.
    let maps = std::fs::File::open("/proc/self/maps");
    match set_up(spec, directory, cgroups, &socket) {
        Ok(warnings) => {
            let _ = ipc::send(&socket, &Report::Ready { warnings }, &[]);
        }
        Err(error) => {
            let _ = ipc::send(&socket, &Report::Failed(error.to_string()), &[]);
            sys::exit(1);
        }
    }
    let heap = maps.ok().and_then(find_heap).unwrap_or(0..0);
    sys::pause_without_heap(heap)
}

/// The mapping that holds what this process has allocated.
fn find_heap(mut maps: std::fs::File) -> Option<std::ops::Range<usize>> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut maps, &mut text).ok()?;
    mapping_of(text.as_ptr().addr(), &text)
}

/// The mapping of `/proc/PID/maps` that holds an address: lines such as `7f00-7f10 rw-p ...`.
fn mapping_of(address: usize, maps: &str) -> Option<std::ops::Range<usize>> {
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let parse = |text: &str| usize::from_str_radix(text, 16).ok();
        let range = parse(start)?..parse(end)?;
        (rest.starts_with("rw-p") && range.contains(&address)).then_some(range)
    })
}

fn set_up(spec: &SandboxSpec, directory: &Path, cgroups: &Hierarchies, socket: &OwnedFd) -> Result<Vec<String>> {
    sys::reset_signals();
    sys::ignore_children();
    cgroups.join_v1(&spec.cgroup)?;
    if let Some(score) = spec.oom_score_adj {
        process::set_oom_score(score)?;
    }
    // Only the host's root may open it, which this process still is, although it is in its user namespace.
    let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("opening {}", directory.display()))?;
    if spec.userns.is_some() {
        ipc::receive::<()>(socket).at("waiting for the ID maps")?;
        userns::become_root()?;
    }
    sys::set_dumpable(false).at("making the process non-dumpable")?;
    if let Some(hostname) = &spec.hostname {
        rustix::system::sethostname(hostname.as_bytes()).context(|| format!("setting the hostname {hostname:?}"))?;
    }
    if spec.network {
        sys::loopback_up().at("bringing lo up")?;
    }
    let mut warnings = Vec::new();
    for (name, value) in &spec.default_sysctls {
        // The sysctl is only a default: on a machine that does not allow it, pods run without it.
        warnings.extend(set_sysctl(name, value).err().map(|error| error.to_string()));
    }
    for (name, value) in &spec.sysctls {
        set_sysctl(name, value)?;
    }
    create_root(spec, &directory)?;
    sys::capset(CapSets::default()).at("dropping capabilities")?;
    Ok(warnings)
}

fn set_sysctl(name: &str, value: &str) -> Result<()> {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&file, value).context(|| format!("setting the sysctl {name}={value}"))
}

/// Creates a root without any files of the host: with shared memory, and the directory for containers' roots.
fn create_root(spec: &SandboxSpec, directory: &OwnedFd) -> Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("detaching mount propagation from the host")?;
    let small = [("mode", "755"), ("size", "64k"), ("nr_inodes", "64")];
    let root = mounts::kernel("tmpfs", &small, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    mounts::attach(&root, directory).at("mounting the sandbox's root")?;
    for name in [SHM, ROOT, DEVICES, "/sys"] {
        rustix::fs::mkdirat(&root, &name[1..], Mode::from(0o755)).context(|| format!("creating {name}"))?;
    }
    let below = |path: &str| format!("/proc/self/fd/{}{path}", root.as_raw_fd());
    let size = spec.shm_bytes.to_string();
    let flags =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let shm = if spec.ipc {
        mounts::kernel("tmpfs", &[("mode", "1777"), ("size", &size)], flags)?
    } else {
        let flags = rustix::mount::OpenTreeFlags::OPEN_TREE_CLONE | rustix::mount::OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(CWD, "/dev/shm", flags).at("opening the host's /dev/shm")?
    };
    mounts::attach_path(&shm, &below(SHM))?;
    if spec.userns.is_some() {
        attach_sysfs_and_devices(&below)?;
    }
    init::pivot(root.as_fd())
}

/// Attaches what a user namespace can neither create nor mount by itself.
fn attach_sysfs_and_devices(below: &dyn Fn(&str) -> String) -> Result<()> {
    let flags =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounts::attach_path(mounts::kernel("sysfs", &[], flags)?, &below("/sys"))?;
    let directory = below(DEVICES);
    std::fs::create_dir(format!("{directory}/dev")).at("creating the devices' directory")?;
    for name in DEFAULT_DEVICES {
        let path = format!("{directory}/dev/{name}");
        std::fs::write(&path, "").context(|| format!("creating {path}"))?;
        let flags = rustix::mount::OpenTreeFlags::OPEN_TREE_CLONE | rustix::mount::OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let device =
            rustix::mount::open_tree(CWD, format!("/dev/{name}"), flags).context(|| format!("opening /dev/{name}"))?;
        mounts::attach_path(&device, &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_private_mapping_of_an_address() {
        let maps = "1000-2000 r--p 00000000 00:00 0 /bin/x\n2000-3000 rw-p 00000000 00:00 0\n3000-4000 rw-s 0 0 0\n";
        let check = |address, want| assert_eq!(mapping_of(address, maps), want, "{address:x}");
        check(0x1fff, None);
        check(0x2000, Some(0x2000..0x3000));
        check(0x2fff, Some(0x2000..0x3000));
        check(0x3000, None);
        assert_eq!(mapping_of(0x2000, "no maps"), None);
        let own = find_heap(std::fs::File::open("/proc/self/maps").unwrap()).unwrap();
        assert!(!own.is_empty());
    }
}
