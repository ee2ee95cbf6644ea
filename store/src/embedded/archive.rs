//! History files: what compaction would lose, kept for a while. A history file has the writes of the logs that a state
//! file replaces, with their causes, behind the entries that they have changed. Together with the state file and the
//! logs, the files are the past of the store without a gap. Writing history never fails a compaction.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stdx::clock::Clock;
use stdx::sync::{Mutex, MutexGuard};

use super::Config;
use super::files::{self, Listing};
use super::format::{FileHeader, FileKind, Record};
use super::log::Log;
use super::scan;
use super::state;
use crate::disk::Disk;
use crate::{Result, Revision};

/// How much of the past is kept after the log was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The size of all history files; 0 for no history.
    pub bytes: u64,
    /// The age of a write; zero for no history.
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 64 << 20, age: Duration::from_secs(24 * 3600) }
    }
}

impl Retention {
    /// Keeps nothing.
    pub const OFF: Retention = Retention { bytes: 0, age: Duration::ZERO };

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.bytes > 0 && !self.age.is_zero()
    }
}

/// One history file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryFile {
    pub sequence: u64,
    /// The file has the writes after this revision ...
    pub start: Revision,
    /// ... up to this one.
    pub end: Revision,
    /// The time of the last write, in milliseconds since the Unix epoch.
    pub newest: u64,
    pub bytes: u64,
}

pub(crate) struct Archive {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub id: u64,
    pub retention: Retention,
    pub clock: Arc<dyn Clock>,
    pub written: Arc<AtomicU64>,
    /// Held while files are removed, and while history is read: one reader at a time.
    pub files: Mutex<()>,
}

/// The logs that a compaction replaces.
struct Replaced<'a> {
    archive: &'a Archive,
    /// Their state file, and they themselves.
    listing: Listing,
    cancel: &'a AtomicBool,
}

/// What a history file will have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// The file has the writes after this revision.
    start: Revision,
    end: Revision,
    newest: u64,
    /// For each key that was written after the start, its revision there, if it existed.
    before: BTreeMap<Box<str>, Option<Revision>>,
    /// For each key with relaxed writes, the last of them: the others are not kept.
    relaxed: BTreeMap<Box<str>, Revision>,
}

impl Archive {
    pub(super) fn of(log: &Log, config: &Config) -> Archive {
        let (disk, dir, id, written) = (log.disk.clone(), log.dir.clone(), log.id, log.written.clone());
        let (retention, clock) = (config.retention, config.clock.clone());
        Archive { disk, dir, id, retention, clock, written, files: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.files.lock()
    }

    /// The usable history files, oldest first: those that end where the next one, or the state file, begins.
    pub(super) fn list(&self, listing: &Listing, base: Revision) -> Result<Vec<HistoryFile>> {
        let mut usable = Vec::new();
        let mut end = base;
        for &sequence in listing.histories.iter().rev() {
            // A damaged file is the end of history, not of the store.
            let Ok(file) = self.describe(sequence) else { break };
            if file.end > end {
                continue;
            }
            if file.end < end {
                break;
            }
            end = file.start;
            usable.push(file);
        }
        usable.reverse();
        Ok(usable)
    }

    fn describe(&self, sequence: u64) -> Result<HistoryFile> {
        let path = files::history_path(&self.dir, sequence);
        let (header, bytes) = scan::read_header(&*self.disk, &path, FileKind::History, Some(self.id))?;
        let FileHeader { revision, reserved, compacted, .. } = header;
        Ok(HistoryFile { sequence, start: revision, end: reserved, newest: compacted, bytes })
    }

    /// Removes files that are too old, too large together, or not usable.
    pub(super) fn prune(&self) -> Result<()> {
        let _files = self.lock();
        let listing = files::list(&*self.disk, &self.dir)?;
        if listing.histories.is_empty() {
            return Ok(());
        }
        let base = base(&*self.disk, &self.dir, &listing)?;
        let kept = kept(self.list(&listing, base)?, self.retention, self.clock.since_epoch());
        let is_kept = |sequence: u64| kept.iter().any(|file| file.sequence == sequence);
        for &sequence in listing.histories.iter().filter(|&&sequence| !is_kept(sequence)) {
            let path = files::history_path(&self.dir, sequence);
            self.disk.remove(&path).map_err(|error| files::failed("remove", &path, error))?;
        }
        Ok(())
    }

    /// Keeps the writes of the logs up to a sequence. To be called before the state file that replaces them has its
    /// name: a file that ends after the newest state file is the remains of a crash, and not used.
    pub(super) fn add(&self, sequence: u64, cancel: &AtomicBool) -> Result<()> {
        if !self.retention.is_on() {
            return Ok(());
        }
        let mut listing = files::list(&*self.disk, &self.dir)?;
        listing.logs.retain(|&log| log <= sequence);
        let replaced = Replaced { archive: self, listing, cancel };
        let plan = replaced.plan()?;
        replaced.write(sequence, &plan)
    }
}

/// The revision of the state file, before which only history files have writes.
pub(super) fn base(disk: &dyn Disk, dir: &Path, listing: &Listing) -> Result<Revision> {
    let Some(&sequence) = listing.states.last() else { return Ok(scan::FIRST_REVISION) };
    let path = files::state_path(dir, sequence);
    Ok(scan::read_header(disk, &path, FileKind::State, None)?.0.revision)
}

/// The newest files within the retention. History has no gaps: whatever is older than a removed file is removed too.
fn kept(files: Vec<HistoryFile>, retention: Retention, now: Duration) -> Vec<HistoryFile> {
    let oldest = now.saturating_sub(retention.age).as_millis() as u64;
    let mut bytes = 0;
    let mut fits = |file: &HistoryFile| {
        bytes += file.bytes;
        bytes <= retention.bytes && file.newest >= oldest
    };
    let count = files.iter().rev().take_while(|file| retention.is_on() && fits(file)).count();
    files[files.len() - count..].to_vec()
}

/// Expiring entries are not kept: they are many, and short-lived by intention.
fn is_kept(record: &Record<'_>) -> bool {
    record.value.is_none() || record.expires == 0
}

impl Replaced<'_> {
    fn scan(&self, visit: &mut scan::RecordVisitor<'_>) -> Result<scan::LogEnd> {
        let Archive { disk, dir, id, .. } = self.archive;
        scan::scan(&**disk, dir, &self.listing, *id, &mut |kind, record| {
            if !self.cancel.load(Ordering::Relaxed) {
                visit(kind, record);
            }
        })
    }

