//! Lists and maps: those of objects are read in place, those of expressions are shared.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;

use super::{EvalError, Text, Value};
use crate::schema::{ListType, Schema, escape, unescape};

/// A list.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// A list of an object with the schema of the list; without a schema its items are what they are in JSON.
    Tree(&'a [Tree], Option<&'a Schema>),
    /// A list of claims: see [`Map::Claims`].
    Claims(&'a [Tree]),
    Values(Arc<Vec<Value<'a>>>),
    /// A set or map of an object with other items: it keeps its list type.
    Merged(Arc<Vec<Value<'a>>>, &'a Schema),
    /// Two concatenated lists. The nesting of expressions is limited, and so is the nesting of these.
    Concat(Arc<(List<'a>, List<'a>, usize)>),
}

impl<'a> From<Vec<Value<'a>>> for List<'a> {
    fn from(items: Vec<Value<'a>>) -> List<'a> {
        List::Values(Arc::new(items))
    }
}

impl<'a> List<'a> {
    /// The number of items or entries.
    pub fn len(&self) -> usize {
        match self {
            List::Tree(items, _) | List::Claims(items) => items.len(),
            List::Values(items) | List::Merged(items, _) => items.len(),
            List::Concat(parts) => parts.2,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at an index; none if there is none.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            List::Tree(items, schema) => {
                let items_schema = schema.and_then(|schema| schema.items.as_deref());
                items.get(index).map(|item| Value::read(item, items_schema))
            }
            List::Claims(items) => items.get(index).map(|item| Ok(Value::read_claims(item))),
            List::Values(items) | List::Merged(items, _) => items.get(index).cloned().map(Ok),
            List::Concat(parts) => match index.checked_sub(parts.0.len()) {
                Some(rest) => parts.1.get(rest),
                None => parts.0.get(index),
            },
        }
    }

    /// The schema of a set or map.
    pub(super) fn keyed(&self) -> Option<&'a Schema> {
        match self {
            List::Tree(_, Some(schema)) | List::Merged(_, schema) => Some(*schema),
            _ => None,
        }
        .filter(|schema| schema.list_type != ListType::Atomic)
    }

    /// The items.
    pub fn iter(&self) -> Items<'a, '_> {
        Items { list: self, at: 0 }
    }

    /// This list and then another one. Sets and maps of objects merge instead.
    pub(crate) fn concat(&self, other: &List<'a>) -> Result<List<'a>, EvalError> {
        if let Some(schema) = self.keyed() {
            return super::compare::merge(self, schema, other);
        }
        if self.is_empty() {
            return Ok(other.clone());
        }
        if other.is_empty() {
            return Ok(self.clone());
        }
        let length = self.len() + other.len();
        Ok(List::Concat(Arc::new((self.clone(), other.clone(), length))))
    }
}

/// The items of a list, in order.
pub struct Items<'a, 'l> {
    list: &'l List<'a>,
    at: usize,
}

impl<'a> Iterator for Items<'a, '_> {
    type Item = Result<Value<'a>, EvalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.list.get(self.at);
        self.at += 1;
        item
    }
}

/// A key of a map. Numbers that are equal are the same key, whatever their types are.
#[derive(Debug, Clone)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
}

