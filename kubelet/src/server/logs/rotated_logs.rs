//! The rotated files of a log: they are read before the current one.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use api::time::Timestamp;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::fs::File;
use tokio::sync::mpsc;

use super::line::Writer;
use super::{BLOCK, MAX_LINE};
use crate::logs::rotation::rotated;

pub(crate) struct RotatedLogs {
    dir: PathBuf,
    /// All that were older than the file that was open.
    known: BTreeSet<String>,
    /// The files to read, the oldest first.
    names: Vec<String>,
    /// The number of lines of the first file to skip.
    skip: u64,
}

impl RotatedLogs {
    /// Files older than the opened one, which may have been rotated itself since.
    pub(crate) async fn of(file: &File, path: &Path) -> RotatedLogs {
        let own = file.metadata().await.ok().map(|meta| (meta.dev(), meta.ino()));
        let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let around = rotated::rotated_names(path);
        let is_own = |name: &&str| {
            let meta = std::fs::metadata(dir.join(name)).ok();
            own.is_some() && meta.map(|meta| (meta.dev(), meta.ino())) == own
        };
        let rotated = rotated::rotated(&around).into_iter();
        let known: BTreeSet<String> = rotated.take_while(|name| !is_own(name)).map(str::to_string).collect();
        RotatedLogs { names: known.iter().cloned().collect(), known, dir, skip: 0 }
    }

    pub(crate) fn known(&self) -> &BTreeSet<String> {
        &self.known
    }

    /// Files newer than known ones, and than the one that was read meanwhile.
    pub(crate) fn after(mut self, known: &BTreeSet<String>) -> RotatedLogs {
        let new = self.names.into_iter().filter(|name| !known.contains(name));
        self.names = new.skip(1).collect();
        self
    }

    /// Keeps only the last lines.
    pub(crate) async fn keep_last(&mut self, mut lines: u64) -> io::Result<()> {
        let mut kept = Vec::new();
        while let Some(name) = self.names.pop().filter(|_| lines > 0) {
            let (dir, file) = (self.dir.clone(), name.clone());
            let there = tokio::task::spawn_blocking(move || count(&dir, &file)).await.map_err(io::Error::other)??;
            kept.insert(0, name);
            self.skip = there.saturating_sub(lines);
            lines = lines.saturating_sub(there);
        }
        self.names = kept;
        Ok(())
    }

    /// A file bears the time at which it was complete: nothing in it is younger.
    pub(crate) fn keep_since(&mut self, since: Option<Timestamp>) {
        let Some(since) = since.map(|since| rotated::stamp(since.seconds)) else { return };
        let is_older = |name: &String| name.rsplit_once('.').is_some_and(|(_, stamp)| stamp < since.as_str());
        let before = self.names.len();
        self.names.retain(|name| !is_older(name));
        if self.names.len() < before {
            self.skip = 0;
        }
    }

    /// Sends all of them; None if the limit is reached.
    pub(crate) async fn send(self, mut writer: Writer, to: &mpsc::Sender<Bytes>) -> io::Result<Option<Writer>> {
        let mut skip = self.skip;
        for name in self.names {
            let (dir, to) = (self.dir.clone(), to.clone());
            let sent = tokio::task::spawn_blocking(move || copy(&dir, &name, skip, writer, &to));
            writer = match sent.await.map_err(io::Error::other)?? {
                Some(writer) => writer,
                None => return Ok(None),
            };
            skip = 0;
        }
        Ok(Some(writer))
    }
}

/// The lines of a file; none if it was removed by rotation.
fn open(dir: &Path, name: &str) -> io::Result<Box<dyn BufRead>> {
    match rotated::open(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(io::empty())),
        Err(error) => Err(error),
        Ok((file, false)) => Ok(Box::new(BufReader::with_capacity(BLOCK, file))),
        Ok((file, true)) => Ok(Box::new(BufReader::with_capacity(BLOCK, MultiGzDecoder::new(BufReader::new(file))))),
    }
}

