//! The part of an object that the graph stores: enough to decide and to write without reading it first.

use std::fmt;
use std::sync::Arc;

use api::Tree;
use api::tree::Str;

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// The uid of an object. A UUID needs sixteen bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        parse_uuid(text).map_or_else(|| Uid::Other(text.into()), Uid::Uuid)
    }
}

/// Only the canonical form, so that it is written back unchanged.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let is_form = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    if text.len() != 36 || !text.bytes().enumerate().all(is_form) {
        return None;
    }
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').map(hex).collect();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(uuid)
}

fn hex(byte: u8) -> u8 {
    if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => f.write_str(text),
            Uid::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// apiVersion and kind, as the object or a reference to it has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TypeMeta {
    pub api_version: Str,
    pub kind: Str,
}

impl TypeMeta {
    pub(super) fn of(tree: &Tree) -> TypeMeta {
        TypeMeta { api_version: Str::new(tree.str("apiVersion")), kind: Str::new(tree.str("kind")) }
    }

    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn is_same_kind(&self, other: &TypeMeta) -> bool {
        self.kind == other.kind && self.group() == other.group()
    }
}

/// An owner reference of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    pub uid: Uid,
    pub of: Arc<TypeMeta>,
    pub name: Box<str>,
    /// `blockOwnerDeletion`: a foreground deletion of the owner waits for this object.
    pub blocks: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub uid: Uid,
    pub of: Arc<TypeMeta>,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub version: u64,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[Str]>,
    pub deleting: bool,
    /// Its deletion was requested; reset by the next event of the object.
    pub delete_requested: bool,
}

impl Object {
    /// `intern` shares equal types and namespaces.
    pub(super) fn read(of: Arc<TypeMeta>, tree: &Tree, intern: &mut Interner) -> Object {
        let meta = tree.at("metadata");
        let strings = |path: &str| meta.list(path).iter().filter_map(Tree::as_str).map(Str::new).collect();
        Object {
            uid: Uid::from(meta.str("uid")),
            of,
            namespace: intern.text(meta.str("namespace")),
            name: meta.str("name").into(),
            version: meta.str("resourceVersion").parse().unwrap_or_default(),
            owners: meta.list("ownerReferences").iter().map(|owner| Owner::read(owner, intern)).collect(),
            finalizers: strings("finalizers"),
            deleting: meta.has("deletionTimestamp"),
            delete_requested: false,
        }
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// Whether a foreground deletion waits for the dependents.
    pub(crate) fn deletes_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    /// Whether an orphaning deletion waits until the dependents are released.
    pub(crate) fn orphans_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(ORPHAN)
    }

    /// Whether an owner reference in `namespace` describes this object, apart from the uid.
    pub(crate) fn matches_reference(&self, owner: &Owner, namespace: &str) -> bool {
        self.of.is_same_kind(&owner.of)
            && self.name == owner.name
            && (self.namespace.is_empty() || &*self.namespace == namespace)
    }

    pub(super) fn blocks(&self, owner: &Uid) -> bool {
        self.owners.iter().any(|reference| reference.blocks && reference.uid == *owner)
    }
}

impl Owner {
    fn read(tree: &Tree, intern: &mut Interner) -> Owner {
        Owner {
            uid: Uid::from(tree.str("uid")),
            of: intern.of(TypeMeta::of(tree)),
            name: tree.str("name").into(),
            blocks: tree.bool("blockOwnerDeletion"),
        }
    }
}

/// Shares types and namespaces, which are few and appear in every object.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    types: std::collections::BTreeSet<Arc<TypeMeta>>,
    texts: std::collections::BTreeSet<Arc<str>>,
}

/// Above this limit values are not shared, since references can contain arbitrary text.
const MAX_INTERNED: usize = 10_000;

impl Interner {
    pub(super) fn of(&mut self, of: TypeMeta) -> Arc<TypeMeta> {
        if let Some(known) = self.types.get(&of) {
            return known.clone();
        }
        let new = Arc::new(of);
        if self.types.len() < MAX_INTERNED {
            self.types.insert(new.clone());
        }
        new
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        if self.texts.len() >= MAX_INTERNED {
            // Namespaces are created and deleted.
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        if self.texts.len() < MAX_INTERNED {
            self.texts.insert(new.clone());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_round_trip() {
        for text in ["0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5B-D9CB-469F-A165-70867728950E", "", "x", "é"] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("0f8fad5b-d9cb-469f-a165-70867728950e"), Uid::Uuid(_)));
        assert!(matches!(Uid::from("0f8fad5b-d9cb-469f-a165-70867728950g"), Uid::Other(_)));
    }
}
