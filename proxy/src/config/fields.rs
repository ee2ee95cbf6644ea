//! Reads typed fields of a section and collects errors. A field that was not read is unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use api::Tree;

/// A section of a file.
pub(super) struct Section<'a> {
    tree: &'a Tree,
    path: String,
    read: BTreeSet<&'static str>,
    errors: Vec<String>,
}

impl<'a> Section<'a> {
    pub(super) fn new(tree: &'a Tree, path: &str) -> Section<'a> {
        let mut section = Section { tree, path: path.to_string(), read: BTreeSet::new(), errors: Vec::new() };
        if !tree.is_null() && tree.as_map().is_none() {
            section.errors.push(format!("{path}: Invalid type: must be an object"));
        }
        section
    }

    /// A section inside of this one.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'a> {
        self.read.insert(key);
        Section::new(self.tree.at(key), &self.at(key))
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn error(&mut self, key: &str, problem: &str) {
        let value = self.tree.get(key).map(shown).unwrap_or_default();
        let at = self.at(key);
        self.errors.push(format!("{at}: Invalid value: {value}: {problem}"));
    }

    /// Takes over the errors of a section that was read completely.
    pub(super) fn finish(&mut self, section: Section<'_>) {
        self.errors.extend(section.errors());
    }

    /// All errors, with those of unknown fields.
    pub(super) fn errors(self) -> Vec<String> {
        let keys = self.tree.as_map().into_iter().flat_map(|map| map.keys());
        let unknown: Vec<String> = keys
            .filter(|key| !self.read.contains(key))
            .map(|key| format!("{}: Forbidden: unknown field", self.at(key)))
            .collect();
        self.errors.into_iter().chain(unknown).collect()
    }

    pub(super) fn field<T>(
        &mut self,
        key: &'static str,
        what: &str,
        read: impl Fn(&'a Tree) -> Option<T>,
    ) -> Option<T> {
        self.read.insert(key);
        let value = self.tree.get(key).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.error(key, what);
        }
        read
    }

    pub(super) fn text(&mut self, key: &'static str) -> &'a str {
        self.field(key, "must be a string", Tree::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.field(key, "must be true or false", Tree::as_bool)
    }

    pub(super) fn number(&mut self, key: &'static str) -> Option<f64> {
        self.field(key, "must be a number", |value| match value {
            Tree::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        })
    }

    pub(super) fn int(&mut self, key: &'static str, least: i64, most: i64) -> Option<i64> {
        let problem = format!("must be within the range [{least}, {most}]");
        self.field(key, &problem, |value| value.as_int().filter(|number| (least..=most).contains(number)))
    }

    /// Go's format, such as `1m30s`; None if it is missing or zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let read = |value: &Tree| {
            let nanos = match value {
                Tree::Int(number) => *number,
                other => api::time::parse_duration(other.as_str()?).ok()?,
            };
            u64::try_from(nanos).ok().map(Duration::from_nanos)
        };
        self.field(key, "must be a duration such as 15s, and not negative", read)
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Vec<&'a str> {
        let read = |value: &'a Tree| value.as_list()?.iter().map(Tree::as_str).collect::<Option<Vec<&str>>>();
        self.field(key, "must be a list of strings", read).unwrap_or_default()
    }

    /// Fields that are accepted only without a value that means anything: empty, zero or false.
    pub(super) fn unsupported(&mut self, keys: &[&'static str], why: &str) {
        for key in keys {
            self.field(key, why, |value| is_empty(value).then_some(()));
        }
    }
}

fn is_empty(value: &Tree) -> bool {
    match value {
        Tree::Bool(value) => !value,
        Tree::Int(number) => *number == 0,
        Tree::List(list) => list.is_empty(),
        other => other.as_str().is_some_and(|text| matches!(text, "" | "0s" | "0")),
    }
}

fn shown(value: &Tree) -> String {
    String::from_utf8_lossy(&api::json::encode(value, None)).trim().to_string()
}
