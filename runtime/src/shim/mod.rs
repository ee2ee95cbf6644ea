//! A pod's shim: one small single-threaded process that owns the pod's pause process and its containers' streams, logs
//! and exit codes. The shim is forked from the zygote, is outside of the runtime's cgroup, and outlives the runtime.

mod children;
mod events;
pub(crate) mod log;
pub(crate) mod pause;
pub(crate) mod protocol;
mod stdio;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::container::user::User;
use crate::error::{Context, Error, Result, refused};
use crate::{ipc, private, sys, title};
use cgroup::Hierarchies;
use log::Stream;
use protocol::{AttachedStream, Call, ContainerState, Event, Exit, Message, Reply, Request, Target};
use stdio::Stdio;
use stdx::fs::ReplaceOptions;

/// The request that a reply belongs to: the number of the connection, and the ID of the request.
type RequestId = (u64, u64);

struct Shim {
    directory: PathBuf,
    /// `NAMESPACE/POD`, for the process title.
    pod: String,
    cgroups: Hierarchies,
    listener: OwnedFd,
    signals: OwnedFd,
    /// The shim's own PID namespace, to return to after a fork into another one.
    own_pid_namespace: OwnedFd,
    pause: i32,
    pause_network: Option<OwnedFd>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<i32, Exec>,
    /// Exited children that were unknown while an OCI runtime is starting a container.
    orphans: Vec<sys::ExitedChild>,
    stopping: Option<RequestId>,
    buffer: Vec<u8>,
    entries: Vec<u8>,
}

struct Connection {
    socket: OwnedFd,
    watching: bool,
}

/// A container, from its fork on.
struct Container {
    pid: i32,
    state: State,
    stdio: Stdio,
    cgroup: String,
    shares_pids: bool,
    user: User,
    started_at: i64,
}

enum State {
    Starting { report: OwnedFd, request_id: RequestId, warnings: Vec<String> },
    Running,
    Ended(Exit),
}

/// An exec in a container. Its streams belong to the runtime.
struct Exec {
    name: String,
    report: Option<(OwnedFd, RequestId)>,
    started: Option<(User, Vec<String>, Option<OwnedFd>)>,
    /// Set if it exited before its report was read.
    code: Option<i32>,
    connection: u64,
}

/// The `main` of the shim. Returns the exit code.
pub(crate) fn main(directory: &Path, pod: &str, listener: OwnedFd) -> i32 {
    match Shim::begin(directory, pod, listener).and_then(|mut shim| shim.serve()) {
        Ok(()) => 0,
        Err(error) => {
            let _ = private::write(&directory.join("shim.error"), error.to_string().as_bytes());
            1
        }
    }
}

