//! Identifies the cluster of a data directory by an ID that is generated once and moves with the directory. State
//! outside of the directory is found by this ID, regardless of the path.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::machine::files::write_private;

const FILE: &str = "cluster-id";
/// Hexadecimal digits: the names of sockets below have to be short.
const DIGITS: usize = 16;

/// Creates the data directory where it is missing, and returns its one canonical path.
pub(crate) fn open_data_dir(path: &Path) -> Result<PathBuf> {
    fs::create_dir_all(path).map_err(Error::file(path))?;
    fs::canonicalize(path).map_err(Error::file(path))
}

/// The ID of the cluster in a data directory, generated if there is none. `states` holds a directory for each cluster
/// with pods: earlier versions named it by the path of the data directory, and their pods are taken over.
pub(crate) fn cluster_id(data_dir: &Path, states: &Path) -> Result<String> {
    let path = data_dir.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => checked(text.trim(), &path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let by_path = hash(data_dir);
            let id = if states.join(&by_path).is_dir() { by_path } else { random()? };
            write_private(&path, &format!("{id}\n"))?;
            Ok(id)
        }
        Err(error) => Err(Error::file(&path)(error)),
    }
}

/// The ID becomes part of paths: any other text is rejected.
fn checked(text: &str, path: &Path) -> Result<String> {
    let is_id = text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match is_id {
        true => Ok(text.to_string()),
        false => Err(Error::Flags(vec![format!("{}: {text:?} is not {DIGITS} hexadecimal digits", path.display())])),
    }
}

fn random() -> Result<String> {
    let mut bytes = [0; DIGITS / 2];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled.map_err(|error| Error::Runtime(error.into()))?;
    Ok(stdx::hex::encode(&bytes))
}

fn hash(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let sum = stdx::fnv::fnv1a_64(bytes.iter().copied());
    format!("{sum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_independent_of_the_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let states = dir.path().join("run");
        let id = |path: &Path| {
            let data_dir = open_data_dir(path).expect("a data directory");
            cluster_id(&data_dir, &states).expect("an id")
        };
        let (data, other) = (dir.path().join("data"), dir.path().join("other"));
        let first = id(&data);
        assert_eq!(id(&other.join("../data")), first, "with dots");
        std::os::unix::fs::symlink(&data, dir.path().join("link")).expect("a link");
        assert_eq!(id(&dir.path().join("link")), first, "through a link");
        assert_ne!(id(&other), first);
        let moved = dir.path().join("moved");
        fs::rename(&data, &moved).expect("a move");
        assert_eq!(id(&moved), first, "after a move");
        // Pods that an older version runs are named by the path.
        let old = open_data_dir(&dir.path().join("old")).expect("a data directory");
        fs::create_dir_all(states.join(hash(&old))).expect("a directory");
        assert_eq!(id(&old), hash(&old));
    }

    #[test]
    fn rejects_invalid_ids() {
        let dir = tempfile::tempdir().expect("a directory");
        for text in ["", "../../etc/passwd", "0123456789ABCDEF", "0123"] {
            fs::write(dir.path().join(FILE), text).expect("a file");
            let error = cluster_id(dir.path(), dir.path()).expect_err("refused").describe();
            assert!(error.contains("cluster-id"), "{error}");
        }
    }
}
