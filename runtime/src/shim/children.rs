//! Starts containers and execs, and handles their exits.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::log::{Log, Stream, Timestamp};
use super::protocol::{self, Event, Exit, Reply, Start};
use super::stdio::{Output, Stdio};
use super::{Container, Exec, RequestId, Shim, State};
use crate::container::handler;
use crate::container::init::{self, ProcessContext, Report, Streams};
use crate::container::user::User;
use crate::error::{Context, Error, Result, refused};
use crate::ipc;
use crate::spec::{ContainerSpec, PidMode};
use crate::sys::{self, ExitedChild, Fork};

impl Shim {
    pub(super) fn start(&mut self, start: Start, request_id: RequestId) -> Result<()> {
        if self.containers.contains_key(&start.container) {
            return refused(format!("container {:?} was already started", start.container));
        }
        let (mut stdio, streams) = streams(&start)?;
        if let Some(path) = &start.log_path {
            let log = Log::open(path).context(|| format!("opening the log {}", path.display()))?;
            stdio.log = Some(log);
        }
        let target = self.target(&start.pid)?;
        let (report, theirs) = report_pair()?;
        let flags = if start.pid == PidMode::Container && start.handler.is_none() { libc::CLONE_NEWPID } else { 0 };
        // An OCI runtime enters the PID namespace by itself.
        let entered = if start.handler.is_some() { None } else { target.as_ref() };
        let holder = init::process_of(self.pause)?;
        let group = match &start.handler {
            // An OCI runtime moves its container into the cgroup by itself.
            Some(_) => None,
            None => {
                self.cgroups.create(&start.cgroup)?;
                self.cgroups.entry(&start.cgroup)?
            }
        };
        let pid = match self.fork_into(entered, flags, group)? {
            Fork::Child => {
                let context = ProcessContext {
                    cgroups: &self.cgroups,
                    holder: &holder,
                    holder_pid: self.pause,
                    pids: target.as_ref(),
                    report: &theirs,
                    streams,
                };
                self.child_container(&start, context)
            }
            Fork::Parent(pid) => pid,
        };
        let container = Container {
            pid,
            state: State::Starting { report, request_id, warnings: Vec::new() },
            stdio,
            cgroup: start.cgroup,
            shares_pids: start.pid != PidMode::Container,
            user: User::default(),
            started_at: 0,
        };
        self.containers.insert(start.container, container);
        Ok(())
    }

    fn child_container(&self, start: &Start, context: ProcessContext) -> ! {
        match self.read_spec(&start.container) {
            Ok(spec) => match &start.handler {
                Some(program) => {
                    handler::create_container(&spec, program, &self.directory.join(&start.container), context)
                }
                None => init::become_container(&spec, context),
            },
            Err(error) => {
                let _ = ipc::send(context.report, &Report::Failed(error.to_string()), &[]);
                sys::exit(127)
            }
        }
    }

