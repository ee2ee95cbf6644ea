//! Typed reads of kustomization files, whose field names ignore case as Go's do.

use api::{Map, Str, Tree};

use crate::error::Error;

/// An object of a known Go type.
pub(crate) struct Reader<'a> {
    tree: &'a Tree,
    /// The name of the Go type, for errors.
    go: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tree: &'a Tree, go: &'static str) -> Reader<'a> {
        Reader { tree, go }
    }

    /// Rejects fields that the type does not have.
    pub(crate) fn known(self, fields: &[&str]) -> Result<Reader<'a>, Error> {
        let is_known = |key: &str| fields.iter().any(|field| field.eq_ignore_ascii_case(key));
        match self.tree.as_map().and_then(|map| map.keys().find(|key| !is_known(key))) {
            Some(key) => Err(Error::UnknownField(key.to_string())),
            None => Ok(self),
        }
    }

    pub(crate) fn get(&self, field: &str) -> Option<&'a Tree> {
        let map = self.tree.as_map()?;
        let found = map
            .get(field)
            .or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(field)).map(|(_, value)| value));
        found.filter(|value| !value.is_null())
    }

    fn wrong(&self, field: &str, actual: &Tree, expected: &'static str) -> Error {
        Error::FieldType { field: format!("{}.{field}", self.go), actual: json_kind(actual), expected }
    }

    pub(crate) fn text(&self, field: &str) -> Result<String, Error> {
        match self.get(field) {
            None => Ok(String::new()),
            Some(Tree::Str(text)) => Ok(text.to_string()),
            Some(other) => Err(self.wrong(field, other, "string")),
        }
    }

    pub(crate) fn bool(&self, field: &str) -> Result<bool, Error> {
        match self.get(field) {
            None => Ok(false),
            Some(Tree::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong(field, other, "bool")),
        }
    }

    pub(crate) fn list(&self, field: &str) -> Result<&'a [Tree], Error> {
        match self.get(field) {
            None => Ok(&[]),
            Some(Tree::List(items)) => Ok(items),
            Some(other) => Err(self.wrong(field, other, "[]interface {}")),
        }
    }

    pub(crate) fn texts(&self, field: &str) -> Result<Vec<String>, Error> {
        match self.get(field) {
            None => Ok(Vec::new()),
            Some(Tree::List(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_string).ok_or_else(|| self.wrong(field, item, "string")))
                .collect(),
            Some(other) => Err(self.wrong(field, other, "[]string")),
        }
    }

    /// A map of strings.
    pub(crate) fn pairs(&self, field: &str) -> Result<Vec<(Str, Str)>, Error> {
        match self.get(field) {
            None => Ok(Vec::new()),
            Some(Tree::Map(map)) => self.read_pairs(field, map),
            Some(other) => Err(self.wrong(field, other, "map[string]string")),
        }
    }

    fn read_pairs(&self, field: &str, map: &Map) -> Result<Vec<(Str, Str)>, Error> {
        map.iter()
            .map(|(key, value)| match value {
                Tree::Str(text) => Ok((Str::new(key), text.clone())),
                Tree::Null => Ok((Str::new(key), Str::default())),
                other => Err(self.wrong(field, other, "string")),
            })
            .collect()
    }
}

fn json_kind(value: &Tree) -> &'static str {
    match value {
        Tree::Null => "null",
        Tree::Bool(_) => "bool",
        Tree::Int(_) | Tree::Float(_) => "number",
        Tree::Str(_) => "string",
        Tree::List(_) => "array",
        Tree::Map(_) => "object",
    }
}

/// A scalar field as text, or "".
pub(crate) fn map_text(tree: &Tree, key: &str) -> String {
    tree.get(key).map(scalar_text).unwrap_or_default()
}

/// A scalar as it is written in YAML; empty for maps, lists and null.
pub(crate) fn scalar_text(value: &Tree) -> String {
    match value {
        Tree::Str(text) => text.to_string(),
        Tree::Int(number) => number.to_string(),
        Tree::Float(number) => number.to_string(),
        Tree::Bool(value) => value.to_string(),
        Tree::Null | Tree::List(_) | Tree::Map(_) => String::new(),
    }
}
