//! How apply treats a value of a type: as a leaf, as fields, or as items identified by keys or value.

use super::set::Element;
use crate::json;
use crate::schema::{Field, Presence, Topology, Ty, Type};
use crate::tree::{Str, Tree};

/// A type with the attributes of its field.
#[derive(Clone, Copy)]
pub(super) struct Typed {
    pub ty: Ty,
    pub topology: Topology,
}

pub(super) enum Shape {
    /// A scalar, or a list or map with a single owner.
    Leaf,
    Struct(&'static Type),
    Map(Typed),
    /// A list whose items are identified by key fields; empty for a set of scalars.
    List(&'static [&'static str], Typed),
}

impl Typed {
    pub(super) fn root(ty: &'static Type) -> Typed {
        Typed { ty: Ty::Struct(ty), topology: Topology::Unset }
    }

    pub(super) fn field(field: &Field) -> Typed {
        Typed { ty: field.ty, topology: field.topology }
    }

    fn item(ty: &Ty) -> Typed {
        Typed { ty: *ty, topology: Topology::Unset }
    }

    pub(super) fn shape(self) -> Shape {
        match (self.ty, self.topology) {
            (_, Topology::Atomic) => Shape::Leaf,
            (Ty::Struct(ty), topology) => match (topology, ty.topology) {
                (Topology::Unset, Topology::Atomic) => Shape::Leaf,
                _ => Shape::Struct(ty),
            },
            (Ty::Map(item), _) => Shape::Map(Typed::item(item)),
            (Ty::List(item), Topology::Set) => Shape::List(&[], Typed::item(item)),
            (Ty::List(item), Topology::Map(keys)) => Shape::List(keys, Typed::item(item)),
            _ => Shape::Leaf,
        }
    }
}

/// A list item without a path element.
#[derive(Debug, thiserror::Error)]
pub(super) enum ItemError {
    #[error("associative list with keys may not have a null element")]
    Null,
    #[error("associative list with keys may not have non-map elements")]
    NotMap,
    #[error("associative list with keys has an element that omits key field {0:?} (and doesn't have default value)")]
    NoKey(&'static str),
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// The path element of a list item, or why it has none.
pub(super) fn item_element(item: &Tree, keys: &'static [&'static str], typed: Typed) -> Result<Element, ItemError> {
    if keys.is_empty() {
        return set_element(item);
    }
    match item {
        Tree::Map(_) => {}
        Tree::Null => return Err(ItemError::Null),
        _ => return Err(ItemError::NotMap),
    }
    let mut fields = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match item.get(key) {
            Some(value) => value.clone(),
            None => key_default(key, typed).ok_or(ItemError::NoKey(key))?,
        };
        fields.push((Str::const_new(key), value));
    }
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(fields.into_boxed_slice()))
}

fn set_element(item: &Tree) -> Result<Element, ItemError> {
    match item {
        Tree::Map(_) => Err(ItemError::MapInSet),
        Tree::List(_) => Err(ItemError::ListInSet),
        Tree::Null => Err(ItemError::NullInSet),
        scalar => Ok(Element::Value(Box::new(scalar.clone()))),
    }
}

/// A missing key has its schema default: the protocol of a port is TCP. A required string defaults to empty.
fn key_default(key: &str, typed: Typed) -> Option<Tree> {
    let Ty::Struct(ty) = typed.ty else { return None };
    let field = ty.field(key)?;
    match field.default {
        Some(default) => json::decode(default.as_bytes()).ok(),
        None if field.presence == Presence::Always => Some(crate::typed::zero(field.ty)),
        None => None,
    }
}
