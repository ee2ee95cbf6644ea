//! Files: through a trait, below a root, and within limits.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// How kustomizations read files.
pub trait Files {
    /// The contents of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The path without symbolic links.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;
    fn is_directory(&self, path: &Path) -> bool;
    /// The length of a file.
    fn length(&self, path: &Path) -> io::Result<u64>;
}

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        path.metadata().map(|metadata| metadata.len())
    }
}

const MAX_FILE_BYTES: u64 = 32 << 20;
const MAX_DEPTH: usize = 64;

/// Loads files relative to the directory of a kustomization.
#[derive(Clone)]
pub(crate) struct Loader<'f> {
    files: &'f dyn Files,
    /// This directory, then those that refer to it.
    roots: Vec<PathBuf>,
    loads_from_anywhere: bool,
}

impl<'f> Loader<'f> {
    pub(crate) fn new(files: &'f dyn Files, directory: &Path, loads_from_anywhere: bool) -> Result<Loader<'f>, Error> {
        let text = directory.to_string_lossy();
        if is_remote(&text) {
            return Err(Error::Remote(text.into_owned()));
        }
        let root = confirm_directory(files, directory).map_err(|error| error.context("must build at directory"))?;
        Ok(Loader { files, roots: vec![root], loads_from_anywhere })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.roots[0]
    }

    /// The loader of a directory that this one refers to.
    pub(crate) fn enter(&self, path: &str) -> Result<Loader<'f>, Error> {
        if path.is_empty() {
            return Err(Error::EmptyRoot);
        }
        if is_remote(path) {
            return Err(Error::Remote(path.to_string()));
        }
        if Path::new(path).is_absolute() {
            return Err(Error::AbsoluteRoot(path.to_string()));
        }
        let candidate = confirm_directory(self.files, &clean(&self.root().join(path)))
            .map_err(|error| error.context("must build at directory"))?;
        if let Some(visited) = self.roots.iter().find(|root| root.starts_with(&candidate)) {
            let text = |path: &Path| path.display().to_string();
            return Err(Error::Cycle { candidate: text(&candidate), root: text(visited) });
        }
        if self.roots.len() >= MAX_DEPTH {
            return Err(Error::TooDeep(candidate.display().to_string()));
        }
        let mut roots = vec![candidate];
        roots.extend(self.roots.iter().cloned());
        Ok(Loader { files: self.files, roots, loads_from_anywhere: self.loads_from_anywhere })
    }

    /// A file in or below the root.
    pub(crate) fn load(&self, path: &str) -> Result<Vec<u8>, Error> {
        if path.starts_with("http://") || path.starts_with("https://") {
            return Err(Error::Remote(path.to_string()));
        }
        let full = clean(&self.root().join(path));
        let text = full.display().to_string();
        let resolved = self.files.canonicalize(&full).map_err(|_| Error::Missing { path: text.clone() })?;
        if self.files.is_directory(&resolved) {
            return Err(Error::NotAFile(text));
        }
        if !self.loads_from_anywhere && !resolved.starts_with(self.root()) {
            return Err(Error::Restricted { path: text, root: self.root().display().to_string() });
        }
        let read = |source| Error::Read { path: text.clone(), source };
        if self.files.length(&resolved).map_err(read)? > MAX_FILE_BYTES {
            return Err(Error::TooLarge { path: text, limit: MAX_FILE_BYTES });
        }
        self.files.read(&resolved).map_err(read)
    }
}

fn confirm_directory(files: &dyn Files, path: &Path) -> Result<PathBuf, Error> {
    let text = path.display().to_string();
    let missing = Error::Missing { path: text.clone() };
    let resolved = files.canonicalize(path).map_err(|_| Error::InvalidDirectory(missing.to_string()))?;
    if !files.is_directory(&resolved) {
        return Err(Error::NotADirectory(text));
    }
    Ok(resolved)
}

/// The path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Addresses of repositories, in the forms that kustomize clones.
pub(crate) fn is_remote(path: &str) -> bool {
    const PREFIXES: &[&str] =
        &["git::", "gh:", "git@", "github.com/", "github.com:", "http://", "https://", "ssh://", "file://", "git://"];
    let lower = path.to_ascii_lowercase();
    PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) || lower.contains("?ref=") || lower.contains(".git//")
}
