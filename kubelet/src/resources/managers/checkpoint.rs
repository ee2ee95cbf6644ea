//! Checkpoints of assignments: JSON files with a checksum, replaced atomically.

use std::path::{Path, PathBuf};

use api::{Tree, json};
use stdx::fnv::fnv1a_32;
use stdx::fs::{Durability, ReplaceOptions};

use crate::volumes::create_dirs;

const CHECKSUM: &str = "checksum";

/// A checkpoint that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error("checkpoint is corrupted")]
    Corrupted,
}

/// A checkpoint that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .file.display())]
pub struct WriteError {
    file: PathBuf,
    source: std::io::Error,
}

/// None if there is no file. An unreadable file is an error, because its assignments may be in use.
pub(crate) fn read(file: &Path) -> Result<Option<Tree>, ReadError> {
    let bytes = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(bytes) => bytes,
    };
    let mut tree = json::decode(&bytes)?;
    // Upstream's kubelet writes such a file, with its own checksum, for the policy none. It has no assignments.
    if tree.str("policyName").eq_ignore_ascii_case("none") && tree.at("entries").is_null() {
        return Ok(None);
    }
    let stored = tree.remove(CHECKSUM).and_then(|stored| stored.as_int());
    if tree.as_map().is_none() || stored != Some(checksum(&tree)) {
        return Err(ReadError::Corrupted);
    }
    Ok(Some(tree))
}

pub(crate) fn write(file: &Path, mut tree: Tree) -> Result<(), WriteError> {
    tree.set(CHECKSUM, checksum(&tree));
    let write = || {
        file.parent().map(create_dirs).transpose()?;
        ReplaceOptions::PRIVATE.durable(Durability::All).write(file, &json::encode(&tree, None))
    };
    write().map_err(|source| WriteError { file: file.to_path_buf(), source })
}

/// FNV-1a of the content.
fn checksum(tree: &Tree) -> i64 {
    i64::from(fnv1a_32(json::encode(tree, None).iter().copied()))
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn detects_changed_checkpoints() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("below/cpu_manager_state");
        assert_eq!(read(&file).expect("no file"), None);
        let state = tree! { "policyName" => "static", "entries" => tree! { "a" => "0-1" } };
        write(&file, state.clone()).expect("written");
        assert_eq!(read(&file).expect("a checkpoint"), Some(state));
        let text = std::fs::read_to_string(&file).expect("text").replace("0-1", "0-2");
        std::fs::write(&file, text).expect("written");
        assert!(matches!(read(&file), Err(ReadError::Corrupted)));
        std::fs::write(&file, "{").expect("written");
        assert!(read(&file).is_err());
    }

    #[test]
    fn ignores_upstreams_empty_checkpoint() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("state");
        for (text, is_ignored) in [
            (r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#, true),
            (r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#, true),
            (r#"{"policyName":"static","defaultCpuSet":"0-3","checksum":1}"#, false),
            (r#"{"policyName":"none","entries":{"a":{"c":"1"}},"checksum":1}"#, false),
        ] {
            std::fs::write(&file, text).expect("written");
            match read(&file) {
                Ok(found) => assert!(is_ignored && found.is_none(), "{text}"),
                Err(error) => assert!(!is_ignored && matches!(error, ReadError::Corrupted), "{text}"),
            }
        }
    }
}
