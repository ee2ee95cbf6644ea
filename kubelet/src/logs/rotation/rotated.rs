//! The files of a log: the current one, and rotated ones beside it, `0.log.20260102-030405`, all but the newest of them
//! compressed. Names are in the order of time.

use std::collections::BTreeSet;
use std::path::Path;

use crate::logs::files::LogDir;

pub(crate) const COMPRESSED: &str = ".gz";
pub(crate) const UNFINISHED: &str = ".tmp";

/// The work before a log is rotated.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanupPlan {
    pub(crate) remove: Vec<String>,
    pub(crate) compress: Vec<String>,
}

/// The names of a log's rotated files, complete or not.
pub(crate) fn rotated_names(log: &Path) -> Vec<String> {
    let Some((dir, name)) = log.parent().zip(log.file_name().and_then(|name| name.to_str())) else { return Vec::new() };
    let prefix = format!("{name}.");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// The complete rotated files, by their names without compression, the oldest first.
pub(crate) fn rotated(names: &[String]) -> BTreeSet<&str> {
    let finished = names.iter().filter(|name| !name.ends_with(UNFINISHED));
    finished.map(|name| name.strip_suffix(COMPRESSED).unwrap_or(name)).collect()
}

/// Plans the cleanup before the next rotation: leftovers of interrupted rotations, and the oldest files.
pub(crate) fn plan_cleanup(names: &[String], most_files: u32) -> CleanupPlan {
    let has = |name: &str| names.iter().any(|other| other == name);
    let compressed = |name: &str| format!("{name}{COMPRESSED}");
    let mut tidy = CleanupPlan::default();
    tidy.remove.extend(names.iter().filter(|name| name.ends_with(UNFINISHED)).cloned());
    let all = rotated(names);
    // The current file, and its rotated name.
    let kept = usize::try_from(most_files.saturating_sub(2)).unwrap_or(usize::MAX);
    let too_many = all.len().saturating_sub(kept);
    for (at, name) in all.into_iter().enumerate() {
        let both = has(name) && has(&compressed(name));
        match at < too_many {
            true => tidy.remove.extend([name.to_string(), compressed(name)].into_iter().filter(|name| has(name))),
            // Compressed, and then the kubelet was stopped.
            false if both => tidy.remove.push(name.to_string()),
            false if has(name) => tidy.compress.push(name.to_string()),
            false => {}
        }
    }
    tidy
}

/// `20060102-150405`, as upstream names them.
pub(crate) fn stamp(seconds: i64) -> String {
    let text = api::time::format_seconds(seconds);
    text.as_str().replace(['-', ':', 'Z'], "").replace('T', "-")
}

/// Opens a file of a log, compressed or not: it may be compressed at any time.
pub(crate) fn open(dir: &Path, name: &str) -> std::io::Result<(std::fs::File, bool)> {
    let logs = LogDir::of(&dir.join(name))?;
    match logs.open(name) {
        Ok(file) => Ok((file, false)),
        Err(_) => logs.open(&format!("{name}{COMPRESSED}")).map(|file| (file, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compresses_old_files_and_removes_the_oldest() {
        let check = |names: &[&str], most, remove: &[&str], compress: &[&str]| {
            let owned: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
            let want = CleanupPlan { remove: strings(remove), compress: strings(compress) };
            assert_eq!(plan_cleanup(&owned, most), want, "{names:?} of at most {most}");
        };
        check(&[], 5, &[], &[]);
        check(&["l.1"], 5, &[], &["l.1"]);
        check(&["l.1.gz", "l.2"], 5, &[], &["l.2"]);
        check(&["l.4", "l.1.gz", "l.3.gz", "l.2.gz"], 5, &["l.1.gz"], &["l.4"]);
        check(&["l.1.gz", "l.2"], 2, &["l.1.gz", "l.2"], &[]);
        check(&["l.1", "l.1.gz", "l.2.tmp", "l.2"], 5, &["l.2.tmp", "l.1"], &["l.2"]);
        check(&["l.1", "l.1.gz", "l.2"], 3, &["l.1", "l.1.gz"], &["l.2"]);
    }

    #[test]
    fn names_rotated_files_by_time() {
        assert_eq!(stamp(1_136_214_245), "20060102-150405");
        let names = ["l.2.gz", "l.1", "l.1.gz", "l.3.tmp"].map(str::to_string);
        assert_eq!(rotated(&names).into_iter().collect::<Vec<_>>(), ["l.1", "l.2"]);
    }
}