    /// Finds the first write that fits into the retention, and the keys that were written since.
    fn plan(&self) -> Result<Plan> {
        let retention = self.archive.retention;
        let oldest = self.archive.clock.since_epoch().saturating_sub(retention.age).as_millis() as u64;
        let mut plan = Plan::default();
        let (mut recent, mut bytes, mut cut) = (VecDeque::new(), 0, None);
        let end = self.scan(&mut |kind, record| {
            plan.newest = plan.newest.max(record.time);
            if kind != FileKind::Log || record.is_relaxed || !is_kept(&record) {
                return;
            }
            let is_old = record.time != 0 && record.time < oldest;
            recent.push_back((record.revision, record.size()));
            bytes += record.size();
            // The entries before the writes need space too.
            while is_old && !recent.is_empty() || bytes > retention.bytes / 2 {
                let Some((revision, size)) = recent.pop_front() else { break };
                cut = Some(revision);
                bytes -= size;
            }
        })?;
        (plan.start, plan.end) = (cut.unwrap_or(end.base), end.revision);
        self.find_keys(&mut plan)?;
        Ok(plan)
    }

    fn find_keys(&self, plan: &mut Plan) -> Result<()> {
        self.scan(&mut |kind, record| {
            if kind == FileKind::Log && record.revision > plan.start && is_kept(&record) {
                plan.before.entry(record.key.into()).or_default();
                if record.is_relaxed {
                    plan.relaxed.insert(record.key.into(), record.revision);
                }
            }
        })?;
        self.scan(&mut |_, record| {
            if record.revision <= plan.start
                && let Some(before) = plan.before.get_mut(record.key)
            {
                *before = record.value.filter(|_| is_kept(&record)).map(|_| record.revision);
            }
        })?;
        Ok(())
    }

    fn write(&self, sequence: u64, plan: &Plan) -> Result<()> {
        let Archive { disk, dir, id, written, .. } = self.archive;
        let path = files::history_path(dir, sequence);
        let (revision, reserved, compacted) = (plan.start, plan.end, plan.newest);
        let header = FileHeader { kind: FileKind::History, id: *id, sequence, revision, reserved, compacted, chain: 0 };
        let failed = |error| files::failed("write", &path, error);
        let mut out = state::RecordFile::create(&**disk, &path, header).map_err(failed)?;
        let mut result = Ok(());
        // What was there before the writes, and the writes: both in the order of their revisions.
        self.scan(&mut |_, record| {
            if result.is_ok() && plan.has(&record) {
                result = out.push(|builder| builder.push_record(&record));
            }
        })?;
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        result = if is_cancelled { Err(io::ErrorKind::Interrupted.into()) } else { result };
        result.and_then(|()| out.finish(written)).map(drop).map_err(failed)
    }
}

impl Plan {
    fn has(&self, record: &Record<'_>) -> bool {
        if record.revision <= self.start {
            return self.before.get(record.key) == Some(&Some(record.revision));
        }
        let is_last = || self.relaxed.get(record.key) == Some(&record.revision);
        is_kept(record) && self.before.contains_key(record.key) && (!record.is_relaxed || is_last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sequence: u64, newest: u64, bytes: u64) -> HistoryFile {
        HistoryFile { sequence, start: sequence - 1, end: sequence, newest, bytes }
    }

    #[track_caller]
    fn check(files: &[HistoryFile], retention: Retention, expected: &[u64]) {
        let kept = kept(files.to_vec(), retention, Duration::from_secs(100));
        assert_eq!(kept.iter().map(|file| file.sequence).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_newest_files_within_the_limits_are_kept() {
        let files = [file(1, 10_000, 5), file(2, 60_000, 5), file(3, 90_000, 5)];
        let retention = |bytes, seconds| Retention { bytes, age: Duration::from_secs(seconds) };
        check(&files, retention(100, 1000), &[1, 2, 3]);
        check(&files, retention(10, 1000), &[2, 3]);
        check(&files, retention(4, 1000), &[]);
        check(&files, retention(100, 40), &[2, 3]);
        check(&files, retention(100, 39), &[3]);
        check(&files, retention(0, 1000), &[]);
        check(&files, retention(100, 0), &[]);
        // A large file ends history: there would be a gap before it.
        check(&[file(1, 90_000, 5), file(2, 90_000, 50), file(3, 90_000, 5)], retention(20, 1000), &[3]);
    }
}
