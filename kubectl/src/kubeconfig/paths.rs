//! Where the kubeconfig is.

use std::path::{Path, PathBuf};

/// The files of the configuration.
#[derive(Debug, Clone)]
pub(crate) enum Paths {
    /// From the flag; it must exist.
    Explicit(PathBuf),
    /// From the environment.
    List(Vec<PathBuf>),
    /// In the home directory.
    Home(PathBuf),
}

impl Paths {
    /// All files, the most important first.
    pub(crate) fn files(&self) -> &[PathBuf] {
        match self {
            Paths::Explicit(path) | Paths::Home(path) => std::slice::from_ref(path),
            Paths::List(paths) => paths,
        }
    }

    /// Whether the path is from the flag.
    pub(crate) fn is_explicit(&self) -> bool {
        matches!(self, Paths::Explicit(_))
    }

    /// The file that gets new entries.
    pub(crate) fn default_file(&self) -> PathBuf {
        let files = self.files();
        let existing = files.iter().find(|path| path.exists());
        existing.or(files.last()).cloned().unwrap_or_default()
    }
}

/// The user's home directory.
pub(crate) fn home() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/"))
}

/// The paths by upstream's rules: the flag, the environment variable, the home directory.
pub(crate) fn environment_paths(flag: &str) -> Paths {
    if !flag.is_empty() {
        return Paths::Explicit(PathBuf::from(flag));
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in std::env::split_paths(&std::env::var_os("KUBECONFIG").unwrap_or_default()) {
        if path != Path::new("") && !paths.contains(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() { Paths::Home(home().join(".kube/config")) } else { Paths::List(paths) }
}
