//! `metadata.managedFields`: the manager, operation and time of each field.

use super::codec;
use super::set::FieldSet;
use crate::tree::{Map, Str, Tree};

/// Update entries beyond this number are merged, oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// An entry of `managedFields` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {fields_type:?} in managed fields entry {index}")]
    FieldsType { fields_type: String, index: usize },
    #[error("error decoding versioned set from entry {index}: error decoding set: {source}")]
    Fields { index: usize, source: codec::DecodeError },
}

/// The operation of an entry in `managedFields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// An entry of `managedFields`: a manager and the fields that it owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Manager {
    /// The name of the field manager.
    pub name: Str,
    /// Whether the manager applies or updates.
    pub operation: Operation,
    /// The version of the names in `fields`.
    pub api_version: Str,
    /// The subresource of the writes; empty for the object itself.
    pub subresource: Str,
    /// When the entry last changed.
    pub time: Option<Str>,
    /// The owned fields.
    pub fields: FieldSet,
}

impl Manager {
    /// An apply manager is the same in every version; an update manager is one per version.
    pub fn is_same(&self, other: &Manager) -> bool {
        self.operation == other.operation
            && self.name == other.name
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The manager in messages: `"kubectl" using apps/v1`.
    pub fn text(&self) -> String {
        let subresource = if self.subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource {:?}", self.subresource)
        };
        match self.operation {
            Operation::Apply => format!("{:?}{subresource}", self.name),
            Operation::Update => {
                format!("{:?}{subresource} using {}", self.name, self.api_version)
            }
        }
    }

    fn encode(self) -> Tree {
        let mut map = Map::new();
        map.insert(Str::const_new("apiVersion"), self.api_version);
        map.insert(Str::const_new("fieldsType"), Str::const_new("FieldsV1"));
        map.insert(Str::const_new("fieldsV1"), codec::encode(&self.fields));
        if !self.name.is_empty() {
            map.insert(Str::const_new("manager"), self.name);
        }
        map.insert(Str::const_new("operation"), Str::const_new(self.operation.text()));
        if !self.subresource.is_empty() {
            map.insert(Str::const_new("subresource"), self.subresource);
        }
        if let Some(time) = self.time {
            map.insert(Str::const_new("time"), time);
        }
        Tree::Map(map)
    }
}

/// The decoded `managedFields` of an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ManagedFields {
    /// The entries in their order.
    pub managers: Vec<Manager>,
}

impl ManagedFields {
    /// Decodes the entries; the first invalid one is the error.
    pub(crate) fn decode(entries: &[Tree]) -> Result<ManagedFields, EntryError> {
        let mut managed = ManagedFields::default();
        for (index, entry) in entries.iter().enumerate() {
            let manager = decode_entry(entry, index)?;
            managed.managers.retain(|earlier| !earlier.is_same(&manager));
            managed.managers.push(manager);
        }
        Ok(managed)
    }

    /// The sorted entries: apply managers first, then by time, name, version and subresource. Null if there are none.
    pub fn encode(mut self) -> Tree {
        if self.managers.is_empty() {
            return Tree::Null;
        }
        self.managers.sort_by(|a, b| {
            (a.operation.text().cmp(b.operation.text()))
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        Tree::List(self.managers.into_iter().map(Manager::encode).collect())
    }

    /// Whether no manager owns a field.
    pub fn is_empty(&self) -> bool {
        self.managers.is_empty()
    }

    pub(super) fn drop_empty(&mut self) {
        self.managers.retain(|manager| !manager.fields.is_empty());
    }

    pub(super) fn position(&self, like: &Manager) -> Option<usize> {
        self.managers.iter().position(|manager| manager.is_same(like))
    }

    /// Merges the oldest update managers of a version until at most ten are left.
    pub(super) fn cap(&mut self) {
        let count = self.managers.iter().filter(|manager| manager.operation == Operation::Update).count();
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let mut oldest = std::mem::take(&mut self.managers);
        oldest.sort_by(|a, b| {
            (a.operation.cmp(&b.operation))
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| identity(a).cmp(&identity(b)))
        });
        let mut over = count - MAX_UPDATE_MANAGERS;
        for manager in oldest {
            over -= usize::from(self.join(manager, over));
        }
    }

    /// Adds an entry; returns whether it was merged with an older one of its version.
    fn join(&mut self, manager: Manager, over: usize) -> bool {
        let older = self.managers.iter_mut().find(|kept| {
            over > 0
                && manager.operation == Operation::Update
                && kept.operation == Operation::Update
                && kept.api_version == manager.api_version
        });
        match older {
            None => {
                self.managers.push(manager);
                false
            }
            Some(kept) => {
                kept.name = Str::const_new(ANCIENT);
                kept.subresource = Str::default();
                kept.time = manager.time;
                kept.fields = kept.fields.union(&manager.fields);
                true
            }
        }
    }
}

/// The key that identifies entries in upstream, and sorts them in messages.
pub(super) fn identity(manager: &Manager) -> String {
    let version = if manager.operation == Operation::Apply { "" } else { manager.api_version.as_str() };
    format!("{:?}\u{0}{}\u{0}{version}\u{0}{}", manager.name, manager.operation.text(), manager.subresource)
}

fn decode_entry(entry: &Tree, index: usize) -> Result<Manager, EntryError> {
    let operation = match entry.str("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(EntryError::Operation),
    };
    let api_version = entry.str("apiVersion");
    if api_version.is_empty() {
        return Err(EntryError::NoVersion);
    }
    match entry.str("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(EntryError::NoFieldsType(index)),
        other => return Err(EntryError::FieldsType { fields_type: other.to_string(), index }),
    }
    let fields = codec::decode(entry.at("fieldsV1")).map_err(|source| EntryError::Fields { index, source })?;
    Ok(Manager {
        name: Str::new(entry.str("manager")),
        operation,
        api_version: Str::new(api_version),
        subresource: Str::new(entry.str("subresource")),
        time: entry.at("time").as_str().map(Str::new),
        fields,
    })
}

/// Whether the entries request a reset of managed fields: an empty list, or one empty entry.
pub(super) fn is_reset(entries: &Tree) -> bool {
    match entries.as_list() {
        Some([]) => true,
        Some([only]) => match only {
            Tree::Map(map) => map.iter().all(|(_, value)| value.is_null() || value.as_str() == Some("")),
            _ => only.is_null(),
        },
        _ => false,
    }
}

/// Fields of `metadata` and the type that are not owned by managers.
pub(super) static STRIPPED: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| {
    FieldSet::of(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});
