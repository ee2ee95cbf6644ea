//! Files that only their owner can read.

use std::path::Path;

use stdx::fs::{Durability, ReplaceOptions};

use crate::error::{Error, Result};

/// Writes a file that only its owner can read, whole or not at all, also after a loss of power.
pub(crate) fn write_durable(path: &Path, text: &str) -> Result<()> {
    ReplaceOptions::PRIVATE.durable(Durability::Data).write(path, text.as_bytes()).map_err(Error::file(path))
}

/// The same without waiting for the disk, for files that can be created again.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    ReplaceOptions::PRIVATE.write(path, text.as_bytes()).map_err(Error::file(path))
}
