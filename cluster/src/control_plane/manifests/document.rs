//! Reads manifests: which files of the directory count, and which objects they have.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::Tree;

use super::inventory::ObjectRef;
use crate::machine::trust::{self, TrustError};

/// Files beyond this number are reported, and not applied.
const MAX_FILES: usize = 500;
const MAX_BYTES: u64 = 4 << 20;
const MAX_OBJECTS: usize = 2000;
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Why a file is not applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    /// Objects are applied with the rights of an administrator.
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("it has {0} bytes, and may have {MAX_BYTES}")]
    TooLarge(u64),
    #[error("it has more than {MAX_OBJECTS} objects: use several files")]
    TooManyObjects,
    #[error("the document that begins in line {line}: {source}")]
    Syntax {
        line: usize,
        #[source]
        source: api::yaml::Error,
    },
    #[error("the document that begins in line {0} is no object: it needs apiVersion, kind and metadata.name")]
    NoObject(usize),
}

/// A file of the directory, with its objects.
pub(super) struct Manifest {
    /// Its name.
    pub(super) name: String,
    pub(super) objects: Result<Vec<Tree>, ManifestError>,
}

/// The files in the order of their names. None if there is no directory.
pub(super) fn read_all(dir: &Path) -> io::Result<Vec<Manifest>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_manifest(path)).collect();
    paths.sort();
    if paths.len() > MAX_FILES {
        tracing::warn!(files = paths.len(), "too many manifests: only the first {MAX_FILES} are applied");
        paths.truncate(MAX_FILES);
    }
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(paths.iter().map(|path| Manifest { name: name(path), objects: read(path) }).collect())
}

/// Editors write temporary files that begin with a dot.
fn is_manifest(path: &Path) -> bool {
    let ends = path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known));
    ends && !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read(path: &Path) -> Result<Vec<Tree>, ManifestError> {
    match trust::trusted(path)?.len() {
        bytes if bytes > MAX_BYTES => Err(ManifestError::TooLarge(bytes)),
        _ => parse(&fs::read_to_string(path)?),
    }
}

/// The objects of a text, with those of its lists.
pub(super) fn parse(text: &str) -> Result<Vec<Tree>, ManifestError> {
    let mut objects = Vec::new();
    for (line, document) in documents(text) {
        let tree = api::yaml::decode(document.as_bytes()).map_err(|source| ManifestError::Syntax { line, source })?;
        match tree {
            Tree::Null => continue,
            list if list.str("kind") == "List" => {
                objects.extend(list.list("items").iter().cloned().map(|one| (line, one)))
            }
            object => objects.push((line, object)),
        }
        if objects.len() > MAX_OBJECTS {
            return Err(ManifestError::TooManyObjects);
        }
    }
    if let Some((line, _)) = objects.iter().find(|(_, object)| ObjectRef::of(object).is_none()) {
        return Err(ManifestError::NoObject(*line));
    }
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}

/// The documents, each with the number of its first line.
fn documents(text: &str) -> Vec<(usize, String)> {
    let is_separator = |line: &str| line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty());
    let mut documents = vec![(1, String::new())];
    for (number, line) in (1..).zip(text.lines()) {
        match documents.last_mut() {
            Some((_, document)) if !is_separator(line) => {
                document.push_str(line);
                document.push('\n');
            }
            _ => documents.push((number + 1, String::new())),
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn documents_and_lists_have_objects() {
        let check = |text: &str, want: Result<&[&str], &str>| {
            let parsed = parse(text).map_err(|error| stdx::error::chain(&error));
            match (parsed, want) {
                (Ok(objects), Ok(want)) => {
                    let names: Vec<&str> = objects.iter().map(|object| object.str("metadata.name")).collect();
                    assert_eq!(names, want, "{text}");
                }
                (Err(why), Err(want)) => assert!(why.contains(want), "{text}: {why}"),
                (got, want) => panic!("{text}: {got:?} instead of {want:?}"),
            }
        };
        let object = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        check("", Ok(&[]));
        check("# nothing\n---\n", Ok(&[]));
        check(&object("a"), Ok(&["a"]));
        check(&format!("---\n{}--- \n{}---\n", object("a"), object("b")), Ok(&["a", "b"]));
        let item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
        check(&format!("apiVersion: v1\nkind: List\nitems: [{item}]\n"), Ok(&["c"]));
        check(r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}}"#, Ok(&["d"]));
        check(&format!("{}---\nkind: [\n", object("a")), Err("begins in line 5: yaml"));
        check("a: b\n", Err("begins in line 1 is no object"));
    }

    #[test]
    fn files_of_others_are_not_trusted() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(read_all(&dir.path().join("none")).expect("a directory").is_empty());
        let write = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
        };
        write("b.yaml", 0o644);
        write("a.yml", 0o666);
        write(".c.yaml", 0o644);
        write("notes.txt", 0o644);
        let found = read_all(dir.path()).expect("a directory");
        let found: Vec<(&str, bool)> = found.iter().map(|one| (one.name.as_str(), one.objects.is_ok())).collect();
        assert_eq!(found, [("a.yml", false), ("b.yaml", true)]);
    }
}
