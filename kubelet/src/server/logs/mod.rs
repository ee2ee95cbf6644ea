//! `/containerLogs`: the output of a container, from the runtime's log file.

mod container;
mod follow;
mod line;
mod options;
mod rotated_logs;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::query::Query;
use bytes::Bytes;
use cri::{ContainerState, ContainerStatusRequest, DynRuntimeService};
use http::StatusCode;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, BufReader, SeekFrom};
use tokio::sync::mpsc;

use super::body::{respond as answered, stream, text};
use super::route::ContainerPath;
use super::{Host, ServerResponse};
use crate::logs::files;
use crate::logs::rotation::rotated;
use follow::Changes;
use line::Writer;
use options::Options;
use rotated_logs::RotatedLogs;

/// The size of reads and of chunks.
const BLOCK: usize = 64 << 10;
/// A runtime splits output into lines of 16 KiB; a longer line is no log.
const MAX_LINE: u64 = 1 << 20;
/// Pieces that wait for the client.
const WAITING: usize = 4;

pub(crate) async fn respond(host: &dyn Host, place: ContainerPath<'_>, query: &Query) -> ServerResponse {
    let refused = |code, why: String| text(code, why);
    let options = match options::read(query, host.clock().now()) {
        Ok(options) => options,
        Err(refusal) => return refused(refusal.code(), refusal.to_string()),
    };
    let Some(pod) = host.pod(place.namespace, place.pod) else {
        return refused(StatusCode::NOT_FOUND, format!("pod {:?} does not exist", place.pod));
    };
    if crate::model::pod::container(&pod, place.container).is_none() {
        let why = format!("container {:?} not found in pod {:?}", place.container, place.pod);
        return refused(StatusCode::NOT_FOUND, why);
    }
    let opened = match container::container(&pod, place.container, options.previous) {
        Ok(id) => open(host.runtime(), id, &options).await,
        Err(error) => Err(error.into()),
    };
    match opened {
        Err(error) => refused(StatusCode::BAD_REQUEST, error.to_string()),
        Ok(log) => {
            let (sender, pieces) = mpsc::channel(WAITING);
            tokio::spawn(async move {
                if let Err(error) = log.send(options, &sender).await {
                    tracing::warn!(%error, "failed to read container log");
                }
            });
            answered(StatusCode::OK, "text/plain", stream(pieces))
        }
    }
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error(transparent)]
    NoLog(#[from] container::NoLog),
    #[error("unable to retrieve container logs for {scheme}://{id}")]
    Unknown { scheme: String, id: String },
    #[error("failed to try resolving symlinks in path {path:?}: {source}")]
    Resolve { path: String, source: std::io::Error },
    #[error("failed to open log file {path:?}: {source}")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("failed to tail {lines} lines of log file {path:?}: {source}")]
    Tail { lines: u64, path: PathBuf, source: std::io::Error },
}

/// The log of a container, open.
struct Log {
    runtime: Arc<dyn DynRuntimeService>,
    container: String,
    path: PathBuf,
    file: File,
    /// Rotated files.
    older: RotatedLogs,
}

/// Opens the log at its last lines, so that everything that is written later is seen.
async fn open(runtime: Arc<dyn DynRuntimeService>, container: String, options: &Options) -> Result<Log, LogError> {
    let (scheme, id) = container.split_once("://").unwrap_or(("", &container));
    let id = id.to_string();
    let status_request = ContainerStatusRequest { container_id: id.clone(), verbose: false };
    let status = runtime.container_status(status_request).await.ok().and_then(|answer| answer.status);
    let lost = || LogError::Unknown { scheme: scheme.to_string(), id: id.clone() };
    let path = status.map(|status| status.log_path).filter(|path| !path.is_empty()).ok_or_else(lost)?;
    let path = PathBuf::from(path);
    let mut file = open_current(&path).await?;
    let mut older = RotatedLogs::of(&file, &path).await;
    if let Some(lines) = options.tail_lines {
        let sought = async {
            let (start, missing) = tail::start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
            older.keep_last(missing).await
        };
        sought.await.map_err(|source| LogError::Tail { lines, path: path.clone(), source })?;
    }
    older.keep_since(options.since);
    Ok(Log { runtime, container: id, path, file, older })
}

/// Opens the file that is written to. While a log is rotated, that is the newest rotated file, until the runtime has
/// created the next one.
async fn open_current(path: &Path) -> Result<File, LogError> {
    let Err(source) = tokio::fs::canonicalize(path).await else {
        let opened = files::open_async(path.to_path_buf()).await;
        return match opened {
            Ok(file) => Ok(file),
            Err(source) => open_newest_rotated(path).await.ok_or(LogError::Open { path: path.to_path_buf(), source }),
        };
    };
    let error = LogError::Resolve { path: path.display().to_string(), source };
    open_newest_rotated(path).await.ok_or(error)
}

