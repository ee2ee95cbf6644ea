//! Quantities.

use std::sync::Arc;

use api::quantity::{Format, Quantity};

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::value::{EvalError, Opaque, Value};

pub(super) const ROWS: &[Row] = &[
    ("quantity", "string_to_quantity", "(string) -> kubernetes.Quantity"),
    ("isQuantity", "is_quantity_string", "(string) -> bool"),
    ("sign", "quantity_sign", "(kubernetes.Quantity) -> int"),
    ("isGreaterThan", "quantity_is_greater_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool"),
    ("isLessThan", "quantity_is_less_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool"),
    ("compareTo", "quantity_compare_to", "kubernetes.Quantity.(kubernetes.Quantity) -> int"),
    ("asApproximateFloat", "quantity_get_float", "kubernetes.Quantity.() -> double"),
    ("asInteger", "quantity_get_int", "kubernetes.Quantity.() -> int"),
    ("isInteger", "quantity_is_integer", "kubernetes.Quantity.() -> bool"),
    ("add", "quantity_add", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity"),
    ("add", "quantity_add_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity"),
    ("sub", "quantity_sub", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity"),
    ("sub", "quantity_sub_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity"),
];

fn of<'v>(value: &'v Value<'_>) -> Result<&'v Quantity, EvalError> {
    match value {
        Value::Opaque(Opaque::Quantity(quantity)) => Ok(quantity),
        _ => Err(EvalError::overload()),
    }
}

fn wrap<'a>(quantity: Quantity) -> Value<'a> {
    Value::Opaque(Opaque::Quantity(Arc::new(quantity)))
}

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |_, args| {
            let Value::String(text) = &args[0] else { return no_overload() };
            Quantity::parse(text).map(wrap).map_err(|error| EvalError::failed(error.to_string()))
        },
        "isQuantity" => |_, args| {
            let Value::String(text) = &args[0] else { return no_overload() };
            Ok(Value::Bool(Quantity::parse(text).is_ok()))
        },
        "sign" => |_, args| {
            let quantity = of(&args[0])?;
            Ok(Value::Int(i64::from(!quantity.is_zero()) * if quantity.is_negative() { -1 } else { 1 }))
        },
        "asApproximateFloat" => |_, args| Ok(Value::Double(approximate(of(&args[0])?))),
        "asInteger" => |_, args| {
            let integer = of(&args[0])?.as_int();
            integer.map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
        },
        "isInteger" => |_, args| Ok(Value::Bool(of(&args[0])?.as_int().is_some())),
        "add" => |_, args| calculate(args, |sum, other| *sum += other),
        "sub" => |_, args| calculate(args, |sum, other| *sum -= other),
        _ => return None,
    })
}

/// The nearest double, computed from the decimal digits.
fn approximate(quantity: &Quantity) -> f64 {
    quantity.as_f64()
}

fn calculate<'a>(args: &[Value<'a>], apply: fn(&mut Quantity, &Quantity)) -> Result<Value<'a>, EvalError> {
    let mut result = of(&args[0])?.clone();
    match args {
        [_, Value::Int(number)] => apply(&mut result, &Quantity::new(*number, Format::DecimalExponent)),
        [_, other] => apply(&mut result, of(other)?),
        _ => return no_overload(),
    }
    Ok(wrap(result))
}

/// The order of two quantities.
pub(super) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<std::cmp::Ordering, EvalError> {
    Ok(of(a)?.cmp(of(b)?))
}
