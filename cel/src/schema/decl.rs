//! The types that schemas declare, with the sizes from which costs are estimated.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;

use super::escape::escape;
use super::{Format, Schema, SchemaType};
use crate::limits::MAX_REQUEST_SIZE;
use crate::types::Type;

const MIN_STRING: i64 = 2;
const MIN_BOOL: i64 = 4;
const MIN_NUMBER: i64 = 1;
const MIN_DURATION: i64 = 3;
const DATE: i64 = 12;
const MIN_DATE_TIME: i64 = 21;
const MAX_DURATION: i64 = 32;
const MAX_DATE_TIME: i64 = 32;

/// A declared type: a type of CEL, the types of its parts, and bounds of its size.
#[derive(Debug, Clone)]
pub struct DeclType {
    cel: Type,
    declaration: Declaration,
    /// The maximum number of characters, items or entries.
    max_elements: u64,
    /// The length of the smallest value as JSON.
    min_serialized_size: i64,
}

/// The structure of a type.
#[derive(Debug, Clone)]
pub enum Declaration {
    Scalar,
    List(Arc<DeclType>),
    /// A map from strings.
    Map(Arc<DeclType>),
    /// The fields by their identifiers.
    Object(BTreeMap<String, Arc<DeclType>>),
}

impl DeclType {
    /// A type without parts.
    pub fn scalar(cel: Type) -> DeclType {
        DeclType::sized(cel, 0, 1)
    }

    fn sized(cel: Type, max_elements: i64, min_serialized_size: i64) -> DeclType {
        let max_elements = u64::try_from(max_elements).unwrap_or(0);
        DeclType { cel, declaration: Declaration::Scalar, max_elements, min_serialized_size }
    }

    /// A list with at most this many items.
    pub fn list(item: DeclType, max_items: u64) -> DeclType {
        let cel = Type::list(item.cel.clone());
        let declaration = Declaration::List(Arc::new(item));
        DeclType { cel, declaration, max_elements: max_items, min_serialized_size: 2 }
    }

    /// A map of strings with at most this many entries.
    pub fn map(value: DeclType, max_entries: u64) -> DeclType {
        let cel = Type::map(Type::String, value.cel.clone());
        let declaration = Declaration::Map(Arc::new(value));
        DeclType { cel, declaration, max_elements: max_entries, min_serialized_size: 2 }
    }

    /// An object type with a name and fields.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, DeclType)>) -> DeclType {
        let fields = fields.into_iter().map(|(name, field)| (name, Arc::new(field))).collect();
        let declaration = Declaration::Object(fields);
        DeclType { cel: Type::object(name), declaration, max_elements: 0, min_serialized_size: 2 }
    }

    /// The type in expressions.
    pub fn cel_type(&self) -> &Type {
        &self.cel
    }

    /// The declaration of the type.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// The most items, entries or characters of a value.
    pub fn max_elements(&self) -> u64 {
        self.max_elements
    }

    /// The length of the smallest value as JSON: it limits how often a rule can run in one request.
    pub fn min_serialized_size(&self) -> i64 {
        self.min_serialized_size
    }

    /// How many values of this type fit into one request.
    pub fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_REQUEST_SIZE / (self.min_serialized_size + 1)).unwrap_or(0)
    }

    /// The type of a field of an object.
    pub fn field(&self, name: &str) -> Option<&DeclType> {
        match &self.declaration {
            Declaration::Object(fields) => fields.get(name).map(|field| &**field),
            _ => None,
        }
    }

    /// The type of items or values.
    pub fn element(&self) -> Option<&DeclType> {
        match &self.declaration {
            Declaration::List(element) | Declaration::Map(element) => Some(element),
            _ => None,
        }
    }

    /// Gives all objects without a name one that is derived from `name`.
    pub fn with_name(&self, name: &str) -> DeclType {
        let mut named = self.clone();
        match &self.declaration {
            Declaration::Scalar => {}
            Declaration::List(item) => {
                let item = item.with_name(&format!("{name}.@idx"));
                named.cel = Type::list(item.cel.clone());
                named.declaration = Declaration::List(Arc::new(item));
            }
            Declaration::Map(value) => {
                let value = value.with_name(&format!("{name}.@elem"));
                named.cel = Type::map(Type::String, value.cel.clone());
                named.declaration = Declaration::Map(Arc::new(value));
            }
            Declaration::Object(fields) => {
                let own = if self.cel.name() == UNNAMED { name } else { self.cel.name() };
                let rename = |(field, of): (&String, &Arc<DeclType>)| {
                    (field.clone(), Arc::new(of.with_name(&format!("{own}.{field}"))))
                };
                named.cel = Type::object(own);
                named.declaration = Declaration::Object(fields.iter().map(rename).collect());
            }
        }
        named
    }
}

