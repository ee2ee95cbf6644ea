//! The credentials of an S3-compatible service: from a file in the form of AWS's tools, or from the environment. They
//! are read for each request, so that rotated ones are used.

use std::fmt;
use std::path::{Path, PathBuf};

pub(super) struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
}

/// They are never shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("cannot read {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    #[error("{} has no aws_access_key_id and aws_secret_access_key", .0.display())]
    Incomplete(PathBuf),
    #[error("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --snapshot-s3-credentials-file")]
    Missing,
}

impl Credentials {
    pub(super) fn read(file: Option<&Path>) -> Result<Credentials, CredentialsError> {
        let Some(path) = file else {
            let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
            let keys = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
            let (access_key, secret_key) = keys.ok_or(CredentialsError::Missing)?;
            return Ok(Credentials { access_key, secret_key, session_token: variable("AWS_SESSION_TOKEN") });
        };
        let text = std::fs::read_to_string(path).map_err(|error| CredentialsError::File(path.to_path_buf(), error))?;
        parse(&text).ok_or_else(|| CredentialsError::Incomplete(path.to_path_buf()))
    }
}

/// The first section of the file that has them.
fn parse(text: &str) -> Option<Credentials> {
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
    };
    let (access_key, secret_key) = of("aws_access_key_id").zip(of("aws_secret_access_key"))?;
    Some(Credentials { access_key, secret_key, session_token: of("aws_session_token") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_files_of_aws_tools_and_shows_no_secret() {
        let text = "[default]\naws_access_key_id = AKIA\naws_secret_access_key=a/b=c\n";
        let read = parse(text).expect("complete");
        assert_eq!((&*read.access_key, &*read.secret_key, read.session_token.is_none()), ("AKIA", "a/b=c", true));
        assert!(!format!("{read:?}").contains("AKIA"));
        assert!(parse("[default]\naws_access_key_id = AKIA\n").is_none());
    }
}
