//! Files, directories, the standard input and URLs.

use std::path::{Path, PathBuf};

use api::Tree;

use super::parse::{documents, parse_document};
use crate::context::Context;
use crate::error::{Result, io_text, message};

/// A document and where it is from.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) source: String,
    pub(crate) tree: Tree,
}

/// The sources of objects on a command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) names: Vec<String>,
    pub(crate) kustomize: String,
    pub(crate) is_recursive: bool,
    /// Recursion is not a default, so it contradicts a kustomization.
    pub(crate) excludes_recursive: bool,
}

impl Files {
    /// From the flags.
    pub(crate) fn of(context: &Context) -> Files {
        Files {
            names: context.flags.list("filename"),
            kustomize: context.flags.str("kustomize").to_string(),
            is_recursive: context.flags.bool("recursive"),
            excludes_recursive: context.flags.changed("recursive") && context.flags.bool("recursive"),
        }
    }

    /// Whether there is no source.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.kustomize.is_empty()
    }

    /// Whether the flags exclude each other.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.kustomize.is_empty() && !self.names.is_empty() {
            return message("only one of -f or -k can be specified");
        }
        if !self.kustomize.is_empty() && self.excludes_recursive {
            return message("the -k flag can't be used with -f or -R");
        }
        Ok(())
    }
}

/// The extensions of files that are read from a directory.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// Directories below each other.
const MAX_DEPTH: usize = 64;

/// All documents, and the errors of those that could not be read.
pub(crate) async fn read_documents(context: &Context, files: &Files) -> Result<Vec<Result<Document>>> {
    files.check()?;
    let mut all = Vec::new();
    if !files.kustomize.is_empty() {
        let trees = super::kinds::kustomize(context, &files.kustomize)?;
        all.extend(trees.into_iter().map(|tree| Ok(Document { source: files.kustomize.clone(), tree })));
    }
    if files.names.iter().filter(|name| *name == "-").count() > 1 {
        return message("the path \"-\" can only be given once");
    }
    for name in &files.names {
        for (source, bytes) in read_source(context, name, files.is_recursive).await? {
            read_text(&source, &bytes, &mut all);
        }
    }
    Ok(all)
}

/// The documents up to the first that is invalid: what follows it may not be what it seems.
fn read_text(source: &str, bytes: &[u8], all: &mut Vec<Result<Document>>) {
    for (line, text) in documents(bytes) {
        match parse_document(text, line) {
            Ok(Tree::Null) => {}
            Ok(tree) => all.push(Ok(Document { source: source.to_string(), tree })),
            Err(error) => return all.push(message(format!("error parsing {source}: {error}"))),
        }
    }
}

async fn read_source(context: &Context, name: &str, is_recursive: bool) -> Result<Vec<(String, Vec<u8>)>> {
    if name == "-" {
        return Ok(vec![("STDIN".to_string(), context.read_stdin()?)]);
    }
    if name.starts_with("http://") || name.starts_with("https://") {
        return Ok(vec![(name.to_string(), super::kinds::fetch(name).await?)]);
    }
    let mut paths = Vec::new();
    let path = Path::new(name);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => read_directory(path, is_recursive, 0, &mut paths)?,
        Ok(_) => paths.push(path.to_path_buf()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if name.contains(['*', '?', '[']) {
                return message(format!("the path \"{name}\" does not exist"));
            }
            return message(format!("the path \"{name}\" does not exist"));
        }
        Err(error) => {
            return message(format!("the path \"{name}\" cannot be accessed: stat {name}: {}", io_text(&error)));
        }
    }
    if paths.is_empty() {
        return message(format!(
            "error reading {}: recognized file extensions are [.json .yaml .yml]",
            bracketed(name)
        ));
    }
    let mut all = Vec::new();
    for path in paths {
        let source = path.to_string_lossy().into_owned();
        match std::fs::read(&path) {
            Ok(bytes) => all.push((source, bytes)),
            Err(error) => return message(format!("open {source}: {}", io_text(&error))),
        }
    }
    Ok(all)
}

fn bracketed(name: &str) -> String {
    format!("[{name}]")
}

/// The files of a directory by name, with those of its directories if it is recursive.
fn read_directory(path: &Path, is_recursive: bool, depth: usize, all: &mut Vec<PathBuf>) -> Result<()> {
    if depth > MAX_DEPTH {
        return message(format!("{}: directories are nested too deep", path.display()));
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    for entry in entries {
        // A link to a directory could lead back here.
        let is_link = std::fs::symlink_metadata(&entry).is_ok_and(|metadata| metadata.is_symlink());
        if entry.is_dir() {
            if is_recursive && !is_link {
                read_directory(&entry, is_recursive, depth + 1, all)?;
            }
        } else if entry.extension().is_some_and(|ext| EXTENSIONS.iter().any(|known| ext == *known)) {
            all.push(entry);
        }
    }
    Ok(())
}