fn count(dir: &Path, name: &str) -> io::Result<u64> {
    let mut reader = open(dir, name)?;
    let mut lines = 0;
    loop {
        let block = reader.fill_buf()?;
        if block.is_empty() {
            return Ok(lines);
        }
        lines += block.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = block.len();
        reader.consume(length);
    }
}

fn copy(dir: &Path, name: &str, skip: u64, mut writer: Writer, to: &mpsc::Sender<Bytes>) -> io::Result<Option<Writer>> {
    let mut reader = open(dir, name)?;
    let (mut line, mut out) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        line.clear();
        let count = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
        let over = at >= skip && writer.write(&line, &mut out);
        at += 1;
        if (out.len() >= BLOCK || over || count == 0) && !out.is_empty() {
            let piece = Bytes::from(std::mem::take(&mut out));
            if to.blocking_send(piece).is_err() {
                return Ok(None);
            }
        }
        match (over, count) {
            (true, _) => return Ok(None),
            (_, 0) => return Ok(Some(writer)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::options::Options;
    use super::*;

    const TIME: &str = "2026-01-02T03:04:05Z stdout F";

    fn write(dir: &Path, name: &str, lines: &[&str]) {
        let text: String = lines.iter().map(|line| format!("{TIME} {line}\n")).collect();
        let file = std::fs::File::create(dir.join(name)).expect("a file");
        match name.ends_with(".gz") {
            true => {
                let mut writer = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                writer.write_all(text.as_bytes()).expect("a text");
                writer.finish().expect("a file");
            }
            false => std::fs::write(dir.join(name), text).expect("a file"),
        }
    }

    async fn read(older: RotatedLogs) -> String {
        let (sender, mut pieces) = mpsc::channel(10);
        older.send(Writer::new(&Options::default()), &sender).await.expect("a log");
        drop(sender);
        let mut out = Vec::new();
        while let Some(piece) = pieces.recv().await {
            out.extend_from_slice(&piece);
        }
        String::from_utf8(out).expect("text").replace('\n', " ")
    }

    #[tokio::test]
    async fn reads_rotated_files_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        write(dir.path(), "0.log.20260102-030400.gz", &["a", "b"]);
        write(dir.path(), "0.log.20260102-030500", &["c", "d", "e"]);
        write(dir.path(), "0.log.20260102-030500.tmp", &["unfinished"]);
        write(dir.path(), "10.log.20260102-030500", &["another"]);
        write(dir.path(), "0.log", &["f"]);
        let file = File::open(&path).await.expect("a file");
        let older = async || RotatedLogs::of(&file, &path).await;
        assert_eq!(read(older().await).await, "a b c d e ");
        for (lines, want) in [(0, ""), (1, "e "), (3, "c d e "), (4, "b c d e "), (9, "a b c d e ")] {
            let mut last = older().await;
            last.keep_last(lines).await.expect("lines");
            assert_eq!(read(last).await, want, "the last {lines}");
        }
        let since = api::time::parse("2026-01-02T03:04:30Z").ok();
        let mut late = older().await;
        late.keep_since(since);
        assert_eq!(read(late).await, "c d e ");
    }

    #[tokio::test]
    async fn finds_files_rotated_meanwhile() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        write(dir.path(), "0.log.1", &["a"]);
        write(dir.path(), "0.log", &["b"]);
        let reading = File::open(&path).await.expect("a file");
        let known = RotatedLogs::of(&reading, &path).await.known().clone();
        std::fs::rename(&path, dir.path().join("0.log.2")).expect("another name");
        assert_eq!(*RotatedLogs::of(&reading, &path).await.known(), known, "it is not older than itself");
        write(dir.path(), "0.log.3.gz", &["c", "d"]);
        write(dir.path(), "0.log", &["e"]);
        let next = File::open(&path).await.expect("a file");
        assert_eq!(read(RotatedLogs::of(&next, &path).await.after(&known)).await, "c d ");
    }
}
