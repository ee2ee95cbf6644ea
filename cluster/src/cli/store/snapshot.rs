//! Snapshots: of the embedded store as one state file, of etcd as its own database file.

use std::path::Path;

use store::embedded::{self, offline};
use store::etcd::maintenance::{Members, verify_snapshot};

use super::location::{Location, Locks, store_dir};
use crate::cli::say;
use crate::error::{Error, Result};

/// The first bytes of the embedded store's files.
const MAGIC: &[u8] = b"TIPHYSST";

pub(super) async fn save(of: &Location, file: &Path) -> Result<()> {
    if file.exists() {
        let why = format!("{} exists already: choose another name, or remove it", file.display());
        return Err(Error::Flags(vec![why]));
    }
    match of {
        Location::Directory(dir) => {
            let contents = offline::read(&store_dir(dir))?;
            offline::write_snapshot(file, &contents)?;
        }
        Location::Etcd(config) => drop(Members::new(config)?.snapshot(file).await?),
    }
    verify(file)
}

pub(super) fn verify(file: &Path) -> Result<()> {
    if starts_as_store(file)? {
        let contents = offline::read_snapshot(file)?;
        say(&format!("{}: revision {}, {}", file.display(), contents.revision, contents.digest()));
    } else {
        let size = verify_snapshot(file)?;
        say(&format!("{}: a snapshot of etcd, {size} bytes, its checksum matches", file.display()));
    }
    Ok(())
}

pub(super) fn restore(file: &Path, data_dir: &Path) -> Result<()> {
    if !starts_as_store(file)? {
        let why = format!(
            "{} is no snapshot of an embedded store; those of etcd are restored by `etcdutl snapshot restore`",
            file.display()
        );
        return Err(Error::Flags(vec![why]));
    }
    let _locks = Locks::take_empty(data_dir)?;
    let dir = store_dir(data_dir);
    if dir.join("VERSION").exists() {
        let why = format!("{} contains a store already: move it away first", dir.display());
        return Err(Error::Flags(vec![why]));
    }
    let revision = embedded::restore(file, &dir)?;
    say(&format!("restored {} to {}, which starts at revision {revision}", file.display(), dir.display()));
    Ok(())
}

fn starts_as_store(file: &Path) -> Result<bool> {
    use std::io::Read;
    let mut start = Vec::new();
    let opened = std::fs::File::open(file).map_err(Error::file(file))?;
    opened.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(Error::file(file))?;
    Ok(start == MAGIC)
}
