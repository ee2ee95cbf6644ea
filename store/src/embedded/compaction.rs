//! Log compaction: a state file is written concurrently with the writer and replaces the logs before it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::archive::Archive;
use super::files;
use super::format::{FileHeader, FileKind};
use super::log::{Log, Position};
use super::queue::{Queue, Request};
use super::state;
use crate::disk::Disk;
use crate::entries::Entries;
use crate::{Result, Revision};

pub(crate) struct CompactionResult {
    /// The size of the state file.
    pub result: Result<u64>,
    /// The size of the replaced files.
    pub replaced: u64,
}

/// A running compaction. Dropping it cancels it and waits for its end.
pub(crate) struct CompactionHandle {
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for CompactionHandle {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already, and only affects the file being written.
            let _ = thread.join();
        }
    }
}

struct CompactionJob {
    disk: Arc<dyn Disk>,
    dir: std::path::PathBuf,
    header: FileHeader,
    entries: Entries,
    written: Arc<std::sync::atomic::AtomicU64>,
    archive: Arc<Archive>,
    cancel: Arc<AtomicBool>,
}

/// Starts a compaction. The log must be written up to its head, which is `entries`.
pub(crate) fn start(
    log: &mut Log,
    entries: Entries,
    compacted: Revision,
    archive: Arc<Archive>,
    queue: Arc<Queue>,
) -> Result<CompactionHandle> {
    let replaced = log.bytes();
    let Position { sequence, chain, revision, reserved } = log.rotate()?;
    let header = FileHeader { kind: FileKind::State, id: log.id, sequence, revision, reserved, compacted, chain };
    let cancel = Arc::new(AtomicBool::new(false));
    let job = CompactionJob {
        disk: log.disk.clone(),
        dir: log.dir.clone(),
        header,
        entries,
        written: log.written.clone(),
        archive,
        cancel: cancel.clone(),
    };
    let run = move || {
        let outcome = CompactionResult { result: job.run(), replaced };
        // The queue may be closed.
        let _ = queue.push(Request::Compacted(outcome));
    };
    let thread = std::thread::Builder::new().name("store-compact".to_owned()).spawn(run);
    let thread = thread.map_err(|error| files::failed("start a thread for", &log.dir, error))?;
    Ok(CompactionHandle { cancel, thread: Some(thread) })
}

impl CompactionJob {
    fn run(&self) -> Result<u64> {
        // History is worth less than a log that shrinks.
        if let Err(error) = self.archive.add(self.header.sequence, &self.cancel) {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to keep the history of the replaced log");
        }
        let path = files::state_path(&self.dir, self.header.sequence);
        let entries = self.entries.iter().map(|entry| match self.cancel.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(entry.clone()),
        });
        let size = state::write(&*self.disk, &path, self.header, entries, &self.written)
            .map_err(|error| files::failed("write", &path, error))?;
        self.remove_replaced()?;
        if let Err(error) = self.archive.prune() {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to remove old history");
        }
        Ok(size)
    }

    /// The replaced files are removed only after the state file has its final name durably.
    fn remove_replaced(&self) -> Result<()> {
        let _files = self.archive.lock();
        let sequence = self.header.sequence;
        let listing = files::list(&*self.disk, &self.dir)?;
        let states = listing.states.iter().filter(|&&state| state < sequence);
        let logs = listing.logs.iter().filter(|&&log| log <= sequence);
        let paths = states.map(|&state| files::state_path(&self.dir, state));
        for path in paths.chain(logs.map(|&log| files::log_path(&self.dir, log))) {
            self.disk.remove(&path).map_err(|error| files::failed("remove", &path, error))?;
        }
        Ok(())
    }
}
