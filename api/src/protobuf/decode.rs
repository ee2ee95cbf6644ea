//! Message to tree. Unknown fields are skipped, since a newer peer may send them; `typed` handles zero values.

use super::wire::{Reader, Value};
use super::{Envelope, Error, PREFIX, json_schema};
use crate::schema::{Ty, Type, Wire};
use crate::time::{self, Timestamp};
use crate::tree::{MAX_DEPTH, Map, Str, Tree};
use crate::{base64, json, typed};

pub(super) fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Error> {
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        match number {
            1 => type_meta(as_bytes(value, "TypeMeta")?, &mut envelope)?,
            2 => envelope.raw = as_bytes(value, "Raw")?,
            3 => envelope.content_encoding = as_str(value, "ContentEncoding")?,
            4 => envelope.content_type = as_str(value, "ContentType")?,
            _ => {}
        }
    }
    Ok(envelope)
}

fn type_meta(bytes: &[u8], envelope: &mut Envelope<'_>) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        match number {
            1 => envelope.api_version = as_str(value, "APIVersion")?,
            2 => envelope.kind = as_str(value, "Kind")?,
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn message(bytes: &[u8], ty: &'static Type, depth: usize) -> Result<Tree, Error> {
    let mut fields = Fields::default();
    fields.read(bytes, ty, depth)?;
    Ok(fields.finish())
}

/// The fields of a message. Lists and maps are collected entry by entry, and maps are sorted once at the end, so that
/// no order of entries is slow.
#[derive(Default)]
struct Fields {
    singles: Vec<(&'static str, Tree)>,
    lists: Vec<(&'static str, Vec<Tree>)>,
    maps: Vec<(&'static str, Vec<(Str, Tree)>)>,
}

impl Fields {
    fn read(&mut self, bytes: &[u8], ty: &'static Type, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.next()? {
            match find(ty, number) {
                None => {}
                Some(Wire::Inline { ty, .. }) => self.read(as_bytes(value, ty.name)?, ty, depth + 1)?,
                Some(Wire::Field { field, wrapped, .. }) => {
                    let name = field.name;
                    match field.ty {
                        Ty::List(item) if *wrapped => {
                            let items = wrapped_list(as_bytes(value, name)?, *item, name, depth + 1)?;
                            slot(&mut self.lists, name).extend(items);
                        }
                        Ty::List(item) => {
                            let item = read_value(value, *item, name, depth + 2)?;
                            slot(&mut self.lists, name).push(item);
                        }
                        Ty::Map(item) => {
                            let entry = read_entry(as_bytes(value, name)?, *item, name, depth + 2)?;
                            slot(&mut self.maps, name).push(entry);
                        }
                        ty => *slot(&mut self.singles, name) = read_value(value, ty, name, depth + 1)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Tree {
        let singles = self.singles.into_iter();
        let lists = self.lists.into_iter().map(|(name, items)| (name, Tree::List(items)));
        let maps = self.maps.into_iter().map(|(name, entries)| (name, Tree::Map(Map::from_entries(entries, |_| {}))));
        let all = singles.chain(lists).chain(maps).map(|(name, value)| (Str::const_new(name), value));
        Tree::Map(Map::from_entries(all.collect(), |_| {}))
    }
}

/// The slot of a field, created if missing. The last used one is checked first.
fn slot<'a, T: Default>(slots: &'a mut Vec<(&'static str, T)>, name: &'static str) -> &'a mut T {
    let at = match slots.iter().rposition(|(known, _)| *known == name) {
        Some(at) => at,
        None => {
            slots.push((name, T::default()));
            slots.len() - 1
        }
    };
    &mut slots[at].1
}

fn find(ty: &'static Type, number: u32) -> Option<&'static Wire> {
    let wire = ty.wire();
    wire.binary_search_by_key(&number, Wire::number).ok().map(|at| &wire[at])
}

fn read_value(value: Value<'_>, ty: Ty, name: &'static str, depth: usize) -> Result<Tree, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    match ty {
        Ty::String => as_str(value, name).map(Tree::Str),
        Ty::Bool => as_int(value, name).map(|value| Tree::Bool(value != 0)),
        Ty::Int32 => as_int(value, name).map(|value| Tree::Int(i64::from(value as i32))),
        Ty::Int64 => as_int(value, name).map(Tree::Int),
        Ty::Double => match value {
            Value::Fixed64(bits) => Ok(read_double(bits)),
            other => Err(wrong(other, name)),
        },
        Ty::Bytes => as_bytes(value, name).map(|bytes| Tree::Str(Str::from(base64::encode(bytes)))),
        _ => read_message(as_bytes(value, name)?, ty, depth),
    }
}

/// JSON has no infinities; upstream would fail to encode them, so they are dropped.
fn read_double(bits: u64) -> Tree {
    let value = f64::from_bits(bits);
    if value.is_finite() { Tree::Float(value) } else { Tree::Null }
}

fn read_message(bytes: &[u8], ty: Ty, depth: usize) -> Result<Tree, Error> {
    match ty {
        Ty::Time => read_time(bytes).map(|time| time.map_or(Tree::Null, |t| time::format_seconds(t.seconds).into())),
        Ty::MicroTime => read_time(bytes).map(|time| time.map_or(Tree::Null, |t| time::format_micros(t).into())),
        Ty::Quantity => read_quantity(bytes),
        Ty::IntOrString => read_int_or_string(bytes),
        Ty::Raw | Ty::Fields | Ty::Json => read_raw(bytes, depth),
        Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => read_schema_or(bytes, ty, depth),
        Ty::Struct(ty) => message(bytes, ty, depth),
        _ => Ok(Tree::Null),
    }
}

fn read_entry(bytes: &[u8], ty: Ty, name: &'static str, depth: usize) -> Result<(Str, Tree), Error> {
    let (mut key, mut content) = (Str::default(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        match (number, ty) {
            (1, _) => key = as_str(value, name)?,
            (2, Ty::List(item)) => {
                content = Some(Tree::List(wrapped_list(as_bytes(value, name)?, *item, name, depth)?));
            }
            (2, ty) => content = Some(read_value(value, ty, name, depth)?),
            _ => {}
        }
    }
    Ok((key, content.unwrap_or_else(|| typed::zero(ty))))
}

fn wrapped_list(bytes: &[u8], item: Ty, name: &'static str, depth: usize) -> Result<Vec<Tree>, Error> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        if number == 1 {
            items.push(read_value(value, item, name, depth + 1)?);
        }
    }
    Ok(items)
}

/// An empty message is an unset time.
fn read_time(bytes: &[u8]) -> Result<Option<Timestamp>, Error> {
    let mut time = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        let time = time.get_or_insert(Timestamp::default());
        match number {
            1 => time.seconds = as_int(value, "Seconds")?.clamp(MIN_SECONDS, MAX_SECONDS),
            2 => time.nanos = u32::try_from(as_int(value, "Nanos")?).unwrap_or(0).min(999_999_999),
            _ => {}
        }
    }
    Ok(time)
}

/// The years 0 to 9999, which RFC 3339 can represent.
const MIN_SECONDS: i64 = -62_167_219_200;
const MAX_SECONDS: i64 = 253_402_300_799;

fn read_quantity(bytes: &[u8]) -> Result<Tree, Error> {
    let mut text = Str::const_new("0");
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        if number == 1 {
            text = as_str(value, "String")?;
        }
    }
    Ok(Tree::Str(text))
}

fn read_int_or_string(bytes: &[u8]) -> Result<Tree, Error> {
    let (mut kind, mut int, mut text) = (0, 0, Str::default());
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        match number {
            1 => kind = as_int(value, "Type")?,
            2 => int = as_int(value, "IntVal")?,
            3 => text = as_str(value, "StrVal")?,
            _ => {}
        }
    }
    Ok(if kind == 0 { Tree::Int(i64::from(int as i32)) } else { Tree::Str(text) })
}

/// An embedded object: JSON, or its own envelope.
fn read_raw(bytes: &[u8], depth: usize) -> Result<Tree, Error> {
    let mut raw: &[u8] = b"";
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        if number == 1 {
            raw = as_bytes(value, "Raw")?;
        }
    }
    if raw.is_empty() {
        return Ok(Tree::Null);
    }
    match raw.strip_prefix(PREFIX) {
        Some(unknown) => super::decode_envelope(&envelope(unknown)?, None, depth + 1),
        None => json::decode_at(raw, depth).map_err(Error::Json),
    }
}

/// The three wrappers of a schema: with a list of schemas, a boolean, or a list of names.
fn read_schema_or(bytes: &[u8], ty: Ty, depth: usize) -> Result<Tree, Error> {
    let (mut schema, mut list, mut allows) = (None, Vec::new(), false);
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        match (ty, number) {
            (Ty::SchemaOrBool, 1) => allows = as_int(value, "Allows")? != 0,
            (Ty::SchemaOrBool, 2) | (_, 1) => schema = Some(read_schema(as_bytes(value, "Schema")?, depth)?),
            (Ty::SchemaOrArray, 2) => list.push(read_schema(as_bytes(value, "JSONSchemas")?, depth + 1)?),
            (_, 2) => list.push(as_str(value, "Property").map(Tree::Str)?),
            _ => {}
        }
    }
    Ok(match (schema, ty) {
        (Some(schema), _) => schema,
        (None, Ty::SchemaOrBool) => Tree::Bool(allows),
        (None, _) => Tree::List(list),
    })
}

fn read_schema(bytes: &[u8], depth: usize) -> Result<Tree, Error> {
    match json_schema() {
        Ty::Struct(ty) => message(bytes, ty, depth + 1),
        _ => Ok(Tree::Null),
    }
}

fn wrong(value: Value<'_>, field: &'static str) -> Error {
    Error::WrongWireType { wire_type: value.wire_type(), field }
}

fn as_bytes<'a>(value: Value<'a>, field: &'static str) -> Result<&'a [u8], Error> {
    if let Value::Bytes(bytes) = value { Ok(bytes) } else { Err(wrong(value, field)) }
}

fn as_str(value: Value<'_>, field: &'static str) -> Result<Str, Error> {
    let bytes = as_bytes(value, field)?;
    std::str::from_utf8(bytes).map(Str::new).map_err(|_| Error::NotUtf8)
}

fn as_int(value: Value<'_>, field: &'static str) -> Result<i64, Error> {
    if let Value::Varint(value) = value { Ok(value as i64) } else { Err(wrong(value, field)) }
}
