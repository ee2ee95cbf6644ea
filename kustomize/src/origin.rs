//! Where resources come from, for the annotations that `buildMetadata` requests.

use api::Tree;
use api::yaml;

/// A file, or the generator or transformer that created a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    /// Relative to the directory that is built.
    pub(crate) path: String,
    pub(crate) configured_in: String,
    /// The kind of the built-in, or the identity of its configuration.
    pub(crate) configured_by: Option<(String, String, String)>,
}

impl Origin {
    pub(crate) fn append(&self, path: &str) -> Origin {
        Origin { path: join(&self.path, path), ..self.clone() }
    }

    /// The origin of what a built-in of a kustomization creates or changes.
    pub(crate) fn configured(&self, file: &str, kind: &str) -> Origin {
        Origin {
            path: String::new(),
            configured_in: join(&self.path, file),
            configured_by: Some(("builtin".to_string(), kind.to_string(), String::new())),
        }
    }

    fn to_tree(&self) -> Tree {
        let mut out = Tree::map_new();
        let set = |tree: &mut Tree, key: &str, value: &str| {
            if !value.is_empty() {
                tree.set(key, value);
            }
        };
        set(&mut out, "path", &self.path);
        set(&mut out, "configuredIn", &self.configured_in);
        if let Some((api_version, kind, name)) = &self.configured_by {
            let by = out.child("configuredBy");
            set(by, "apiVersion", api_version);
            set(by, "kind", kind);
            set(by, "name", name);
        }
        out
    }

    pub(crate) fn annotation(&self) -> String {
        ordered(&self.to_tree())
    }
}

pub(crate) fn annotation_of(origins: &[Origin]) -> String {
    let item = |origin: &Origin| {
        let text = ordered(&origin.to_tree());
        let lines: Vec<&str> = text.lines().collect();
        format!("- {}\n", lines.join("\n  "))
    };
    origins.iter().map(item).collect()
}

/// In the order of kustomize's fields.
fn ordered(origin: &Tree) -> String {
    let mut out = String::new();
    for key in ["path", "configuredIn", "configuredBy"] {
        if let Some(value) = origin.get(key) {
            let mut one = Tree::map_new();
            one.set(key, value.clone());
            out.push_str(&String::from_utf8_lossy(&yaml::encode(&one)));
        }
    }
    out
}

fn join(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
