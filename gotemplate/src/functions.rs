//! The functions: those of Go's templates, and kubectl's `exists` and `base64decode`.

use std::borrow::Cow;
use std::cmp::Ordering;

use api::base64;

use crate::compare;
use crate::error::CallError;
use crate::escape;
use crate::format;
use crate::value::{Data, Value};

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// `reflect.Value`: anything, also nothing.
    Reflect,
    /// `interface {}`: nothing becomes nil.
    Any,
    Text,
}

impl Parameter {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Parameter::Reflect => "reflect.Value",
            Parameter::Any => "interface {}",
            Parameter::Text => "string",
        }
    }
}

type Arguments<'v, 'a> = &'v [Value<'a>];
type Outcome<'a> = Result<Value<'a>, CallError>;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) fixed: &'static [Parameter],
    pub(crate) variadic: Option<Parameter>,
    pub(crate) run: for<'v, 'a> fn(Arguments<'v, 'a>) -> Outcome<'a>,
}

use Parameter::{Any, Reflect, Text};

macro_rules! function {
    ($name:literal, $fixed:expr, $variadic:expr, $run:expr) => {
        Function { name: $name, fixed: &$fixed, variadic: $variadic, run: $run }
    };
}

/// `and` and `or` are evaluated by the execution, which stops at the argument that decides.
static FUNCTIONS: &[Function] = &[
    function!("and", [Reflect], Some(Reflect), last),
    function!("or", [Reflect], Some(Reflect), last),
    function!("call", [Reflect], Some(Reflect), call),
    function!("html", [], Some(Any), |args| Ok(Value::text(escape::html(&joined(args)?)))),
    function!("index", [Reflect], Some(Reflect), index),
    function!("js", [], Some(Any), |args| Ok(Value::text(escape::js(&joined(args)?)))),
    function!("len", [Reflect], None, length),
    function!("not", [Reflect], None, |args| Ok(Value::new(Data::Bool(!args[0].data.is_true())))),
    function!("print", [], Some(Any), |args| format::print(&data(args)).map(Value::text)),
    function!("printf", [Text], Some(Any), printf),
    function!("println", [], Some(Any), |args| format::print_line(&data(args)).map(Value::text)),
    function!("slice", [Reflect], Some(Reflect), slice),
    function!("urlquery", [], Some(Any), |args| Ok(Value::text(escape::url_query(&joined(args)?)))),
    function!("eq", [Reflect], Some(Reflect), |args| equal(args)),
    function!("ne", [Reflect, Reflect], None, |args| equal(args).map(negate)),
    function!("lt", [Reflect, Reflect], None, |args| ordered(args, Ordering::is_lt)),
    function!("le", [Reflect, Reflect], None, |args| ordered(args, Ordering::is_le)),
    function!("gt", [Reflect, Reflect], None, |args| ordered(args, Ordering::is_le).map(negate)),
    function!("ge", [Reflect, Reflect], None, |args| ordered(args, Ordering::is_lt).map(negate)),
    function!("exists", [Any], Some(Any), exists),
    function!("base64decode", [Text], None, base64_decode),
];

pub(crate) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

fn data<'a>(args: Arguments<'_, 'a>) -> Vec<Data<'a>> {
    args.iter().map(|value| value.data.clone()).collect()
}

fn last<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    Ok(args.last().cloned().unwrap_or(Value::INVALID))
}

/// There are no values that are functions.
fn call<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    match args.first() {
        Some(value) if !matches!(value.data, Data::Invalid | Data::Nil) => {
            Err(CallError::NonFunction { name: String::new(), ty: value.data.type_name() })
        }
        _ => Err(CallError::CallOfNil),
    }
}

fn printf<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let [format, args @ ..] = args else { return Ok(Value::text("")) };
    let Data::Text(format) = &format.data else { return Ok(Value::text("")) };
    Ok(Value::text(format::printf(&String::from_utf8_lossy(format), &data(args))?))
}

/// The arguments as `print` has them, except that nil is `<no value>`.
fn joined<'a>(args: Arguments<'_, 'a>) -> Result<Vec<u8>, CallError> {
    let printable = |value: &Value<'a>| match &value.data {
        Data::Nil | Data::Invalid => Data::Text(Cow::Borrowed(b"<no value>" as &[u8])),
        data => data.clone(),
    };
    format::print(&args.iter().map(printable).collect::<Vec<_>>())
}

fn negate(value: Value) -> Value {
    Value::new(Data::Bool(!value.data.is_true()))
}

fn equal<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let data = data(args);
    match data.split_first() {
        Some((first, others)) => compare::equals_any(first, others).map(|equal| Value::new(Data::Bool(equal))),
        None => Err(CallError::NoComparison),
    }
}

