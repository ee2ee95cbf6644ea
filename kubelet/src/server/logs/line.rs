//! A line of a log file, `TIME STREAM TAGS TEXT`, and its output for a client.

use api::time::{self, Timestamp};

use super::options::{Options, Stream};

#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stream: Stream,
    /// With its line end, unless it is a part of a longer line.
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = match parts.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    let tags = parts.next()?;
    let text = parts.next()?;
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let text = if partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
    Some(Line { time, stream, text })
}

/// Formats lines for a client, up to its limits.
pub(crate) struct Writer {
    timestamps: bool,
    since: Option<Timestamp>,
    stream: Stream,
    left: Option<u64>,
    /// The last text was a whole line, or its end.
    at_start: bool,
}

impl Writer {
    pub(crate) fn new(options: &Options) -> Writer {
        Writer {
            timestamps: options.timestamps,
            since: options.since,
            stream: options.stream,
            left: options.limit_bytes,
            at_start: true,
        }
    }

    /// Appends the output of a line; true if the limit is reached. Invalid lines are skipped.
    pub(crate) fn write(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(line) = parse(line) else { return false };
        let is_wanted = self.stream == Stream::All || self.stream == line.stream;
        if !is_wanted || self.is_older(line.time) {
            return false;
        }
        let begin = out.len();
        if self.timestamps && self.at_start {
            write_time(out, line.time);
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        self.at_start = line.text.last().is_none_or(|byte| *byte == b'\n');
        let Some(left) = &mut self.left else { return false };
        let fits = usize::try_from(*left).unwrap_or(usize::MAX).min(out.len() - begin);
        out.truncate(begin + fits);
        *left -= fits as u64;
        *left == 0
    }

    fn is_older(&self, time: &str) -> bool {
        let Some(since) = self.since else { return false };
        time::parse(time).is_ok_and(|time| time < since)
    }
}

/// The time with nine digits of a second, so that lines are aligned.
fn write_time(out: &mut Vec<u8>, time: &str) {
    let zone = time.rfind(['Z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    out.extend_from_slice(format!("{seconds}.{fraction:0<9}{zone}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[&str] = &[
        "2026-01-02T03:04:05.5Z stdout F one\n",
        "2026-01-02T03:04:06.000000001Z stderr P tw\n",
        "2026-01-02T03:04:06.000000002Z stderr F o\n",
        "not a line\n",
        "2026-01-02T05:04:07+02:00 stdout F:x three\n",
    ];

    #[test]
    fn formats_lines_as_requested() {
        let check = |options: Options, want: &str, want_over: bool| {
            let mut writer = Writer::new(&options);
            let mut out = Vec::new();
            let over = LOG.iter().any(|line| writer.write(line.as_bytes(), &mut out));
            assert_eq!((String::from_utf8_lossy(&out).as_ref(), over), (want, want_over), "{options:?}");
        };
        let whole = Options::default;
        check(whole(), "one\ntwo\nthree\n", false);
        check(Options { stream: Stream::Stderr, ..whole() }, "two\n", false);
        check(
            Options { timestamps: true, ..whole() },
            "2026-01-02T03:04:05.500000000Z one\n2026-01-02T03:04:06.000000001Z two\n\
             2026-01-02T05:04:07.000000000+02:00 three\n",
            false,
        );
        let since = time::parse("2026-01-02T03:04:06.000000002Z").ok();
        check(Options { since, ..whole() }, "o\nthree\n", false);
        check(Options { limit_bytes: Some(6), ..whole() }, "one\ntw", true);
        check(Options { limit_bytes: Some(100), ..whole() }, "one\ntwo\nthree\n", false);
    }
}
