//! Progress of pulls and imports.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use stdx::sync::Mutex;

use super::digest::Digest;

/// Receives progress events. It is called often and from several threads, so it must not block.
pub trait Progress: Send + Sync {
    fn report(&self, event: Event<'_>);
}

/// A step of a pull or an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The image is resolved, with its number of layers and their total size.
    Resolved {
        digest: &'a Digest,
        layers: usize,
        bytes: u64,
    },
    /// A layer is already in the store.
    Present {
        layer: &'a Digest,
    },
    /// The downloaded bytes of a layer. They decrease if the download starts over.
    Bytes {
        layer: &'a Digest,
        done: u64,
        size: u64,
    },
    Downloaded {
        layer: &'a Digest,
    },
    /// The bytes of an archive that were read; `all` is 0 if its size is unknown.
    Read {
        done: u64,
        all: u64,
    },
    Unpacked {
        layer: &'a Digest,
    },
}

/// Ignores all events.
pub struct NoProgress;

impl Progress for NoProgress {
    fn report(&self, _: Event<'_>) {}
}

/// The summary of a pull, for one line of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub layers: usize,
    pub bytes: u64,
    pub layers_unpacked: usize,
    done: BTreeMap<Digest, u64>,
    /// The bytes of an archive, which is read completely before its layers are unpacked.
    read: u64,
}

impl Summary {
    /// Adds an event.
    pub fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Resolved { layers, bytes, .. } => {
                (self.layers, self.bytes, self.layers_unpacked, self.read) = (layers, bytes, 0, 0);
                self.done.clear();
            }
            Event::Bytes { layer, done, .. } => drop(self.done.insert(layer.clone(), done)),
            Event::Present { .. } | Event::Unpacked { .. } => self.layers_unpacked += 1,
            Event::Read { done, all } => (self.read, self.bytes) = (done, all),
            Event::Downloaded { .. } => {}
        }
    }

    /// The bytes that were downloaded or read.
    pub fn bytes_done(&self) -> u64 {
        self.read + self.done.values().sum::<u64>()
    }

    /// The summary as text.
    pub fn line(&self) -> String {
        let (done, all) = (megabytes(self.bytes_done()), megabytes(self.bytes));
        match (self.layers, self.bytes) {
            (0, 0) => format!("{done} MB read"),
            (0, _) => format!("{done} of {all} MB read"),
            _ => format!("{done} of {all} MB, {} of {} layers unpacked", self.layers_unpacked, self.layers),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// Writes progress to standard error: one changing line on a terminal, plain lines otherwise.
pub struct ProgressLines {
    name: String,
    terminal: bool,
    state: Mutex<(Summary, Option<Instant>)>,
}

impl ProgressLines {
    /// Lines about the image or archive with this name.
    pub fn new(name: &str) -> ProgressLines {
        let terminal = std::io::stderr().is_terminal();
        ProgressLines { name: name.to_owned(), terminal, state: Mutex::new((Summary::default(), None)) }
    }

    /// Clears the changing line.
    pub fn finish(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Milestones are always shown, bytes only now and then.
    fn is_due(&self, event: Event<'_>, last: Option<Instant>) -> bool {
        let pause = Duration::from_millis(if self.terminal { 100 } else { 5000 });
        let due = last.is_none_or(|last| last.elapsed() >= pause);
        match event {
            Event::Bytes { .. } | Event::Read { .. } => due,
            _ => !self.terminal || due,
        }
    }
}

impl Progress for ProgressLines {
    fn report(&self, event: Event<'_>) {
        let mut state = self.state.lock();
        state.0.add(event);
        if !self.is_due(event, state.1) {
            return;
        }
        state.1 = Some(Instant::now());
        let line = state.0.line();
        let mut out = std::io::stderr();
        // A closed standard error must not abort a pull.
        let _ = match (self.terminal, event) {
            (true, _) => write!(out, "\r\x1b[K{}: {line}", self.name),
            (false, Event::Resolved { digest, layers, bytes }) => {
                writeln!(out, "{}: {digest}, {layers} layers, {} MB", self.name, megabytes(bytes))
            }
            (false, Event::Present { layer }) => writeln!(out, "{layer}: already present"),
            (false, Event::Downloaded { layer }) => writeln!(out, "{layer}: downloaded"),
            (false, Event::Unpacked { layer }) => writeln!(out, "{layer}: unpacked; {line}"),
            (false, Event::Bytes { .. } | Event::Read { .. }) => writeln!(out, "{}: {line}", self.name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_up_events() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut sum = Summary::default();
        sum.add(Event::Resolved { digest: &a, layers: 2, bytes: 3_000_000 });
        sum.add(Event::Bytes { layer: &a, done: 900_000, size: 1_000_000 });
        sum.add(Event::Bytes { layer: &a, done: 500_000, size: 1_000_000 });
        sum.add(Event::Present { layer: &b });
        assert_eq!(sum.line(), "0.5 of 3.0 MB, 1 of 2 layers unpacked");
    }

    #[test]
    fn reads_an_archive_before_unpacking_its_images() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut sum = Summary::default();
        sum.add(Event::Read { done: 1_500_000, all: 0 });
        assert_eq!(sum.line(), "1.5 MB read", "of standard input");
        sum.add(Event::Read { done: 2_000_000, all: 4_000_000 });
        assert_eq!(sum.line(), "2.0 of 4.0 MB read");
        for image in [&a, &b] {
            sum.add(Event::Resolved { digest: image, layers: 1, bytes: 1_000_000 });
            sum.add(Event::Bytes { layer: image, done: 1_000_000, size: 1_000_000 });
            sum.add(Event::Unpacked { layer: image });
            assert_eq!(sum.line(), "1.0 of 1.0 MB, 1 of 1 layers unpacked");
        }
    }
}
