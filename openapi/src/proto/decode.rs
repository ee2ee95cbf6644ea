//! Decodes the protobuf form with the same tables, to compare it with the JSON form.

#![allow(clippy::unwrap_used, reason = "tests alone use it")]

use api::{Map, Str, Tree, json, tree};

use super::{Alternatives, FieldType, Message, v2, v3};
use crate::{Api, Encoding, NoDescriptions};

enum Wire<'a> {
    Varint(u64),
    Fixed(f64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u32, Wire<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Wire::Varint(varint(&mut bytes)),
            1 => {
                let (head, rest) = bytes.split_at(8);
                bytes = rest;
                Wire::Fixed(f64::from_le_bytes(head.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                Wire::Bytes(head)
            }
            other => panic!("wire type {other}"),
        };
        out.push(((key >> 3) as u32, value));
    }
    out
}

fn read_message(message: &Message, bytes: &[u8]) -> Tree {
    let mut out = Map::new();
    for (number, value) in fields(bytes) {
        if let Some(field) = message.fields.iter().find(|field| field.number == number) {
            join(&mut out, field.key, field.shape, read_value(field.shape, value));
        } else if message.extensions == Some(number) {
            let (name, value) = read_named(FieldType::Any, value);
            out.insert(name, value);
        } else {
            let (expected, shape) = message.named.expect("a field that the table knows");
            assert_eq!(number, expected);
            let (name, value) = read_named(shape, value);
            assert!(out.insert(name, value).is_none(), "a name comes once");
        }
    }
    Tree::Map(out)
}

fn join(out: &mut Map, key: &str, shape: FieldType, value: Tree) {
    match (shape, value) {
        (FieldType::List(_), Tree::List(items)) => {
            let list = out.get_or_insert(key, || Tree::List(Vec::new()));
            list.as_list_mut().unwrap().extend(items);
        }
        (_, value) => drop(out.insert(key, value)),
    }
}

fn read_named(shape: FieldType, value: Wire<'_>) -> (Str, Tree) {
    let Wire::Bytes(bytes) = value else { panic!("a message") };
    let (mut name, mut found) = (Str::default(), None);
    for (number, value) in fields(bytes) {
        match number {
            1 => name = read_value(FieldType::Text, value).as_str().unwrap().into(),
            2 => found = Some(read_value(shape, value)),
            other => panic!("field {other} of a named value"),
        }
    }
    (name, found.unwrap())
}

fn read_value(shape: FieldType, value: Wire<'_>) -> Tree {
    match (shape, value) {
        (FieldType::Text, Wire::Bytes(bytes)) => Tree::from(std::str::from_utf8(bytes).unwrap()),
        (FieldType::Flag, Wire::Varint(value)) => Tree::Bool(value != 0),
        (FieldType::Int, Wire::Varint(value)) => Tree::Int(value as i64),
        (FieldType::Number, Wire::Fixed(value)) => Tree::Int(value as i64),
        (FieldType::Any, Wire::Bytes(bytes)) => {
            let (2, Wire::Bytes(yaml)) = fields(bytes).remove(0) else { panic!("yaml") };
            json::decode(yaml).unwrap()
        }
        (FieldType::Message(message), Wire::Bytes(bytes)) => read_message(message, bytes),
        (FieldType::List(item), value) => Tree::List(vec![read_value(*item, value)]),
        (FieldType::Wrapped(inside), Wire::Bytes(bytes)) => read_wrapped(*inside, bytes),
        (FieldType::OneOf(choice), Wire::Bytes(bytes)) => read_choice(choice, bytes),
        _ => panic!("a value of another wire type"),
    }
}

fn read_wrapped(inside: FieldType, bytes: &[u8]) -> Tree {
    let mut out = Map::new();
    if matches!(inside, FieldType::List(_)) {
        out.insert("", Tree::List(Vec::new()));
    }
    fields(bytes).into_iter().for_each(|(_, value)| join(&mut out, "", inside, read_value(inside, value)));
    out.remove("").unwrap()
}

fn read_choice(choice: &Alternatives, bytes: &[u8]) -> Tree {
    let mut found = fields(bytes);
    assert_eq!(found.len(), 1, "one of a oneof");
    let (number, value) = found.remove(0);
    let (_, shape) = choice.options.iter().find(|(option, _)| *option == number).unwrap();
    read_value(*shape, value)
}

/// Object defaults are not in v3's message. A property may also be named `default`: it is kept.
fn without_object_defaults(tree: Tree, are_properties: bool) -> Tree {
    match tree {
        Tree::Map(map) => {
            let keep = |(key, value): &(Str, Tree)| are_properties || key != "default" || value.as_map().is_none();
            let entries = map.into_entries().into_iter().filter(keep);
            let below = |key: &str| key == "properties" && !are_properties;
            let entries = entries.map(|(key, value)| {
                let value = without_object_defaults(value, below(&key));
                (key, value)
            });
            Tree::Map(Map::from_entries(entries.collect(), |_| ()))
        }
        Tree::List(items) => Tree::List(items.into_iter().map(|item| without_object_defaults(item, false)).collect()),
        other => other,
    }
}

const API: Api<'static> = Api { version: "v1.37.0", kinds: kinds::ALL, texts: &NoDescriptions, extras: &[] };

#[test]
fn v2_encodings_are_equivalent() {
    let read = read_message(&v2::DOCUMENT, &crate::v2::document(&API, Encoding::Protobuf));
    let said = json::decode(&crate::v2::document(&API, Encoding::Json)).unwrap();
    assert!(read == said, "the encodings differ");
    assert!(said.map("definitions").len() > 500);
}

#[test]
fn v3_encodings_are_equivalent() {
    for name in crate::v3::index(&API).map("paths").keys() {
        let read = read_message(&v3::DOCUMENT, &crate::v3::document(&API, name, Encoding::Protobuf).unwrap());
        let said = json::decode(&crate::v3::document(&API, name, Encoding::Json).unwrap()).unwrap();
        assert!(read == without_object_defaults(said, false), "the encodings of {name} differ");
    }
}

#[test]
fn schemas_round_trip() {
    let schema = tree! { "type" => "string", "maxLength" => 63, "x-kubernetes-validations" => api::list![] };
    let document = tree! { "definitions" => tree! { "A" => schema } };
    let mut bytes = Vec::new();
    super::write_message(&mut bytes, &v2::DOCUMENT, &document);
    assert_eq!(read_message(&v2::DOCUMENT, &bytes), document);
}
