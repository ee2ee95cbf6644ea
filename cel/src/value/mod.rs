//! Values. Objects of the API are read in place: a value of an [`api::Tree`] is a reference to it and to its schema.

mod collections;
mod compare;
mod convert;
mod error;
mod opaque;
mod read;
mod time;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::types::Type;

pub(crate) use collections::Key;
pub use collections::{List, Map};
pub(crate) use compare::{compare, equal};
pub use convert::{ConversionError, TypeNameError};
pub(crate) use error::CostTracker;
pub use error::EvalError;
pub use opaque::{Authorizer, AuthorizerRequest, AuthorizerTarget, Decision, Opaque, ResourceRequest};
pub(crate) use opaque::{AuthorizerValue, NamedFormat, ResourceCheck, Semver, Url};
pub use time::Timestamp;

/// A string of an object or an expression, or a computed string.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// An object that an expression built: `JSONPatch{op: "add"}`, `Object{spec: Object.spec{}}`.
#[derive(Debug, Clone)]
pub struct Object<'a> {
    pub type_name: Arc<str>,
    /// The fields that were set, in the order of their names.
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

/// A value of CEL.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    Object(Arc<Object<'a>>),
    Optional(Option<Arc<Value<'a>>>),
    Type(Type),
    /// A value of the libraries of Kubernetes.
    Opaque(Opaque<'a>),
    /// A value of a field without a type, which CEL can only compare.
    Preserved(&'a api::Tree),
}

impl<'a> Value<'a> {
    /// A string.
    pub fn string(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Shared(text.into()))
    }

    /// A list.
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::from(items))
    }

    /// An optional that has a value.
    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    /// A quantity.
    pub fn quantity(quantity: api::quantity::Quantity) -> Value<'a> {
        Value::Opaque(Opaque::Quantity(Arc::new(quantity)))
    }

    /// The user of a request, whom `authorizer` authorizes.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Value<'a> {
        let value = AuthorizerValue { authorizer, service_account: None };
        Value::Opaque(Opaque::Authorizer(Arc::new(value)))
    }

    /// A check of the user for the resource of a request: `authorizer.requestResource`.
    pub fn resource_check(authorizer: &'a dyn Authorizer, request: ResourceRequest) -> Value<'a> {
        let authorizer = AuthorizerValue { authorizer, service_account: None };
        Value::Opaque(Opaque::ResourceCheck(Arc::new(ResourceCheck { authorizer, request })))
    }

    /// The value of a bool; None for other types.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// The text of a string; None for other types.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The type at run time. Items of lists and maps are dyn.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Object(object) => Type::Object(object.type_name.clone()),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Opaque(opaque) => opaque.type_of(),
            Value::Preserved(_) => Type::object("unknown"),
        }
    }

    /// The size that costs are computed from: characters, bytes, items or entries; 1 for all others.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Value::String(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            Value::Opaque(opaque) => opaque.size(),
            _ => 1,
        };
        size as u64
    }

    /// Whether it is a zero or empty value.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Duration(nanos) => *nanos == 0,
            Value::Timestamp(time) => time.seconds == -62_135_596_800 && time.nanos == 0,
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            _ => false,
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Value::String(Text::Borrowed(value))
    }
}
