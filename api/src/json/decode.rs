//! JSON decoding: strings, numbers and nesting as in Go, unknown and duplicate fields in document order.

mod scalars;

use super::{Error, Strict};
use crate::schema::{Ty, Type};
use crate::tree::{MAX_DEPTH, Map, Str, Tree};

/// Any JSON; the last of duplicate keys wins silently.
pub fn decode(bytes: &[u8]) -> Result<Tree, Error> {
    decode_at(bytes, 0)
}

/// An object for readers: managed fields, often half of it, are skipped.
pub fn decode_unmanaged(bytes: &[u8]) -> Result<Tree, Error> {
    Decoder { unmanaged: true, ..Decoder::new(bytes, None)? }.document(None, 0)
}

/// JSON of a known type: unknown fields are dropped and reported, duplicates reported.
pub fn decode_as(bytes: &[u8], ty: Option<&'static Type>, strict: &mut Strict) -> Result<Tree, Error> {
    Decoder::new(bytes, Some(strict))?.document(ty, 0)
}

/// A document nested `depth` levels deep in another.
pub(crate) fn decode_at(bytes: &[u8], depth: usize) -> Result<Tree, Error> {
    Decoder::new(bytes, None)?.document(None, depth)
}

/// Decodes only the dotted paths, and skips the rest.
pub fn decode_only(bytes: &[u8], paths: &[&str]) -> Result<Tree, Error> {
    let mut decoder = Decoder::new(bytes, None)?;
    decoder.skip_space();
    decoder.some_of(paths, 0)
}

/// Type and metadata of an object, without managed fields.
pub fn decode_metadata(bytes: &[u8]) -> Result<Tree, Error> {
    let mut decoder = Decoder { unmanaged: true, ..Decoder::new(bytes, None)? };
    decoder.skip_space();
    decoder.some_of(&["apiVersion", "kind", "metadata"], 0)
}

/// One path element of the current value, for reports.
enum Step {
    Key(Str),
    Index(usize),
}

pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    /// Only tracked if problems are reported.
    path: Vec<Step>,
    strict: Option<&'a mut Strict>,
    /// Skips `metadata.managedFields`.
    unmanaged: bool,
    in_metadata: bool,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8], strict: Option<&'a mut Strict>) -> Result<Decoder<'a>, Error> {
        let text = std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)?;
        let bytes = text.as_bytes();
        Ok(Decoder { bytes, text, at: 0, path: Vec::new(), strict, unmanaged: false, in_metadata: false })
    }

    fn document(mut self, ty: Option<&'static Type>, depth: usize) -> Result<Tree, Error> {
        let tree = self.value(ty.map(Ty::Struct), depth)?;
        self.skip_space();
        match self.bytes.get(self.at) {
            None => Ok(tree),
            Some(_) => Err(self.invalid("after top-level value")),
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Enters a map or list.
    pub(super) fn open(&mut self, bracket: u8) -> Result<(), Error> {
        self.skip_space();
        if self.bytes.get(self.at) != Some(&bracket) {
            return Err(self.invalid("looking for beginning of value"));
        }
        self.at += 1;
        Ok(())
    }

    /// The next key of a map; the decoder is then before its value. None at the end.
    pub(super) fn next_key(&mut self) -> Result<Option<Str>, Error> {
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b',') {
            self.at += 1;
            self.skip_space();
        }
        match self.bytes.get(self.at) {
            Some(b'"') => {}
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            _ => return Err(self.invalid("looking for beginning of object key string")),
        }
        let key = self.string()?;
        self.skip_space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.invalid("after object key"));
        }
        self.at += 1;
        self.skip_space();
        Ok(Some(key))
    }

    /// Whether another list item follows; the decoder is then before it.
    pub(super) fn has_item(&mut self) -> Result<bool, Error> {
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(b']') => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                Ok(true)
            }
            Some(_) => Ok(true),
            None => Err(Error::UnexpectedEnd),
        }
    }

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

    pub(super) fn value(&mut self, ty: Option<Ty>, depth: usize) -> Result<Tree, Error> {
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
            match self.strict {
                Some(_) => self.entry(key, ty, depth, &mut entries)?,
                None => self.plain_entry(key, depth, &mut entries)?,
            }
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

    /// An entry without reports: types are only tracked if problems are reported.
    fn plain_entry(&mut self, key: Str, depth: usize, entries: &mut Vec<(Str, Tree)>) -> Result<(), Error> {
        if depth == 0 {
            self.in_metadata = key == "metadata";
        } else if self.unmanaged && depth == 1 && self.in_metadata && key == "managedFields" {
            self.skip_space();
            return self.skip_value();
        }
        let value = self.value(None, depth + 1)?;
        entries.push((key, value));
        Ok(())
    }

    fn entry(&mut self, key: Str, ty: Option<Ty>, depth: usize, entries: &mut Vec<(Str, Tree)>) -> Result<(), Error> {
        let known = known(ty, &key);
        self.path.push(Step::Key(key));
        // Few keys are compared linearly; large maps (such as ConfigMap data) are left to the sort.
        let key = match self.path.last() {
            Some(Step::Key(key)) => key.clone(),
            _ => Str::default(),
        };
        if entries.len() < 64 && entries.iter().any(|(earlier, _)| *earlier == key) {
            self.report(Strict::duplicate);
        }
        match known {
            FieldLookup::Field(ty) => {
                let value = self.value(ty, depth + 1)?;
                entries.push((key, value));
            }
            FieldLookup::No => {
                self.report(Strict::unknown);
                self.value(None, depth + 1)?;
            }
        }
        self.path.pop();
        Ok(())
    }

    /// A map with only the entries on `paths`.
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
            if depth == 0 {
                self.in_metadata = key == "metadata";
            }
            if inner.is_empty() {
                self.skip_value()?;
            } else {
                entries.push((key, self.some_of(&inner, depth + 1)?));
            }
        }
        self.at += 1;
        Ok(Tree::Map(Map::from_entries(entries, |_| {})))
    }

    pub(super) fn skip_value(&mut self) -> Result<(), Error> {
        let mut depth = 0usize;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => self.skip_string()?,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.checked_sub(1).ok_or_else(|| self.invalid("looking for beginning of value"))?;
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
            if self.strict.is_some() {
                self.path.push(Step::Index(items.len()));
            }
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

    fn report(&mut self, problem: fn(&mut Strict, &str)) {
        let path = self.path_text();
        if let Some(strict) = &mut self.strict {
            problem(strict, &path);
        }
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

/// The rest of a dotted path below a key, if it starts with the key.
fn below<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(key)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

enum FieldLookup {
    Field(Option<Ty>),
    No,
}

/// Looks up a key in the schema. Without a struct any key is allowed.
fn known(ty: Option<Ty>, key: &str) -> FieldLookup {
    match ty {
        Some(Ty::Struct(ty)) => match ty.field(key) {
            Some(field) => FieldLookup::Field(Some(field.ty)),
            None => FieldLookup::No,
        },
        Some(Ty::Map(item)) => FieldLookup::Field(Some(*item)),
        _ => FieldLookup::Field(None),
    }
}
