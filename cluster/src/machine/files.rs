//! Files that only their owner can read.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes a file that only its owner can read, whole or not at all, also after a loss of power.
pub fn write_durable(path: &Path, text: &str) -> Result<()> {
    replace(path, text, true).map_err(Error::file(path))
}

/// The same without waiting for the disk, for files that can be created again.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    replace(path, text, false).map_err(Error::file(path))
}

fn replace(path: &Path, text: &str, sync: bool) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    if sync {
        file.sync_data()?;
    }
    fs::rename(&temporary, path)
}
