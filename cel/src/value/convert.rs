//! Values as trees, and the names of the objects that mutations build.

use api::{Map as TreeMap, Tree};

use super::{List, Map, Value};

/// A value that no object of the API can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error("cannot convert a value of type {0}")]
    Type(String),
    #[error("cannot convert a map with a key of type {0}")]
    Key(String),
    #[error("the value is nested more than {} levels", api::tree::MAX_DEPTH)]
    Depth,
    #[error("cannot read an item: {0}")]
    Item(super::EvalError),
}

/// An object whose type does not have the name of its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unexpected type name \"{found}\", expected \"{expected}\", which matches field name path from root Object type"
)]
pub struct TypeNameError {
    found: String,
    expected: String,
}

impl Value<'_> {
    /// The value as a part of an object of the API.
    pub fn to_tree(&self) -> Result<Tree, ConversionError> {
        convert(self, api::tree::MAX_DEPTH)
    }

    /// The objects in a mutation whose types do not match the fields where they are: `Object.spec` has to be the value
    /// of `spec`.
    pub fn check_type_names(&self) -> Vec<TypeNameError> {
        let mut errors = Vec::new();
        if let Value::Object(object) = self {
            check_names(self, &object.type_name, api::tree::MAX_DEPTH, &mut errors);
        }
        errors
    }
}

fn convert(value: &Value<'_>, levels: usize) -> Result<Tree, ConversionError> {
    let below = levels.checked_sub(1).ok_or(ConversionError::Depth)?;
    Ok(match value {
        Value::Null => Tree::Null,
        Value::Bool(value) => Tree::Bool(*value),
        Value::Int(value) => Tree::Int(*value),
        Value::Uint(value) => i64::try_from(*value).map_or(Tree::Float(*value as f64), Tree::Int),
        Value::Double(value) => Tree::Float(*value),
        Value::String(text) => Tree::from(&**text),
        Value::Bytes(bytes) => Tree::from(api::base64::encode(bytes)),
        Value::Timestamp(time) => Tree::from(time.to_string()),
        Value::Duration(nanos) => Tree::from(api::time::format_duration(*nanos)),
        Value::List(List::Tree(items, _) | List::Claims(items)) => Tree::List(items.to_vec()),
        Value::Map(Map::Tree(map, _) | Map::Claims(map)) => Tree::Map((*map).clone()),
        Value::Preserved(tree) => (*tree).clone(),
        Value::List(list) => {
            let item = |item: Result<Value<'_>, _>| convert(&item.map_err(ConversionError::Item)?, below);
            Tree::List(list.iter().map(item).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => convert_map(map, below)?,
        Value::Object(object) => {
            let mut fields = TreeMap::new();
            for (name, value) in &object.fields {
                fields.insert(&**name, convert(value, below)?);
            }
            Tree::Map(fields)
        }
        Value::Optional(Some(value)) => convert(value, below)?,
        other => return Err(ConversionError::Type(other.type_of().to_string())),
    })
}

fn convert_map(map: &Map<'_>, levels: usize) -> Result<Tree, ConversionError> {
    let mut entries = TreeMap::new();
    for key in map.keys() {
        let Value::String(name) = &key else { return Err(ConversionError::Key(key.type_of().to_string())) };
        let value = map.find(&key).map_err(ConversionError::Item)?.unwrap_or(Value::Null);
        entries.insert(&**name, convert(&value, levels)?);
    }
    Ok(Tree::Map(entries))
}

fn check_names(value: &Value<'_>, path: &str, levels: usize, errors: &mut Vec<TypeNameError>) {
    let Some(below) = levels.checked_sub(1) else { return };
    match value {
        Value::Object(object) => {
            if *object.type_name != *path {
                errors.push(TypeNameError { found: object.type_name.to_string(), expected: path.to_owned() });
            }
            for (name, field) in &object.fields {
                check_names(field, &format!("{path}.{name}"), below, errors);
            }
        }
        Value::List(list) => {
            list.iter().filter_map(Result::ok).for_each(|item| check_names(&item, path, below, errors));
        }
        Value::Map(map) => {
            let values = map.keys().into_iter().filter_map(|key| map.find(&key).ok().flatten());
            values.for_each(|value| check_names(&value, path, below, errors));
        }
        _ => {}
    }
}