    fn read_spec(&self, container: &str) -> Result<ContainerSpec> {
        let path = self.directory.join(container).join(protocol::SPEC_FILE);
        let text = std::fs::read(&path).context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).map_err(std::io::Error::from).context(|| format!("reading {}", path.display()))
    }

    /// The PID namespace that a container joins. No child is reaped in the meantime, so that the pids of the pause process
    /// and of a running container cannot be reused.
    fn target(&self, mode: &PidMode) -> Result<Option<OwnedFd>> {
        let pid = match mode {
            PidMode::Container | PidMode::Node => return Ok(None),
            PidMode::Pod => self.pause,
            PidMode::Target(name) => match self.containers.get(name) {
                Some(Container { pid, state: State::Running, .. }) => *pid,
                _ => return refused(format!("the target container {name:?} is not running")),
            },
        };
        super::namespace(pid, "pid").map(Some)
    }

    /// Forks a child into this PID namespace.
    fn fork_into(&self, target: Option<&OwnedFd>, flags: i32, group: Option<OwnedFd>) -> Result<Fork> {
        if let Some(target) = target {
            sys::setns(target.as_fd(), libc::CLONE_NEWPID).at("entering the process namespace")?;
        }
        let forked = sys::fork_in(flags, group.as_ref().map(|fd| fd.as_fd()));
        if target.is_some() && !matches!(forked, Ok(Fork::Child)) {
            sys::setns(self.own_pid_namespace.as_fd(), libc::CLONE_NEWPID).at("leaving the process namespace")?;
        }
        forked.at("forking")
    }

    pub(super) fn exec(&mut self, exec: protocol::Exec, files: Vec<OwnedFd>, request_id: RequestId) -> Result<()> {
        let (holder_pid, group) = match self.containers.get(&exec.container) {
            Some(Container { pid, state: State::Running, cgroup, .. }) => (*pid, self.cgroups.entry(cgroup)?),
            _ => return refused(format!("container {:?} is not running", exec.container)),
        };
        let streams = exec_streams(&exec, files)?;
        let (report, theirs) = report_pair()?;
        let holder = init::process_of(holder_pid)?;
        let pids = super::namespace(holder_pid, "pid")?;
        let pid = match self.fork_into(Some(&pids), 0, group)? {
            Fork::Child => {
                let spec = match self.read_spec(&exec.container) {
                    Ok(spec) => spec,
                    Err(error) => {
                        let _ = ipc::send(&theirs, &Report::Failed(error.to_string()), &[]);
                        sys::exit(127)
                    }
                };
                let process = exec.process(&spec.process);
                {
                    let cgroups = &self.cgroups;
                    let context =
                        ProcessContext { cgroups, holder: &holder, holder_pid, pids: None, report: &theirs, streams };
                    init::become_exec(&spec, &process, context)
                }
            }
            Fork::Parent(pid) => pid,
        };
        let connection = request_id.0;
        let exec = Exec { name: exec.exec, report: Some((report, request_id)), started: None, code: None, connection };
        self.execs.insert(pid, exec);
        Ok(())
    }

    /// The report socket was closed without an error: the program runs.
    pub(super) fn started(&mut self, name: &str) {
        let Some(container) = self.containers.get_mut(name) else { return };
        let State::Starting { request_id, warnings, .. } = std::mem::replace(&mut container.state, State::Running)
        else {
            return;
        };
        container.started_at = Timestamp::now().0;
        let reply = Reply::Started {
            pid: container.pid,
            started_at: container.started_at,
            user: container.user.clone(),
            warnings,
        };
        let pid = container.pid;
        self.reply(request_id, reply, &[]);
        if let Some(at) = self.orphans.iter().position(|o| o.pid == pid) {
            let ended = self.orphans.swap_remove(at);
            self.container_ended(name, &ended);
        }
        if !self.containers.values().any(|c| matches!(c.state, State::Starting { .. })) {
            self.orphans.clear();
        }
    }

    pub(super) fn start_failed(&mut self, name: &str, reason: String) {
        // The process exits by itself, and is reaped as an unknown child.
        let Some(container) = self.containers.remove(name) else { return };
        if let State::Starting { request_id, .. } = container.state {
            self.reply(request_id, Reply::Failed(reason), &[]);
        }
    }

    pub(super) fn read_exec_report(&mut self, pid: i32) {
        let Some(exec) = self.execs.get_mut(&pid) else { return };
        let Some((report, request_id)) = &exec.report else { return };
        let request_id = *request_id;
        match ipc::receive::<Report>(report) {
            Ok(Some((Report::Ready { user, warnings }, files))) => {
                exec.started = Some((user, warnings, files.into_iter().next()));
            }
            Ok(Some((Report::Adopt { .. }, _))) => {}
            Ok(Some((Report::Failed(reason), _))) => {
                exec.report = None;
                self.reply(request_id, Reply::Failed(reason), &[]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => {
                exec.report = None;
                let started = exec.started.take();
                let code = exec.code;
                self.exec_started(pid, request_id, started);
                if let Some(code) = code {
                    self.exec_ended(pid, code);
                }
            }
        }
    }

    fn exec_started(&mut self, pid: i32, request_id: RequestId, started: Option<(User, Vec<String>, Option<OwnedFd>)>) {
        let Some((user, warnings, terminal)) = started else {
            return self.reply(request_id, Reply::Failed("the process exited before its program ran".into()), &[]);
        };
        let reply = Reply::Started { pid, started_at: Timestamp::now().0, user, warnings };
        self.reply(request_id, reply, &terminal.iter().collect::<Vec<_>>());
    }

    fn exec_ended(&mut self, pid: i32, code: i32) {
        let Some(exec) = self.execs.remove(&pid) else { return };
        let event = Event::ExecExit { exec: exec.name, code };
        if let Some(connection) = self.connections.get(&exec.connection) {
            let _ = ipc::send(&connection.socket, &protocol::Message::Event(event), &[]);
        }
    }

    /// Handles a reaped child: the pause process, a container's init process, an exec, or an orphaned descendant.
    pub(super) fn ended(&mut self, ended: ExitedChild) {
        if ended.pid == self.pause {
            self.pause = 0;
            self.pause_network = None;
            return self.publish(&Event::SandboxExit);
        }
        if let Some(exec) = self.execs.get_mut(&ended.pid) {
            exec.code = Some(ended.code);
            while self.execs.get(&ended.pid).is_some_and(|e| e.report.is_some()) {
                self.read_exec_report(ended.pid);
            }
            return self.exec_ended(ended.pid, ended.code);
        }
        let found = self.containers.iter().find(|(_, c)| c.pid == ended.pid && !matches!(c.state, State::Ended(_)));
        match found.map(|(name, _)| name.clone()) {
            Some(name) => self.container_ended(&name, &ended),
            // The process may be the init process of a container that an OCI runtime has not reported yet.
            None if self.containers.values().any(|c| matches!(c.state, State::Starting { .. })) => {
                self.orphans.push(ended);
            }
            None => {}
        }
    }

    fn container_ended(&mut self, name: &str, ended: &ExitedChild) {
        // The process may have exited before its report was read.
        while matches!(self.containers.get(name).map(|c| &c.state), Some(State::Starting { .. })) {
            self.read_report(name);
        }
        // If another pid was adopted in the meantime, this was only the process that ran the OCI runtime.
        let same = |c: &&mut Container| c.pid == ended.pid && !matches!(c.state, State::Ended(_));
        let Some(container) = self.containers.get_mut(name).filter(same) else { return };
        if container.shares_pids {
            self.cgroups.kill(&container.cgroup);
        }
        container.stdio.close_input();
        container.stdio.drain(&mut self.buffer, &mut self.entries);
        let exit = Exit {
            code: ended.code,
            oom: self.cgroups.oom_kills(&container.cgroup) > 0,
            started_at: container.started_at,
            finished_at: Timestamp::now().0,
        };
        container.state = State::Ended(exit.clone());
        self.record(name, &exit);
        self.publish(&Event::ContainerExit { container: name.to_string(), exit });
    }
}

fn report_pair() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).at("creating a socket")?;
    rustix::io::ioctl_fionbio(&ours, true).at("creating a socket")?;
    Ok((ours, theirs))
}

