//! Files that the agent writes into a volume, by their path within it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    pub data: Vec<u8>,
    pub mode: u32,
    /// Who owns it, where that is not the agent.
    pub user: Option<u32>,
}

pub type Files = BTreeMap<String, File>;

impl File {
    pub fn new(data: impl Into<Vec<u8>>, mode: u32) -> File {
        File { data: data.into(), mode, user: None }
    }
}

/// Equal for equal files.
pub fn stamp(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    hasher.finish()
}

/// The same files by clean paths, none of which leads out or collides with the names that updates need.
pub fn checked(files: Files) -> Result<Files, String> {
    files.into_iter().map(|(path, file)| Ok((check_path(&path)?, file))).collect()
}

fn check_path(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err("invalid path: must not be empty: \"\"".to_string());
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > LONGEST_PATH {
        return Err(format!("invalid path: must be less than or equal to {LONGEST_PATH} characters"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(format!("invalid path: must not contain '..': {path}"));
    }
    if parts.iter().any(|part| part.len() > LONGEST_NAME) {
        return Err(format!("invalid path: filenames must be less than or equal to {LONGEST_NAME} characters"));
    }
    match parts.first() {
        None => Err(format!("invalid path: must not be empty: {path:?}")),
        Some(first) if first.starts_with("..") => Err(format!("invalid path: must not start with '..': {path}")),
        Some(_) => Ok(parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_volume() {
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
                (Err(error), Err(wanted)) => assert!(error.contains(wanted), "{path}: {error}"),
                (got, _) => panic!("{path}: {got:?}"),
            }
        }
        assert!(check_path(&"x".repeat(256)).unwrap_err().contains("255"));
        assert!(check_path(&"x/".repeat(2049)).unwrap_err().contains("4096"));
    }
}
