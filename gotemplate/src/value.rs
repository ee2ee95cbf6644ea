//! Values of an execution: parts of the object, constants, and results of functions.

use std::borrow::Cow;

use api::{Map, Tree};

/// 2⁶³.
const MAX_INT: f64 = 9_223_372_036_854_775_808.0;

/// A value, and whether its static type is `interface {}`, which error texts show.
#[derive(Debug, Clone)]
pub(crate) struct Value<'a> {
    pub(crate) data: Data<'a>,
    pub(crate) is_boxed: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Data<'a> {
    /// Go's zero `reflect.Value`: a missing key, or nil outside of an interface.
    Invalid,
    /// A nil in an interface.
    Nil,
    Bool(bool),
    /// A constant, an index or a length.
    Int(i64),
    /// A number of the object.
    Int64(i64),
    /// A byte of a string.
    Byte(u8),
    Float(f64),
    Complex(f64, f64),
    /// A string of any bytes.
    Text(Cow<'a, [u8]>),
    List(&'a [Tree]),
    Map(&'a Map),
}

impl<'a> Value<'a> {
    pub(crate) const INVALID: Value<'static> = Value { data: Data::Invalid, is_boxed: false };
    pub(crate) const NIL: Value<'static> = Value { data: Data::Nil, is_boxed: true };

    /// A value with its own type.
    pub(crate) fn new(data: Data<'a>) -> Value<'a> {
        Value { data, is_boxed: false }
    }

    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Value<'a> {
        Value::new(Data::Text(Cow::Owned(text.into())))
    }

    /// An item of a list or a map.
    pub(crate) fn item(tree: &'a Tree) -> Value<'a> {
        Value { data: Data::of(tree), is_boxed: true }
    }

    /// What is in an interface; a nil becomes invalid.
    pub(crate) fn unboxed(self) -> Value<'a> {
        match self.data {
            Data::Nil => Value::INVALID,
            data => Value::new(data),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        if self.is_boxed { "interface {}" } else { self.data.type_name() }
    }
}

impl<'a> Data<'a> {
    pub(crate) fn of(tree: &'a Tree) -> Data<'a> {
        match tree {
            Tree::Null => Data::Nil,
            Tree::Bool(value) => Data::Bool(*value),
            Tree::Int(value) => Data::Int64(*value),
            // kubectl encodes objects as JSON, in which a whole number is an integer, before it executes templates.
            Tree::Float(value) if value.fract() == 0.0 && value.abs() < MAX_INT => Data::Int64(*value as i64),
            Tree::Float(value) => Data::Float(*value),
            Tree::Str(text) => Data::Text(Cow::Borrowed(text.as_bytes())),
            Tree::List(items) => Data::List(items),
            Tree::Map(map) => Data::Map(map),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Data::Invalid | Data::Nil => "<nil>",
            Data::Bool(_) => "bool",
            Data::Int(_) => "int",
            Data::Int64(_) => "int64",
            Data::Byte(_) => "uint8",
            Data::Float(_) => "float64",
            Data::Complex(..) => "complex128",
            Data::Text(_) => "string",
            Data::List(_) => "[]interface {}",
            Data::Map(_) => "map[string]interface {}",
        }
    }

    /// Whether an `if` takes its first branch: not the zero value, and not empty.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Data::Invalid | Data::Nil => false,
            Data::Bool(value) => *value,
            Data::Int(value) | Data::Int64(value) => *value != 0,
            Data::Byte(value) => *value != 0,
            Data::Float(value) => *value != 0.0,
            Data::Complex(real, imaginary) => *real != 0.0 || *imaginary != 0.0,
            Data::Text(text) => !text.is_empty(),
            Data::List(items) => !items.is_empty(),
            Data::Map(map) => !map.is_empty(),
        }
    }

    /// An integer of any type.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Data::Int(value) | Data::Int64(value) => Some(*value),
            Data::Byte(value) => Some((*value).into()),
            _ => None,
        }
    }
}
