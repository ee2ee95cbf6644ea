//! Tree to message. The tree must conform to its type; a value of another type is written as zero.

use super::wire::{write_bytes, write_double, write_int, write_message};
use super::{PREFIX, json_schema};
use crate::schema::{Field, Presence, Ty, Type, Wire};
use crate::tree::{Map, Tree};
use crate::{base64, json, time};

static EMPTY: Map = Map::new();

pub(super) fn envelope(out: &mut Vec<u8>, api_version: &str, kind: &str, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(PREFIX);
    write_message(out, 1, |out| {
        write_bytes(out, 1, api_version.as_bytes());
        write_bytes(out, 2, kind.as_bytes());
    });
    write_message(out, 2, body);
    write_bytes(out, 3, b"");
    write_bytes(out, 4, b"");
}

/// The message of an object, without its envelope.
pub(crate) fn encode_message(out: &mut Vec<u8>, tree: &Tree, ty: &'static Type) {
    encode_struct(out, tree.as_map().unwrap_or(&EMPTY), ty);
}

fn encode_struct(out: &mut Vec<u8>, map: &Map, ty: &'static Type) {
    for wire in ty.wire() {
        match wire {
            Wire::Inline { number, ty } => write_message(out, *number, |out| encode_struct(out, map, ty)),
            Wire::Field { number, field, wrapped } => {
                let value = map.get(field.name).filter(|value| !value.is_null());
                match value {
                    Some(Tree::List(items)) if *wrapped => encode_wrapped(out, *number, items, field.ty),
                    Some(value) => encode_value(out, *number, value, field.ty),
                    None if is_written_when_absent(field) => encode_zero(out, *number, field.ty),
                    None => {}
                }
            }
        }
    }
}

/// Values held by value in Go are written even if unset.
fn is_written_when_absent(field: &Field) -> bool {
    matches!(field.presence, Presence::OmitEmpty | Presence::Always)
}

fn encode_zero(out: &mut Vec<u8>, number: u32, ty: Ty) {
    match ty {
        Ty::List(_) | Ty::Map(_) | Ty::Bytes => {}
        Ty::String => write_bytes(out, number, b""),
        Ty::Bool | Ty::Int32 | Ty::Int64 => write_int(out, number, 0),
        Ty::Double => write_double(out, number, 0.0),
        Ty::Quantity => write_message(out, number, |out| write_bytes(out, 1, b"0")),
        Ty::IntOrString => encode_int_or_string(out, number, &Tree::Int(0)),
        Ty::Struct(ty) => write_message(out, number, |out| encode_struct(out, &EMPTY, ty)),
        _ => write_bytes(out, number, b""),
    }
}

fn encode_value(out: &mut Vec<u8>, number: u32, value: &Tree, ty: Ty) {
    match (ty, value) {
        (Ty::String, Tree::Str(text)) => write_bytes(out, number, text.as_bytes()),
        (Ty::Bool, Tree::Bool(value)) => write_int(out, number, i64::from(*value)),
        (Ty::Int32 | Ty::Int64, Tree::Int(value)) => write_int(out, number, *value),
        (Ty::Double, Tree::Float(value)) => write_double(out, number, *value),
        (Ty::Double, Tree::Int(value)) => write_double(out, number, *value as f64),
        (Ty::Bytes, Tree::Str(text)) => write_bytes(out, number, &base64::decode(text).unwrap_or_default()),
        (Ty::Time | Ty::MicroTime, Tree::Str(text)) => encode_time(out, number, text),
        (Ty::Quantity, Tree::Str(text)) => write_message(out, number, |out| write_bytes(out, 1, text.as_bytes())),
        (Ty::IntOrString, value) => encode_int_or_string(out, number, value),
        (Ty::Raw | Ty::Fields | Ty::Json, value) => {
            write_message(out, number, |out| write_bytes(out, 1, &json::encode(value, None)))
        }
        (Ty::SchemaOrArray, value) => write_message(out, number, |out| encode_schema_or_array(out, value)),
        (Ty::SchemaOrBool, value) => write_message(out, number, |out| encode_schema_or_bool(out, value)),
        (Ty::SchemaOrStrings, value) => write_message(out, number, |out| encode_schema_or_strings(out, value)),
        (Ty::Struct(ty), value) => write_message(out, number, |out| encode_message(out, value, ty)),
        (Ty::List(item), Tree::List(items)) => items.iter().for_each(|value| encode_item(out, number, value, *item)),
        (Ty::Map(item), Tree::Map(map)) => {
            map.iter().for_each(|(key, value)| encode_entry(out, number, key, value, *item))
        }
        (ty, _) => encode_zero(out, number, ty),
    }
}

fn encode_item(out: &mut Vec<u8>, number: u32, value: &Tree, ty: Ty) {
    match value {
        Tree::Null => encode_zero(out, number, ty),
        value => encode_value(out, number, value, ty),
    }
}

fn encode_entry(out: &mut Vec<u8>, number: u32, key: &str, value: &Tree, ty: Ty) {
    write_message(out, number, |out| {
        write_bytes(out, 1, key.as_bytes());
        match (ty, value) {
            (Ty::List(_), Tree::List(items)) => encode_wrapped(out, 2, items, ty),
            _ => encode_item(out, 2, value, ty),
        }
    });
}

/// A list in its own message, as required for lists in maps.
fn encode_wrapped(out: &mut Vec<u8>, number: u32, items: &[Tree], ty: Ty) {
    let Ty::List(item) = ty else { return };
    write_message(out, number, |out| items.iter().for_each(|value| encode_item(out, 1, value, *item)));
}

fn encode_time(out: &mut Vec<u8>, number: u32, text: &str) {
    // An invalid time is unset; the tree was conformed before.
    let time = time::parse(text).ok();
    write_message(out, number, |out| {
        if let Some(time) = time {
            write_int(out, 1, time.seconds);
            write_int(out, 2, time.nanos.into());
        }
    });
}

fn encode_int_or_string(out: &mut Vec<u8>, number: u32, value: &Tree) {
    let (kind, int, text) = match value {
        Tree::Str(text) => (1, 0, text.as_str()),
        value => (0, value.as_int().unwrap_or(0), ""),
    };
    write_message(out, number, |out| {
        write_int(out, 1, kind);
        write_int(out, 2, int);
        write_bytes(out, 3, text.as_bytes());
    });
}

fn encode_schema_or_array(out: &mut Vec<u8>, value: &Tree) {
    match value {
        Tree::List(schemas) => schemas.iter().for_each(|schema| encode_value(out, 2, schema, json_schema())),
        schema => encode_value(out, 1, schema, json_schema()),
    }
}

fn encode_schema_or_bool(out: &mut Vec<u8>, value: &Tree) {
    match value {
        Tree::Bool(allows) => write_int(out, 1, i64::from(*allows)),
        schema => {
            write_int(out, 1, 1);
            encode_value(out, 2, schema, json_schema());
        }
    }
}

fn encode_schema_or_strings(out: &mut Vec<u8>, value: &Tree) {
    match value {
        Tree::List(names) => names.iter().for_each(|name| encode_value(out, 2, name, Ty::String)),
        schema => encode_value(out, 1, schema, json_schema()),
    }
}
