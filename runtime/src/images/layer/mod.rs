//! Layers: unpacked from a blob into a directory for overlayfs.
//!
//! [`plan`] turns each entry into an operation, [`apply`] applies it below one open directory, and [`complete`] adds what
//! depends on the layers below.

pub(crate) mod apply;
pub(crate) mod complete;
pub(crate) mod compress;
pub(crate) mod plan;
pub mod tar;
#[cfg(test)]
mod tar_tests;
mod tar_writer;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::digest::{Digest, HashingReader};
use super::error::is_full;
use apply::Unpacker;
use compress::Decoder;
use tar::TarError;

/// Why an entry of a layer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error("the path contains `..`")]
    PathLeavesRoot,
    #[error("a name is longer than 255 bytes")]
    NameTooLong,
    #[error("the path contains a zero byte")]
    PathWithZero,
    #[error("the path is too long")]
    PathTooLong,
    #[error("the root can only be a directory")]
    RootIsNoDirectory,
    #[error("devices are not allowed in images")]
    Device,
    #[error("a character device with the number 0:0")]
    DeviceLikeWhiteout,
    #[error("the target of the symlink is empty or too long")]
    SymlinkLength,
    #[error("the target contains a zero byte")]
    TargetWithZero,
    #[error("a hard link to itself or to the root")]
    LinkToItself,
    #[error("a hard link to a whiteout or a file of aufs")]
    LinkToWhiteout,
    #[error("a hard link to a directory")]
    LinkToDirectory,
    #[error("a hard link to a file that does not exist")]
    LinkToNothing,
    #[error("a whiteout is used as a directory")]
    BelowWhiteout,
    #[error("a whiteout without a name")]
    WhiteoutWithoutName,
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("{path}: {why}")]
    Refused { path: String, why: InvalidEntry },
    #[error("more than {limit} {what}")]
    Limit { what: &'static str, limit: u64 },
    #[error(transparent)]
    Tar(#[from] TarError),
    #[error("expected digest {expected}, found {found}")]
    Content { expected: Digest, found: Digest },
    #[error("no space left on device")]
    DiskFull,
    #[error("{path}")]
    Io { path: String, source: io::Error },
    #[error("cancelled")]
    Cancelled,
}

impl LayerError {
    /// Adds the path to a system error, and recognizes a full disk.
    pub fn at(path: &[u8]) -> impl Fn(rustix::io::Errno) -> LayerError + '_ {
        move |errno| {
            let source = io::Error::from(errno);
            if is_full(&source) {
                LayerError::DiskFull
            } else {
                LayerError::Io { path: plan::display_path(path), source }
            }
        }
    }
}

/// Limits of a layer, which no legitimate image comes near.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The total size of a layer's files.
    pub bytes: u64,
    /// The number of entries.
    pub entries: u64,
    /// The maximum ratio of unpacked size to blob size, above `free_bytes`.
    pub ratio: u64,
    pub free_bytes: u64,
    /// Whether layers may contain devices.
    pub devices: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes: 64 << 30, entries: 2_000_000, ratio: 200, free_bytes: 1 << 30, devices: true }
    }
}

impl Limits {
    /// The maximum size that a blob of this size may decompress to.
    pub fn stream(&self, blob: u64) -> u64 {
        let headers = self.entries.saturating_mul(4 * tar::BLOCK as u64);
        let whole = self.bytes.saturating_add(headers);
        whole.min(blob.saturating_mul(self.ratio).max(self.free_bytes))
    }
}

/// A flag that cancels unpacking.
#[derive(Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if a stop was requested.
    pub fn check(&self) -> Result<(), LayerError> {
        if self.0.load(Ordering::Relaxed) { Err(LayerError::Cancelled) } else { Ok(()) }
    }
}

/// Unpacks a verified blob into an empty directory, and verifies the digest of the uncompressed content.
pub fn unpack(
    blob: &Path,
    into: &Path,
    diff_id: &Digest,
    limits: &Limits,
    cancel: &Cancel,
) -> Result<Unpacker, LayerError> {
    let at = |source| LayerError::Io { path: blob.display().to_string(), source };
    let file = File::open(blob).map_err(at)?;
    let size = file.metadata().map_err(at)?.len();
    let decoder = Decoder::new(BufReader::with_capacity(128 << 10, file)).map_err(TarError::Io)?;
    let limited = compress::LimitedReader::new(decoder, limits.stream(size));
    let mut reader = tar::Reader::new(HashingReader::new(limited, diff_id.hasher()));
    let mut unpacker = Unpacker::open(into, limits.clone())?;
    unpacker.apply(&mut reader, cancel).and_then(|()| Ok(reader.drain()?)).map_err(over_limit)?;
    let found = reader.into_inner().finish();
    match found == *diff_id {
        true => Ok(unpacker),
        false => Err(LayerError::Content { expected: diff_id.clone(), found }),
    }
}

/// The limit of the stream is reported through readers that only know I/O errors.
fn over_limit(error: LayerError) -> LayerError {
    match error {
        LayerError::Tar(TarError::Io(error)) => match compress::limit_of(&error) {
            Some(limit) => LayerError::Limit { what: "bytes when unpacked", limit },
            None => LayerError::Tar(TarError::Io(error)),
        },
        other => other,
    }
}

/// The disk usage of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

/// The directory of a layer's content.
pub fn content(layer: &Path) -> PathBuf {
    layer.join("fs")
}
