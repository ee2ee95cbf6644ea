//! A container's streams: its output goes to its log and to attached clients, and their input goes to the container.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::log::{Lines, Log, Stream, Timestamp};

/// How much is read at once. A pipe holds four times this.
pub(super) const CHUNK: usize = 16 << 10;
/// How much input is buffered for a container that does not read.
const MAX_INPUT: usize = 64 << 10;

/// An output stream of the container.
pub(super) struct Output {
    pub fd: OwnedFd,
    pub stream: Stream,
    lines: Lines,
}

impl Output {
    pub(super) fn new(fd: OwnedFd, stream: Stream) -> Output {
        Output { fd, stream, lines: Lines::default() }
    }
}

/// A client that is attached to an output stream.
pub(super) struct Listener {
    pub fd: OwnedFd,
    pub stream: Stream,
    waiting: VecDeque<u8>,
}

/// The outcome of a read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Moved,
    Blocked,
    Ended,
}

/// The streams of a container.
#[derive(Default)]
pub(super) struct Stdio {
    pub outputs: Vec<Output>,
    pub listeners: Vec<Listener>,
    /// The inputs of attached clients.
    pub inputs: Vec<OwnedFd>,
    /// The container's standard input: a pipe, or the terminal.
    pub stdin: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    pub stdin_once: bool,
    pub log: Option<Log>,
    waiting_input: VecDeque<u8>,
}

impl Stdio {
    pub(super) fn new(stdin_once: bool) -> Stdio {
        Stdio { stdin_once, ..Stdio::default() }
    }

    pub(super) fn listen(&mut self, fd: OwnedFd, stream: Stream) {
        self.listeners.push(Listener { fd, stream, waiting: VecDeque::new() });
    }

    /// While a listener is behind, nothing more is read: the container blocks, as with a slow terminal.
    pub(super) fn stalled(&self) -> bool {
        self.listeners.iter().any(|l| !l.waiting.is_empty())
    }

    pub(super) fn input_full(&self) -> bool {
        self.waiting_input.len() >= MAX_INPUT
    }

    pub(super) fn has_waiting_input(&self) -> bool {
        !self.waiting_input.is_empty()
    }

