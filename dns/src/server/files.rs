//! The files of a configuration: name servers and hosts. Their contents are part of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use client::files::Files;

use crate::corefile::{Corefile, Upstream};
use crate::message::Name;

/// The files that a Corefile names.
pub(super) fn named(corefile: &Corefile) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    for block in &corefile.blocks {
        paths.extend(block.hosts.iter().map(|hosts| hosts.file.clone()));
        for upstream in block.forwards.iter().flat_map(|forward| &forward.to) {
            if let Upstream::File(path) = upstream {
                paths.insert(path.clone());
            }
        }
    }
    paths
}

/// The contents of files; None of those that cannot be read.
pub(super) type Snapshot = BTreeMap<PathBuf, Option<Vec<u8>>>;

pub(super) fn contents(paths: BTreeSet<PathBuf>) -> Snapshot {
    let content = |path: PathBuf| {
        let bytes = std::fs::read(&path).ok();
        (path, bytes)
    };
    paths.into_iter().map(content).collect()
}

pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until something changes near the files; forever without any.
pub(super) async fn changed(files: Option<&Files>) {
    match files {
        Some(files) => files.changed().await,
        None => std::future::pending().await,
    }
}

/// Watches those whose directories exist.
pub(super) fn watch(paths: &BTreeSet<PathBuf>) -> Option<Files> {
    let exists = |path: &&PathBuf| path.parent().is_some_and(Path::is_dir);
    let paths: Vec<PathBuf> = paths.iter().filter(exists).cloned().collect();
    if paths.is_empty() {
        return None;
    }
    let watched = Files::watch(&paths);
    watched.inspect_err(|error| tracing::warn!(%error, "failed to watch files of the Corefile")).ok()
}

/// The search domains of a resolv.conf: those of the last `search` or `domain` line.
pub(super) fn search_domains(text: &str) -> Vec<Name> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let last = lines.rfind(|words| matches!(words.first(), Some(&"search" | &"domain"))).unwrap_or_default();
    let names = last.iter().skip(1).filter_map(|word| Name::parse(word).ok());
    names.filter(|name| !name.is_root()).map(|name| name.to_lower()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_search_domains() {
        let text = "search old.org\nnameserver 10.0.0.1\nsearch Example.org corp.example.org. .\n";
        let names: Vec<String> = search_domains(text).iter().map(Name::to_string).collect();
        assert_eq!(names, ["example.org.", "corp.example.org."]);
        assert!(search_domains("nameserver 10.0.0.1").is_empty());
    }
}
