//! The steps from the fork of a container's init process, or of an exec, to the program, in their required order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Pid, PidfdFlags, chdir, fchdir, pidfd_open, pivot_root};
use serde::{Deserialize, Serialize};

use super::mounts;
use super::process::{self, HostLookups};
use super::rootfs::{Kind, Root};
use super::sandbox_root;
use super::user::{self, User};
use crate::error::{Context, Error, Result};
use crate::spec::{ContainerSpec, ProcessSpec};
use crate::sys::{self, Attributes};
use crate::{devices, ipc, userns};
use cgroup::Hierarchies;

/// The reports of the new process to the shim. After `HostLookups` it closes the socket by executing the program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Everything is prepared, and the program is executed next. With a terminal, its master comes with the message.
    Ready {
        user: User,
        warnings: Vec<String>,
    },
    /// An OCI runtime created the container. The shim adopts its init process.
    Adopt {
        pid: i32,
        user: User,
        warnings: Vec<String>,
    },
    Failed(String),
}

/// The standard streams of a process without a terminal.
pub(crate) struct Streams {
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The surroundings in which a process is created.
pub(crate) struct ProcessContext<'a> {
    pub cgroups: &'a Hierarchies,
    /// The pidfd of the sandbox's pause process for a container's init process, or of the container's init process for an
    /// exec. It is opened before the fork, since the pid has no meaning in the new process's PID namespace.
    pub holder: &'a OwnedFd,
    pub holder_pid: i32,
    /// The PID namespace in which an OCI runtime has to create the container.
    pub pids: Option<&'a OwnedFd>,
    pub report: &'a OwnedFd,
    pub streams: Option<Streams>,
}

/// Runs in the forked process and never returns.
pub(crate) fn become_container(spec: &ContainerSpec, context: ProcessContext) -> ! {
    let report = context.report;
    finish(report, start_init(spec, context))
}

/// Runs in a forked process that joins a container, and never returns.
pub(crate) fn become_exec(spec: &ContainerSpec, process: &ProcessSpec, context: ProcessContext) -> ! {
    let report = context.report;
    finish(report, start_exec(spec, process, context))
}

fn finish(report: &OwnedFd, result: Result<std::convert::Infallible>) -> ! {
    let error = match result {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let _ = ipc::send(report, &Report::Failed(error.to_string()), &[]);
    sys::exit(127)
}

fn start_session() -> Result<()> {
    // Other processes of the pod must not read this process's memory while it is still the runtime's.
    sys::set_dumpable(false).at("making the process non-dumpable")?;
    sys::set_name("tiphys:init");
    sys::reset_signals();
    // The runtime disables huge pages for itself, but not for containers.
    let _ = sys::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
    rustix::process::setsid().at("starting a session")?;
    Ok(())
}

fn start_init(spec: &ContainerSpec, context: ProcessContext) -> Result<std::convert::Infallible> {
    start_session()?;
    let unlimited = context.cgroups.update(&spec.cgroup.path, &spec.cgroup.resources)?;
    devices::restrict(context.cgroups, &spec.cgroup.path, &spec.device_rules)?;
    context.cgroups.join_v1(&spec.cgroup.path)?;
    let mut ready = process::prepare(&spec.process)?;
    ready.warnings.extend(unlimited);
    let pod_userns =
        if spec.userns.is_some() { Some(namespace_of(context.holder, context.holder_pid, "user")?) } else { None };
    let opened = mounts::open(spec, context.cgroups, pod_userns.as_ref().map(|fd| fd.as_fd()))?;
    enter_pod(spec, context.holder)?;
    let root = build_root(spec, opened)?;
    let terminal = if spec.process.terminal { Some(terminal(&root)?) } else { None };
    mounts::mask(&root, &spec.masked_paths)?;
    mounts::make_readonly(&root, &spec.readonly_paths)?;
    let user = find_user(&spec.process, &root)?;
    process::enter_directory(&root, &spec.process.cwd)?;
    if spec.root.readonly {
        let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
        sys::mount_setattr(root.fd().as_fd(), &readonly).at("making the root read-only")?;
    }
    run(&spec.process, user, ready, terminal, context)
}

fn find_user(process: &ProcessSpec, root: &Root) -> Result<User> {
    user::resolve(&process.user, &root.read("/etc/passwd")?, &root.read("/etc/group")?)
}

/// Joins the sandbox's namespaces, and copies its mount namespace.
fn enter_pod(spec: &ContainerSpec, pause: &OwnedFd) -> Result<()> {
    let mut flags = libc::CLONE_NEWNS;
    for (joined, flag) in [
        (spec.network, libc::CLONE_NEWNET | libc::CLONE_NEWUTS),
        (spec.ipc, libc::CLONE_NEWIPC),
        (spec.userns.is_some(), libc::CLONE_NEWUSER),
    ] {
        flags |= if joined { flag } else { 0 };
    }
    sys::setns(pause.as_fd(), flags).at("joining the sandbox's namespaces")?;
    if spec.userns.is_some() {
        userns::become_root()?;
    }
    let cgroup = if spec.cgroup_namespace { libc::CLONE_NEWCGROUP } else { 0 };
    sys::unshare(libc::CLONE_NEWNS | cgroup).at("creating the container's namespaces")
}

/// Opens a namespace of a process. The process must still exist after the open, since otherwise the pid may have been
/// reused.
pub(crate) fn namespace_of(holder: &OwnedFd, pid: i32, kind: &str) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/{kind}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = rustix::fs::open(&path, flags, Mode::empty()).context(|| format!("opening {path}"))?;
    if has_ended(holder).at("polling the process")? {
        return crate::error::refused(format!("process {pid} has exited"));
    }
    Ok(namespace)
}

