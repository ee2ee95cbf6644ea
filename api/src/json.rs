//! JSON to and from the tree. The decoder knows the schema just enough to drop unknown fields and to
//! report them, and duplicates, in the order of the document; types are judged by `typed`.

use crate::schema::{Ty, Type};
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// A document that is no JSON. The texts are Go's, which clients show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    UnexpectedEnd,
    /// The offending character and where it stood: `looking for beginning of value`.
    Invalid(char, &'static str),
    /// Inside `true`, `false` or `null`: what stood there, the word, and the letter that it needs.
    Literal(char, &'static str, char),
    TooDeep,
    NotUtf8,
    BadNumber,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::UnexpectedEnd => f.write_str("unexpected end of JSON input"),
            Error::Invalid(c, place) => write!(f, "invalid character {} {place}", quoted_char(*c)),
            Error::Literal(c, word, expected) => {
                write!(f, "invalid character {} in literal {word} (expecting '{expected}')", quoted_char(*c))
            }
            Error::TooDeep => f.write_str("exceeded max depth"),
            Error::NotUtf8 => f.write_str("invalid UTF-8 in string"),
            Error::BadNumber => f.write_str("invalid number"),
        }
    }
}

impl std::error::Error for Error {}

fn quoted_char(c: char) -> String {
    match c {
        '\'' => r"'\''".to_string(),
        '"' => "'\"'".to_string(),
        '\n' => r"'\n'".to_string(),
        '\r' => r"'\r'".to_string(),
        '\t' => r"'\t'".to_string(),
        c if (c as u32) < 0x20 => format!(r"'\x{:02x}'", c as u32),
        c => format!("'{c}'"),
    }
}

/// What strict decoding objects to, in document order: `unknown field "spec.replicaz"`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strict {
    pub problems: Vec<String>,
}

impl Strict {
    pub fn unknown(&mut self, path: &str) {
        self.push(format!("unknown field {path:?}"));
    }

    pub fn duplicate(&mut self, path: &str) {
        self.push(format!("duplicate field {path:?}"));
    }

    /// Upstream stops counting at one hundred.
    pub fn push(&mut self, problem: String) {
        if self.problems.len() < 100 && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Any JSON, duplicates resolved in silence (the last wins).
pub fn decode(bytes: &[u8]) -> Result<Tree, Error> {
    decode_as(bytes, None, &mut Strict::default())
}

/// JSON of a known type: unknown fields are dropped and reported, duplicates reported.
pub fn decode_as(bytes: &[u8], ty: Option<&'static Type>, strict: &mut Strict) -> Result<Tree, Error> {
    decode_document(bytes, ty, strict, 0)
}

/// A document that stands `depth` levels deep in another.
pub(crate) fn decode_at(bytes: &[u8], depth: usize) -> Result<Tree, Error> {
    decode_document(bytes, None, &mut Strict::default(), depth)
}

fn decode_document(bytes: &[u8], ty: Option<&'static Type>, strict: &mut Strict, depth: usize) -> Result<Tree, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
    let mut decoder = Decoder { bytes: text.as_bytes(), text, at: 0, path: Vec::new(), strict };
    let tree = decoder.value(ty.map(Ty::Struct), depth)?;
    decoder.skip_space();
    match decoder.bytes.get(decoder.at) {
        None => Ok(tree),
        Some(_) => Err(decoder.invalid("after top-level value")),
    }
}

/// Decodes only what the dotted paths name, and skips the rest without building it.
pub fn decode_only(bytes: &[u8], paths: &[&str]) -> Result<Tree, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
    let strict = &mut Strict::default();
    let mut decoder = Decoder { bytes: text.as_bytes(), text, at: 0, path: Vec::new(), strict };
    decoder.skip_space();
    decoder.some_of(paths, 0)
}

/// One step on the way to the value being read, kept to name it in a report.
enum Step {
    Key(Str),
    Index(usize),
}

struct Decoder<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    path: Vec<Step>,
    strict: &'a mut Strict,
}

