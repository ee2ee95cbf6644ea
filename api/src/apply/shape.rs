//! How apply treats a value of a type: as a leaf, as fields, or as items identified by keys or value.

use super::set::Element;
use crate::json;
use crate::schema::{CustomList, CustomStruct, CustomType, Field, Presence, Topology, Ty, Type, TypeRef};
use crate::tree::{Str, Tree};

/// A type with the attributes of its field.
#[derive(Clone, Copy)]
pub(super) enum Typed<'a> {
    Table(Ty, Topology),
    Custom(&'a CustomType),
}

pub(super) enum Shape<'a> {
    /// A scalar, or a list or map with a single owner.
    Leaf,
    Struct(Fields<'a>),
    Map(Typed<'a>),
    /// A list whose items are identified by key fields; empty for a set of scalars.
    List(Keys<'a>, Typed<'a>),
}

/// The fields of a struct.
#[derive(Clone, Copy)]
pub(super) enum Fields<'a> {
    Table(&'static Type),
    Custom(&'a CustomStruct),
}

impl<'a> Fields<'a> {
    pub(super) fn field(self, name: &str) -> Option<Typed<'a>> {
        match self {
            Fields::Table(ty) => ty.field(name).map(Typed::field),
            Fields::Custom(fields) => match fields.field(name) {
                Some(field) => Some(Typed::Custom(&field.ty)),
                None => fields.others.as_deref().map(Typed::Custom),
            },
        }
    }

    /// Whether the name is one of the schema, not a key of a map.
    pub(super) fn is_named(self, name: &str) -> bool {
        match self {
            Fields::Table(ty) => ty.field(name).is_some(),
            Fields::Custom(fields) => fields.field(name).is_some(),
        }
    }
}

/// The names of the key fields of a list.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    Table(&'static [&'static str]),
    Custom(&'a [Str]),
}

impl Keys<'_> {
    pub(super) const NONE: Keys<'static> = Keys::Table(&[]);

    fn len(&self) -> usize {
        match self {
            Keys::Table(keys) => keys.len(),
            Keys::Custom(keys) => keys.len(),
        }
    }

    fn name(&self, at: usize) -> Str {
        match self {
            Keys::Table(keys) => Str::const_new(keys[at]),
            Keys::Custom(keys) => keys[at].clone(),
        }
    }
}

impl<'a> Typed<'a> {
    pub(super) fn root(ty: TypeRef<'a>) -> Typed<'a> {
        match ty {
            TypeRef::Table(ty) => Typed::Table(Ty::Struct(ty), Topology::Unset),
            TypeRef::Custom(object) => Typed::Custom(&object.ty),
        }
    }

    pub(super) fn field(field: &Field) -> Typed<'static> {
        Typed::Table(field.ty, field.topology)
    }

    fn item(ty: &Ty) -> Typed<'static> {
        Typed::Table(*ty, Topology::Unset)
    }

    /// The shape of a value.
    pub(super) fn shape(self, value: &Tree) -> Shape<'a> {
        self.shape_of(Some(value), None)
    }

    /// The common shape of two values: without a schema it is that of the values.
    pub(super) fn shape_of(self, one: Option<&Tree>, other: Option<&Tree>) -> Shape<'a> {
        let is_map = |value: Option<&Tree>| value.is_none_or(|value| matches!(value, Tree::Map(_)));
        match self {
            Typed::Table(ty, topology) => table_shape(ty, topology),
            Typed::Custom(CustomType::Any) if is_map(one) && is_map(other) => Shape::Map(self),
            Typed::Custom(ty) => custom_shape(ty),
        }
    }

    /// The shape without values.
    pub(super) fn plain_shape(self) -> Shape<'a> {
        self.shape_of(None, None)
    }
}

fn table_shape(ty: Ty, topology: Topology) -> Shape<'static> {
    match (ty, topology) {
        (_, Topology::Atomic) => Shape::Leaf,
        (Ty::Struct(ty), topology) => match (topology, ty.topology) {
            (Topology::Unset, Topology::Atomic) => Shape::Leaf,
            _ => Shape::Struct(Fields::Table(ty)),
        },
        (Ty::Map(item), _) => Shape::Map(Typed::item(item)),
        (Ty::List(item), Topology::Set) => Shape::List(Keys::NONE, Typed::item(item)),
        (Ty::List(item), Topology::Map(keys)) => Shape::List(Keys::Table(keys), Typed::item(item)),
        _ => Shape::Leaf,
    }
}

fn custom_shape(ty: &CustomType) -> Shape<'_> {
    match ty {
        CustomType::Any | CustomType::Scalar(_) => Shape::Leaf,
        CustomType::Table(ty) => table_shape(Ty::Struct(ty), Topology::Unset),
        CustomType::Struct(CustomStruct { is_atomic: true, .. }) | CustomType::Map { is_atomic: true, .. } => {
            Shape::Leaf
        }
        CustomType::Struct(fields) => Shape::Struct(Fields::Custom(fields)),
        CustomType::Map { item, .. } => Shape::Map(Typed::Custom(item)),
        CustomType::List { topology: CustomList::Atomic, .. } => Shape::Leaf,
        CustomType::List { item, topology: CustomList::Set } => Shape::List(Keys::NONE, Typed::Custom(item)),
        CustomType::List { item, topology: CustomList::Map(keys) } => {
            Shape::List(Keys::Custom(keys), Typed::Custom(item))
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
    NoKey(Str),
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// The path element of a list item, or why it has none.
pub(super) fn item_element(item: &Tree, keys: Keys<'_>, typed: Typed<'_>) -> Result<Element, ItemError> {
    if keys.len() == 0 {
        return set_element(item);
    }
    match item {
        Tree::Map(_) => {}
        Tree::Null => return Err(ItemError::Null),
        _ => return Err(ItemError::NotMap),
    }
    let mut fields = Vec::with_capacity(keys.len());
    for key in (0..keys.len()).map(|at| keys.name(at)) {
        let value = match item.get(&key) {
            Some(value) => value.clone(),
            None => match (key_default(&key, typed), keys) {
                (Some(default), _) => default,
                (None, Keys::Table(_)) => return Err(ItemError::NoKey(key)),
                // The schema of a custom resource requires the key: its validation reports it.
                (None, Keys::Custom(_)) => Tree::Null,
            },
        };
        fields.push((key, value));
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
fn key_default(key: &str, typed: Typed<'_>) -> Option<Tree> {
    let field = match typed {
        Typed::Table(Ty::Struct(ty), _) => ty.field(key)?,
        Typed::Custom(CustomType::Table(ty)) => ty.field(key)?,
        Typed::Custom(CustomType::Struct(fields)) => return fields.field(key)?.default.clone(),
        _ => return None,
    };
    match field.default {
        Some(default) => json::decode(default.as_bytes()).ok(),
        None if field.presence == Presence::Always => Some(crate::typed::zero(field.ty)),
        None => None,
    }
}