/// The pipes of a container without a terminal: the shim's ends, and the container's.
fn streams(start: &Start) -> Result<(Stdio, Option<Streams>)> {
    let mut stdio = Stdio::new(start.stdin_once);
    if start.terminal {
        return Ok((stdio, None));
    }
    let pair = || pipe_with(PipeFlags::CLOEXEC).at("creating a pipe");
    let ((stdout, to_stdout), (stderr, to_stderr)) = (pair()?, pair()?);
    let mut stdin = None;
    if start.stdin {
        let (from_stdin, input) = pair()?;
        rustix::io::ioctl_fionbio(&input, true).at("creating a pipe")?;
        stdio.stdin = Some(input);
        stdin = Some(from_stdin);
    }
    for (fd, stream) in [(stdout, Stream::Stdout), (stderr, Stream::Stderr)] {
        rustix::io::ioctl_fionbio(&fd, true).at("creating a pipe")?;
        stdio.outputs.push(Output::new(fd, stream));
    }
    Ok((stdio, Some(Streams { stdin, stdout: to_stdout, stderr: to_stderr })))
}

fn exec_streams(exec: &protocol::Exec, files: Vec<OwnedFd>) -> Result<Option<Streams>> {
    if exec.terminal {
        return Ok(None);
    }
    let [stdin, stdout, stderr]: [OwnedFd; 3] = files
        .try_into()
        .map_err(|_| Error::Refused("an exec without a terminal needs three file descriptors".into()))?;
    Ok(Some(Streams { stdin: Some(stdin), stdout, stderr }))
}

/// Uses the terminal as the container's input and output.
pub(super) fn take_terminal(stdio: &mut Stdio, terminal: OwnedFd) {
    let _ = rustix::io::ioctl_fionbio(&terminal, true);
    if let Ok(copy) = terminal.try_clone() {
        stdio.outputs.push(Output::new(copy, Stream::Stdout));
    }
    stdio.terminal = Some(terminal);
}