impl Decoder<'_> {
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn invalid(&self, place: &'static str) -> Error {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(c) => Error::Invalid(c, place),
            None => Error::UnexpectedEnd,
        }
    }

    fn value(&mut self, ty: Option<Ty>, depth: usize) -> Result<Tree, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.map(ty, depth),
            Some(b'[') => self.list(ty, depth),
            Some(b'"') => self.string().map(Tree::Str),
            Some(b't') => self.word("true", Tree::Bool(true)),
            Some(b'f') => self.word("false", Tree::Bool(false)),
            Some(b'n') => self.word("null", Tree::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.invalid("looking for beginning of value")),
        }
    }

    fn word(&mut self, word: &'static str, tree: Tree) -> Result<Tree, Error> {
        for expected in word.bytes() {
            if self.bytes.get(self.at) != Some(&expected) {
                return Err(match self.invalid("") {
                    Error::Invalid(c, _) => Error::Literal(c, word, char::from(expected)),
                    error => error,
                });
            }
            self.at += 1;
        }
        Ok(tree)
    }

    fn map(&mut self, ty: Option<Ty>, depth: usize) -> Result<Tree, Error> {
        self.at += 1;
        let mut entries: Vec<(Str, Tree)> = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(Tree::Map(Map::new()));
        }
        loop {
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.invalid("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            self.entry(key, ty, depth, &mut entries)?;
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Tree::Map(Map::from_entries(entries, |_| {})))
    }

    fn entry(&mut self, key: Str, ty: Option<Ty>, depth: usize, entries: &mut Vec<(Str, Tree)>) -> Result<(), Error> {
        let known = known(ty, &key);
        self.path.push(Step::Key(key));
        // Few keys are compared one by one; large maps (data of a ConfigMap) are left to the sort.
        let key = match self.path.last() {
            Some(Step::Key(key)) => key.clone(),
            _ => Str::default(),
        };
        if entries.len() < 64 && entries.iter().any(|(earlier, _)| *earlier == key) {
            let path = self.path_text();
            self.strict.duplicate(&path);
        }
        match known {
            Known::Field(ty) => {
                let value = self.value(ty, depth + 1)?;
                entries.push((key, value));
            }
            Known::No => {
                let path = self.path_text();
                self.strict.unknown(&path);
                self.value(None, depth + 1)?;
            }
        }
        self.path.pop();
        Ok(())
    }

    /// A map of which only the entries on the way to `paths` are built.
    fn some_of(&mut self, paths: &[&str], depth: usize) -> Result<Tree, Error> {
        if paths.iter().any(|path| path.is_empty()) || self.bytes.get(self.at) != Some(&b'{') {
            return self.value(None, depth);
        }
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b'"') => {}
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                Some(b'}') => break,
                _ => return Err(self.invalid("looking for beginning of object key string")),
            }
            let key = self.string()?;
            self.skip_space();
            self.at += 1;
            self.skip_space();
            let inner: Vec<&str> = paths.iter().filter_map(|path| below(path, &key)).collect();
            if inner.is_empty() {
                self.skip_value(0)?;
            } else {
                entries.push((key, self.some_of(&inner, depth + 1)?));
            }
        }
        self.at += 1;
        Ok(Tree::Map(Map::from_entries(entries, |_| {})))
    }

    fn skip_value(&mut self, mut depth: usize) -> Result<(), Error> {
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => self.skip_string()?,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(_) => self.at += 1,
                None => return Err(Error::UnexpectedEnd),
            }
            if depth == 0 && matches!(self.bytes.get(self.at), Some(b',' | b'}' | b']') | None) {
                return Ok(());
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), Error> {
        self.at += 1;
        loop {
            let Some(length) = memchr::memchr2(b'"', b'\\', &self.bytes[self.at..]) else {
                return Err(Error::UnexpectedEnd);
            };
            self.at += length + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Ok(());
            }
            self.at = (self.at + 1).min(self.bytes.len());
        }
    }

    fn list(&mut self, ty: Option<Ty>, depth: usize) -> Result<Tree, Error> {
        let item = match ty {
            Some(Ty::List(item)) => Some(*item),
            _ => None,
        };
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Tree::List(items));
        }
        loop {
            self.path.push(Step::Index(items.len()));
            items.push(self.value(item, depth + 1)?);
            self.path.pop();
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.invalid("after array element")),
            }
        }
        self.at += 1;
        Ok(Tree::List(items))
    }

    fn string(&mut self) -> Result<Str, Error> {
        self.at += 1;
        let start = self.at;
        let rest = &self.bytes[start..];
        match memchr::memchr2(b'"', b'\\', rest) {
            None => Err(self.string_end(self.bytes.len(), start)),
            Some(length) if rest[length] == b'"' => {
                self.no_controls(start, start + length)?;
                self.at = start + length + 1;
                Ok(Str::new(&self.text[start..start + length]))
            }
            Some(_) => self.escaped_string(start),
        }
    }

    /// A string that never ends: the first control character is blamed, else the end.
    fn string_end(&mut self, end: usize, start: usize) -> Error {
        self.no_controls(start, end).err().unwrap_or(Error::UnexpectedEnd)
    }

    fn no_controls(&mut self, start: usize, end: usize) -> Result<(), Error> {
        let bytes = &self.bytes[start..end];
        // Looked at without a branch for each byte; only a bad one is searched for.
        if bytes.iter().fold(true, |fine, byte| fine & (*byte >= 0x20)) {
            return Ok(());
        }
        match bytes.iter().position(|byte| *byte < 0x20) {
            None => Ok(()),
            Some(offset) => {
                self.at = start + offset;
                Err(self.invalid("in string literal"))
            }
        }
    }

    fn escaped_string(&mut self, start: usize) -> Result<Str, Error> {
        let mut out = String::new();
        self.at = start;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(length) = memchr::memchr2(b'"', b'\\', rest) else {
                return Err(self.string_end(self.bytes.len(), self.at));
            };
            self.no_controls(self.at, self.at + length)?;
            out.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(Str::from(out));
            }
            self.escape(&mut out)?;
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Error> {
        let c = match self.bytes.get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(out),
            _ => return Err(self.invalid("in string escape code")),
        };
        out.push(c);
        self.at += 1;
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut String) -> Result<(), Error> {
        self.at += 1;
        let high = self.hex4()?;
        let pair = (0xD800..0xDC00).contains(&high) && self.bytes[self.at..].starts_with(b"\\u");
        if pair {
            let back = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                out.push(char::from_u32(code).unwrap_or('\u{FFFD}'));
                return Ok(());
            }
            self.at = back;
        }
        out.push(char::from_u32(high).unwrap_or('\u{FFFD}'));
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).and_then(|byte| (*byte as char).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.invalid("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Tree, Error> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.invalid("in numeric literal")),
        }
        let mut integer = true;
        if self.bytes.get(self.at) == Some(&b'.') {
            integer = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        parse_number(&self.text[start..self.at], integer)
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, place: &'static str) -> Result<(), Error> {
        if !matches!(self.bytes.get(self.at), Some(b'0'..=b'9')) {
            return Err(self.invalid(place));
        }
        self.digits();
        Ok(())
    }

    fn path_text(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(key);
                }
                Step::Index(index) => {
                    out.push('[');
                    out.push_str(itoa::Buffer::new().format(*index));
                    out.push(']');
                }
            }
        }
        out
    }
}

