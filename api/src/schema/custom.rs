//! Types of custom resources: the part of a user-written schema that server-side apply needs. Unlike the rows of the
//! table they are created and freed with their definition, so their owner counts them (ADR 33).

use super::{Ty, Type};
use crate::tree::{Str, Tree};

/// A kind's type: a row of the table, or the compiled schema of a custom resource.
#[derive(Debug, Clone, Copy)]
pub enum TypeRef<'a> {
    /// A type of the built-in table.
    Table(&'static Type),
    /// A type that a CustomResourceDefinition declares.
    Custom(&'a CustomObject),
}

impl<'a> TypeRef<'a> {
    /// The name of the kind, or of the type if it is no kind.
    pub fn kind(self) -> &'a str {
        match self {
            TypeRef::Table(ty) => ty.gvk.as_ref().map_or(ty.name, |gvk| gvk.kind),
            TypeRef::Custom(object) => &object.kind,
        }
    }
}

impl From<&'static Type> for TypeRef<'_> {
    fn from(ty: &'static Type) -> Self {
        TypeRef::Table(ty)
    }
}

/// The type of a custom kind in one version.
#[derive(Debug)]
pub struct CustomObject {
    /// The kind of the objects.
    pub kind: Str,
    /// The type of the value.
    pub ty: CustomType,
}

/// The type of a value in a custom resource.
#[derive(Debug)]
pub enum CustomType {
    /// No schema: maps are granular, lists atomic.
    Any,
    Scalar(Ty),
    /// A type of the table, such as ObjectMeta.
    Table(&'static Type),
    Struct(CustomStruct),
    Map {
        item: Box<CustomType>,
        is_atomic: bool,
    },
    List {
        item: Box<CustomType>,
        topology: CustomList,
    },
}

/// How apply treats a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomList {
    Atomic,
    Set,
    /// Items are identified by these fields.
    Map(Vec<Str>),
}

/// An object with named fields.
#[derive(Debug, Default)]
pub struct CustomStruct {
    /// Sorted by name.
    fields: Vec<CustomField>,
    /// The type of fields without a name here; None if they are not allowed.
    pub others: Option<Box<CustomType>>,
    /// The struct has a single owner.
    pub is_atomic: bool,
}

/// A field of a custom resource.
#[derive(Debug)]
pub struct CustomField {
    /// The name of the field.
    pub name: Str,
    /// The type of the value.
    pub ty: CustomType,
    /// The default, if there is one.
    pub default: Option<Tree>,
}

impl CustomStruct {
    /// A granular struct of these fields, in any order.
    pub fn new(mut fields: Vec<CustomField>) -> CustomStruct {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        CustomStruct { fields, others: None, is_atomic: false }
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&CustomField> {
        self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok().map(|at| &self.fields[at])
    }
}
