//! Values as upstream's errors show them: Go structs in JSON, in the order of the struct and, for
//! upstream's internal types, under Go's names of the fields.

use api::Tree;
use api::field::Value;
use api::json;

/// A field of a struct: its name in the object, the name shown, and the text shown where it is missing
/// ("" leaves it out).
pub type Shown = (&'static str, &'static str, &'static str);

/// One struct.
pub fn value(object: &Tree, fields: &[Shown]) -> Value {
    Value::raw(text(object, fields))
}

/// A list of structs.
pub fn list(objects: &[Tree], fields: &[Shown]) -> Value {
    let texts: Vec<String> = objects.iter().map(|object| text(object, fields)).collect();
    Value::raw(format!("[{}]", texts.join(",")))
}

/// Where upstream shows no value at all.
pub fn null() -> Value {
    Value::raw("null")
}

pub fn text(object: &Tree, fields: &[Shown]) -> String {
    let mut parts = Vec::with_capacity(fields.len());
    for (key, name, missing) in fields {
        match object.get(key).filter(|value| !value.is_null()) {
            Some(value) => parts.push(format!("\"{name}\":{}", plain(value))),
            None if missing.is_empty() => {}
            None => parts.push(format!("\"{name}\":{missing}")),
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn plain(value: &Tree) -> String {
    String::from_utf8_lossy(&json::encode(value, None)).into_owned()
}
