//! Downloads a blob to disk. It is verified while it streams, and continued after an interruption.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use ::http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, RANGE, RETRY_AFTER};
use bytes::Bytes;
use stdx::backoff::pause_after;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::digest::{Digest, Hasher};
use super::super::error::{Error, Result};
use super::super::manifest::Descriptor;
use super::super::store::{IngestPath, Store, check};
use super::http::Reply;
use super::{Client, Endpoint, RegistryRequest, is_overloaded, registry_error, successful, unreachable};

/// The number of attempts without progress before the next host is tried.
const MAX_FAILURES: u32 = 5;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A download, and the callback for its progress.
pub(crate) struct Download<'a> {
    pub client: &'a Client,
    pub store: &'a Arc<Store>,
    pub blob: &'a Descriptor,
    pub report: &'a (dyn Fn(u64) + Send + Sync),
}

/// Downloads the blob into the store.
pub(crate) async fn download(what: &Download<'_>) -> Result<()> {
    let mut sink = Sink::start(what.store.clone(), what.blob)?;
    let mut failure = None;
    let eligible = what.client.hosts.iter().filter(|endpoint| endpoint.host.pull);
    for endpoint in eligible {
        match from(what, endpoint, &mut sink).await {
            Ok(()) => match sink.finish(what.store, what.blob).await {
                // This host sent wrong content; another may not.
                Err(error @ Error::Digest { .. }) => {
                    failure = Some(error);
                    sink = Sink::start(what.store.clone(), what.blob)?;
                }
                done => return done,
            },
            Err(error @ (Error::DiskFull { .. } | Error::Io { .. })) => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    sink.discard().await;
    Err(failure.unwrap_or_else(|| what.client.no_host()))
}

/// Downloads the blob from one host, with retries as long as there is progress.
async fn from(what: &Download<'_>, endpoint: &Endpoint, sink: &mut Sink) -> Result<()> {
    let mut failures = 0;
    loop {
        let before = sink.offset;
        let (error, requested_delay) = match attempt(what, endpoint, sink).await {
            Ok(()) => return Ok(()),
            Err(DownloadError::Final(error)) => return Err(error),
            Err(DownloadError::Transient(error, pause)) => (error, pause),
        };
        failures = if sink.offset > before { 0 } else { failures + 1 };
        if failures >= MAX_FAILURES {
            return Err(error);
        }
        tracing::debug!(blob = %what.blob.digest, at = sink.offset, error = error.chain(), "download failed, retrying");
        let default_delay = pause_after(failures + 1, what.client.pool.timeouts().retry, MAX_RETRY_DELAY);
        tokio::time::sleep(requested_delay.unwrap_or(default_delay).min(MAX_RETRY_DELAY)).await;
    }
}

enum DownloadError {
    /// A retry may help, possibly after a delay that the registry requests.
    Transient(Error, Option<Duration>),
    Final(Error),
}

impl From<Error> for DownloadError {
    fn from(error: Error) -> DownloadError {
        match error {
            Error::Unreachable { .. } => DownloadError::Transient(error, None),
            error => DownloadError::Final(error),
        }
    }
}

/// One request, from where the last one was interrupted.
async fn attempt(what: &Download<'_>, endpoint: &Endpoint, sink: &mut Sink) -> Result<(), DownloadError> {
    let path = format!("blobs/{}", what.blob.digest);
    let mut request = RegistryRequest::get(&path);
    if sink.offset > 0 {
        let range = format!("bytes={}-", sink.offset);
        request.headers.insert(RANGE, HeaderValue::from_str(&range).map_err(|_| Error::Cancelled)?);
    }
    let reply = what.client.request(endpoint, &request).await?;
    if is_overloaded(reply.status) {
        let pause = reply.header(&RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
        return match successful(endpoint, what.blob.digest.as_str(), reply).await {
            Ok(_) => Ok(()),
            Err(error) => Err(DownloadError::Transient(error, pause)),
        };
    }
    if reply.status == StatusCode::RANGE_NOT_SATISFIABLE {
        sink.restart().await?;
        let error = Error::Unreachable { host: endpoint.name(), why: "failed to continue the download".to_owned() };
        return Err(DownloadError::Transient(error, None));
    }
    let reply = successful(endpoint, &format!("blob {}", what.blob.digest), reply).await?;
    match begin(sink.offset, what.blob.size, &reply) {
        BlobResponse::Continue => {}
        BlobResponse::StartOver => sink.restart().await?,
        BlobResponse::Wrong(why) => return Err(DownloadError::Final(registry_error(endpoint, why))),
    }
    stream(what, endpoint, sink, reply).await
}

#[derive(Debug, PartialEq, Eq)]
enum BlobResponse {
    Continue,
    StartOver,
    Wrong(String),
}

/// Whether a response continues at our offset, or starts over.
fn begin(offset: u64, size: u64, reply: &Reply) -> BlobResponse {
    let length = reply.header(&CONTENT_LENGTH).and_then(|text| text.parse().ok());
    judge_range(offset, size, reply.status, length, reply.header(&CONTENT_RANGE))
}

fn judge_range(offset: u64, size: u64, status: StatusCode, length: Option<u64>, range: Option<&str>) -> BlobResponse {
    let start = if status == StatusCode::PARTIAL_CONTENT {
        let first = range.and_then(|range| range.strip_prefix("bytes ")).and_then(|range| range.split('-').next());
        match first.and_then(|first| first.parse::<u64>().ok()) {
            Some(start) if start == offset => start,
            Some(0) => 0,
            _ => return BlobResponse::Wrong("sent another range than requested".to_owned()),
        }
    } else {
        0
    };
    match length {
        Some(length) if start.checked_add(length) != Some(size) => {
            BlobResponse::Wrong(format!("has {} bytes of a blob of {size}", start.saturating_add(length)))
        }
        _ if start == offset => BlobResponse::Continue,
        _ => BlobResponse::StartOver,
    }
}

async fn stream(
    what: &Download<'_>,
    endpoint: &Endpoint,
    sink: &mut Sink,
    mut reply: Reply,
) -> Result<(), DownloadError> {
    let size = what.blob.size;
    loop {
        match reply.chunk().await.map_err(|error| unreachable(endpoint, &error))? {
            Some(chunk) => {
                if sink.offset + chunk.len() as u64 > size {
                    return Err(DownloadError::Final(registry_error(
                        endpoint,
                        format!("sent more than the {size} bytes of the blob"),
                    )));
                }
                sink.write(chunk).await?;
                (what.report)(sink.offset);
            }
            None if sink.offset == size => return Ok(()),
            None => {
                let why = format!("ended at {} of {size} bytes", sink.offset);
                return Err(DownloadError::Transient(Error::Unreachable { host: endpoint.name(), why }, None));
            }
        }
    }
}

enum Chunk {
    Data(Bytes),
    Restart,
}

/// Hashes and writes on another thread, concurrently with the network.
struct Sink {
    pieces: mpsc::Sender<Chunk>,
    worker: JoinHandle<Result<(IngestPath, Digest)>>,
    offset: u64,
}

impl Sink {
    fn start(store: Arc<Store>, blob: &Descriptor) -> Result<Sink> {
        let (pieces, received) = mpsc::channel(32);
        let expected = blob.digest.clone();
        let worker = tokio::task::spawn_blocking(move || {
            let (temp, file) = store.temp_file()?;
            let found = write(&temp, file, received, &expected)?;
            Ok((temp, found))
        });
        Ok(Sink { pieces, worker, offset: 0 })
    }

    async fn write(&mut self, data: Bytes) -> Result<()> {
        self.offset += data.len() as u64;
        self.send(Chunk::Data(data)).await
    }

    async fn restart(&mut self) -> Result<()> {
        self.offset = 0;
        self.send(Chunk::Restart).await
    }

    /// The worker only closes the channel after a failure.
    async fn send(&mut self, piece: Chunk) -> Result<()> {
        if self.pieces.send(piece).await.is_ok() {
            return Ok(());
        }
        match (&mut self.worker).await {
            Ok(Err(error)) => Err(error),
            _ => Err(Error::Cancelled),
        }
    }

    /// Stops, and leaves nothing on disk.
    async fn discard(self) {
        drop(self.pieces);
        let _ = self.worker.await;
    }

    async fn finish(self, store: &Store, blob: &Descriptor) -> Result<()> {
        drop(self.pieces);
        let (temp, found) = self.worker.await.map_err(|_| Error::Cancelled)??;
        check("blob", &blob.digest, found)?;
        store.commit_blob(temp, &blob.digest)
    }
}

fn write(temp: &IngestPath, mut file: File, mut pieces: mpsc::Receiver<Chunk>, expected: &Digest) -> Result<Digest> {
    let mut hasher: Hasher = expected.hasher();
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Chunk::Data(data) => {
                hasher.update(&data);
                file.write_all(&data).map_err(Error::at(temp.path()))?;
            }
            Chunk::Restart => {
                hasher = expected.hasher();
                file.set_len(0).map_err(Error::at(temp.path()))?;
                std::io::Seek::rewind(&mut file).map_err(Error::at(temp.path()))?;
            }
        }
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_responses_to_range_requests() {
        let (whole, part) = (StatusCode::OK, StatusCode::PARTIAL_CONTENT);
        type Case = (u64, StatusCode, Option<u64>, Option<&'static str>, Result<BlobResponse, &'static str>);
        let cases: &[Case] = &[
            (0, whole, Some(10), None, Ok(BlobResponse::Continue)),
            (0, whole, None, None, Ok(BlobResponse::Continue)),
            (0, whole, Some(9), None, Err("has 9 bytes")),
            (4, whole, Some(10), None, Ok(BlobResponse::StartOver)),
            (4, part, Some(6), Some("bytes 4-9/10"), Ok(BlobResponse::Continue)),
            (4, part, Some(10), Some("bytes 0-9/10"), Ok(BlobResponse::StartOver)),
            (4, part, Some(7), Some("bytes 3-9/10"), Err("another range")),
            (4, part, Some(6), None, Err("another range")),
            (4, part, Some(5), Some("bytes 4-8/9"), Err("has 9 bytes")),
            (4, part, Some(u64::MAX), Some("bytes 4-8/9"), Err("has 18446744073709551615")),
            (0, part, Some(6), Some("bytes 4-9/10"), Err("another range")),
        ];
        for (offset, status, length, range, expected) in cases {
            let found = judge_range(*offset, 10, *status, *length, *range);
            match (&found, expected) {
                (BlobResponse::Wrong(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, Ok(expected)) => assert_eq!(found, expected, "{offset} {status} {range:?}"),
                (found, Err(_)) => panic!("{offset} {status} {range:?}: {found:?}"),
            }
        }
    }
}
