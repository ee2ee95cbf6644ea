//! Objects in upstream's errors: its internal types as JSON, with Go's field names and order, and no field omitted.
//! Only for messages, never stored or sent.

use std::collections::HashMap;
use std::sync::LazyLock;

use api::Tree;
use api::field::Value;
use api::json;
use api::schema::{self, Field, Presence, Ty, Type};

/// `Type: field field=GoName field?` where `?` marks a pointer that JSON does not distinguish.
static ROWS: &str = include_str!("internal_types.txt");

static TYPES: LazyLock<HashMap<&'static str, Vec<Row>>> = LazyLock::new(|| {
    ROWS.lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, fields)| (name, fields.split(' ').map(Row::parse).collect()))
        .collect()
});

struct Row {
    json: &'static str,
    go: String,
    pointer: bool,
}

impl Row {
    fn parse(text: &'static str) -> Row {
        let pointer = text.ends_with('?');
        let text = text.trim_end_matches('?');
        let (json, go) = match text.split_once('=') {
            Some((json, go)) => (json, go.to_string()),
            None => (text, capitalized(text)),
        };
        Row { json, go, pointer }
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}

/// A value of a core type as errors print it, on one line.
pub(crate) fn shown(tree: &Tree, type_name: &str) -> Value {
    Value::raw(shown_text(tree, type_name))
}

pub(crate) fn shown_text(tree: &Tree, type_name: &str) -> String {
    let Some(ty) = schema::type_named("core/v1", type_name) else { return scalar(tree) };
    let mut out = String::new();
    node(tree, ty).write_compact(&mut out);
    out
}

/// Object metadata is embedded: its fields are among the object's own, which `fields` contains with their text.
pub(crate) fn shown_object(metadata: &Tree, fields: &[(&str, String)]) -> String {
    let ty = schema::type_named("meta/v1", "ObjectMeta");
    let mut parts = Vec::new();
    if metadata.as_map().is_some_and(|map| !map.is_empty()) {
        let text = String::from_utf8_lossy(&json::encode(metadata, ty)).into_owned();
        parts.push(text[1..text.len() - 1].to_string());
    }
    parts.extend(fields.iter().map(|(name, text)| format!("\"{name}\":{text}")));
    format!("{{{}}}", parts.join(","))
}

/// A list of such values.
pub(crate) fn shown_list(trees: &[Tree], type_name: &str) -> Value {
    let Some(ty) = schema::type_named("core/v1", type_name) else { return Value::raw("[]") };
    let mut out = String::new();
    Node::List(trees.iter().map(|tree| node(tree, ty)).collect()).write_compact(&mut out);
    Value::raw(out)
}

/// The differing lines of two values of a core type, in hunks with positions, as errors print them.
pub(crate) fn difference(old: &Tree, new: &Tree, type_name: &str) -> String {
    let Some(ty) = schema::type_named("core/v1", type_name) else { return String::new() };
    // A longer diff is useless and expensive to compute.
    const MAX_LINES: usize = 5000;
    let lines = |tree: &Tree| -> Vec<String> {
        let mut out = String::new();
        node(tree, ty).write_pretty(0, &mut out);
        out.lines().map(str::to_string).collect()
    };
    let (old, new) = (lines(old), lines(new));
    if old.len().max(new.len()) > MAX_LINES {
        return String::new();
    }
    crate::diff::unified(&old, &new)
}

/// JSON with its order already decided.
enum Node {
    Scalar(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

fn node(tree: &Tree, ty: &'static Type) -> Node {
    match TYPES.get(ty.name).filter(|_| ty.package == "core/v1") {
        Some(rows) => {
            let fields = rows.iter().filter_map(|row| ty.field(row.json).map(|field| (row, field)));
            Node::Object(fields.map(|(row, field)| (row.go.clone(), field_node(tree, row, field))).collect())
        }
        // Types of meta/v1 keep their names in the internal form.
        None => {
            let fields = ty.fields().iter().filter_map(|field| tree.get(field.name).map(|value| (field, value)));
            Node::Object(fields.map(|(field, value)| (field.name.to_string(), value_node(value, field.ty))).collect())
        }
    }
}

fn field_node(tree: &Tree, row: &Row, field: &Field) -> Node {
    match tree.get(row.json) {
        Some(value) if !value.is_null() => value_node(value, field.ty),
        _ if row.pointer || matches!(field.presence, Presence::Pointer | Presence::Nullable) => null(),
        _ => zero(field.ty),
    }
}

fn null() -> Node {
    Node::Scalar("null".to_string())
}

fn zero(ty: Ty) -> Node {
    match ty {
        Ty::String => Node::Scalar("\"\"".to_string()),
        Ty::Bool => Node::Scalar("false".to_string()),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => Node::Scalar("0".to_string()),
        Ty::Quantity => Node::Scalar("\"0\"".to_string()),
        Ty::Struct(ty) => node(&Tree::Null, ty),
        _ => null(),
    }
}

fn value_node(value: &Tree, ty: Ty) -> Node {
    match (ty, value) {
        (Ty::Struct(ty), value) => node(value, ty),
        (Ty::List(item), Tree::List(items)) => Node::List(items.iter().map(|value| value_node(value, *item)).collect()),
        (Ty::Map(item), Tree::Map(map)) => {
            Node::Object(map.iter().map(|(key, value)| (key.to_string(), value_node(value, *item))).collect())
        }
        (_, value) => Node::Scalar(scalar(value)),
    }
}

/// JSON text as Go writes it, with HTML characters escaped.
fn scalar(value: &Tree) -> String {
    let text = String::from_utf8_lossy(&json::encode(value, None)).into_owned();
    if text.contains(['<', '>', '&']) {
        return text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    }
    text
}

impl Node {
    fn write_compact(&self, out: &mut String) {
        match self {
            Node::Scalar(text) => out.push_str(text),
            Node::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write_compact(out);
                }
                out.push(']');
            }
            Node::Object(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if index > 0 { ",\"" } else { "\"" });
                    out.push_str(name);
                    out.push_str("\":");
                    value.write_compact(out);
                }
                out.push('}');
            }
        }
    }

    /// One space for each level.
    fn write_pretty(&self, depth: usize, out: &mut String) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        };
        match self {
            Node::Scalar(text) => out.push_str(text),
            Node::List(items) if items.is_empty() => out.push_str("[]"),
            Node::Object(fields) if fields.is_empty() => out.push_str("{}"),
            Node::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    line(out, depth + 1);
                    item.write_pretty(depth + 1, out);
                }
                line(out, depth);
                out.push(']');
            }
            Node::Object(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    line(out, depth + 1);
                    out.push('"');
                    out.push_str(name);
                    out.push_str("\": ");
                    value.write_pretty(depth + 1, out);
                }
                line(out, depth);
                out.push('}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn every_row_names_fields_of_its_type() {
        for (name, rows) in TYPES.iter() {
            let ty = schema::type_named("core/v1", name).expect(name);
            for row in rows {
                assert!(ty.field(row.json).is_some(), "{name}.{}", row.json);
            }
            assert_eq!(ty.fields().len(), rows.len(), "{name}");
        }
    }

    #[test]
    fn values_are_shown_with_every_field() {
        let mut out = String::new();
        let ty = schema::type_named("core/v1", "PodResourceClaim").expect("a type");
        node(&tree! { "name" => "x" }, ty).write_compact(&mut out);
        assert_eq!(out, r#"{"Name":"x","ResourceClaimName":null,"ResourceClaimTemplateName":null}"#);
    }

    #[test]
    fn diff_shows_lines_and_positions() {
        let (old, new) = (tree! { "name" => "x" }, tree! { "name" => "y" });
        let text = "@@ -1,5 +1,5 @@\n {\n- \"Name\": \"x\",\n+ \"Name\": \"y\",\n  \"ResourceClaimName\": null,\n  \"ResourceClaimTemplateName\": null\n }\n";
        assert_eq!(difference(&old, &new, "PodResourceClaim"), text);
    }
}
