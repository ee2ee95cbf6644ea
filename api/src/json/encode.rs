//! JSON encoding in canonical order: the schema's for structs, sorted keys for maps.

use crate::schema::{Ty, Type};
use crate::tree::{Map, Tree};

/// JSON in canonical order: the schema's order for structs, sorted keys for maps.
pub fn encode(tree: &Tree, ty: Option<&'static Type>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    encode_into(&mut out, tree, ty.map(Ty::Struct));
    out
}

/// Indented JSON like upstream's pretty printer.
pub fn encode_pretty(tree: &Tree, ty: Option<&'static Type>) -> Vec<u8> {
    let compact = encode(tree, ty);
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut level, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in compact.iter().enumerate() {
        if in_string {
            out.push(*byte);
            (in_string, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        let next = compact.get(at + 1);
        match byte {
            b'{' | b'[' if matches!(next, Some(b'}' | b']')) => out.push(*byte),
            b'{' | b'[' => {
                level += 1;
                out.push(*byte);
                new_line(&mut out, level);
            }
            b'}' | b']' if matches!(compact.get(at.wrapping_sub(1)), Some(b'{' | b'[')) => out.push(*byte),
            b'}' | b']' => {
                level -= 1;
                new_line(&mut out, level);
                out.push(*byte);
            }
            b',' => {
                out.push(b',');
                new_line(&mut out, level);
            }
            b':' => out.extend_from_slice(b": "),
            byte => {
                in_string = *byte == b'"';
                out.push(*byte);
            }
        }
    }
    out.push(b'\n');
    out
}

fn new_line(out: &mut Vec<u8>, level: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * level, b' ');
}

/// The JSON of a patched object as upstream prints it in errors: maps changed by the patch have sorted keys, the rest
/// is in the order of its type.
pub fn encode_changed(tree: &Tree, old: &Tree, ty: Option<&'static Type>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_changed(&mut out, tree, old, ty.map(Ty::Struct));
    out
}

fn write_changed(out: &mut Vec<u8>, tree: &Tree, old: &Tree, ty: Option<Ty>) {
    let Tree::Map(map) = tree else { return encode_into(out, tree, ty) };
    if tree == old {
        return encode_into(out, tree, ty);
    }
    out.push(b'{');
    let mut first = true;
    for (key, value) in map.iter() {
        write_key(out, &mut first, key);
        let field_ty = match ty {
            Some(Ty::Struct(ty)) => ty.field(key).map(|field| field.ty),
            Some(Ty::Map(item)) => Some(*item),
            _ => None,
        };
        write_changed(out, value, old.get(key).unwrap_or(&Tree::Null), field_ty);
    }
    out.push(b'}');
}

/// Like `encode` with an empty `metadata.resourceVersion`; returns its offset.
pub fn encode_with_hole(tree: &Tree, ty: Option<&'static Type>) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(1024);
    let mut hole = None;
    write_object(&mut out, tree, ty, &mut hole);
    (out, hole.unwrap_or(0))
}

/// Appends the JSON of a tree, in the field order of its type.
pub fn encode_into(out: &mut Vec<u8>, tree: &Tree, ty: Option<Ty>) {
    match tree {
        Tree::Null => out.extend_from_slice(b"null"),
        Tree::Bool(true) => out.extend_from_slice(b"true"),
        Tree::Bool(false) => out.extend_from_slice(b"false"),
        Tree::Int(value) => out.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes()),
        Tree::Float(value) => write_float(out, *value),
        Tree::Str(value) => write_string(out, value),
        Tree::List(items) => write_list(out, items, ty),
        Tree::Map(map) => write_map(out, map, ty),
    }
}

fn write_list(out: &mut Vec<u8>, items: &[Tree], ty: Option<Ty>) {
    let item_ty = match ty {
        Some(Ty::List(item)) => Some(*item),
        _ => None,
    };
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode_into(out, item, item_ty);
    }
    out.push(b']');
}

fn write_map(out: &mut Vec<u8>, map: &Map, ty: Option<Ty>) {
    out.push(b'{');
    let mut first = true;
    match ty {
        Some(Ty::Struct(ty)) => in_schema_order(map, ty, |key, value, ty| write_entry(out, &mut first, key, value, ty)),
        Some(Ty::Map(item)) => {
            map.iter().for_each(|(key, value)| write_entry(out, &mut first, key, value, Some(*item)))
        }
        _ => map.iter().for_each(|(key, value)| write_entry(out, &mut first, key, value, None)),
    }
    out.push(b'}');
}

