//! A resource, and what kustomize remembers about it until the end.

use api::Tree;

use crate::id::ResId;
use crate::origin::Origin;

/// What a generator does if its object exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(text: &str) -> Behavior {
        match text {
            "create" => Behavior::Create,
            "replace" => Behavior::Replace,
            "merge" => Behavior::Merge,
            _ => Behavior::Unspecified,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Resource {
    pub(crate) tree: Tree,
    /// The identities before each change, the original one first.
    pub(crate) previous: Vec<ResId>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) suffixes: Vec<String>,
    pub(crate) behavior: Behavior,
    /// Its name gets a hash of its contents.
    pub(crate) needs_hash: bool,
    pub(crate) allows_name_change: bool,
    pub(crate) allows_kind_change: bool,
    /// Variables that read a field of this resource.
    pub(crate) variables: Vec<String>,
    pub(crate) origin: Option<Origin>,
    pub(crate) transformations: Vec<Origin>,
}

impl Resource {
    pub(crate) fn new(tree: Tree) -> Resource {
        Resource { tree, ..Resource::default() }
    }

    pub(crate) fn name(&self) -> &str {
        self.tree.str("metadata.name")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.tree.str("metadata.namespace")
    }

    pub(crate) fn kind(&self) -> &str {
        self.tree.str("kind")
    }

    pub(crate) fn id(&self) -> ResId {
        ResId::of(&self.tree)
    }

    /// The previous identities, with the current group and version.
    pub(crate) fn previous_ids(&self) -> Vec<ResId> {
        let gvk = self.id().gvk;
        let with_gvk = |id: &ResId| {
            let mut id = id.clone();
            (id.gvk.group, id.gvk.version) = (gvk.group.clone(), gvk.version.clone());
            id
        };
        self.previous.iter().map(with_gvk).collect()
    }

    pub(crate) fn original_id(&self) -> ResId {
        self.previous_ids().into_iter().next().unwrap_or_else(|| self.id())
    }

    /// All identities that it has had.
    pub(crate) fn all_ids(&self) -> Vec<ResId> {
        let mut ids = self.previous_ids();
        ids.push(self.id());
        ids
    }

    pub(crate) fn store_previous_id(&mut self) {
        let mut id = self.id();
        id.namespace = id.effective_namespace().to_string();
        self.previous.push(id);
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.tree.child("metadata").set("name", name);
    }

    /// Takes labels, annotations and identity of the resource that this one replaces.
    pub(crate) fn take_metadata(&mut self, old: &Resource) {
        for field in ["labels", "annotations"] {
            let mut merged = old.tree.map(&format!("metadata.{field}")).clone();
            for (key, value) in self.tree.map(&format!("metadata.{field}")).clone().into_entries() {
                merged.insert(key, value);
            }
            if !merged.is_empty() {
                self.tree.child("metadata").set(field, merged);
            }
        }
        self.set_name(old.name());
        if !old.namespace().is_empty() {
            self.tree.child("metadata").set("namespace", old.namespace());
        }
        self.previous = old.previous.clone();
        self.prefixes = old.prefixes.clone();
        self.suffixes = old.suffixes.clone();
        self.behavior = old.behavior;
        self.needs_hash &= old.needs_hash;
        self.variables = old.variables.clone();
    }

    /// Adds the entries of another data map that this one does not have.
    pub(crate) fn merge_data(&mut self, old: &Resource, field: &str) {
        let mut merged = old.tree.map(field).clone();
        for (key, value) in self.tree.map(field).clone().into_entries() {
            merged.insert(key, value);
        }
        if !merged.is_empty() {
            self.tree.set(field, merged);
        }
    }
}