fn ordered<'a>(args: Arguments<'_, 'a>, passes: fn(Ordering) -> bool) -> Outcome<'a> {
    let [left, right] = args else { return Err(CallError::NoComparison) };
    let order = compare::order(&left.data, &right.data)?;
    Ok(Value::new(Data::Bool(order.is_some_and(passes))))
}

fn length<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let length = match &args[0].data {
        Data::Invalid => return Err(CallError::ReflectZeroValue),
        Data::Nil => return Err(CallError::LengthOfNil),
        Data::Text(text) => text.len(),
        Data::List(items) => items.len(),
        Data::Map(map) => map.len(),
        other => return Err(CallError::NoLength(other.type_name())),
    };
    Ok(Value::new(Data::Int(length as i64)))
}

/// An index up to and including the length.
fn checked_index(index: &Data, length: usize) -> Result<usize, CallError> {
    match index {
        Data::Invalid | Data::Nil => Err(CallError::IndexIsNil),
        index => {
            let at = index.as_int().ok_or_else(|| CallError::IndexType(index.type_name()))?;
            usize::try_from(at).ok().filter(|at| *at <= length).ok_or(CallError::OutOfRange(at))
        }
    }
}

fn index<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let [item, indexes @ ..] = args else { return Err(CallError::IndexOfNil) };
    let mut item = item.clone();
    if matches!(item.data, Data::Invalid | Data::Nil) {
        return Err(CallError::IndexOfNil);
    }
    for index in indexes {
        item = index_once(&item, &index.data)?;
    }
    Ok(item)
}

fn index_once<'a>(item: &Value<'a>, index: &Data) -> Outcome<'a> {
    match &item.data {
        Data::Invalid | Data::Nil => Err(CallError::IndexOfNilPointer),
        Data::Text(text) => {
            let byte = text.get(checked_index(index, text.len())?);
            byte.map(|byte| Value::new(Data::Byte(*byte))).ok_or(CallError::ReflectOutOfRange("string"))
        }
        Data::List(items) => {
            let item = items.get(checked_index(index, items.len())?);
            item.map(Value::item).ok_or(CallError::ReflectOutOfRange("slice"))
        }
        Data::Map(map) => match index {
            Data::Text(key) => {
                let item = std::str::from_utf8(key).ok().and_then(|key| map.get(key));
                Ok(item.map_or(Value::NIL, Value::item))
            }
            Data::Invalid | Data::Nil => Err(CallError::KeyIsNil),
            other => Err(CallError::KeyType(other.type_name())),
        },
        other => Err(CallError::NotIndexable(other.type_name())),
    }
}

fn slice<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let [item, indexes @ ..] = args else { return Err(CallError::SliceOfNil) };
    if matches!(item.data, Data::Invalid | Data::Nil) {
        return Err(CallError::SliceOfNil);
    }
    if indexes.len() > 3 {
        return Err(CallError::TooManySliceIndexes(indexes.len()));
    }
    let length = match &item.data {
        Data::Text(_) if indexes.len() == 3 => return Err(CallError::ThreeIndexesOfString),
        Data::Text(text) => text.len(),
        Data::List(items) => items.len(),
        other => return Err(CallError::NotSliceable(other.type_name())),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = checked_index(&index.data, length)?;
    }
    let [start, end, capacity] = bounds;
    for (low, high) in [(start, end), (end, capacity)] {
        if low > high {
            return Err(CallError::SliceOrder(low as i64, high as i64));
        }
    }
    Ok(Value::new(match &item.data {
        Data::List(items) => Data::List(&items[start..end]),
        Data::Text(Cow::Borrowed(text)) => Data::Text(Cow::Borrowed(&text[start..end])),
        Data::Text(text) => Data::Text(Cow::Owned(text[start..end].to_vec())),
        _ => Data::Invalid,
    }))
}

/// Whether `index` with these arguments finds something that is not nil.
fn exists<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let [item, indexes @ ..] = args else { return Ok(Value::new(Data::Bool(false))) };
    // Without indexes, nil exists.
    let mut item = item.clone().unboxed();
    for index in indexes {
        let key = match (&item.data, &index.data) {
            (Data::Map(_), Data::Nil | Data::Invalid) => Data::Text(Cow::Borrowed(b"" as &[u8])),
            (_, index) => index.clone(),
        };
        match index_once(&item, &key) {
            Ok(found) => item = found,
            Err(_) => return Ok(Value::new(Data::Bool(false))),
        }
    }
    Ok(Value::new(Data::Bool(!matches!(item.data, Data::Nil))))
}

fn base64_decode<'a>(args: Arguments<'_, 'a>) -> Outcome<'a> {
    let Some(Data::Text(text)) = args.first().map(|value| &value.data) else { return Ok(Value::text("")) };
    Ok(Value::text(base64::decode(&String::from_utf8_lossy(text))?))
}
