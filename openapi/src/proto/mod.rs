//! Documents as gnostic's protobuf messages. Messages are tables (`v2`, `v3`) with the field number and type of each
//! JSON key; one encoder serves both.

pub(crate) mod v2;
pub(crate) mod v3;

#[cfg(test)]
mod decode;

use api::{Tree, json};

pub(crate) struct Message {
    pub fields: &'static [Field],
    /// The field of keys with the prefix `x-`, each as a NamedAny.
    pub extensions: Option<u32>,
    /// The field of all other keys, each as a message of name and value: the message is a map.
    pub named: Option<(u32, FieldType)>,
}

pub(crate) struct Field {
    pub number: u32,
    pub key: &'static str,
    pub shape: FieldType,
}

#[derive(Clone, Copy)]
pub(crate) enum FieldType {
    Text,
    Flag,
    /// A double.
    Number,
    Int,
    /// An Any with YAML content; JSON is valid YAML.
    Any,
    Message(&'static Message),
    /// One field per item.
    List(&'static FieldType),
    /// A message with this as field 1.
    Wrapped(&'static FieldType),
    /// A oneof message; a value that matches no option is omitted.
    OneOf(&'static Alternatives),
}

pub(crate) struct Alternatives {
    pub options: &'static [(u32, FieldType)],
    pub pick: fn(&Tree) -> Option<usize>,
}

/// A row of a table.
const fn field(number: u32, key: &'static str, shape: FieldType) -> Field {
    Field { number, key, shape }
}

/// A message that is a map of names to values.
const fn map_of(shape: FieldType) -> Message {
    Message { fields: &[], extensions: None, named: Some((1, shape)) }
}

impl Message {
    pub(crate) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn write_key(out: &mut Vec<u8>, number: u32, wire: u32) {
    write_varint(out, u64::from(number << 3 | wire));
}

pub(crate) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_key(out, number, BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A nested message, written by `fill`.
fn write_nested(out: &mut Vec<u8>, number: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    write_bytes(out, number, &inner);
}

fn write_message(out: &mut Vec<u8>, message: &Message, tree: &Tree) {
    for (key, value) in tree.as_map().into_iter().flat_map(|map| map.iter()) {
        write_entry(out, message, key, value);
    }
}

pub(crate) fn write_entry(out: &mut Vec<u8>, message: &Message, key: &str, value: &Tree) {
    if let Some(field) = message.field(key) {
        write_value(out, field.number, field.shape, value);
    } else if let (Some(number), true) = (message.extensions, key.starts_with("x-")) {
        write_named(out, number, key, FieldType::Any, value);
    } else if let Some((number, shape)) = message.named {
        write_named(out, number, key, shape, value);
    }
}

fn write_named(out: &mut Vec<u8>, number: u32, name: &str, shape: FieldType, value: &Tree) {
    write_nested(out, number, |inner| {
        write_bytes(inner, 1, name.as_bytes());
        write_value(inner, 2, shape, value);
    });
}

fn write_value(out: &mut Vec<u8>, number: u32, shape: FieldType, value: &Tree) {
    match shape {
        FieldType::Text => write_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        FieldType::Flag => {
            write_key(out, number, VARINT);
            write_varint(out, value.as_bool().unwrap_or_default().into());
        }
        FieldType::Int => {
            write_key(out, number, VARINT);
            write_varint(out, value.as_int().unwrap_or_default() as u64);
        }
        FieldType::Number => {
            write_key(out, number, FIXED64);
            out.extend_from_slice(&number_of(value).to_le_bytes());
        }
        FieldType::Any => write_nested(out, number, |inner| {
            let mut yaml = json::encode(value, None);
            yaml.push(b'\n');
            write_bytes(inner, 2, &yaml);
        }),
        FieldType::Message(message) => write_nested(out, number, |inner| write_message(inner, message, value)),
        FieldType::List(item) => {
            let items = value.as_list().unwrap_or_default();
            items.iter().for_each(|value| write_value(out, number, *item, value));
        }
        FieldType::Wrapped(inside) => write_nested(out, number, |inner| write_value(inner, 1, *inside, value)),
        FieldType::OneOf(choice) => write_choice(out, number, choice, value),
    }
}

fn write_choice(out: &mut Vec<u8>, number: u32, choice: &Alternatives, value: &Tree) {
    if let Some((option, shape)) = (choice.pick)(value).and_then(|at| choice.options.get(at)) {
        write_nested(out, number, |inner| write_value(inner, *option, *shape, value));
    }
}

fn number_of(value: &Tree) -> f64 {
    match value {
        Tree::Float(number) => *number,
        Tree::Int(number) => *number as f64,
        _ => 0.0,
    }
}

/// References are the second option.
fn pick_reference(value: &Tree) -> Option<usize> {
    Some(usize::from(value.has("$ref")))
}

/// Booleans are the second option.
fn pick_boolean(value: &Tree) -> Option<usize> {
    Some(usize::from(value.as_bool().is_some()))
}
