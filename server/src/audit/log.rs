//! The log backend: its own thread writes lines to a rotated file, or to standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stdx::sync::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

/// The rotation flags; 0 is no limit.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    pub max_age_days: u64,
    pub max_backups: usize,
    /// 0 is upstream's 100.
    pub max_megabytes: u64,
    pub compress: bool,
}

enum Output {
    Stdout,
    File(RotatingFile),
}

struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

/// The lines that the thread has not written yet. They are in one buffer: a line costs neither an allocation nor, usually, a wake-up.
#[derive(Default)]
struct PendingLines {
    bytes: Vec<u8>,
    /// Callers that wait until all of it is written.
    waiters: Vec<oneshot::Sender<io::Result<()>>>,
    closed: bool,
}

/// The handle of the writer thread.
pub struct Log {
    waiting: Mutex<PendingLines>,
    filled: Condvar,
    /// Notifies waiting callers when the thread has emptied the buffer.
    taken: Notify,
    limit: usize,
}

impl Log {
    /// Opens the log, and starts the thread that writes to it. `failed` is called for each lost write.
    pub(crate) fn start(
        path: &Path,
        rotation: Rotation,
        limit: usize,
        failed: impl Fn(&io::Error) + Send + 'static,
    ) -> io::Result<Arc<Log>> {
        let output =
            if path == Path::new("-") { Output::Stdout } else { Output::File(RotatingFile::open(path, rotation)?) };
        let log = Arc::new(Log { waiting: Mutex::default(), filled: Condvar::new(), taken: Notify::new(), limit });
        let thread = log.clone();
        std::thread::Builder::new().name("audit-log".to_string()).spawn(move || thread.write_all(output, &failed))?;
        Ok(log)
    }

    fn lock(&self) -> MutexGuard<'_, PendingLines> {
        self.waiting.lock()
    }

    /// Adds a line of these pieces; false if the buffer is full.
    pub(crate) fn add(&self, pieces: &[&[u8]]) -> bool {
        let mut waiting = self.lock();
        if waiting.closed || waiting.bytes.len() > self.limit {
            return false;
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.add(pieces);
        drop(waiting);
        if was_empty {
            self.filled.notify_one();
        }
        true
    }

    /// The same, after waiting for free space in the buffer.
    pub(crate) async fn add_later(&self, pieces: &[&[u8]]) {
        loop {
            let taken = self.taken.notified();
            if self.add(pieces) || self.lock().closed {
                return;
            }
            taken.await;
        }
    }

    /// Adds a line and waits until it is written.
    pub(crate) async fn write(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            waiting.add(pieces);
            waiting.waiters.push(sender);
        }
        self.filled.notify_one();
        receiver.await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
    }

    /// Waits until everything before this is written.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.lock().waiters.push(sender);
        self.filled.notify_one();
        receiver.await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
    }

    /// Ends the thread after the pending lines are written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    fn write_all(&self, mut output: Output, failed: &dyn Fn(&io::Error)) {
        let mut bytes = Vec::new();
        loop {
            let (waiters, closed) = self.take(&mut bytes);
            let result = if bytes.is_empty() { Ok(()) } else { output.write(&bytes) };
            if let Err(error) = &result {
                failed(error);
            }
            for sender in waiters {
                let copy = result.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string())).copied();
                // The receiver may have been dropped.
                let _ = sender.send(copy);
            }
            bytes.clear();
            if closed {
                return;
            }
        }
    }

    /// Waits for lines, and briefly for more of them, unless a caller waits for the write.
    fn take(&self, bytes: &mut Vec<u8>) -> (Vec<oneshot::Sender<io::Result<()>>>, bool) {
        let wait = |waiting: MutexGuard<'_, PendingLines>| {
            let idle =
                |waiting: &mut PendingLines| waiting.bytes.is_empty() && waiting.waiters.is_empty() && !waiting.closed;
            self.filled.wait_while(waiting, idle).waiters.is_empty()
        };
        if wait(self.lock()) {
            wait_for_more_lines();
        }
        let mut waiting = self.lock();
        std::mem::swap(&mut waiting.bytes, bytes);
        let taken = (std::mem::take(&mut waiting.waiters), waiting.closed);
        drop(waiting);
        self.taken.notify_waiters();
        taken
    }
}

impl PendingLines {
    fn add(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.push(b'\n');
    }
}

/// Lines of this period are written together: waking a thread for each would cost more than the line.
const LINGER: Duration = Duration::from_millis(2);