impl Shim {
    fn begin(directory: &Path, pod: &str, listener: OwnedFd) -> Result<Shim> {
        title::set("tiphys: shim", pod);
        sys::reset_signals();
        rustix::process::setsid().at("starting a session")?;
        let null =
            rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).at("opening /dev/null")?;
        for number in 0..3 {
            sys::dup_onto(&null, number).at("closing the standard streams")?;
        }
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).at("becoming a child subreaper")?;
        let cgroups = Hierarchies::detect()?;
        // The pod is lost with the shim, so it should be killed last. Without the capability, the score stays.
        let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
        let own_pid_namespace = rustix::fs::open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .at("opening the process namespace")?;
        Ok(Shim {
            directory: directory.to_path_buf(),
            pod: pod.to_string(),
            cgroups,
            listener,
            signals: sys::child_signals().at("blocking SIGCHLD")?,
            own_pid_namespace,
            pause: 0,
            pause_network: None,
            connections: BTreeMap::new(),
            next_connection: 1,
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            orphans: Vec::new(),
            stopping: None,
            buffer: vec![0; stdio::CHUNK],
            entries: Vec::new(),
        })
    }

    fn reply(&mut self, request_id: RequestId, reply: Reply, files: &[&OwnedFd]) {
        let files: Vec<_> = files.iter().map(|fd| fd.as_fd()).collect();
        if let Some(connection) = self.connections.get(&request_id.0) {
            // A client that has disconnected, or does not read, misses the reply.
            let _ = ipc::send(&connection.socket, &Message::Reply { id: request_id.1, reply }, &files);
        }
    }

    fn publish(&mut self, event: &Event) {
        for connection in self.connections.values().filter(|c| c.watching) {
            let _ = ipc::send(&connection.socket, &Message::Event(event.clone()), &[]);
        }
    }

    /// Handles a request. The reply to a long-running request is sent later, from the event loop.
    fn handle(&mut self, connection: u64, request: Request, files: Vec<OwnedFd>) {
        let request_id = (connection, request.id);
        let result = match request.call {
            Call::Start(start) => self.start(start, request_id).map(|()| None),
            Call::Exec(exec) => self.exec(exec, files, request_id).map(|()| None),
            Call::Stop => self.stop(request_id).map(|()| None),
            Call::Socket { ipv6 } => match self.socket(ipv6) {
                Ok(socket) => return self.reply(request_id, Reply::Done, &[&socket]),
                Err(error) => Err(error),
            },
            call => self.handle_now(connection, call, files).map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(request_id, reply, &[]),
            Err(error) => self.reply(request_id, Reply::Failed(error.to_string()), &[]),
        }
    }

    fn handle_now(&mut self, connection: u64, call: Call, files: Vec<OwnedFd>) -> Result<Reply> {
        match call {
            Call::Sandbox(spec) => {
                if self.pause != 0 {
                    return refused("the sandbox already exists");
                }
                let (pid, warnings) = pause::start(&spec, &self.pod, &self.directory, &self.cgroups)?;
                self.pause = pid;
                self.pause_network = namespace(pid, "net").ok();
                return Ok(Reply::Sandbox { pid, warnings });
            }
            Call::Status => return Ok(self.status()),
            Call::Watch => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.watching = true;
                }
            }
            Call::Signal { target, signal } => self.signal(target, signal)?,
            Call::KillAll { container } => {
                let container = self.container(&container)?;
                let (pid, cgroup) = (container.pid, container.cgroup.clone());
                let _ = sys::kill(pid, libc::SIGKILL);
                self.cgroups.kill(&cgroup);
            }
            Call::Attach { container, streams } => self.attach(&container, &streams, files)?,
            Call::Resize { container, width, height } => {
                let container = self.container(&container)?;
                let Some(terminal) = &container.stdio.terminal else {
                    return refused("the container has no terminal");
                };
                let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
                rustix::termios::tcsetwinsize(terminal, size).at("resizing the terminal")?;
            }
            Call::ReopenLog { container } => {
                if let Some(log) = &mut self.container(&container)?.stdio.log {
                    log.reopen().at("reopening the log")?;
                }
            }
            Call::Forget { container } => {
                if let Some(State::Ended(_)) = self.containers.get(&container).map(|c| &c.state) {
                    self.containers.remove(&container);
                }
            }
            Call::Start(_) | Call::Exec(_) | Call::Stop | Call::Socket { .. } => {
                return refused("not handled here");
            }
        }
        Ok(Reply::Done)
    }

    fn container(&mut self, name: &str) -> Result<&mut Container> {
        let exited = || Error::Refused(format!("container {name:?} is not running"));
        self.containers.get_mut(name).filter(|c| !matches!(c.state, State::Ended(_))).ok_or_else(exited)
    }

    fn status(&self) -> Reply {
        let containers = self.containers.iter().map(|(name, c)| ContainerState {
            container: name.clone(),
            pid: c.pid,
            started_at: c.started_at,
            user: c.user.clone(),
            exit: match &c.state {
                State::Ended(exit) => Some(exit.clone()),
                _ => None,
            },
        });
        Reply::Status { pause: self.pause, containers: containers.collect() }
    }

    fn signal(&mut self, target: Target, signal: i32) -> Result<()> {
        let pid = match &target {
            Target::Container(name) => self.container(name)?.pid,
            Target::Exec(name) => match self.execs.iter().find(|(_, e)| e.name == *name) {
                Some((pid, _)) => *pid,
                None => return refused(format!("exec {name:?} is not running")),
            },
        };
        sys::kill(pid, signal).context(|| format!("sending signal {signal}"))
    }

    fn attach(&mut self, name: &str, streams: &[AttachedStream], files: Vec<OwnedFd>) -> Result<()> {
        if streams.len() != files.len() {
            return refused("every stream needs a file descriptor");
        }
        let stdio = &mut self.container(name)?.stdio;
        for (stream, fd) in streams.iter().zip(files) {
            rustix::io::ioctl_fionbio(&fd, true).at("attaching a stream")?;
            match stream {
                AttachedStream::Stdin => stdio.inputs.push(fd),
                AttachedStream::Stdout => stdio.listen(fd, Stream::Stdout),
                AttachedStream::Stderr => stdio.listen(fd, Stream::Stderr),
            }
        }
        Ok(())
    }

    /// A socket in the pod's network namespace, where it stays.
    fn socket(&mut self, ipv6: bool) -> Result<OwnedFd> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let network = self.pause_network.as_ref().ok_or_else(|| Error::Refused("the sandbox has exited".into()))?;
        let own = rustix::fs::open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .at("opening the network namespace")?;
        sys::setns(network.as_fd(), libc::CLONE_NEWNET).at("entering the pod's network")?;
        let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let made = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
        sys::setns(own.as_fd(), libc::CLONE_NEWNET).at("leaving the pod's network")?;
        made.at("creating a socket in the pod's network")
    }

    /// Kills all processes. The reply is sent when the last one is reaped.
    fn stop(&mut self, request_id: RequestId) -> Result<()> {
        self.stopping = Some(request_id);
        let running = self.containers.values().filter(|c| !matches!(c.state, State::Ended(_)));
        for (pid, cgroup) in running.map(|c| (c.pid, c.cgroup.clone())).collect::<Vec<_>>() {
            let _ = sys::kill(pid, libc::SIGKILL);
            self.cgroups.kill(&cgroup);
        }
        for pid in self.execs.keys() {
            let _ = sys::kill(*pid, libc::SIGKILL);
        }
        if self.pause != 0 {
            let _ = sys::kill(self.pause, libc::SIGKILL);
        }
        Ok(())
    }

    fn all_ended(&self) -> bool {
        let ended = self.containers.values().all(|c| matches!(c.state, State::Ended(_)));
        ended && self.execs.is_empty() && self.pause == 0
    }

    /// Records the exit of a container on disk, for a runtime that starts later.
    fn record(&self, name: &str, exit: &Exit) {
        let directory = self.directory.join(name);
        let text = serde_json::to_vec(exit).unwrap_or_default();
        let _ = ReplaceOptions::PRIVATE.write(&directory.join(protocol::EXIT_FILE), &text);
    }
}

fn namespace(pid: i32, kind: &str) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/{kind}");
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(|| format!("opening {path}"))
}
