//! The shim's loop: it waits for all descriptors at once, and for nothing else.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::protocol::{Answer, Reply, Request};
use super::stdio::{Progress, Stdio};
use super::{Connection, Shim, State};
use crate::container::init::Report;
use crate::error::{Context, Result};
use crate::{sys, wire};

/// What became ready.
#[derive(Clone, Debug)]
enum Ready {
    Listener,
    Signals,
    Connection(u64),
    Report(String),
    ExecReport(i32),
    Output(String, usize),
    Input(String, usize),
    /// Someone is ready to take what waits for them.
    Flush(String),
}

impl Shim {
    pub(super) fn serve(&mut self) -> Result<()> {
        loop {
            for ready in self.wait()? {
                self.step(ready);
            }
            if let Some(asker) = self.stopping.filter(|_| self.all_ended()) {
                self.answer(asker, Reply::Done, &[]);
                return Ok(());
            }
        }
    }

    /// A pod has a handful of descriptors, so they are asked for anew each time: no second list to keep true.
    fn wait(&mut self) -> Result<Vec<Ready>> {
        let mut what = Vec::new();
        let mut fds: Vec<PollFd> = Vec::new();
        let mut add = |ready: Ready, fd: &OwnedFd, flags: PollFlags| {
            what.push(ready);
            // SAFETY of lifetimes is the borrow of `self` below: nothing is closed before the poll returns.
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
        // A later index must be handled first: an ended stream is taken out of its list.
        ready.reverse();
        Ok(ready)
    }

    fn step(&mut self, ready: Ready) {
        match ready {
            Ready::Listener => self.accept(),
            Ready::Signals => self.reap(),
            Ready::Connection(number) => self.hear(number),
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

    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match wire::receive::<Request>(&connection.socket) {
            Ok(Some((request, files))) => self.handle(number, request, files),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let reply = Reply::Failed(format!("the message is not understood: {error}"));
                let _ = wire::send(&connection.socket, &Answer::Reply { id: 0, reply }, &[]);
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
        match wire::receive::<Report>(&*report) {
            Ok(Some((Report::Ready { user, warnings: said }, files))) => {
                container.user = user;
                *warnings = said;
                if let Some(terminal) = files.into_iter().next() {
                    super::children::take_terminal(&mut container.stdio, terminal);
                }
            }
            Ok(Some((Report::Adopt { pid, user, warnings: said }, _))) => {
                (container.pid, container.user) = (pid, user);
                *warnings = said;
            }
            Ok(Some((Report::Failed(reason), _))) => self.start_failed(name, reason),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => self.started(name),
        }
    }
}

/// Outputs unless someone is behind; inputs unless the container is; and whoever something waits for.
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

/// Ties the descriptor's lifetime to no one: the list lives only within one `wait`, which holds all of them.
fn borrow<'a>(fd: &OwnedFd) -> std::os::fd::BorrowedFd<'a> {
    use std::os::fd::{AsRawFd, BorrowedFd};
    // SAFETY: `wait` borrows the shim until the list is gone, and closes nothing meanwhile.
    unsafe { BorrowedFd::borrow_raw(fd.as_fd().as_raw_fd()) }
}