/// What is left of a dotted path below a key, if the path leads there.
fn below<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(key)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

fn parse_number(text: &str, integer: bool) -> Result<Tree, Error> {
    if integer && let Ok(value) = text.parse::<i64>() {
        return Ok(Tree::Int(value));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Tree::Float(value)),
        _ => Err(Error::BadNumber),
    }
}

enum Known {
    Field(Option<Ty>),
    No,
}

/// What the schema says of a key. Where no struct is expected, anything goes.
fn known(ty: Option<Ty>, key: &str) -> Known {
    match ty {
        Some(Ty::Struct(ty)) => match ty.field(key) {
            Some(field) => Known::Field(Some(field.ty)),
            None => Known::No,
        },
        Some(Ty::Map(item)) => Known::Field(Some(*item)),
        _ => Known::Field(None),
    }
}

/// JSON in canonical order: the schema's order for structs, sorted keys for maps.
pub fn encode(tree: &Tree, ty: Option<&'static Type>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    encode_into(&mut out, tree, ty.map(Ty::Struct));
    out
}

/// JSON for people: two spaces a level, as upstream's pretty printer writes it.
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

/// The JSON of a patched object as upstream shows it in errors: maps that the patch touched have their
/// keys sorted, the rest is in the order of its type.
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

/// Like `encode`, with `metadata.resourceVersion` left empty: the offset says where it belongs.
pub fn encode_with_hole(tree: &Tree, ty: Option<&'static Type>) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(1024);
    let mut hole = None;
    write_object(&mut out, tree, ty, &mut hole);
    (out, hole.unwrap_or(0))
}

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

