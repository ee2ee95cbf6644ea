//! The zygote, from which shims are forked.
//!
//! It is this same program, executed again through a read-only mount of its own file. It is single-threaded and small,
//! so that a fork is cheap, and no container can overwrite the program through `/proc/self/exe`. The runtime process
//! itself has many threads and never forks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use stdx::sync::{Mutex, MutexGuard};

use crate::error::{Context, Error, Result, refused};
use crate::sys::{self, Attributes, Fork};
use crate::{ipc, shim, title};
use cgroup::Hierarchies;

/// The subcommand that runs the zygote.
pub const COMMAND: &str = "runtime-zygote";

#[derive(Debug, Serialize, Deserialize)]
struct ForkRequest {
    directory: PathBuf,
    pod: String,
}

/// The process id of a shim, or why there is none; a text, because it is sent to another process.
#[derive(Debug, Serialize, Deserialize)]
struct ForkResponse(std::result::Result<i32, String>);

/// A handle to the zygote. Dropping it ends the zygote, but not its shims. A zygote that was killed is replaced.
pub struct Zygote {
    cgroup: String,
    current: Mutex<ZygoteProcess>,
}

struct ZygoteProcess {
    socket: OwnedFd,
    child: Child,
}

/// Why a request failed.
enum Failure {
    /// The zygote did not receive the request.
    NotSent(Error),
    /// The zygote may have executed the request.
    NoResponse(Error),
    Refused(Error),
}

impl Zygote {
    /// Starts the zygote in the cgroup of the shims, so that they do not have to be moved there.
    pub fn start(cgroup: &str) -> Result<Zygote> {
        Ok(Zygote { cgroup: cgroup.to_string(), current: Mutex::new(ZygoteProcess::start(cgroup)?) })
    }

    /// The pid of the zygote.
    pub fn pid(&self) -> u32 {
        self.current().child.id()
    }

    /// Ends the zygote. No shim can be forked after that.
    pub fn end(&self) {
        let mut current = self.current();
        let _ = current.child.kill();
        let _ = current.child.wait();
    }

    /// Forks a shim that serves `listener`, for the pod with this name, with its state in `directory`.
    pub fn fork_shim(&self, directory: &Path, pod: &str, listener: OwnedFd) -> Result<i32> {
        let request = ForkRequest { directory: directory.to_path_buf(), pod: pod.to_string() };
        let mut current = self.current();
        match current.request_fork(&request, &listener) {
            Ok(pid) => Ok(pid),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::NoResponse(error)) => {
                *current = ZygoteProcess::start(&self.cgroup)?;
                Err(error)
            }
            Err(Failure::NotSent(_)) => {
                *current = ZygoteProcess::start(&self.cgroup)?;
                current.request_fork(&request, &listener).map_err(Failure::error)
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, ZygoteProcess> {
        self.current.lock()
    }
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Failure::NotSent(error) | Failure::NoResponse(error) | Failure::Refused(error) => error,
        }
    }
}

impl ZygoteProcess {
    fn start(cgroup: &str) -> Result<ZygoteProcess> {
        let program = open_sealed_exe()?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .at("creating the zygote's socket")?;
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg(COMMAND)
            .arg(cgroup)
            .arg("-".repeat(title::RESERVED_BYTES))
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()
            .at("starting the zygote")?;
        let current = ZygoteProcess { socket: ours, child };
        current.receive_response().map_err(Failure::error)?;
        Ok(current)
    }

    fn request_fork(&self, request: &ForkRequest, listener: &OwnedFd) -> std::result::Result<i32, Failure> {
        let sent = ipc::send(&self.socket, request, &[listener.as_fd()]).at("requesting a shim from the zygote");
        sent.map_err(Failure::NotSent)?;
        self.receive_response()
    }

    fn receive_response(&self) -> std::result::Result<i32, Failure> {
        let received = ipc::receive::<ForkResponse>(&self.socket).at("receiving from the zygote");
        match received.map_err(Failure::NoResponse)? {
            Some((ForkResponse(Ok(pid)), _)) => Ok(pid),
            Some((ForkResponse(Err(reason)), _)) => crate::error::refused(reason).map_err(Failure::Refused),
            None => crate::error::refused("the zygote has exited").map_err(Failure::NoResponse),
        }
    }
}

impl Drop for ZygoteProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens this program's file through a detached read-only mount, which no other process can reach.
fn open_sealed_exe() -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, "/proc/self/exe", flags).at("opening this program's file (pods need root)")?;
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    sys::mount_setattr(mount.as_fd(), &readonly).at("making this program's file read-only")?;
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at("opening this program's file")
}

/// The `main` of the zygote: forks a shim for each request, until the runtime closes the socket.
pub fn main() -> std::process::ExitCode {
    let cgroup = std::env::args().nth(2).unwrap_or_default();
    // The arguments must not be read after this: forks overwrite them with their titles.
    title::set("tiphys: zygote", "");
    let _ = sys::set_dumpable(false);
    sys::ignore_children();
    let socket = io::stdin();
    let joined = join_cgroup(&cgroup).map(|()| 0).map_err(|error| error.to_string());
    let failed = joined.is_err();
    if ipc::send(socket.as_fd(), &ForkResponse(joined), &[]).is_err() || failed {
        return std::process::ExitCode::FAILURE;
    }
    loop {
        match ipc::receive::<ForkRequest>(socket.as_fd()) {
            Ok(Some((request, mut files))) => {
                let response = match files.pop() {
                    Some(listener) => fork_shim(request, listener),
                    None => refused("the request has no listener"),
                };
                let response = response.map_err(|error| error.to_string());
                if ipc::send(socket.as_fd(), &ForkResponse(response), &[]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => break,
        }
    }
    std::process::ExitCode::SUCCESS
}

fn join_cgroup(cgroup: &str) -> Result<()> {
    let cgroups = Hierarchies::detect()?;
    cgroups.create(cgroup)?;
    Ok(cgroups.join(cgroup)?)
}

fn fork_shim(request: ForkRequest, listener: OwnedFd) -> Result<i32> {
    match sys::fork(0).at("forking a shim")? {
        Fork::Child => sys::exit(shim::main(&request.directory, &request.pod, listener)),
        Fork::Parent(pid) => Ok(pid),
    }
}
