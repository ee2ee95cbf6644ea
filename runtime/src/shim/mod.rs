//! A pod's shim: one small process with one thread that owns the pod's pause, its containers' streams, logs and
//! exit codes. It is forked from the zygote, lives outside the agent's cgroup and outlives the agent.

mod children;
mod events;
pub mod log;
pub mod pause;
pub mod protocol;
mod stdio;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::container::user::User;
use crate::error::{Context, Error, Result, refused};
use crate::{private, sys, title, wire};
use cgroup::Hierarchies;
use log::Stream;
use protocol::{Answer, Attached, Call, ContainerState, Event, Exit, Reply, Request, Target};
use stdio::Stdio;

/// Which request an answer belongs to: a connection's number and its own.
type Asker = (u64, u64);

struct Shim {
    directory: PathBuf,
    /// `NAMESPACE/POD`, for people who look at processes.
    pod: String,
    cgroups: Hierarchies,
    listener: OwnedFd,
    signals: OwnedFd,
    /// Our own process namespace, to come back to after a fork into another.
    own_pids: OwnedFd,
    pause: i32,
    pause_network: Option<OwnedFd>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<i32, Exec>,
    /// Ended children that nobody knew, while a container is being started by another program.
    orphans: Vec<sys::Ended>,
    stopping: Option<Asker>,
    buffer: Vec<u8>,
    entries: Vec<u8>,
}

struct Connection {
    socket: OwnedFd,
    watching: bool,
}

/// A container from its fork on.
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
    Starting { report: OwnedFd, asker: Asker, warnings: Vec<String> },
    Running,
    Ended(Exit),
}

/// A process executed in a container. Its streams are the agent's.
struct Exec {
    name: String,
    report: Option<(OwnedFd, Asker)>,
    started: Option<(User, Vec<String>, Option<OwnedFd>)>,
    /// Ended before its report was read.
    code: Option<i32>,
    connection: u64,
}

/// The shim's whole life. The code is the process's.
pub fn main(directory: &Path, pod: &str, listener: OwnedFd) -> i32 {
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
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).at("becoming a reaper")?;
        let cgroups = Hierarchies::detect()?;
        // Losing the shim is losing the pod: it should be the last to go. Without the right to say so it may go.
        let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
        let own_pids = rustix::fs::open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .at("opening the process namespace")?;
        Ok(Shim {
            directory: directory.to_path_buf(),
            pod: pod.to_string(),
            cgroups,
            listener,
            signals: sys::child_signals().at("waiting for children")?,
            own_pids,
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

    fn answer(&mut self, asker: Asker, reply: Reply, files: &[&OwnedFd]) {
        let files: Vec<_> = files.iter().map(|fd| fd.as_fd()).collect();
        if let Some(connection) = self.connections.get(&asker.0) {
            // A caller that is gone, or does not read, hears nothing.
            let _ = wire::send(&connection.socket, &Answer::Reply { id: asker.1, reply }, &files);
        }
    }

    fn tell(&mut self, event: &Event) {
        for connection in self.connections.values().filter(|c| c.watching) {
            let _ = wire::send(&connection.socket, &Answer::Event(event.clone()), &[]);
        }
    }

    /// Carries a request out. What takes time answers later, from the loop.
    fn handle(&mut self, connection: u64, request: Request, files: Vec<OwnedFd>) {
        let asker = (connection, request.id);
        let result = match request.call {
            Call::Start(start) => self.start(start, asker).map(|()| None),
            Call::Exec(exec) => self.exec(exec, files, asker).map(|()| None),
            Call::Stop => self.stop(asker).map(|()| None),
            Call::Socket { ipv6 } => match self.socket(ipv6) {
                Ok(socket) => return self.answer(asker, Reply::Done, &[&socket]),
                Err(error) => Err(error),
            },
            call => self.handle_now(connection, call, files).map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(reply)) => self.answer(asker, reply, &[]),
            Err(error) => self.answer(asker, Reply::Failed(error.to_string()), &[]),
        }
    }

    fn handle_now(&mut self, connection: u64, call: Call, files: Vec<OwnedFd>) -> Result<Reply> {
        match call {
            Call::Sandbox(spec) => {
                if self.pause != 0 {
                    return refused("the sandbox is already there");
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
                return refused("this is answered elsewhere");
            }
        }
        Ok(Reply::Done)
    }

    fn container(&mut self, name: &str) -> Result<&mut Container> {
        let gone = || Error::Refused(format!("container {name:?} is not running"));
        self.containers.get_mut(name).filter(|c| !matches!(c.state, State::Ended(_))).ok_or_else(gone)
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

    fn attach(&mut self, name: &str, streams: &[Attached], files: Vec<OwnedFd>) -> Result<()> {
        if streams.len() != files.len() {
            return refused("each stream needs its file");
        }
        let stdio = &mut self.container(name)?.stdio;
        for (stream, fd) in streams.iter().zip(files) {
            rustix::io::ioctl_fionbio(&fd, true).at("attaching")?;
            match stream {
                Attached::Stdin => stdio.inputs.push(fd),
                Attached::Stdout => stdio.listen(fd, Stream::Stdout),
                Attached::Stderr => stdio.listen(fd, Stream::Stderr),
            }
        }
        Ok(())
    }

    /// A socket that stays in the pod's network, whoever holds it.
    fn socket(&mut self, ipv6: bool) -> Result<OwnedFd> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let network = self.pause_network.as_ref().ok_or_else(|| Error::Refused("the sandbox is gone".into()))?;
        let own = rustix::fs::open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .at("opening the network namespace")?;
        sys::setns(network.as_fd(), libc::CLONE_NEWNET).at("entering the pod's network")?;
        let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let made = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
        sys::setns(own.as_fd(), libc::CLONE_NEWNET).at("leaving the pod's network")?;
        made.at("making a socket in the pod's network")
    }

    /// Ends all processes; the answer comes when the last one is reaped.
    fn stop(&mut self, asker: Asker) -> Result<()> {
        self.stopping = Some(asker);
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

    /// Writes how a container ended, so that an agent that comes later knows.
    fn record(&self, name: &str, exit: &Exit) {
        let directory = self.directory.join(name);
        let temporary = directory.join("exit.new");
        let text = serde_json::to_vec(exit).unwrap_or_default();
        if private::write(&temporary, &text).is_ok() {
            let _ = std::fs::rename(&temporary, directory.join(protocol::EXIT_FILE));
        }
    }
}

fn namespace(pid: i32, kind: &str) -> Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/{kind}");
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(|| format!("opening {path}"))
}
