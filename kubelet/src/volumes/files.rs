//! Files that the kubelet writes into a volume, by their path within it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct File {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// The owner, if that is not the kubelet.
    pub(crate) user: Option<u32>,
}

pub(crate) type Files = BTreeMap<String, File>;

impl File {
    pub(crate) fn new(data: impl Into<Vec<u8>>, mode: u32) -> File {
        File { data: data.into(), mode, user: None }
    }
}

/// Equal for equal files.
pub(crate) fn stamp(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    hasher.finish()
}

/// A path that cannot be written in a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("invalid path: must not be empty: {0:?}")]
    Empty(String),
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    #[error("invalid path: must be less than or equal to {LONGEST_PATH} characters")]
    TooLong,
    #[error("invalid path: must not contain '..': {0}")]
    ParentDirectory(String),
    #[error("invalid path: filenames must be less than or equal to {LONGEST_NAME} characters")]
    NameTooLong,
    #[error("invalid path: must not start with '..': {0}")]
    LeadingDots(String),
}

/// The same files by clean paths. No path leaves the volume or uses a name that atomic updates need.
pub(crate) fn checked(files: Files) -> Result<Files, PathError> {
    files.into_iter().map(|(path, file)| Ok((check_path(&path)?, file))).collect()
}

fn check_path(path: &str) -> Result<String, PathError> {
    if path.is_empty() {
        return Err(PathError::Empty(String::new()));
    }
    if path.starts_with('/') {
        return Err(PathError::Absolute(path.to_string()));
    }
    if path.len() > LONGEST_PATH {
        return Err(PathError::TooLong);
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(PathError::ParentDirectory(path.to_string()));
    }
    if parts.iter().any(|part| part.len() > LONGEST_NAME) {
        return Err(PathError::NameTooLong);
    }
    match parts.first() {
        None => Err(PathError::Empty(path.to_string())),
        Some(first) if first.starts_with("..") => Err(PathError::LeadingDots(path.to_string())),
        Some(_) => Ok(parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_paths_outside_of_the_volume() {
        let cases = [
            ("a", Ok("a")),
            ("a//b/./c", Ok("a/b/c")),
            ("a/..b", Ok("a/..b")),
            ("", Err("must not be empty")),
            (".", Err("must not be empty")),
            ("/a", Err("must be relative")),
            ("a/../b", Err("must not contain '..'")),
            ("..", Err("must not contain '..'")),
            ("..data", Err("must not start with '..'")),
        ];
        for (path, wanted) in cases {
            match (check_path(path), wanted) {
                (Ok(path), Ok(wanted)) => assert_eq!(path, wanted),
                (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{path}: {error}"),
                (got, _) => panic!("{path}: {got:?}"),
            }
        }
        assert!(check_path(&"x".repeat(256)).unwrap_err().to_string().contains("255"));
        assert!(check_path(&"x/".repeat(2049)).unwrap_err().to_string().contains("4096"));
    }
}
