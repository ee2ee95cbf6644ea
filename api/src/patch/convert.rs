//! Errors of upstream's converter for a strategically merged object whose values do not match their types. It
//! converts maps to Go structs without JSON, with its own messages.

use super::go;
use crate::schema::{Ty, Type};
use crate::tree::Tree;

/// The first value that does not match; None if all do, or if its type's parser rejects it.
pub fn unconvertible(tree: &Tree, ty: &'static Type) -> Option<String> {
    of_value(tree, Ty::Struct(ty))
}

fn of_value(value: &Tree, ty: Ty) -> Option<String> {
    match (ty, value) {
        (_, Tree::Null) => None,
        (Ty::Struct(ty), Tree::Map(map)) => map.iter().find_map(|(key, value)| of_value(value, ty.field(key)?.ty)),
        (Ty::Struct(_), value) => Some(format!("cannot restore struct from: {}", go_kind(value))),
        (Ty::List(item), Tree::List(items)) => items.iter().find_map(|value| of_value(value, *item)),
        (Ty::Map(item), Tree::Map(map)) => map.iter().find_map(|(_, value)| of_value(value, *item)),
        (Ty::Map(_), value) => Some(format!("cannot restore map from {}", go_kind(value))),
        (Ty::Bytes, Tree::Str(_)) => None,
        (Ty::List(_) | Ty::Bytes, value) => Some(format!("cannot restore slice from {}", go_kind(value))),
        (Ty::String, value) => of_scalar(value, "string", matches!(value, Tree::Str(_))),
        (Ty::Bool, value) => of_scalar(value, "bool", matches!(value, Tree::Bool(_))),
        (Ty::Int32, value) => of_scalar(value, "int32", is_integer(value)),
        (Ty::Int64, value) => of_scalar(value, "int64", is_integer(value)),
        (Ty::Double, value) => of_scalar(value, "float64", matches!(value, Tree::Int(_) | Tree::Float(_))),
        _ => None,
    }
}

fn is_integer(value: &Tree) -> bool {
    match value {
        Tree::Int(_) => true,
        Tree::Float(value) => value.trunc() == *value,
        _ => false,
    }
}

/// Go can convert integers to strings and floats to integers; upstream rejects both.
fn of_scalar(value: &Tree, go_type: &str, fits: bool) -> Option<String> {
    let is_convertible = match value {
        Tree::Int(_) => go_type == "string",
        Tree::Float(_) => go_type.starts_with("int"),
        _ => false,
    };
    match (fits, is_convertible) {
        (true, _) => None,
        (false, true) => Some(format!("cannot convert {} to {go_type}", go::go_type(value))),
        (false, false) => Some(format!("unrecognized type: {go_type}")),
    }
}

/// The kind of a decoded value's Go type.
fn go_kind(value: &Tree) -> &'static str {
    match value {
        Tree::List(_) => "slice",
        Tree::Map(_) => "map",
        other => go::go_type(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::type_of;

    #[test]
    fn conversion_errors_match_upstream() {
        let check = |object: &str, want: Option<&str>| {
            let tree = crate::json::decode(object.as_bytes()).expect("JSON");
            let ty = type_of("apps", "v1", "Deployment").expect("a type");
            assert_eq!(unconvertible(&tree, ty).as_deref(), want, "{object}");
        };
        check(r#"{"spec":{"replicas":3,"paused":true},"metadata":{"name":"a"}}"#, None);
        check(r#"{"spec":{"replicas":"3"}}"#, Some("unrecognized type: int32"));
        check(r#"{"spec":{"replicas":1.5}}"#, Some("cannot convert float64 to int32"));
        check(r#"{"spec":{"paused":"yes"}}"#, Some("unrecognized type: bool"));
        check(r#"{"spec":{"paused":1}}"#, Some("unrecognized type: bool"));
        check(r#"{"metadata":{"name":5}}"#, Some("cannot convert int64 to string"));
        check(r#"{"metadata":{"name":1.5}}"#, Some("unrecognized type: string"));
        check(r#"{"metadata":{"labels":{"a":true}}}"#, Some("unrecognized type: string"));
        check(r#"{"metadata":{"labels":"a"}}"#, Some("cannot restore map from string"));
        check(r#"{"metadata":{"finalizers":{"a":"b"}}}"#, Some("cannot restore slice from map"));
        check(r#"{"spec":[1]}"#, Some("cannot restore struct from: slice"));
        check(r#"{"spec":7}"#, Some("cannot restore struct from: int64"));
    }
}