/// Calls `each` for known fields in schema order, then for others.
fn in_schema_order(map: &Map, ty: &'static Type, mut each: impl FnMut(&str, &Tree, Option<Ty>)) {
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(map.len());
    for (at, (key, _)) in map.iter().enumerate() {
        places.push((ty.field_index(key).unwrap_or(usize::MAX), at));
    }
    places.sort_unstable();
    for (field, at) in places {
        let (key, value) = map.entry_at(at);
        each(key, value, ty.fields().get(field).map(|field| field.ty));
    }
}

fn write_entry(out: &mut Vec<u8>, first: &mut bool, key: &str, value: &Tree, ty: Option<Ty>) {
    write_key(out, first, key);
    encode_into(out, value, ty);
}

fn write_key(out: &mut Vec<u8>, first: &mut bool, key: &str) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    write_string(out, key);
    out.push(b':');
}

/// The top level of an object, with a placeholder in its metadata.
fn write_object(out: &mut Vec<u8>, tree: &Tree, ty: Option<&'static Type>, hole: &mut Option<usize>) {
    let Some(map) = tree.as_map() else { return encode_into(out, tree, None) };
    let mut first = true;
    out.push(b'{');
    for key in ["kind", "apiVersion"] {
        if let Some(value) = map.get(key) {
            write_entry(out, &mut first, key, value, None);
        }
    }
    write_key(out, &mut first, "metadata");
    let metadata_ty = ty.and_then(|ty| ty.field("metadata")).map(|field| field.ty);
    write_metadata(out, tree.map("metadata"), metadata_ty, hole);
    let mut rest = |key: &str, value: &Tree, ty: Option<Ty>| {
        if !matches!(key, "kind" | "apiVersion" | "metadata") {
            write_entry(out, &mut first, key, value, ty);
        }
    };
    match ty {
        Some(ty) => in_schema_order(map, ty, rest),
        None => map.iter().for_each(|(key, value)| rest(key, value, None)),
    }
    out.push(b'}');
}

fn write_metadata(out: &mut Vec<u8>, map: &Map, ty: Option<Ty>, hole: &mut Option<usize>) {
    out.extend_from_slice(b"{\"resourceVersion\":\"");
    *hole = Some(out.len());
    out.push(b'"');
    let mut first = false;
    let mut each = |key: &str, value: &Tree, ty: Option<Ty>| {
        if key != "resourceVersion" {
            write_entry(out, &mut first, key, value, ty);
        }
    };
    match ty {
        Some(Ty::Struct(ty)) => in_schema_order(map, ty, each),
        _ => map.iter().for_each(|(key, value)| each(key, value, None)),
    }
    out.push(b'}');
}

fn write_float(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 && value.is_sign_negative() {
        out.extend_from_slice(b"-0");
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else if (1e-6..1e21).contains(&value.abs()) {
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        // Go writes the sign of an exponent.
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        out.extend_from_slice(format!("{digits}e{sign}{exponent}").as_bytes());
    }
}

/// The number of leading bytes that need no escape, checked eight at a time.
fn plain_prefix(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let escaped = escaped_bytes(u64::from_le_bytes(*word));
        if escaped != 0 {
            return at * 8 + (escaped.trailing_zeros() / 8) as usize;
        }
    }
    let plain = rest.iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\');
    words.len() * 8 + plain.count()
}

/// The high bit of each byte that needs an escape. Above the lowest one it may be wrong, since subtraction borrows.
fn escaped_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | is(b'"') | is(b'\\')) & (ONES << 7)
}

/// Appends a quoted and escaped string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, escaped) = rest.split_at(plain_prefix(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = escaped.split_first() else { break };
        write_escape(out, *byte);
        rest = after;
    }
    out.push(b'"');
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_escapes_at_every_position() {
        for length in 0..20 {
            for at in 0..length {
                for byte in 0..0x80_u8 {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    let text = String::from_utf8(text).expect("it is ASCII");
                    let mut written = Vec::new();
                    write_string(&mut written, &text);
                    let read = crate::json::decode(&written).expect("it is JSON");
                    assert_eq!(read.as_str(), Some(text.as_str()));
                    assert_eq!(written.len() == length + 2, byte >= 0x20 && byte != b'"' && byte != b'\\');
                }
            }
        }
        let mut written = Vec::new();
        write_string(&mut written, "größer \u{1}\"\\ \u{10ffff}\n");
        assert_eq!(String::from_utf8_lossy(&written), "\"größer \\u0001\\\"\\\\ \u{10ffff}\\n\"");
    }
}