async fn open_newest_rotated(path: &Path) -> Option<File> {
    let names = rotated::rotated_names(path);
    let newest = rotated::rotated(&names).pop_last()?.to_string();
    files::open_async(path.with_file_name(newest)).await.ok()
}

impl Log {
    /// Sends the requested lines, until all are sent, or the client has disconnected.
    async fn send(self, options: Options, to: &mpsc::Sender<Bytes>) -> std::io::Result<()> {
        let mut known = self.older.known().clone();
        let Some(mut writer) = self.older.send(Writer::new(&options), to).await? else { return Ok(()) };
        if !options.follow {
            let mut reader = BufReader::with_capacity(BLOCK, self.file);
            return copy(&mut reader, &mut writer, to).await.map(drop);
        }
        // Watched before it is read, so that no write in between is missed.
        let mut changes = Changes::watch(&self.path)?;
        let mut reader = BufReader::with_capacity(BLOCK, self.file);
        let mut may_have_ended = true;
        loop {
            // The state is read before the last lines, so that everything that the container wrote before its exit is
            // sent.
            let has_ended = may_have_ended && !is_running(&self.runtime, &self.container).await;
            if copy(&mut reader, &mut writer, to).await? == CopyResult::Over {
                return Ok(());
            }
            if let Some(next) = follow::successor(reader.get_ref(), &self.path).await {
                // The old file is not written any more: the rest of it is read.
                if copy(&mut reader, &mut writer, to).await? == CopyResult::Over {
                    return Ok(());
                }
                let missed = RotatedLogs::of(&next, &self.path).await.after(&known);
                known = missed.known().clone();
                writer = match missed.send(writer, to).await? {
                    Some(writer) => writer,
                    None => return Ok(()),
                };
                reader = BufReader::with_capacity(BLOCK, next);
                changes = Changes::watch(&self.path)?;
                continue;
            }
            if has_ended {
                return Ok(());
            }
            may_have_ended = tokio::select! {
                biased;
                () = to.closed() => return Ok(()),
                may_have_ended = changes.next() => may_have_ended,
            };
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum CopyResult {
    /// To the end of the file, as it is now.
    All,
    /// The requested amount is complete.
    Over,
}

/// Sends all whole lines that there are.
async fn copy(
    reader: &mut BufReader<File>,
    writer: &mut Writer,
    to: &mpsc::Sender<Bytes>,
) -> std::io::Result<CopyResult> {
    let mut out = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = (&mut *reader).take(MAX_LINE).read_until(b'\n', &mut line).await?;
        let is_whole = line.last() == Some(&b'\n');
        if count as u64 == MAX_LINE && !is_whole {
            return Err(std::io::Error::other("a line is longer than 1 MiB"));
        }
        let mut over = false;
        if is_whole {
            over = writer.write(&line, &mut out);
        } else if count > 0 {
            // Half of a line: it is read again when the rest is there.
            let back = i64::try_from(count).unwrap_or(0);
            reader.seek(SeekFrom::Current(-back)).await?;
        }
        if (out.len() >= BLOCK || over || !is_whole) && !out.is_empty() {
            let piece = Bytes::from(std::mem::take(&mut out));
            over |= to.send(piece).await.is_err();
        }
        match (over, is_whole) {
            (true, _) => return Ok(CopyResult::Over),
            (_, false) => return Ok(CopyResult::All),
            _ => {}
        }
    }
}

async fn is_running(runtime: &Arc<dyn DynRuntimeService>, id: &str) -> bool {
    let status_request = ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let status = runtime.container_status(status_request).await.ok().and_then(|answer| answer.status);
    status.is_some_and(|status| status.state == ContainerState::Running as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn opens_the_newest_file_while_a_log_is_rotated() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        let read = async || {
            let mut text = String::new();
            open_current(&path).await?.read_to_string(&mut text).await.expect("a text");
            Ok::<_, LogError>(text)
        };
        assert!(matches!(read().await, Err(LogError::Resolve { .. })));
        for (name, text) in [("0.log.1.gz", "a"), ("0.log.2", "b"), ("0.log.3.tmp", "c")] {
            std::fs::write(dir.path().join(name), text).expect("a file");
        }
        assert_eq!(read().await.expect("a log"), "b");
        std::fs::write(&path, "d").expect("a file");
        assert_eq!(read().await.expect("a log"), "d");
    }
}
