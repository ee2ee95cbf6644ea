//! Containers that an OCI runtime creates, for RuntimeClass handlers.
//!
//! A child of the shim assembles the root file system in its own mount namespace, and lets the OCI runtime create and
//! start the container. It reports the pid of the container's init process to the shim and exits; the shim adopts the
//! init process.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, mount_change};

use super::init::{self, ProcessContext, Report};
use super::rootfs::Root;
use super::{mounts, process, user};
use crate::error::{Context, Result, refused};
use crate::spec::{ContainerSpec, Source};
use crate::sys;
use crate::{ipc, oci, private};

/// Runs in the forked process and never returns.
pub(crate) fn create_container(spec: &ContainerSpec, program: &Path, bundle: &Path, context: ProcessContext) -> ! {
    let report = context.report;
    match run_handler(spec, program, bundle, &context) {
        Ok(ready) => {
            let _ = ipc::send(report, &ready, &[]);
            sys::exit(0)
        }
        Err(error) => {
            let _ = ipc::send(report, &Report::Failed(error.to_string()), &[]);
            sys::exit(127)
        }
    }
}

fn run_handler(spec: &ContainerSpec, program: &Path, bundle: &Path, context: &ProcessContext) -> Result<Report> {
    sys::set_name("tiphys:handler");
    sys::reset_signals();
    context.cgroups.create(&spec.cgroup.path)?;
    let ready = process::prepare(&crate::spec::ProcessSpec { seccomp: None, ..spec.process.clone() })?;
    let own = open("/proc/self/ns/mnt")?;
    let opened = mounts::open(spec, context.cgroups, None)?;
    sys::unshare(libc::CLONE_NEWNS).at("creating a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .at("detaching mount propagation from the host")?;
    drop(own);
    let rootfs = bundle.join("rootfs");
    fs::create_dir_all(&rootfs).context(|| format!("creating {}", rootfs.display()))?;
    mounts::attach_path(&opened.root, &rootfs.to_string_lossy())?;
    put_mounts(spec, bundle, opened, context.holder)?;
    let root = Root::new(open_directory(&rootfs)?);
    let user = user::resolve(&spec.process.user, &root.read("/etc/passwd")?, &root.read("/etc/group")?)?;
    let joined = SandboxNamespaces::open(spec, context)?;
    let config = oci::config(
        spec,
        &oci::ContainerContext {
            bundle,
            namespaces: &joined.paths,
            uid: user.uid,
            gid: user.gid,
            groups: &user.groups,
            home: user.home.as_deref().unwrap_or("/"),
        },
    )?;
    private::write(&bundle.join("config.json"), config.to_string().as_bytes()).at("writing config.json")?;
    run(program, bundle, &["create", "--bundle", ".", "--pid-file", "pid"], &spec.id, context)?;
    run(program, bundle, &["start"], &spec.id, context)?;
    let pid = fs::read_to_string(bundle.join("pid")).at("reading the container's pid")?;
    match pid.trim().parse() {
        Ok(pid) => Ok(Report::Adopt { pid, user, warnings: ready.warnings }),
        Err(_) => refused(format!("{} wrote no pid", program.display())),
    }
}

/// The namespaces of the sandbox. They are opened before the OCI runtime runs, since a path with a pid could refer to
/// another process by then.
struct SandboxNamespaces {
    paths: oci::Namespaces,
    /// Keeps the descriptors open through which the OCI runtime reaches the namespaces.
    _open: Vec<OwnedFd>,
}

impl SandboxNamespaces {
    fn open(spec: &ContainerSpec, context: &ProcessContext) -> Result<SandboxNamespaces> {
        let mut open = Vec::new();
        let mut path = |wanted: bool, kind: &str| -> Result<Option<PathBuf>> {
            if !wanted {
                return Ok(None);
            }
            let fd = init::namespace_of(context.holder, context.holder_pid, kind)?;
            let path = path_of(&fd);
            open.push(fd);
            Ok(Some(path))
        };
        let paths = oci::Namespaces {
            network: path(spec.network, "net")?,
            uts: path(spec.network, "uts")?,
            ipc: path(spec.ipc, "ipc")?,
            pid: context.pids.map(path_of),
        };
        Ok(SandboxNamespaces { paths, _open: open })
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

/// Attaches the pod's shared memory and the files of images where the configuration expects them.
fn put_mounts(spec: &ContainerSpec, bundle: &Path, opened: mounts::OpenedMounts, pause: &OwnedFd) -> Result<()> {
    let trees = opened.into_trees();
    for (number, (mount, tree)) in spec.mounts.iter().zip(trees).enumerate() {
        let tree = match (&mount.source, tree) {
            (Source::Image { .. }, Some(tree)) => tree,
            (Source::Shm, _) => shm_of(pause)?,
            _ => continue,
        };
        let directory = bundle.join(oci::prepared_directory(number));
        fs::create_dir_all(&directory).context(|| format!("creating {}", directory.display()))?;
        mounts::attach_path(&tree, &directory.to_string_lossy())?;
    }
    Ok(())
}

/// Enters the sandbox's mount namespace to open its shared memory, and returns.
fn shm_of(pause: &OwnedFd) -> Result<OwnedFd> {
    let own = open("/proc/self/ns/mnt")?;
    let directory = rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("opening the working directory")?;
    sys::setns(pause.as_fd(), libc::CLONE_NEWNS).at("entering the sandbox's mount namespace")?;
    let tree = mounts::shm();
    sys::setns(own.as_fd(), libc::CLONE_NEWNS).at("leaving the sandbox's mount namespace")?;
    rustix::process::fchdir(&directory).at("returning to the working directory")?;
    tree
}

/// The OCI runtime writes errors to its log. Standard output and standard error belong to the container.
fn run(program: &Path, bundle: &Path, arguments: &[&str], id: &str, context: &ProcessContext) -> Result<()> {
    let stream = |fd: Option<&OwnedFd>| match fd.map(|fd| fd.try_clone()) {
        Some(Ok(fd)) => Stdio::from(fd),
        _ => Stdio::null(),
    };
    let streams = context.streams.as_ref();
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
    refused(format!("{} {}: {}", program.display(), arguments[0], log.lines().last().unwrap_or("no error message")))
}
