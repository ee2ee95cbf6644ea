//! Reads typed fields and collects errors.

use std::time::Duration;

use api::Tree;
use api::field::{Errors, Path};

#[derive(Default)]
pub(super) struct Reader {
    pub errors: Errors,
}

impl Reader {
    pub(super) fn result<T>(self, value: T) -> Result<T, Vec<String>> {
        match self.errors.is_empty() {
            true => Ok(value),
            false => Err(self.errors.iter().map(ToString::to_string).collect()),
        }
    }

    /// Rejects unknown fields, and values that are not objects.
    pub(super) fn known(&mut self, tree: &Tree, path: &Path<'_>, known: &[&str]) {
        let Some(map) = tree.as_map() else {
            if !tree.is_null() {
                self.errors.type_invalid(path, tree, "must be an object");
            }
            return;
        };
        for key in map.keys().filter(|key| !known.contains(key)) {
            self.errors.forbidden(&path.field(key), "unknown field");
        }
    }

    fn field<'a, T>(
        &mut self,
        tree: &'a Tree,
        key: &str,
        path: &Path<'_>,
        what: &str,
        read: impl Fn(&'a Tree) -> Option<T>,
    ) -> Option<T> {
        let value = tree.get(key).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.errors.type_invalid(&path.field(key), value, what);
        }
        read
    }

    pub(super) fn int(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<i64> {
        self.field(tree, key, path, "must be an integer", Tree::as_int)
    }

    pub(super) fn number(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<f64> {
        let read = |value: &Tree| match value {
            Tree::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        };
        self.field(tree, key, path, "must be a number", read)
    }

    pub(super) fn bool(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<bool> {
        self.field(tree, key, path, "must be true or false", Tree::as_bool)
    }

    pub(super) fn text(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<String> {
        self.field(tree, key, path, "must be a string", |value| value.as_str().map(String::from))
    }

    /// Go's format: `1m30s`.
    pub(super) fn duration(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<Duration> {
        let read = |value: &Tree| {
            let nanos = api::time::parse_duration(value.as_str()?).ok()?;
            u64::try_from(nanos).ok().map(Duration::from_nanos)
        };
        self.field(tree, key, path, "must be a duration such as 15s", read)
    }

    /// A list; other values are an error.
    pub(super) fn list<'a>(&mut self, tree: &'a Tree, key: &str, path: &Path<'_>) -> &'a [Tree] {
        self.field(tree, key, path, "must be a list", Tree::as_list).unwrap_or(&[])
    }

    pub(super) fn texts(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Vec<String> {
        let at = path.field(key);
        let mut texts = Vec::new();
        for (index, item) in self.list(tree, key, path).iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_string()),
                None => self.errors.type_invalid(&at.index(index), item, "must be a string"),
            }
        }
        texts
    }

    /// An integer within inclusive bounds.
    pub(super) fn within(&mut self, tree: &Tree, key: &str, path: &Path<'_>, (least, most): (i64, i64)) -> Option<i64> {
        let number = self.int(tree, key, path)?;
        if number < least || number > most {
            let detail = format!("not in valid range [{least}-{most}]");
            self.errors.invalid(&path.field(key), number, &detail);
            return None;
        }
        Some(number)
    }

    /// The percentage of nodes to score; None if adaptive.
    pub(crate) fn percentage(&mut self, tree: &Tree, path: &Path<'_>) -> Option<u8> {
        let number = self.within(tree, "percentageOfNodesToScore", path, (0, 100))?;
        u8::try_from(number).ok().filter(|number| *number > 0)
    }
}
