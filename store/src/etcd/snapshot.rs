//! Saves etcd's own snapshot format with checksum, which `etcdutl snapshot restore` reads.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::client::{Client, failed};
use super::maintenance::{newest, verify_snapshot};
use crate::{Error, Result, Revision};

/// Writes a temporary file, checks it, and renames it: a file with the name of a snapshot is complete.
pub(super) async fn save(client: &Client, path: &Path) -> Result<Revision> {
    let revision = newest(client).await?;
    let temporary = temporary(path);
    let saved = write(client, &temporary, path).await;
    if saved.is_err() {
        // The space is needed; the next snapshot replaces what remains.
        let _ = std::fs::remove_file(&temporary);
    }
    saved.map(|()| revision)
}

async fn write(client: &Client, temporary: &Path, path: &Path) -> Result<()> {
    let io = |source| failed_write(path, source);
    let mut stream = client.snapshot().await.map_err(|status| failed(&status))?;
    let mut file = create(temporary).map_err(io)?;
    while let Some(part) = stream.message().await.map_err(|status| failed(&status))? {
        file.write_all(&part.blob).map_err(io)?;
    }
    file.sync_all().map_err(io)?;
    verify_snapshot(temporary)?;
    std::fs::rename(temporary, path).map_err(io)?;
    File::open(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(io)
}

/// It contains secrets: only the owner may read it.
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

fn failed_write(path: &Path, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::Full(source),
        _ => Error::Io { what: format!("cannot write {}", path.display()), source },
    }
}
