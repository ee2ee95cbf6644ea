//! Reads the fields of a configuration. Errors name the path of the field, and unknown fields are refused.

use std::str::FromStr;

use serde_json::{Map, Value};

use super::error::Error;

/// An object whose fields are read one by one. [`Reader::finish`] refuses fields that were not read.
pub(crate) struct Reader<'a> {
    object: &'a Map<String, Value>,
    path: String,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(value: &'a Value, path: impl Into<String>) -> Result<Reader<'a>, Error> {
        let path = path.into();
        match value.as_object() {
            Some(object) => Ok(Reader { object, path, known: Vec::new() }),
            None if path.is_empty() => Err(Error::configuration("must be an object")),
            None => Err(Error::configuration(format!("{path}: must be an object"))),
        }
    }

    /// None if the field is missing or null.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Result<&'a str, Error> {
        self.typed(key, "a string", Value::as_str).map(Option::unwrap_or_default)
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Result<bool, Error> {
        self.optional_flag(key).map(Option::unwrap_or_default)
    }

    pub(crate) fn optional_flag(&mut self, key: &'static str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn number(&mut self, key: &'static str) -> Result<Option<u64>, Error> {
        self.typed(key, "a number that is not negative", Value::as_u64)
    }

    pub(crate) fn number32(&mut self, key: &'static str) -> Result<Option<u32>, Error> {
        let small = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        self.typed(key, "a number of 32 bits", small)
    }

    pub(crate) fn list(&mut self, key: &'static str) -> Result<&'a [Value], Error> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice)).map(Option::unwrap_or_default)
    }

    pub(crate) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, Error> {
        let list = self.list(key)?;
        let texts = list.iter().map(|value| value.as_str().map(str::to_string));
        texts.collect::<Option<_>>().ok_or_else(|| self.invalid(key, "must be a list of strings"))
    }

    pub(crate) fn object(&mut self, key: &'static str) -> Result<Option<Reader<'a>>, Error> {
        let path = self.path_of(key);
        self.value(key).map(|value| Reader::new(value, path)).transpose()
    }

    /// A string that is parsed; None if it is missing or empty.
    pub(crate) fn parsed<T: FromStr>(&mut self, key: &'static str, what: &str) -> Result<Option<T>, Error> {
        match self.text(key)? {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.invalid(key, format!("{text:?} is not {what}"))),
        }
    }

    /// Marks fields as known that are read elsewhere.
    pub(crate) fn skip(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Refuses fields that were not read. Names that begin with an underscore are comments.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let unknown = self.object.keys().find(|key| !self.known.contains(&key.as_str()) && !key.starts_with('_'));
        match unknown {
            Some(key) => Err(Error::unsupported(format!("{}: unknown field", self.path_of(key)))),
            None => Ok(()),
        }
    }

    pub(crate) fn invalid(&self, key: &str, text: impl std::fmt::Display) -> Error {
        Error::configuration(format!("{}: {text}", self.path_of(key)))
    }

    pub(crate) fn unsupported(&self, key: &str, text: impl std::fmt::Display) -> Error {
        Error::unsupported(format!("{}: {text}", self.path_of(key)))
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.value(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.invalid(key, format!("must be {what}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_field() {
        let value = json!({ "a": 1, "list": ["x", 2], "inner": { "b": "x" }, "_remark": 1, "odd": 1, "null": null });
        let mut reader = Reader::new(&value, "").unwrap();
        let message = |error: Error| error.message;
        assert_eq!(message(reader.text("a").unwrap_err()), "a: must be a string");
        assert_eq!(message(reader.texts("list").unwrap_err()), "list: must be a list of strings");
        assert_eq!(reader.number("null"), Ok(None));
        let mut inner = reader.object("inner").unwrap().unwrap();
        assert_eq!(message(inner.flag("b").unwrap_err()), "inner.b: must be true or false");
        assert_eq!(message(inner.parsed::<u8>("b", "a byte").unwrap_err()), "inner.b: \"x\" is not a byte");
        assert_eq!(message(reader.finish().unwrap_err()), "odd: unknown field");
        assert!(inner.finish().is_ok());
    }
}
