//! A container made by an OCI runtime's program instead of by our own hands.
//!
//! A child of the shim puts the root together in a mount namespace of its own, lets the program create and start the
//! container, tells the shim its first process, and ends; that process then belongs to the shim.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, mount_change};

use super::init::{self, Place, Report};
use super::rootfs::Root;
use super::{mounts, process, user};
use crate::error::{Context, Result, refused};
use crate::spec::{ContainerSpec, Source};
use crate::sys;
use crate::{oci, private, wire};

/// Runs in the new process and never returns.
pub fn make(spec: &ContainerSpec, program: &Path, bundle: &Path, place: Place) -> ! {
    let report = place.report;
    match drive(spec, program, bundle, &place) {
        Ok(ready) => {
            let _ = wire::send(report, &ready, &[]);
            sys::exit(0)
        }
        Err(error) => {
            let _ = wire::send(report, &Report::Failed(error.to_string()), &[]);
            sys::exit(127)
        }
    }
}

fn drive(spec: &ContainerSpec, program: &Path, bundle: &Path, place: &Place) -> Result<Report> {
    sys::set_name("tiphys:handler");
    sys::reset_signals();
    place.cgroups.create(&spec.cgroup.path)?;
    let ready = process::prepare(&crate::spec::ProcessSpec { seccomp: None, ..spec.process.clone() })?;
    let own = open("/proc/self/ns/mnt")?;
    let opened = mounts::open(spec, place.cgroups, None)?;
    sys::unshare(libc::CLONE_NEWNS).at("making a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).at("parting from the host")?;
    drop(own);
    let rootfs = bundle.join("rootfs");
    fs::create_dir_all(&rootfs).context(|| format!("making {}", rootfs.display()))?;
    mounts::attach_path(&opened.root, &rootfs.to_string_lossy())?;
    put_mounts(spec, bundle, opened, place.holder)?;
    let root = Root::new(open_directory(&rootfs)?);
    let user = user::resolve(&spec.process.user, &root.read("/etc/passwd")?, &root.read("/etc/group")?)?;
    let joined = Joined::open(spec, place)?;
    let config = oci::config(
        spec,
        &oci::Place {
            bundle,
            namespaces: &joined.paths,
            uid: user.uid,
            gid: user.gid,
            groups: &user.groups,
            home: user.home.as_deref().unwrap_or("/"),
        },
    )?;
    private::write(&bundle.join("config.json"), config.to_string().as_bytes()).at("writing config.json")?;
    run(program, bundle, &["create", "--bundle", ".", "--pid-file", "pid"], &spec.id, place)?;
    run(program, bundle, &["start"], &spec.id, place)?;
    let pid = fs::read_to_string(bundle.join("pid")).at("reading the container's pid")?;
    match pid.trim().parse() {
        Ok(pid) => Ok(Report::Adopt { pid, user, warnings: ready.warnings }),
        Err(_) => refused(format!("{} wrote no pid", program.display())),
    }
}

/// The pod's namespaces, opened before the program runs: a path through a pid could lead to another process by then.
struct Joined {
    paths: oci::Namespaces,
    /// The program reaches them through this process's descriptors.
    _open: Vec<OwnedFd>,
}

impl Joined {
    fn open(spec: &ContainerSpec, place: &Place) -> Result<Joined> {
        let mut open = Vec::new();
        let mut path = |wanted: bool, kind: &str| -> Result<Option<PathBuf>> {
            if !wanted {
                return Ok(None);
            }
            let fd = init::namespace_of(place.holder, place.holder_pid, kind)?;
            let path = path_of(&fd);
            open.push(fd);
            Ok(Some(path))
        };
        let paths = oci::Namespaces {
            network: path(spec.network, "net")?,
            uts: path(spec.network, "uts")?,
            ipc: path(spec.ipc, "ipc")?,
            pid: place.pids.map(path_of),
        };
        Ok(Joined { paths, _open: open })
    }
}

fn path_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()))
}

fn open(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(|| format!("opening {path}"))
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("opening {}", path.display()))
}

/// The pod's shared memory and images' files, where the program is told to find them.
fn put_mounts(spec: &ContainerSpec, bundle: &Path, opened: mounts::Opened, pause: &OwnedFd) -> Result<()> {
    let trees = opened.into_trees();
    for (number, (mount, tree)) in spec.mounts.iter().zip(trees).enumerate() {
        let tree = match (&mount.source, tree) {
            (Source::Image { .. }, Some(tree)) => tree,
            (Source::Shm, _) => shm_of(pause)?,
            _ => continue,
        };
        let directory = bundle.join(oci::prepared(number));
        fs::create_dir_all(&directory).context(|| format!("making {}", directory.display()))?;
        mounts::attach_path(&tree, &directory.to_string_lossy())?;
    }
    Ok(())
}

/// It is in the sandbox's mount namespace: we look in, and come back.
fn shm_of(pause: &OwnedFd) -> Result<OwnedFd> {
    let own = open("/proc/self/ns/mnt")?;
    let directory = rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("opening the working directory")?;
    sys::setns(pause.as_fd(), libc::CLONE_NEWNS).at("entering the sandbox's mounts")?;
    let tree = mounts::shm();
    sys::setns(own.as_fd(), libc::CLONE_NEWNS).at("leaving the sandbox's mounts")?;
    rustix::process::fchdir(&directory).at("returning")?;
    tree
}

/// Its complaint is in its log; what it prints is the container's.
fn run(program: &Path, bundle: &Path, arguments: &[&str], id: &str, place: &Place) -> Result<()> {
    let stream = |fd: Option<&OwnedFd>| match fd.map(|fd| fd.try_clone()) {
        Some(Ok(fd)) => Stdio::from(fd),
        _ => Stdio::null(),
    };
    let streams = place.streams.as_ref();
    let status = Command::new(program)
        .args(["--root", "runtime-state", "--log", "runtime.log", "--log-format", "text"])
        .args(arguments)
        .arg(id)
        .current_dir(bundle)
        .stdin(stream(streams.and_then(|s| s.stdin.as_ref())))
        .stdout(stream(streams.map(|s| &s.stdout)))
        .stderr(stream(streams.map(|s| &s.stderr)))
        .status()
        .context(|| format!("running {}", program.display()))?;
    if status.success() {
        return Ok(());
    }
    let log = fs::read_to_string(bundle.join("runtime.log")).unwrap_or_default();
    refused(format!("{} {}: {}", program.display(), arguments[0], log.lines().last().unwrap_or("it failed")))
}
