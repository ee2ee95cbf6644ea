//! What is checked before a cluster or a node starts, so that a problem of the machine is one sentence that says what to do.
//! `tiphys check` shows the same findings before a start.

pub(crate) mod directory;
pub(crate) mod kernel;
mod refusal;
pub(crate) mod version;

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Error, Result};
use directory::DirectoryFacts;
use kernel::KernelFacts;
use refusal::Confinement;
use version::DataVersion;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// It works, with a restriction.
    Warning,
    Failed,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) detail: String,
}

pub(crate) fn finding(what: &'static str, verdict: Verdict, detail: impl Into<String>) -> Finding {
    Finding { what, verdict, detail: detail.into() }
}

/// What a data directory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A cluster, or a server of one.
    Server,
    /// A node that `tiphys agent` joins.
    Agent,
}

impl Role {
    fn describe(self) -> &'static str {
        match self {
            Role::Server => "a cluster",
            Role::Agent => "a node of a cluster",
        }
    }
}

/// Creates the data directory where it is missing, and returns its one canonical path, if it can be used.
pub(crate) fn open_data_dir(path: &Path, role: Role) -> Result<PathBuf> {
    let created = fs::create_dir_all(path).and_then(|()| fs::canonicalize(path));
    let data_dir = created.map_err(|error| refused(path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let facts = DirectoryFacts::collect(&data_dir).map_err(|error| refused(&data_dir, error))?;
    first_failure(facts.judge(Some(role))).map_or(Ok(()), |why| Err(Error::Machine(why)))?;
    DataVersion::read(&data_dir).write(&data_dir)?;
    Ok(data_dir)
}

fn refused(path: &Path, error: Errno) -> Error {
    let user = rustix::process::geteuid().as_raw();
    Error::Machine(refusal::explain(path, error, user, Confinement::collect().as_ref()))
}

/// Rejects a machine whose kernel cannot run pods.
pub(crate) fn check_kernel() -> Result<()> {
    first_failure(KernelFacts::collect().judge()).map_or(Ok(()), |why| Err(Error::Node(why)))
}

/// Logs what restricts a cluster in an open data directory.
pub(crate) fn log_warnings(data_dir: &Path) {
    let findings = DirectoryFacts::collect(data_dir).map(|facts| facts.judge(None)).unwrap_or_default();
    for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Warning) {
        tracing::warn!(check = finding.what, "{}", finding.detail);
    }
}

fn first_failure(findings: Vec<Finding>) -> Option<String> {
    findings.into_iter().find(|finding| finding.verdict == Verdict::Failed).map(|finding| finding.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directories_are_checked_when_they_are_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("a/data");
        let open = |role: Role| open_data_dir(&data, role).map_err(|error| error.describe());
        assert_eq!(open(Role::Server), Ok(data.clone()));
        assert!(data.join(version::FILE).exists(), "its version is written");
        fs::create_dir(data.join("store")).expect("a directory");
        assert_eq!(open(Role::Server), Ok(data.clone()));
        assert!(open(Role::Agent).expect_err("refused").contains("has a cluster of its own"));
        fs::write(data.join(version::FILE), "tiphys-data 2\nwritten by tiphys 9.8.7\n").expect("a file");
        assert!(open(Role::Server).expect_err("refused").contains("tiphys 9.8.7"));
        fs::write(dir.path().join("file"), "").expect("a file");
        let error = open_data_dir(&dir.path().join("file"), Role::Server).expect_err("refused").describe();
        assert!(error.contains("is not a directory"), "{error}");
    }
}
