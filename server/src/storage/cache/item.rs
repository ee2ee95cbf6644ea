//! A stored object in the cache: its JSON once, and the fields for selectors, read on first use.

use std::sync::{Arc, OnceLock};

use api::schema::Ty;
use api::selector::{FieldSelector, Selector};
use api::{Str, Tree, json};
use bytes::Bytes;
use kinds::Kind;

use crate::storage::resource::Resource;

/// Immutable. The JSON starts with kind, apiVersion and `"metadata":{"resourceVersion":"N"`.
#[derive(Debug)]
pub struct Item {
    /// `NAMESPACE/NAME`, or `NAME` if the kind is cluster-scoped.
    pub key: Arc<str>,
    pub revision: u64,
    pub bytes: Bytes,
    /// The offset of the metadata in the bytes.
    list_at: u16,
    facts: OnceLock<Box<SelectableFields>>,
}

/// The fields that selectors match.
#[derive(Debug, Default)]
struct SelectableFields {
    labels: Vec<(Str, Str)>,
    /// The values in the order of `Kind::selectable`.
    fields: Vec<Str>,
    initialized: bool,
}

impl Item {
    /// An item of these bytes.
    pub fn new(key: &str, revision: u64, bytes: Bytes) -> Item {
        let list_at = list_start(&bytes);
        Item { key: key.into(), revision, bytes, list_at, facts: OnceLock::new() }
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// The object itself. A stored object always decodes; if one does not, the result is null.
    pub fn tree(&self) -> Tree {
        json::decode(&self.bytes).unwrap_or_default()
    }

    /// The JSON without kind and apiVersion, as items of a list are written.
    pub(crate) fn list_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.list_at)..]
    }

    /// Whether the object is visible to all clients.
    pub(crate) fn is_initialized(&self, kind: Option<&'static Kind>) -> bool {
        self.facts(kind).initialized
    }

    /// The value of a label.
    pub fn label(&self, kind: Option<&'static Kind>, key: &str) -> Option<&str> {
        self.facts(kind).labels.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// The text of a selectable field of a built-in kind.
    fn field(&self, kind: Option<&'static Kind>, name: &str) -> Str {
        let at = kind.and_then(|kind| kind.selectable.iter().position(|selectable| selectable.name == name));
        at.and_then(|at| self.facts(kind).fields.get(at).cloned()).unwrap_or_default()
    }

    fn facts(&self, kind: Option<&'static Kind>) -> &SelectableFields {
        self.facts.get_or_init(|| Box::new(read_facts(&self.bytes, kind)))
    }
}

/// Skips kind and apiVersion at the start; other leading fields are kept.
fn list_start(bytes: &[u8]) -> u16 {
    let head = &bytes[..bytes.len().min(512)];
    let at = memchr::memmem::find(head, b"\"metadata\":").unwrap_or(1);
    u16::try_from(at.min(bytes.len())).unwrap_or(0)
}

fn read_facts(bytes: &[u8], kind: Option<&'static Kind>) -> SelectableFields {
    let selectable = kind.map_or(&[][..], |kind| kind.selectable);
    let mut wanted = vec!["metadata.labels"];
    if api::schema::initializers::are_on() {
        wanted.push("metadata.initializers");
    }
    wanted.extend(selectable.iter().map(|selectable| selectable.name));
    let tree = json::decode_only(bytes, &wanted).unwrap_or_default();
    let labels = tree.map("metadata.labels").iter();
    SelectableFields {
        labels: labels.map(|(key, value)| (Str::new(key), Str::new(value.as_str().unwrap_or("")))).collect(),
        initialized: !kinds::initializers::is_pending(&tree),
        fields: selectable.iter().filter_map(|selectable| Some(field_text(&tree, kind?, selectable))).collect(),
    }
}

/// A field that is not set has the zero of its type, as a Go struct would.
fn field_text(tree: &Tree, kind: &Kind, selectable: &kinds::Selectable) -> Str {
    let text = (selectable.get)(tree, selectable.name);
    if !text.is_empty() {
        return text;
    }
    match type_at(kind, selectable.name) {
        Some(Ty::Bool) => Str::const_new("false"),
        Some(Ty::Int32 | Ty::Int64) => Str::const_new("0"),
        _ => text,
    }
}

fn type_at(kind: &Kind, path: &str) -> Option<Ty> {
    let mut ty = Ty::Struct(kind.schema());
    for step in path.split('.') {
        let Ty::Struct(inner) = ty else { return None };
        ty = inner.field(step)?.ty;
    }
    Some(ty)
}

/// A label and a field selector, compiled once for a request.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub labels: Option<Arc<Selector>>,
    pub fields: Option<Arc<FieldSelector>>,
    /// Only objects whose initializers have finished.
    pub initialized: bool,
}

impl Selection {
    /// Whether every object matches.
    pub fn everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && !self.initialized
    }

    /// Whether an object has the selected labels and fields.
    pub fn matches(&self, item: &Item, resource: &Resource) -> bool {
        let kind = resource.stored_row();
        let labels_match =
            self.labels.as_ref().is_none_or(|selector| selector.matches_with(|key| item.label(kind, key)));
        let visible = !self.initialized || item.is_initialized(kind);
        visible && labels_match && self.fields.as_ref().is_none_or(|selector| fields_match(selector, item, resource))
    }
}

fn fields_match(selector: &FieldSelector, item: &Item, resource: &Resource) -> bool {
    // The fields of a custom resource differ between versions, so the object is decoded for each.
    let object = resource.kind.custom_kind().map(|kind| (kind, resource.read(item)));
    selector.matches_with(|name| match (name, &object) {
        ("metadata.name", _) => Str::new(item.name()),
        ("metadata.namespace", _) => Str::new(item.namespace()),
        (name, Some((kind, object))) => kind.selectable_text(object, name),
        (name, None) => item.field(resource.stored_row(), name),
    })
}