/// The name of objects that have none yet.
const UNNAMED: &str = "object";

impl Schema {
    /// The type that the schema declares; None if CEL cannot access the value. A root needs
    /// [`Schema::with_object_meta`] first.
    pub fn declare(&self) -> Option<DeclType> {
        if self.int_or_string {
            let length = self.max_length.map_or(MAX_REQUEST_SIZE - 2, max_bytes);
            return Some(DeclType::sized(Type::Dyn, length, 1));
        }
        match self.kind {
            SchemaType::Array => self.declare_array(),
            SchemaType::Object => self.declare_object(),
            SchemaType::String => Some(self.declare_string()),
            SchemaType::Boolean => Some(DeclType::sized(Type::Bool, 0, MIN_BOOL)),
            SchemaType::Number => Some(DeclType::sized(Type::Double, 0, MIN_NUMBER)),
            SchemaType::Integer => Some(DeclType::sized(Type::Int, 0, MIN_NUMBER)),
            SchemaType::None => None,
        }
    }

    fn declare_array(&self) -> Option<DeclType> {
        let item = self.items.as_deref()?.declare()?;
        let estimated = (MAX_REQUEST_SIZE - 2) / (item.min_serialized_size + 1);
        let max_items = self.max_items.unwrap_or(estimated);
        Some(DeclType::list(item, u64::try_from(max_items).unwrap_or(0)))
    }

    fn declare_object(&self) -> Option<DeclType> {
        if let Some(value) = &self.additional_properties {
            let value = value.declare()?;
            let estimated = (MAX_REQUEST_SIZE - 2) / (value.min_serialized_size + 6);
            let max_entries = self.max_properties.unwrap_or(estimated);
            return Some(DeclType::map(value, u64::try_from(max_entries).unwrap_or(0)));
        }
        let mut fields = BTreeMap::new();
        let mut size = 2;
        for (name, schema) in self.properties.iter().flatten() {
            let Some(field) = schema.declare() else { continue };
            if self.required.contains(name) && !schema.has_default {
                size += i64::try_from(name.len()).unwrap_or(i64::MAX) + field.min_serialized_size + 4;
            }
            if let Some(identifier) = escape(name) {
                fields.insert(identifier, Arc::new(field));
            }
        }
        let declaration = Declaration::Object(fields);
        Some(DeclType { cel: Type::object(UNNAMED), declaration, max_elements: 0, min_serialized_size: size })
    }

    fn declare_string(&self) -> DeclType {
        let unbounded = MAX_REQUEST_SIZE - 2;
        match self.format {
            Format::Byte => DeclType::sized(Type::Bytes, self.max_length.unwrap_or(unbounded), MIN_STRING),
            Format::Duration => DeclType::sized(Type::Duration, MAX_DURATION, MIN_DURATION),
            Format::Date => DeclType::sized(Type::Timestamp, DATE, DATE),
            Format::DateTime => DeclType::sized(Type::Timestamp, MAX_DATE_TIME, MIN_DATE_TIME),
            Format::Other => {
                let longest = self.enumeration.iter().filter_map(Tree::as_str).map(str::len).max();
                let listed = longest.and_then(|length| i64::try_from(length).ok());
                let listed = if self.enumeration.is_empty() { unbounded } else { listed.unwrap_or(0) };
                DeclType::sized(Type::String, self.max_length.map_or(listed, max_bytes), MIN_STRING)
            }
        }
    }
}

/// A character of the schema has up to four bytes.
fn max_bytes(characters: i64) -> i64 {
    characters.max(0).saturating_mul(4)
}
