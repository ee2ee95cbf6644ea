//! The process that shims are forked from.
//!
//! It is this same program, run anew through a read-only view of its own file: single-threaded and small, so that
//! a fork of it costs little, and so that no container can ever write the program it came from through
//! `/proc/self/exe`. The agent itself has many threads and never forks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use stdx::sync::{Mutex, MutexGuard};

use crate::error::{Context, Error, Result};
use crate::sys::{self, Attributes, Fork};
use crate::{shim, title, wire};
use cgroup::Hierarchies;

/// The subcommand under which the program becomes a zygote.
pub const COMMAND: &str = "runtime-zygote";

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    directory: PathBuf,
    pod: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Forked(std::result::Result<i32, String>);

/// The agent's hand on its zygote. Dropping it ends the zygote; its shims live on. One that is killed is followed by
/// another.
pub struct Zygote {
    cgroup: String,
    current: Mutex<Current>,
}

struct Current {
    socket: OwnedFd,
    child: Child,
}

/// What came of an order.
enum Failure {
    /// Nobody has heard it.
    NotSent(Error),
    /// It may have been carried out.
    NotAnswered(Error),
    Refused(Error),
}

impl Zygote {
    /// It lives in the shims' cgroup, so that none of them has to move there.
    pub fn start(cgroup: &str) -> Result<Zygote> {
        Ok(Zygote { cgroup: cgroup.to_string(), current: Mutex::new(Current::start(cgroup)?) })
    }

    pub fn pid(&self) -> u32 {
        self.current().child.id()
    }

    /// Ends the process. No shim can be forked after that.
    pub fn end(&self) {
        let mut current = self.current();
        let _ = current.child.kill();
        let _ = current.child.wait();
    }

    /// Forks a shim that serves `listener`, for the pod of this name whose state is in `directory`.
    pub fn fork_shim(&self, directory: &Path, pod: &str, listener: OwnedFd) -> Result<i32> {
        let order = Order { directory: directory.to_path_buf(), pod: pod.to_string() };
        let mut current = self.current();
        match current.order(&order, &listener) {
            Ok(pid) => Ok(pid),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::NotAnswered(error)) => {
                *current = Current::start(&self.cgroup)?;
                Err(error)
            }
            Err(Failure::NotSent(_)) => {
                *current = Current::start(&self.cgroup)?;
                current.order(&order, &listener).map_err(Failure::error)
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock()
    }
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Failure::NotSent(error) | Failure::NotAnswered(error) | Failure::Refused(error) => error,
        }
    }
}

impl Current {
    fn start(cgroup: &str) -> Result<Current> {
        let program = sealed_self()?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .at("making the zygote's socket")?;
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg(COMMAND)
            .arg(cgroup)
            .arg("-".repeat(title::ROOM))
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()
            .at("starting the zygote")?;
        let current = Current { socket: ours, child };
        current.heard().map_err(Failure::error)?;
        Ok(current)
    }

    fn order(&self, order: &Order, listener: &OwnedFd) -> std::result::Result<i32, Failure> {
        let sent = wire::send(&self.socket, order, &[listener.as_fd()]).at("asking the zygote for a shim");
        sent.map_err(Failure::NotSent)?;
        self.heard()
    }

    fn heard(&self) -> std::result::Result<i32, Failure> {
        let heard = wire::receive::<Forked>(&self.socket).at("hearing from the zygote");
        match heard.map_err(Failure::NotAnswered)? {
            Some((Forked(Ok(pid)), _)) => Ok(pid),
            Some((Forked(Err(reason)), _)) => crate::error::refused(reason).map_err(Failure::Refused),
            None => crate::error::refused("the zygote is gone").map_err(Failure::NotAnswered),
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program's file over a mount of its own that is read-only and in nobody's reach.
fn sealed_self() -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, "/proc/self/exe", flags)
        .at("opening this program's file (pods need root; tiphys up --disable-agent runs without)")?;
    let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    sys::mount_setattr(mount.as_fd(), &readonly).at("making this program's file read-only")?;
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at("opening this program's file")
}

/// The zygote's whole life: a fork for each order, until the agent is gone.
pub fn main() -> std::process::ExitCode {
    let cgroup = std::env::args().nth(2).unwrap_or_default();
    // The arguments are not read again: forks write their names over them.
    title::set("tiphys: zygote", "");
    let _ = sys::set_dumpable(false);
    sys::ignore_children();
    let socket = io::stdin();
    let settled = settle(&cgroup).map(|()| 0).map_err(|error| error.to_string());
    let failed = settled.is_err();
    if wire::send(socket.as_fd(), &Forked(settled), &[]).is_err() || failed {
        return std::process::ExitCode::FAILURE;
    }
    loop {
        match wire::receive::<Order>(socket.as_fd()) {
            Ok(Some((order, mut files))) => {
                let answer = match files.pop() {
                    Some(listener) => fork_shim(order, listener),
                    None => Err("no listener came with the order".into()),
                };
                if wire::send(socket.as_fd(), &Forked(answer), &[]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => break,
        }
    }
    std::process::ExitCode::SUCCESS
}

fn settle(cgroup: &str) -> Result<()> {
    let cgroups = Hierarchies::detect()?;
    cgroups.create(cgroup)?;
    Ok(cgroups.join(cgroup)?)
}

fn fork_shim(order: Order, listener: OwnedFd) -> std::result::Result<i32, String> {
    match sys::fork(0) {
        Ok(Fork::Child) => sys::exit(shim::main(&order.directory, &order.pod, listener)),
        Ok(Fork::Parent(pid)) => Ok(pid),
        Err(error) => Err(format!("forking a shim: {error}")),
    }
}
