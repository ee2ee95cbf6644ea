//! Values as upstream's errors print them: Go structs as JSON, in struct order and, for upstream's internal types,
//! with Go's field names.

use api::Tree;
use api::field::Value;
use api::json;

/// A field of a struct.
pub(crate) struct GoField {
    /// Its name in the object.
    key: &'static str,
    /// The printed name.
    name: &'static str,
    /// The text printed if it is missing; empty omits it.
    missing: &'static str,
    /// The fields of a nested struct; empty for a plain value.
    inner: &'static [GoField],
}

pub(crate) const EMPTY: &str = "\"\"";
pub(crate) const NULL: &str = "null";

pub(crate) const fn field(key: &'static str, name: &'static str, missing: &'static str) -> GoField {
    GoField { key, name, missing, inner: &[] }
}

/// A pointer to a struct.
pub(crate) const fn nested(key: &'static str, name: &'static str, inner: &'static [GoField]) -> GoField {
    GoField { key, name, missing: NULL, inner }
}

/// One struct.
pub(crate) fn value(object: &Tree, fields: &[GoField]) -> Value {
    Value::raw(text(object, fields))
}

/// A list of structs.
pub(crate) fn list(objects: &[Tree], fields: &[GoField]) -> Value {
    let texts: Vec<String> = objects.iter().map(|object| text(object, fields)).collect();
    Value::raw(format!("[{}]", texts.join(",")))
}

/// For errors where upstream prints no value.
pub(crate) fn null() -> Value {
    Value::raw(NULL)
}

pub(crate) fn text(object: &Tree, fields: &[GoField]) -> String {
    let mut parts = Vec::with_capacity(fields.len());
    for field in fields {
        match object.get(field.key).filter(|value| !value.is_null()) {
            Some(value) if !field.inner.is_empty() => {
                parts.push(format!("\"{}\":{}", field.name, text(value, field.inner)));
            }
            Some(value) => parts.push(format!("\"{}\":{}", field.name, plain(value))),
            None if field.missing.is_empty() => {}
            None => parts.push(format!("\"{}\":{}", field.name, field.missing)),
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn plain(value: &Tree) -> String {
    String::from_utf8_lossy(&json::encode(value, None)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn structs_keep_their_order() {
        const INNER: &[GoField] = &[field("z", "Zed", NULL), field("a", "Alpha", EMPTY)];
        const OUTER: &[GoField] = &[field("modes", "Modes", NULL), nested("in", "In", INNER), field("x", "x", "")];
        let object = tree! { "modes" => list!["m"], "in" => tree! { "a" => "b" } };
        assert_eq!(text(&object, OUTER), r#"{"Modes":["m"],"In":{"Zed":null,"Alpha":"b"}}"#);
    }
}