/// Calls `each` for the known fields in the schema's order, then for the others.
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

/// The top level of an object, with a hole in its metadata.
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
    if value.fract() == 0.0 && value.abs() < 1e15 {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        out.extend_from_slice(ryu::Buffer::new().format(value).as_bytes());
    }
}

/// Whether a text is written as it is. Without a branch for each byte, so that the compiler takes many at
/// once.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| plain & (*byte >= 0x20) & (*byte != b'"') & (*byte != b'\\'))
}

pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        if escape.is_empty() {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.extend_from_slice(escape);
        }
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::type_of;

    fn check(input: &str, output: &str) {
        let tree = decode(input.as_bytes()).expect("valid JSON");
        assert_eq!(String::from_utf8_lossy(&encode(&tree, None)), output);
    }

    #[test]
    fn values_round_trip() {
        check(
            r#" {"b":[1,-2.5,true,null],"a":"x\n\"\u00e9\ud83d\ude00"} "#,
            "{\"a\":\"x\\n\\\"é😀\",\"b\":[1,-2.5,true,null]}",
        );
        check("1e3", "1000");
        check("9223372036854775807", "9223372036854775807");
    }

    #[test]
    fn bad_documents_are_named_as_go_names_them() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            (r#"{"a":1}{"#, "invalid character '{' after top-level value"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (r#"[1 2]"#, "invalid character '2' after array element"),
        ];
        for (input, message) in cases {
            assert_eq!(decode(input.as_bytes()).expect_err(input).to_string(), message);
        }
        assert_eq!(decode("[".repeat(10_000).as_bytes()), Err(Error::TooDeep));
    }

    #[test]
    fn unknown_and_duplicate_fields_come_in_document_order() {
        let mut strict = Strict::default();
        let text = r#"{"metadata":{"name":"a","foo":1,"name":"b"},"spec":{"containers":[{"imagee":"x"}],"zzz":1}}"#;
        let tree = decode_as(text.as_bytes(), type_of("", "v1", "Pod"), &mut strict).expect("valid JSON");
        let want = [
            "unknown field \"metadata.foo\"",
            "duplicate field \"metadata.name\"",
            "unknown field \"spec.containers[0].imagee\"",
            "unknown field \"spec.zzz\"",
        ];
        assert_eq!(strict.problems, want);
        assert_eq!(tree.str("metadata.name"), "b");
        assert!(tree.at("spec.zzz").is_null());
    }

    #[test]
    fn only_the_asked_paths_are_built() {
        let text = r#"{"a":{"x":[1,{"y":"]}\\\""}],"b":{"c":1,"d":2}},"e":"f","g":null}"#;
        let tree = decode_only(text.as_bytes(), &["a.b.c", "e"]).expect("valid JSON");
        assert_eq!(String::from_utf8_lossy(&encode(&tree, None)), r#"{"a":{"b":{"c":1}},"e":"f"}"#);
        assert!(decode_only(b"{\"a\":[1,2", &["b"]).is_err());
    }

    #[test]
    fn the_hole_is_inside_the_metadata() {
        let tree = crate::tree! { "kind" => "Pod", "apiVersion" => "v1", "metadata" => crate::tree! { "name" => "a", "resourceVersion" => "7" } };
        let (bytes, hole) = encode_with_hole(&tree, type_of("", "v1", "Pod"));
        let text = String::from_utf8(bytes).expect("UTF-8");
        let filled = format!("{}42{}", &text[..hole], &text[hole..]);
        assert_eq!(filled, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"42","name":"a"}}"#);
    }
}
