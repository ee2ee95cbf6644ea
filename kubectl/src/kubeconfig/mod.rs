//! The kubeconfig: files merged by upstream's rules, changes written back to the file that an entry is from, and the
//! parameters of the connection that result from it, flags, and the pod's service account.

mod connection;
mod files;
mod paths;

pub(crate) use connection::{Connection, Exec, Impersonation, Overrides, ServerUrl, connection};
pub(crate) use files::{load_file, write_file};
pub(crate) use paths::{Paths, environment_paths, home};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::{Tree, tree};

use crate::error::Result;

/// The three kinds of named entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Clusters,
    Contexts,
    Users,
}

impl Section {
    /// All sections.
    pub(crate) const ALL: [Section; 3] = [Section::Clusters, Section::Contexts, Section::Users];

    /// The key in the file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Section::Clusters => "clusters",
            Section::Contexts => "contexts",
            Section::Users => "users",
        }
    }

    /// The key of the value in an entry.
    pub(crate) fn item(self) -> &'static str {
        match self {
            Section::Clusters => "cluster",
            Section::Contexts => "context",
            Section::Users => "user",
        }
    }
}

/// A named entry and the file that it is from.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Entry {
    pub(crate) value: Tree,
    pub(crate) origin: PathBuf,
}

/// The merged configuration, or that of one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) current_context: String,
    pub(crate) entries: BTreeMap<(Section, String), Entry>,
    /// Fields besides the entries and the current context.
    pub(crate) other: Tree,
}

/// Fields of entries that are paths, relative to the file's directory.
pub(crate) const PATH_FIELDS: [(Section, &str); 4] = [
    (Section::Clusters, "certificate-authority"),
    (Section::Users, "client-certificate"),
    (Section::Users, "client-key"),
    (Section::Users, "tokenFile"),
];

impl Config {
    /// The entry of a section with a name.
    pub(crate) fn get(&self, section: Section, name: &str) -> Option<&Tree> {
        self.entries.get(&(section, name.to_string())).map(|entry| &entry.value)
    }

    /// The names of a section, sorted.
    pub(crate) fn names(&self, section: Section) -> impl Iterator<Item = &str> {
        self.entries.keys().filter(move |key| key.0 == section).map(|key| key.1.as_str())
    }

    /// Whether there is neither an entry nor a current context.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.current_context.is_empty()
    }

    /// Adds what the other configuration has and this one has not.
    fn merge(&mut self, other: Config) {
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        for (key, entry) in other.entries {
            self.entries.entry(key).or_insert(entry);
        }
        if let Tree::Map(fields) = other.other {
            for (key, value) in fields.into_entries() {
                if !self.other.has(&key) {
                    self.other.set(&key, value);
                }
            }
        }
    }

    /// As an object of a file.
    pub(crate) fn to_tree(&self) -> Tree {
        let mut object = tree! { "apiVersion" => "v1", "kind" => "Config", "current-context" => &self.current_context };
        for section in Section::ALL {
            let entries: Vec<Tree> = self.names(section).map(|name| self.entry_tree(section, name)).collect();
            object.set(section.key(), if entries.is_empty() { Tree::Null } else { Tree::List(entries) });
        }
        if let Some(fields) = self.other.as_map() {
            fields.iter().for_each(|(key, value)| object.set(key, value.clone()));
        }
        object
    }

    fn entry_tree(&self, section: Section, name: &str) -> Tree {
        let value = self.get(section, name).cloned().unwrap_or_default();
        let mut entry = tree! { "name" => name };
        entry.set(section.item(), if value.is_null() { Tree::map_new() } else { value });
        entry
    }

    /// Makes the paths of entries absolute: they are relative to the directory of their file.
    pub(crate) fn resolve_paths(&mut self) {
        for ((section, _), entry) in &mut self.entries {
            let directory = entry.origin.parent().unwrap_or(Path::new("")).to_path_buf();
            for (_, field) in PATH_FIELDS.iter().filter(|(of, _)| of == section) {
                let path = entry.value.str(field).to_string();
                if !path.is_empty() && !Path::new(&path).is_absolute() {
                    entry.value.set(field, directory.join(path).to_string_lossy().as_ref());
                }
            }
        }
    }
}

/// Loads and merges the files of these paths; files that do not exist are left out, unless the path is explicit.
pub(crate) fn load(paths: &Paths) -> Result<Config> {
    let mut merged = Config::default();
    for path in paths.files() {
        match load_file(path) {
            Ok(config) => merged.merge(config),
            Err(files::LoadError::Missing) if paths.is_explicit() => {
                return crate::error::message(format!("stat {}: no such file or directory", path.display()));
            }
            Err(files::LoadError::Missing) => {}
            Err(error) => {
                return crate::error::message(format!("error loading config file \"{}\": {error}", path.display()));
            }
        }
    }
    merged.resolve_paths();
    Ok(merged)
}
