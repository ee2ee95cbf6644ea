//! `tiphys logs`: the log of a cluster of this machine, or of one of its components.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use client::files::Files;

use super::instance::InstanceArguments;
use super::{interrupted, runtime};
use crate::error::{Error, Result};
use crate::logs;

/// The components, and the crates whose log lines are theirs.
const COMPONENTS: &[(&str, &[&str])] = &[
    ("apiserver", &["server", "store"]),
    ("controllers", &["controllers"]),
    ("scheduler", &["scheduler"]),
    ("kubelet", &["kubelet", "cgroup", "cri"]),
    ("runtime", &["runtime"]),
    ("proxy", &["proxy"]),
    ("dns", &["dns"]),
    ("network", &["network", "networkpolicy", "overlay", "hosts"]),
    ("fakenode", &["fakenode"]),
    ("cluster", &["cluster", "client", "tunnel", "http_client"]),
];

/// The arguments of `tiphys logs`.
#[derive(clap::Args)]
pub(super) struct LogsArguments {
    #[command(flatten)]
    instance: InstanceArguments,
    /// apiserver, controllers, scheduler, kubelet, runtime, proxy, dns, network, fakenode or cluster [default: all]
    component: Option<String>,
    /// Print new lines as they are written
    #[arg(long, short)]
    follow: bool,
    /// Print only so many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
}

pub(super) fn run(arguments: &LogsArguments) -> Result<()> {
    let filter = Filter::of(arguments.component.as_deref())?;
    let data_dir = arguments.instance.existing()?;
    if logs::files(&data_dir).is_empty() {
        return Err(Error::Flags(vec![format!("{} has no logs: `tiphys up` writes them", data_dir.display())]));
    }
    runtime()?.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => Ok(()),
            printed = print(&data_dir, filter, arguments) => printed,
        }
    })
}

async fn print(data_dir: &Path, mut filter: Filter, arguments: &LogsArguments) -> Result<()> {
    let path = logs::path(data_dir);
    // Watched before the files are read, so that no line is missed.
    let changes = arguments.follow.then(|| Files::watch_writes(&path)).transpose().map_err(Error::file(&path))?;
    let mut text = String::new();
    let mut reader = Reader::new(path);
    for file in logs::files(data_dir) {
        if file == reader.path {
            text.push_str(&reader.read().map_err(Error::file(&file))?);
        } else {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&file).map_err(Error::file(&file))?));
        }
    }
    let lines = filter.lines(&text);
    let skipped = arguments.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    if !write_out(&lines[skipped..]) {
        return Ok(());
    }
    let Some(changes) = changes else { return Ok(()) };
    loop {
        changes.changed().await;
        let text = reader.read().map_err(Error::file(&reader.path))?;
        if !write_out(&filter.lines(&text)) {
            return Ok(());
        }
    }
}

/// False if nothing reads the output any more.
fn write_out(lines: &[&str]) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    lines.iter().all(|line| writeln!(out, "{line}").is_ok()) && out.flush().is_ok()
}

/// Reads what is appended to a log file, also after it was rotated.
struct Reader {
    path: PathBuf,
    file: Option<File>,
    /// The start of a line whose end is not written yet.
    partial: Vec<u8>,
}

impl Reader {
    fn new(path: PathBuf) -> Reader {
        Reader { path, file: None, partial: Vec::new() }
    }

    /// Whole lines that were written since the last call.
    fn read(&mut self) -> std::io::Result<String> {
        let mut bytes = std::mem::take(&mut self.partial);
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut bytes)?;
        }
        if self.is_replaced() {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut bytes)?;
            self.file = Some(file);
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.partial = bytes.split_off(whole);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the file at the path is another one, or the first.
    fn is_replaced(&self) -> bool {
        let inode = |metadata: std::io::Result<std::fs::Metadata>| metadata.ok().map(|metadata| metadata.ino());
        let current = inode(std::fs::metadata(&self.path));
        current.is_some() && self.file.as_ref().and_then(|file| inode(file.metadata())) != current
    }
}

/// Selects the lines of a component.
struct Filter {
    crates: Option<&'static [&'static str]>,
    /// Whether the last record was selected: its further lines are selected too.
    selected: bool,
}

impl Filter {
    fn of(component: Option<&str>) -> Result<Filter> {
        let Some(name) = component else { return Ok(Filter { crates: None, selected: true }) };
        let short = name.trim_start_matches("kube-");
        let short = if short == "controller-manager" { "controllers" } else { short };
        let found = COMPONENTS.iter().find(|(known, _)| *known == short);
        let (_, crates) = found.ok_or_else(|| {
            let known: Vec<&str> = COMPONENTS.iter().map(|(known, _)| *known).collect();
            Error::Flags(vec![format!("{name:?} is not a component: use one of {}", known.join(", "))])
        })?;
        Ok(Filter { crates: Some(crates), selected: false })
    }

    fn lines<'a>(&mut self, text: &'a str) -> Vec<&'a str> {
        text.lines().filter(|line| self.selects(line)).collect()
    }

    fn selects(&mut self, line: &str) -> bool {
        let Some(crates) = self.crates else { return true };
        if let Some(target) = target(line) {
            let name = target.split("::").next().unwrap_or_default();
            self.selected = crates.contains(&name);
        }
        self.selected
    }
}

/// The module that a record names: `TIME LEVEL MODULE: MESSAGE`, or the field of a JSON record. None for the further
/// lines of a record.
fn target(line: &str) -> Option<&str> {
    if line.starts_with('{') {
        let (_, rest) = line.split_once("\"target\":\"")?;
        return rest.split('"').next();
    }
    let mut words = line.split_whitespace();
    let has_time = words.next()?.as_bytes().get(10) == Some(&b'T');
    let has_level = matches!(words.next()?, "ERROR" | "WARN" | "INFO" | "DEBUG" | "TRACE");
    let target = words.next()?.strip_suffix(':')?;
    (has_time && has_level).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "2026-11-19T04:36:56.1Z  WARN kubelet::pod: failed to start\nsecond line\n\
        2026-11-19T04:36:57.1Z  INFO server::http: listening\n\
        {\"timestamp\":\"2026\",\"level\":\"INFO\",\"target\":\"kubelet\",\"message\":\"x\"}\n";

    #[test]
    fn selects_the_records_of_a_component() {
        let check = |component: Option<&str>, want: &[usize]| {
            let all: Vec<&str> = TEXT.lines().collect();
            let lines = Filter::of(component).expect("a component").lines(TEXT);
            assert_eq!(lines, want.iter().map(|at| all[*at]).collect::<Vec<_>>(), "{component:?}");
        };
        check(None, &[0, 1, 2, 3]);
        check(Some("kubelet"), &[0, 1, 3]);
        check(Some("kube-apiserver"), &[2]);
        check(Some("kube-controller-manager"), &[]);
        let error = Filter::of(Some("etcd")).err().expect("refused").describe();
        assert!(error.contains("\"etcd\" is not a component") && error.contains("apiserver"), "{error}");
    }

    #[test]
    fn reads_on_after_a_rotation() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.log");
        std::fs::write(&path, "one\ntw").expect("a file");
        let mut reader = Reader::new(path.clone());
        assert_eq!(reader.read().expect("text"), "one\n");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("a file");
        std::io::Write::write_all(&mut file, b"o\nthree\n").expect("text");
        std::fs::rename(&path, dir.path().join("a.log.1")).expect("a rename");
        std::fs::write(&path, "four\n").expect("a file");
        assert_eq!(reader.read().expect("text"), "two\nthree\nfour\n");
        assert_eq!(reader.read().expect("text"), "");
    }
}
