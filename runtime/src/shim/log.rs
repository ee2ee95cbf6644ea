//! A container's log file in the CRI log format: timestamp, stream, tag for full or partial lines, text.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// A longer line is written as several partial entries.
const MAX_LINE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The beginning of a line that is not complete yet.
#[derive(Default)]
pub(crate) struct Lines {
    started: Vec<u8>,
}

impl Lines {
    /// Adds output of the process. Complete lines, and parts of overlong ones, are appended to `out`.
    pub(crate) fn push(&mut self, mut data: &[u8], stream: Stream, now: Timestamp, out: &mut Vec<u8>) {
        while !data.is_empty() {
            let room = MAX_LINE_BYTES - self.started.len();
            match data[..data.len().min(room + 1)].iter().position(|b| *b == b'\n') {
                Some(end) => {
                    entry(stream, now, 'F', &self.started, &data[..end], out);
                    self.started.clear();
                    data = &data[end + 1..];
                }
                None if data.len() >= room => {
                    entry(stream, now, 'P', &self.started, &data[..room], out);
                    self.started.clear();
                    data = &data[room..];
                }
                None => {
                    self.started.extend_from_slice(data);
                    data = &[];
                }
            }
        }
    }

    /// The stream ended. Text without a newline is a partial entry, so that readers do not add one.
    pub(crate) fn end(&mut self, stream: Stream, now: Timestamp, out: &mut Vec<u8>) {
        if !self.started.is_empty() {
            entry(stream, now, 'P', &self.started, &[], out);
        }
        self.started = Vec::new();
    }
}

fn entry(stream: Stream, now: Timestamp, tag: char, head: &[u8], tail: &[u8], out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{now} {} {tag} ", stream.name());
    out.extend_from_slice(head);
    out.extend_from_slice(tail);
    out.push(b'\n');
}

/// A timestamp in nanoseconds since 1970, displayed in the CRI log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp(pub i64);

impl Timestamp {
    pub(crate) fn now() -> Timestamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Timestamp(now.tv_sec * 1_000_000_000 + now.tv_nsec)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.0.div_euclid(1_000_000_000), self.0.rem_euclid(1_000_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
    }
}

/// The date of a day since 1970-01-01, computed with eras of 400 years that start in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, in_year - (153 * shifted + 2) / 5 + 1)
}

/// The log file. If the disk is full, entries are lost, but the container continues.
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
}

impl Log {
    pub(crate) fn open(path: &Path) -> io::Result<Log> {
        Ok(Log { path: path.to_path_buf(), file: Some(append(path)?) })
    }

    /// After a rotation: the old file keeps its new name, and a new file is created.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(append(&self.path)?);
        Ok(())
    }

    pub(crate) fn write(&mut self, entries: &[u8]) {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(entries);
        }
    }
}

/// Opens the log without following symlinks, and only if it is a regular file: pods with write access to the host's log
/// directory must not choose which file is appended to.
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat2(CWD, path, flags, Mode::from(0o640), ResolveFlags::NO_SYMLINKS)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other(format!("not a regular file but {kind:?}")));
    }
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_475_713_029_669_794_202);

    fn check(pieces: &[&[u8]], expected: &[(char, usize)]) {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, Stream::Stdout, AT, &mut out);
        }
        lines.end(Stream::Stdout, AT, &mut out);
        let text = String::from_utf8(out).unwrap();
        let got: Vec<_> = text
            .lines()
            .map(|line| {
                let rest = line.strip_prefix("2016-10-06T00:17:09.669794202Z stdout ").unwrap();
                (rest.chars().next().unwrap(), rest.len() - 2)
            })
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn splits_output_into_full_and_partial_lines() {
        let long = vec![b'x'; MAX_LINE_BYTES];
        check(&[b"one\ntwo\n"], &[('F', 3), ('F', 3)]);
        check(&[b"on", b"e\n\n"], &[('F', 3), ('F', 0)]);
        check(&[b"no newline"], &[('P', 10)]);
        check(&[&long, b"\n"], &[('P', MAX_LINE_BYTES), ('F', 0)]);
        check(&[&long, b"rest\n"], &[('P', MAX_LINE_BYTES), ('F', 4)]);
        check(&[&long, &long], &[('P', MAX_LINE_BYTES), ('P', MAX_LINE_BYTES)]);
        check(&[&[b"y\n", &long[..]].concat()], &[('F', 1), ('P', MAX_LINE_BYTES)]);
        check(&[&[&long[..], b"\n"].concat()], &[('F', MAX_LINE_BYTES)]);
    }

    #[test]
    fn refuses_symlinks_and_special_files() {
        let temporary = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(temporary.path()).unwrap();
        let at = |name: &str| base.join(name);
        std::fs::create_dir(at("pod")).unwrap();
        std::fs::write(at("victim"), "kept").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("pod/link.log")).unwrap();
        std::os::unix::fs::symlink(at("absent"), at("pod/dangling.log")).unwrap();
        std::os::unix::fs::symlink(at("pod"), at("linked")).unwrap();
        rustix::fs::mknodat(CWD, at("pod/fifo.log"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        for (path, opens) in [
            ("pod/0.log", true),
            ("pod/link.log", false),
            ("pod/dangling.log", false),
            ("linked/0.log", false),
            ("pod/fifo.log", false),
            ("pod", false),
        ] {
            assert_eq!(Log::open(&at(path)).is_ok(), opens, "{path}");
        }
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "kept");
        assert!(!at("absent").exists());
    }

    #[test]
    fn formats_timestamps() {
        for (nanos, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_794_787_199_999_999_999, "2026-11-15T23:59:59.999999999Z"),
        ] {
            assert_eq!(Timestamp(nanos).to_string(), expected);
        }
    }
}