impl<'a> Key<'a> {
    pub(crate) fn of(value: &Value<'a>) -> Option<Key<'a>> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(*value),
            Value::Uint(value) => Key::Uint(*value),
            Value::Double(value) => Key::Double(*value),
            Value::String(text) => Key::String(text.clone()),
            _ => return None,
        })
    }

    pub(crate) fn to_value(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::Double(value) => Value::Double(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) | Key::Double(_) => 1,
            Key::String(_) => 2,
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Key<'_>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Key<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Key<'_>) -> Ordering {
        match (self, other) {
            (Key::Bool(a), Key::Bool(b)) => a.cmp(b),
            (Key::String(a), Key::String(b)) => (**a).cmp(&**b),
            _ if self.rank() == 1 && other.rank() == 1 => {
                super::compare::compare_numbers(&self.to_value(), &other.to_value()).unwrap_or_else(|| {
                    // NaN equals nothing; any fixed order keeps the map sound.
                    format!("{self:?}").cmp(&format!("{other:?}"))
                })
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// A map, or an object with declared fields.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// An object of the API, with its schema if it has one.
    Tree(&'a api::Map, Option<&'a Schema>),
    /// Claims of a token: `a__dot__b` finds the key `a.b`, at all levels.
    Claims(&'a api::Map),
    Entries(Entries<'a>),
    /// Maps by key, where a key that is absent selects an empty map: the domains of a device's attributes.
    Domains(Entries<'a>),
}

/// The entries of a map that an expression built.
#[derive(Debug, Clone, Default)]
pub struct Entries<'a>(Arc<BTreeMap<Key<'a>, Value<'a>>>);

impl<'a> Map<'a> {
    pub(crate) fn from_entries(entries: BTreeMap<Key<'a>, Value<'a>>) -> Map<'a> {
        Map::Entries(Entries(Arc::new(entries)))
    }

    /// A map of strings.
    pub fn from_strings(entries: impl IntoIterator<Item = (Arc<str>, Value<'a>)>) -> Map<'a> {
        let entries = entries.into_iter().map(|(key, value)| (Key::String(Text::Shared(key)), value));
        Map::from_entries(entries.collect())
    }

    /// A map of maps in which absent keys select an empty map, although they are not `in` it.
    pub fn domains(entries: impl IntoIterator<Item = (Arc<str>, Value<'a>)>) -> Map<'a> {
        let entries = entries.into_iter().map(|(key, value)| (Key::String(Text::Shared(key)), value));
        Map::Domains(Entries(Arc::new(entries.collect())))
    }

    /// The entries, for adding to them; they are copied if others use them.
    pub(crate) fn make_mut(&mut self) -> Option<&mut BTreeMap<Key<'a>, Value<'a>>> {
        match self {
            Map::Entries(Entries(entries)) => Some(Arc::make_mut(entries)),
            Map::Tree(..) | Map::Claims(_) | Map::Domains(_) => None,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Tree(map, _) | Map::Claims(map) => map.len(),
            Map::Entries(Entries(entries)) | Map::Domains(Entries(entries)) => entries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a string key.
    pub fn get(&self, key: &str) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Map::Tree(map, schema) => read_field(map, *schema, key),
            Map::Claims(map) => Ok(read_claim(map, key)),
            Map::Entries(Entries(entries)) | Map::Domains(Entries(entries)) => {
                Ok(entries.get(&Key::String(Text::Borrowed(key))).cloned())
            }
        }
    }

    pub(crate) fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        match (self, key) {
            (_, Value::String(text)) => self.get(text),
            (Map::Tree(_, Some(_)), _) => Err(EvalError::overload()),
            (Map::Tree(_, None) | Map::Claims(_), _) => Ok(None),
            (Map::Entries(Entries(entries)) | Map::Domains(Entries(entries)), _) => {
                Ok(Key::of(key).and_then(|key| entries.get(&key).cloned()))
            }
        }
    }

    /// The value that `map[key]` and `map.key` select.
    pub(crate) fn select(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        let found = self.find(key)?;
        let is_absent_domain = found.is_none() && matches!(self, Map::Domains(_));
        Ok(if is_absent_domain { Some(Value::Map(Map::Entries(Entries::default()))) } else { found })
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Tree(map, None) | Map::Claims(map) => map.keys().map(Value::from).collect(),
            Map::Tree(map, Some(schema)) => {
                map.keys().filter(|key| schema.property(key).is_some()).map(|key| escaped_key(schema, key)).collect()
            }
            Map::Entries(Entries(entries)) | Map::Domains(Entries(entries)) => {
                entries.keys().map(Key::to_value).collect()
            }
        }
    }
}

fn escaped_key<'a>(schema: &Schema, key: &'a str) -> Value<'a> {
    match escape(key) {
        Some(escaped) if schema.properties.is_some() && escaped != key => Value::string(escaped),
        _ => Value::from(key),
    }
}

/// A claim by its identifier, or by its name where that is no identifier with escapes.
fn read_claim<'a>(map: &'a api::Map, key: &str) -> Option<Value<'a>> {
    let unescaped = if key.contains("__") { unescape(key) } else { None };
    map.get(unescaped.as_deref().unwrap_or(key)).map(Value::read_claims)
}

/// A field by its identifier, or a key of a map.
fn read_field<'a>(map: &'a api::Map, schema: Option<&'a Schema>, key: &str) -> Result<Option<Value<'a>>, EvalError> {
    let Some(schema) = schema else { return map.get(key).map(|value| Value::read(value, None)).transpose() };
    let is_object = schema.properties.is_some();
    let unescaped;
    let name = if is_object && key.contains("__") {
        match unescape(key) {
            Some(name) => unescaped = name,
            None => return Ok(None),
        }
        unescaped.as_str()
    } else {
        key
    };
    let Some(value) = map.get(name).filter(|value| !(is_object && value.is_null())) else { return Ok(None) };
    schema.property(name).map(|schema| Value::read(value, Some(schema))).transpose()
}
