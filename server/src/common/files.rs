//! Configuration files of upstream's kinds: read and checked for unsupported fields; errors name the file, the line and
//! the field.

use std::fmt;
use std::path::{Path, PathBuf};

use api::Tree;

/// A file that cannot be used.
#[derive(Debug)]
pub struct Error {
    pub path: PathBuf,
    pub line: Option<usize>,
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for Error {}

/// A configuration file that was read.
pub struct File {
    path: PathBuf,
    text: String,
    pub tree: Tree,
}

impl File {
    /// A document of this kind, in one of these versions.
    pub fn read(path: &Path, kind: &str, versions: &[&str]) -> Result<File, Error> {
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error, None))?;
        File::parse(path, &bytes, kind, versions)
    }

    /// Parses the content of a file; `path` is named in errors.
    pub fn parse(path: &Path, bytes: &[u8], kind: &str, versions: &[&str]) -> Result<File, Error> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let tree = api::yaml::decode(bytes).map_err(|error| unreadable(path, &error, error.line()))?;
        let file = File { path: path.to_path_buf(), text, tree };
        if file.tree.str("kind") != kind {
            return Err(file.wrong("kind", file.tree.str("kind"), format!("it must be {kind}")));
        }
        let version = file.tree.str("apiVersion");
        if !versions.contains(&version) {
            return Err(file.wrong("apiVersion", version, format!("it must be {}", versions.join(" or "))));
        }
        Ok(file)
    }

    /// An error about a field; `written` is its text in the file, which identifies the line.
    pub fn wrong(&self, field: &str, written: &str, why: impl fmt::Display) -> Error {
        let mut lines = self.text.lines();
        let line = if written.is_empty() { None } else { lines.position(|line| line.contains(written)) };
        let about = [field, written].map(str::to_string);
        let about: Vec<_> = about.into_iter().filter(|part| !part.is_empty()).collect();
        let problem = format!("{}: {why}", about.join(": "));
        Error { path: self.path.clone(), line: line.map(|line| line + 1), problem }
    }

    /// An error about a secret, whose value is not shown.
    pub(crate) fn wrong_secret(&self, field: &str, why: impl fmt::Display) -> Error {
        Error { path: self.path.clone(), line: None, problem: format!("{field}: {why}") }
    }

    /// Rejects unknown fields.
    pub fn only(&self, tree: &Tree, field: &str, known: &[&str]) -> Result<(), Error> {
        let Some(map) = tree.as_map() else { return Err(self.wrong(field, "", "it must be an object")) };
        match map.keys().find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => Err(self.wrong(field, key, "unknown field")),
        }
    }

    /// A list of texts, which may be missing.
    pub fn texts(&self, tree: &Tree, field: &str) -> Result<Vec<String>, Error> {
        let last = field.rsplit('.').next().unwrap_or(field);
        match tree.get(last) {
            None | Some(Tree::Null) => Ok(Vec::new()),
            Some(Tree::List(list)) => list
                .iter()
                .map(|item| {
                    item.as_str().map(str::to_string).ok_or_else(|| self.wrong(field, "", "it must hold texts"))
                })
                .collect(),
            Some(_) => Err(self.wrong(field, "", "it must be a list")),
        }
    }
}

fn unreadable(path: &Path, error: &dyn fmt::Display, line: Option<usize>) -> Error {
    Error { path: path.to_path_buf(), line, problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_file_and_line() {
        let parse = |text: &str| File::parse(Path::new("/etc/a.yaml"), text.as_bytes(), "Policy", &["v1"]);
        let text = |result: Result<File, Error>| result.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text(parse("apiVersion: v1\nkind: Pod\n")), "/etc/a.yaml:2: kind: Pod: it must be Policy");
        assert!(text(parse("a: [1\nb: 2\n")).starts_with("/etc/a.yaml:"), "{}", text(parse("a: [1\nb: 2\n")));
        let file = parse("apiVersion: v1\nkind: Policy\nruels: []\n").expect("a policy");
        let error = file.only(&file.tree, "", &["apiVersion", "kind", "rules"]).expect_err("a field too many");
        assert_eq!(error.to_string(), "/etc/a.yaml:3: ruels: unknown field");
    }
}