    /// Moves one chunk of an output. Removes an output that ended.
    pub(super) fn pump_output(&mut self, index: usize, buffer: &mut [u8], entries: &mut Vec<u8>) -> Progress {
        let output = &mut self.outputs[index];
        let progress = match rustix::io::read(&output.fd, &mut *buffer) {
            Ok(0) => Progress::Ended,
            Ok(length) => {
                entries.clear();
                output.lines.push(&buffer[..length], output.stream, Timestamp::now(), entries);
                if let Some(log) = &mut self.log {
                    log.write(entries);
                }
                let stream = output.stream;
                self.send_to_listeners(stream, &buffer[..length]);
                return Progress::Moved;
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Blocked,
            // Reading from a terminal without any process on the other end fails.
            Err(_) => Progress::Ended,
        };
        if progress == Progress::Ended {
            self.end_output(index, entries);
        }
        progress
    }

    fn end_output(&mut self, index: usize, entries: &mut Vec<u8>) {
        let mut output = self.outputs.remove(index);
        entries.clear();
        output.lines.end(output.stream, Timestamp::now(), entries);
        if let Some(log) = &mut self.log {
            log.write(entries);
        }
        if self.outputs.iter().all(|o| o.stream != output.stream) {
            self.listeners.retain(|l| l.stream != output.stream || !l.waiting.is_empty());
        }
    }

    fn send_to_listeners(&mut self, stream: Stream, data: &[u8]) {
        for listener in self.listeners.iter_mut().filter(|l| l.stream == stream) {
            listener.waiting.extend(data);
        }
        self.flush_listeners();
    }

    /// Writes buffered data to listeners. Drops listeners that have disconnected, and those that have received everything
    /// of a stream that has ended, whose clients wait for the end of file.
    pub(super) fn flush_listeners(&mut self) {
        let outputs = &self.outputs;
        self.listeners.retain_mut(|l| {
            let progress = write_from(&l.fd, &mut l.waiting);
            let has_more = !l.waiting.is_empty() || outputs.iter().any(|output| output.stream == l.stream);
            progress != Progress::Ended && has_more
        });
    }

    /// Reads input of a client.
    pub(super) fn pump_input(&mut self, index: usize, buffer: &mut [u8]) -> Progress {
        match rustix::io::read(&self.inputs[index], &mut *buffer) {
            Ok(0) => {
                self.inputs.remove(index);
                if self.stdin_once && self.waiting_input.is_empty() {
                    self.stdin = None;
                }
                Progress::Ended
            }
            Ok(length) => {
                self.waiting_input.extend(&buffer[..length]);
                self.flush_input();
                Progress::Moved
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Blocked,
            Err(_) => {
                self.inputs.remove(index);
                Progress::Ended
            }
        }
    }

    pub(super) fn flush_input(&mut self) {
        let Some(target) = self.stdin.as_ref().or(self.terminal.as_ref()) else {
            self.waiting_input.clear();
            return;
        };
        let gone = write_from(target, &mut self.waiting_input) == Progress::Ended;
        if gone || (self.stdin_once && self.inputs.is_empty() && self.waiting_input.is_empty()) {
            self.stdin = None;
            self.waiting_input.clear();
        }
    }

    /// The container exited: reads its remaining output.
    pub(super) fn drain(&mut self, buffer: &mut [u8], entries: &mut Vec<u8>) {
        let mut index = 0;
        while index < self.outputs.len() {
            match self.pump_output(index, buffer, entries) {
                Progress::Moved | Progress::Ended => {}
                Progress::Blocked => index += 1,
            }
        }
    }

    pub(super) fn close_input(&mut self) {
        self.inputs.clear();
        self.stdin = None;
        self.waiting_input.clear();
    }
}

fn write_from(fd: impl AsFd, waiting: &mut VecDeque<u8>) -> Progress {
    while !waiting.is_empty() {
        match rustix::io::write(&fd, waiting.as_slices().0) {
            Ok(written) => drop(waiting.drain(..written)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Progress::Blocked,
            Err(_) => return Progress::Ended,
        }
    }
    waiting.shrink_to(0);
    Progress::Moved
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
    }

    /// The number of bytes in a pipe, and whether it has ended.
    fn read_all(from: &OwnedFd) -> (usize, bool) {
        let (mut buffer, mut sum) = ([0; 4096], 0);
        loop {
            match rustix::io::read(from, &mut buffer) {
                Ok(0) => return (sum, true),
                Ok(length) => sum += length,
                Err(_) => return (sum, false),
            }
        }
    }

    #[test]
    fn a_slow_client_gets_all_output_and_then_end_of_file() {
        let ((from_container, container), (client, listener)) = (pipe(), pipe());
        let mut stdio = Stdio::new(false);
        stdio.outputs.push(Output::new(from_container, Stream::Stdout));
        stdio.listen(listener, Stream::Stdout);
        let (mut buffer, mut entries, mut written) = (vec![0; CHUNK], Vec::new(), 0);
        while !stdio.stalled() {
            written += rustix::io::write(&container, &[b'x'; CHUNK]).unwrap();
            stdio.pump_output(0, &mut buffer, &mut entries);
        }
        drop(container);
        stdio.drain(&mut buffer, &mut entries);
        assert!(stdio.outputs.is_empty() && stdio.stalled(), "the container has ended, the client is behind");
        let (first, ended) = read_all(&client);
        assert!(!ended);
        stdio.flush_listeners();
        let (rest, ended) = read_all(&client);
        assert_eq!((first + rest, ended), (written, true));
        assert!(stdio.listeners.is_empty());
    }

    #[test]
    fn an_idle_client_stays_attached_while_the_container_runs() {
        let ((from_container, _container), (client, listener)) = (pipe(), pipe());
        let mut stdio = Stdio::new(false);
        stdio.outputs.push(Output::new(from_container, Stream::Stderr));
        stdio.listen(listener, Stream::Stderr);
        stdio.flush_listeners();
        assert_eq!((stdio.listeners.len(), read_all(&client)), (1, (0, false)));
    }
}