fn has_ended(process: &OwnedFd) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map(|ready| ready > 0)
}

/// Opens a pidfd.
pub fn process_of(pid: i32) -> Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Error::Refused("the process has exited".into()))?;
    pidfd_open(pid, PidfdFlags::empty()).context(|| format!("opening the process {pid}"))
}

fn build_root(spec: &ContainerSpec, opened: mounts::OpenedMounts) -> Result<Root> {
    mounts::attach_path(&opened.root, sandbox_root::ROOT)?;
    let fd = rustix::fs::open(sandbox_root::ROOT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("opening the new root")?;
    let root = Root::new(fd);
    mounts::assemble(&root, spec, opened)?;
    pivot(root.fd().as_fd())?;
    Ok(root)
}

/// Makes a directory the root, and unmounts the old root.
pub fn pivot(root: BorrowedFd) -> Result<()> {
    let old = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("opening the old root")?;
    fchdir(root).at("entering the new root")?;
    pivot_root(".", ".").at("changing the root")?;
    // Both roots are mounted at the same path now. From within the old one, "." refers to it.
    fchdir(&old).at("entering the old root")?;
    mount_change(".", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .at("detaching mount propagation of the old root")?;
    unmount(".", UnmountFlags::DETACH).at("unmounting the old root")?;
    chdir("/").at("entering the root")
}

/// Both ends of a terminal of the container.
struct Terminal {
    master: OwnedFd,
    slave: OwnedFd,
}

fn open_terminal(root: &Root) -> Result<Terminal> {
    let master = root.open("/dev/pts/ptmx", OFlags::RDWR | OFlags::NOCTTY).at("opening a terminal in the container")?;
    rustix::pty::unlockpt(&master).at("unlocking the terminal")?;
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).at("opening the other end of the terminal")?;
    Ok(Terminal { master, slave })
}

fn terminal(root: &Root) -> Result<Terminal> {
    let terminal = open_terminal(root)?;
    let console = root.ensure("/dev/console", Kind::File)?;
    let view = mounts::clone_mount(&terminal.slave).at("opening the terminal as /dev/console")?;
    mounts::attach(&view, &console).at("mounting /dev/console")?;
    Ok(terminal)
}

/// Sets up the streams, reports to the shim, and executes the program.
fn run(
    process: &ProcessSpec,
    user: User,
    ready: HostLookups,
    terminal: Option<Terminal>,
    context: ProcessContext,
) -> Result<std::convert::Infallible> {
    let message = Report::Ready { user: user.clone(), warnings: ready.warnings.clone() };
    match (terminal, context.streams) {
        (Some(terminal), _) => {
            ipc::send(context.report, &message, &[terminal.master.as_fd()]).at("sending the terminal to the shim")?;
            if user.uid != 0 {
                let owner = rustix::fs::Uid::from_raw(user.uid);
                rustix::fs::fchown(&terminal.slave, Some(owner), None).at("giving the terminal to the user")?;
            }
            sys::set_controlling_terminal(terminal.slave.as_fd()).at("setting the controlling terminal")?;
            let slave = terminal.slave;
            set_streams(Some(slave.as_fd()), slave.as_fd(), slave.as_fd())?;
        }
        (None, Some(streams)) => {
            ipc::send(context.report, &message, &[]).at("reporting")?;
            set_streams(streams.stdin.as_ref().map(|fd| fd.as_fd()), streams.stdout.as_fd(), streams.stderr.as_fd())?;
        }
        (None, None) => return crate::error::refused("the process has no streams"),
    }
    rustix::process::umask(Mode::from(0o022));
    sys::close_on_exec_from(3).at("setting close-on-exec")?;
    process::confine(process, &user, &ready)?;
    Err(process::run(process, &user))
}

fn set_streams(stdin: Option<BorrowedFd>, stdout: BorrowedFd, stderr: BorrowedFd) -> Result<()> {
    let null;
    let stdin = match stdin {
        Some(fd) => fd,
        None => {
            null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .at("opening /dev/null")?;
            null.as_fd()
        }
    };
    for (number, fd) in [stdin, stdout, stderr].into_iter().enumerate() {
        sys::dup_onto(fd, number as i32).at("setting the standard streams")?;
    }
    Ok(())
}

fn start_exec(
    spec: &ContainerSpec,
    process: &ProcessSpec,
    context: ProcessContext,
) -> Result<std::convert::Infallible> {
    start_session()?;
    context.cgroups.join_v1(&spec.cgroup.path)?;
    let ready = process::prepare(process)?;
    let mut flags =
        libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWCGROUP;
    if spec.userns.is_some() {
        flags |= libc::CLONE_NEWUSER;
    }
    sys::setns(context.holder.as_fd(), flags).at("joining the container's namespaces")?;
    if spec.userns.is_some() {
        userns::become_root()?;
    }
    let fd = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("opening the container's root")?;
    let root = Root::new(fd);
    let user = find_user(process, &root)?;
    process::enter_directory(&root, &process.cwd)?;
    let terminal = if process.terminal { Some(open_terminal(&root)?) } else { None };
    run(process, user, ready, terminal, context)
}
