//! What the graph keeps of an object: enough to judge it and to write to it without reading it first.

use std::fmt;
use std::sync::Arc;

use api::Tree;
use api::tree::Str;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// Identifies an object for ever. Those that the server makes take sixteen bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        parse_uuid(text).map_or_else(|| Uid::Other(text.into()), Uid::Uuid)
    }
}

/// Only the form that is written back the same.
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

/// What an object is, as it or a reference to it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    pub api_version: Str,
    pub kind: Str,
}

impl Type {
    pub fn of(tree: &Tree) -> Type {
        Type { api_version: Str::new(tree.str("apiVersion")), kind: Str::new(tree.str("kind")) }
    }

    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn is_same_kind(&self, other: &Type) -> bool {
        self.kind == other.kind && self.group() == other.group()
    }
}

/// One owner that an object names.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    pub uid: Uid,
    pub of: Arc<Type>,
    pub name: Box<str>,
    /// The owner waits for this object where it is deleted in the foreground.
    pub blocks: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub uid: Uid,
    pub of: Arc<Type>,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub version: u64,
    pub owners: Box<[Owner]>,
    pub finalizers: Box<[Str]>,
    pub deleting: bool,
    /// It was asked to go; the next that is heard of it says whether it does.
    pub asked: bool,
}

impl Object {
    /// `intern` gives equal types and namespaces one place in memory.
    pub fn read(of: Arc<Type>, tree: &Tree, intern: &mut Interner) -> Object {
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
            asked: false,
        }
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// It waits until its dependents are gone.
    pub fn deletes_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    /// It waits until its dependents are let go.
    pub fn orphans_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(ORPHAN)
    }

    /// Whether it is what an owner reference of an object in `namespace` describes, but for the uid.
    pub fn is_meant(&self, owner: &Owner, namespace: &str) -> bool {
        self.of.is_same_kind(&owner.of)
            && self.name == owner.name
            && (self.namespace.is_empty() || &*self.namespace == namespace)
    }

    pub fn blocks(&self, owner: &Uid) -> bool {
        self.owners.iter().any(|reference| reference.blocks && reference.uid == *owner)
    }
}

impl Owner {
    fn read(tree: &Tree, intern: &mut Interner) -> Owner {
        Owner {
            uid: Uid::from(tree.str("uid")),
            of: intern.of(Type::of(tree)),
            name: tree.str("name").into(),
            blocks: tree.bool("blockOwnerDeletion"),
        }
    }
}

/// Types and namespaces are few and are named by every object.
#[derive(Debug, Default)]
pub struct Interner {
    types: std::collections::BTreeSet<Arc<Type>>,
    texts: std::collections::BTreeSet<Arc<str>>,
}

/// More distinct ones than this are not shared: references can name any nonsense.
const MAX_INTERNED: usize = 10_000;

impl Interner {
    pub fn of(&mut self, of: Type) -> Arc<Type> {
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
            // Namespaces come and go.
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
    fn a_uid_is_written_as_it_was_read() {
        for text in ["0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5B-D9CB-469F-A165-70867728950E", "", "x", "é"] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("0f8fad5b-d9cb-469f-a165-70867728950e"), Uid::Uuid(_)));
        assert!(matches!(Uid::from("0f8fad5b-d9cb-469f-a165-70867728950g"), Uid::Other(_)));
    }
}
