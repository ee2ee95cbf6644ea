//! Values as Go prints them with %v, as in some of upstream's messages.

use crate::tree::Tree;

/// Prints a value as Go's `%v` does.
pub fn print(tree: &Tree) -> String {
    let mut out = String::new();
    write(&mut out, tree);
    out
}

pub(super) fn print_list(items: &[Tree]) -> String {
    let mut out = String::new();
    write_list(&mut out, items);
    out
}

fn write_list(out: &mut String, items: &[Tree]) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        write(out, item);
    }
    out.push(']');
}

fn write(out: &mut String, tree: &Tree) {
    match tree {
        Tree::Null => out.push_str("<nil>"),
        Tree::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Tree::Int(value) => out.push_str(itoa::Buffer::new().format(*value)),
        Tree::Float(value) => out.push_str(&value.to_string()),
        Tree::Str(value) => out.push_str(value),
        Tree::List(items) => write_list(out, items),
        Tree::Map(map) => {
            out.push_str("map[");
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write(out, value);
            }
            out.push(']');
        }
    }
}

/// The name of a decoded value's Go type.
pub(super) fn go_type(tree: &Tree) -> &'static str {
    match tree {
        Tree::Null => "%!s(<nil>)",
        Tree::Bool(_) => "bool",
        Tree::Int(_) => "int64",
        Tree::Float(_) => "float64",
        Tree::Str(_) => "string",
        Tree::List(_) => "[]interface {}",
        Tree::Map(_) => "map[string]interface {}",
    }
}

/// The name of a JSON value in the messages of Go's decoder.
pub(super) fn json_kind(tree: &Tree) -> &'static str {
    match tree {
        Tree::Null => "null",
        Tree::Bool(_) => "bool",
        Tree::Int(_) | Tree::Float(_) => "number",
        Tree::Str(_) => "string",
        Tree::List(_) => "array",
        Tree::Map(_) => "object",
    }
}
