//! The shim's event loop, which waits for all descriptors with one poll.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::protocol::{Message, Reply, Request};
use super::stdio::{Progress, Stdio};
use super::{Connection, Shim, State};
use crate::container::init::Report;
use crate::error::{Context, Result};
use crate::{ipc, sys};

/// A descriptor that became ready.
#[derive(Clone, Debug)]
enum Ready {
    Listener,
    Signals,
    Connection(u64),
    Report(String),
    ExecReport(i32),
    Output(String, usize),
    Input(String, usize),
    /// A descriptor that buffered data can be written to.
    Flush(String),
}

impl Shim {
    pub(super) fn serve(&mut self) -> Result<()> {
        loop {
            for ready in self.wait()? {
                self.step(ready);
            }
            if let Some(request_id) = self.stopping.filter(|_| self.all_ended()) {
                self.reply(request_id, Reply::Done, &[]);
                return Ok(());
            }
        }
    }

    /// A pod has only a few descriptors, so the list is built for each poll, and cannot become stale.
    fn wait(&mut self) -> Result<Vec<Ready>> {
        let mut what = Vec::new();
        let mut fds: Vec<PollFd> = Vec::new();
        let mut add = |ready: Ready, fd: &OwnedFd, flags: PollFlags| {
            what.push(ready);
            // `wait` borrows `self`, so that no descriptor is closed before the poll returns.
            fds.push(PollFd::from_borrowed_fd(borrow(fd), flags));
        };
        add(Ready::Signals, &self.signals, PollFlags::IN);
        add(Ready::Listener, &self.listener, PollFlags::IN);
        for (number, connection) in &self.connections {
            add(Ready::Connection(*number), &connection.socket, PollFlags::IN);
        }
        for (pid, exec) in &self.execs {
            if let Some((report, _)) = &exec.report {
                add(Ready::ExecReport(*pid), report, PollFlags::IN);
            }
        }
        for (name, container) in &self.containers {
            if let State::Starting { report, .. } = &container.state {
                add(Ready::Report(name.clone()), report, PollFlags::IN);
            }
            watch_streams(name, &container.stdio, &mut add);
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).at("waiting for events"),
        }
        let happened = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
        let mut ready: Vec<_> = what.into_iter().zip(happened).filter(|(_, h)| *h).map(|(w, _)| w).collect();
        // Higher indexes first, because a stream that ended is removed from its list.
        ready.reverse();
        Ok(ready)
    }

    fn step(&mut self, ready: Ready) {
        match ready {
            Ready::Listener => self.accept(),
            Ready::Signals => self.reap(),
            Ready::Connection(number) => self.receive_request(number),
            Ready::Report(name) => self.read_report(&name),
            Ready::ExecReport(pid) => self.read_exec_report(pid),
            Ready::Output(name, index) => {
                if let Some(container) = self.containers.get_mut(&name)
                    && index < container.stdio.outputs.len()
                {
                    container.stdio.pump_output(index, &mut self.buffer, &mut self.entries);
                }
            }
            Ready::Input(name, index) => {
                if let Some(container) = self.containers.get_mut(&name)
                    && index < container.stdio.inputs.len()
                    && container.stdio.pump_input(index, &mut self.buffer) == Progress::Ended
                {
                    container.stdio.flush_input();
                }
            }
            Ready::Flush(name) => {
                if let Some(container) = self.containers.get_mut(&name) {
                    container.stdio.flush_input();
                    container.stdio.flush_listeners();
                }
            }
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else { return };
        self.connections.insert(self.next_connection, Connection { socket, watching: false });
        self.next_connection += 1;
    }

    fn receive_request(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match ipc::receive::<Request>(&connection.socket) {
            Ok(Some((request, files))) => self.handle(number, request, files),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let reply = Reply::Failed(format!("invalid message: {error}"));
                let _ = ipc::send(&connection.socket, &Message::Reply { id: 0, reply }, &[]);
            }
            Ok(None) | Err(_) => {
                self.connections.remove(&number);
            }
        }
    }

    fn reap(&mut self) {
        let mut record = [0u8; 128];
        while rustix::io::read(&self.signals, &mut record).is_ok() {}
        while let Some(ended) = sys::reap() {
            self.ended(ended);
        }
    }

    pub(super) fn read_report(&mut self, name: &str) {
        let Some(container) = self.containers.get_mut(name) else { return };
        let State::Starting { report, warnings, .. } = &mut container.state else { return };
        match ipc::receive::<Report>(&*report) {
            Ok(Some((Report::Ready { user, warnings: reported }, files))) => {
                container.user = user;
                *warnings = reported;
                if let Some(terminal) = files.into_iter().next() {
                    super::children::take_terminal(&mut container.stdio, terminal);
                }
            }
            Ok(Some((Report::Adopt { pid, user, warnings: reported }, _))) => {
                (container.pid, container.user) = (pid, user);
                *warnings = reported;
            }
            Ok(Some((Report::Failed(reason), _))) => self.start_failed(name, reason),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => self.started(name),
        }
    }
}

/// Watches outputs unless a listener is behind, inputs unless the container is, and descriptors with buffered data.
fn watch_streams(name: &str, stdio: &Stdio, add: &mut impl FnMut(Ready, &OwnedFd, PollFlags)) {
    if stdio.stalled() {
        for listener in &stdio.listeners {
            add(Ready::Flush(name.into()), &listener.fd, PollFlags::OUT);
        }
    } else {
        for (index, output) in stdio.outputs.iter().enumerate() {
            add(Ready::Output(name.into(), index), &output.fd, PollFlags::IN);
        }
    }
    if !stdio.input_full() {
        for (index, input) in stdio.inputs.iter().enumerate() {
            add(Ready::Input(name.into(), index), input, PollFlags::IN);
        }
    }
    if let Some(target) = stdio.stdin.as_ref().or(stdio.terminal.as_ref()).filter(|_| stdio.has_waiting_input()) {
        add(Ready::Flush(name.into()), target, PollFlags::OUT);
    }
}

/// Detaches the lifetime of the descriptor: the list exists only within one `wait`, which borrows the shim.
fn borrow<'a>(fd: &OwnedFd) -> std::os::fd::BorrowedFd<'a> {
    use std::os::fd::{AsRawFd, BorrowedFd};
    // SAFETY: `wait` borrows the shim until the list is dropped, and closes nothing in the meantime.
    unsafe { BorrowedFd::borrow_raw(fd.as_fd().as_raw_fd()) }
}