#[expect(clippy::disallowed_methods, reason = "the thread is the log's own, no worker of the runtime")]
fn wait_for_more_lines() {
    std::thread::sleep(LINGER);
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Stdout => io::stdout().lock().write_all(bytes),
            Output::File(rotated) => rotated.write(bytes),
        }
    }
}

impl RotatingFile {
    fn open(path: &Path, rotation: Rotation) -> io::Result<RotatingFile> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(RotatingFile { path: path.to_path_buf(), rotation, file, size })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let most = if self.rotation.max_megabytes == 0 { 100 } else { self.rotation.max_megabytes } << 20;
        if self.size > 0 && self.size + bytes.len() as u64 > most {
            self.rotate(SystemTime::now())?;
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Adds the time to the name of the file and opens a new file.
    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        let (stem, extension) = parts(&self.path);
        let backup = self.path.with_file_name(format!("{stem}-{}{extension}", name_time(now)));
        fs::rename(&self.path, &backup)?;
        self.file = append(&self.path)?;
        self.size = 0;
        if self.rotation.compress {
            compress(&backup)?;
        }
        self.prune(now)
    }

    fn prune(&self, now: SystemTime) -> io::Result<()> {
        let keep = self.rotation.max_backups;
        let age = Duration::from_secs(self.rotation.max_age_days * 86_400);
        // The times in the names sort as text; the newest come first.
        let mut backups = self.backups()?;
        backups.sort_by(|a, b| b.cmp(a));
        for (at, backup) in backups.iter().enumerate() {
            let old =
                || fs::metadata(backup)?.modified().map(|then| now.duration_since(then).unwrap_or_default() > age);
            if (keep > 0 && at >= keep) || (!age.is_zero() && old()?) {
                fs::remove_file(backup)?;
            }
        }
        Ok(())
    }

    fn backups(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, extension) = parts(&self.path);
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_backup = |name: &str| {
            let rest = name.strip_prefix(&format!("{stem}-")).unwrap_or("");
            let rest = rest.strip_suffix(".gz").unwrap_or(rest);
            let time = rest.strip_suffix(&extension).unwrap_or("");
            time.len() == TIME_LENGTH && time.bytes().all(|byte| byte.is_ascii_digit() || b"-T.".contains(&byte))
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(is_backup) {
                found.push(path);
            }
        }
        Ok(found)
    }
}

/// `2006-01-02T15-04-05.000`
const TIME_LENGTH: usize = 23;

fn name_time(now: SystemTime) -> String {
    let text = super::event::timestamp(now);
    text[..TIME_LENGTH].replace(':', "-")
}

/// `audit.log` is `audit` and `.log`.
fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    (stem, extension)
}

/// Only the owner may read the log.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn compress(path: &Path) -> io::Result<()> {
    let bytes = fs::read(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&name)?
        .write_all(&crate::request::compress::gzip(&bytes))?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("audit-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn rotates_full_files_and_deletes_old_ones() {
        for compress in [false, true] {
            let directory = directory(if compress { "gz" } else { "plain" });
            let path = directory.join("audit.log");
            let rotation = Rotation { max_megabytes: 1, max_backups: 2, compress, ..Rotation::default() };
            let mut log = RotatingFile::open(&path, rotation).expect("a log");
            let line = vec![b'x'; 700 << 10];
            for minute in 0..5 {
                log.write(&line).expect("a line");
                log.rotate(SystemTime::UNIX_EPOCH + Duration::from_secs(minute * 60)).expect("rotation");
            }
            log.write(&line).expect("a line");
            let mut names: Vec<_> = log.backups().expect("the backups");
            names.sort();
            assert_eq!(names.len(), 2, "{names:?}");
            let ending = if compress { ".log.gz" } else { ".log" };
            assert!(
                names[1].to_string_lossy().ends_with(&format!("audit-1970-01-01T00-04-00.000{ending}")),
                "{names:?}"
            );
            fs::remove_dir_all(&directory).expect("the directory");
        }
    }

    #[test]
    fn rotates_before_the_size_limit() {
        let directory = directory("size");
        let rotation = Rotation { max_megabytes: 1, ..Rotation::default() };
        let mut log = RotatingFile::open(&directory.join("audit.log"), rotation).expect("a log");
        for _ in 0..3 {
            log.write(&vec![b'x'; 600 << 10]).expect("a line");
        }
        assert!(fs::metadata(directory.join("audit.log")).expect("the file").len() < 1 << 20);
        assert!(!log.backups().expect("the backups").is_empty());
        fs::remove_dir_all(&directory).expect("the directory");
    }
}
