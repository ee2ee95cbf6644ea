//! Validates a value against its schema, with upstream's texts. On an update, values that have not changed may stay
//! invalid: a definition can become stricter without blocking its existing objects.

mod numbers;

use api::field::{Errors, Path, Reason, Value, go_quote};
use api::{Map, Str, Tree};

use super::formats;
use super::schema::{Additional, JsonType, ListType, Schema};

/// Validates a value; `prefix` is the path of the value inside of its object. `old` is the stored value.
pub(crate) fn validate(value: &Tree, old: Option<&Tree>, schema: &Schema, prefix: &str, errors: &mut Errors) {
    let walk = Validator { prefix };
    let outcome = walk.node(value, old, schema, "");
    errors.extend(outcome.errors);
}

/// Whether an error stops the evaluation of rules: they expect values of the right types and sizes.
pub(super) fn blocks_rules(errors: &Errors) -> bool {
    let blocking = [Reason::NotSupported, Reason::Required, Reason::TooLong, Reason::TooMany, Reason::TypeInvalid];
    errors.iter().any(|error| blocking.contains(&error.reason))
}

/// The errors of a node, and the number of checks that applied: of several alternatives the closest one is reported.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) errors: Errors,
    checks: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.errors.extend(other.errors);
        self.checks += other.checks;
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

pub(super) struct Validator<'a> {
    prefix: &'a str,
}

impl Validator<'_> {
    /// The path of an error: upstream's names begin with a dot where the root has no name.
    fn field(&self, name: &str) -> String {
        let name = name.strip_prefix('.').unwrap_or(name);
        match (self.prefix, name) {
            (prefix, "") => prefix.to_string(),
            ("", name) => name.to_string(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }

    pub(super) fn invalid(&self, errors: &mut Errors, name: &str, value: impl Into<Value>, detail: &str) {
        errors.invalid(&Path::root(&self.field(name)), value, detail);
    }

    /// An error that names its path only in its text.
    pub(super) fn plain(&self, errors: &mut Errors, detail: &str) {
        errors.invalid(&Path::root(self.prefix), "", detail);
    }

    fn wrong_type(&self, errors: &mut Errors, name: &str, expected: &str, actual: &str) {
        let detail = format!("{name} in body must be of type {expected}: {}", go_quote(actual));
        errors.type_invalid(&Path::root(&self.field(name)), actual, &detail);
    }

    fn node(&self, value: &Tree, old: Option<&Tree>, schema: &Schema, name: &str) -> Outcome {
        let outcome = self.checked(value, old, schema, name);
        match old {
            Some(old) if !outcome.is_valid() && old == value => {
                Outcome { checks: outcome.checks, ..Outcome::default() }
            }
            _ => outcome,
        }
    }

    fn checked(&self, value: &Tree, old: Option<&Tree>, schema: &Schema, name: &str) -> Outcome {
        let mut out = Outcome::default();
        self.check_type(value, schema, name, &mut out);
        if value.is_null() {
            self.check_enum(value, schema, name, &mut out);
            return out;
        }
        self.check_alternatives(value, old, schema, name, &mut out);
        match value {
            Tree::Str(text) => {
                self.check_text(text, schema, name, &mut out);
                self.check_format(text, schema, name, &mut out);
            }
            Tree::Int(_) | Tree::Float(_) => numbers::check(self, value, schema, name, &mut out.errors),
            Tree::List(items) => self.check_items(items, old, schema, name, &mut out),
            _ => {}
        }
        out.checks += 2;
        self.check_enum(value, schema, name, &mut out);
        if let Tree::Map(map) = value {
            self.check_fields(map, old, schema, name, &mut out);
        }
        out
    }

    fn check_type(&self, value: &Tree, schema: &Schema, name: &str, out: &mut Outcome) {
        let expected = match (schema.is_int_or_string, schema.ty) {
            (true, _) => "integer,string",
            (false, Some(ty)) => ty.name(),
            (false, None) => return,
        };
        let (actual, format) = type_of(value);
        let is_right = match (value, schema.ty) {
            (Tree::Null, _) => schema.nullable,
            (Tree::Str(_) | Tree::Int(_), _) if schema.is_int_or_string => true,
            (Tree::Float(number), _) if schema.is_int_or_string => is_integer(*number),
            (_, Some(ty)) => is_of(value, ty),
            (_, None) => false,
        };
        let wanted = schema.checks.format.as_str();
        match value {
            _ if is_right => out.checks += 1,
            Tree::List(_) if !wanted.is_empty() && schema.ty == Some(JsonType::String) => out.checks += 1,
            Tree::Null | Tree::Str(_) | Tree::List(_) => self.wrong_type(&mut out.errors, name, expected, actual),
            _ if !wanted.is_empty() => self.wrong_type(&mut out.errors, name, wanted, format),
            _ => self.wrong_type(&mut out.errors, name, expected, actual),
        }
    }

    fn check_enum(&self, value: &Tree, schema: &Schema, name: &str, out: &mut Outcome) {
        let values = &schema.checks.values;
        if values.is_empty() || values.iter().any(|allowed| is_same(allowed, value)) {
            return;
        }
        let texts: Vec<String> = values.iter().map(shown_value).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        out.errors.not_supported(&Path::root(&self.field(name)), value, &texts);
    }

    /// The first problem of a text.
    fn check_text(&self, text: &str, schema: &Schema, name: &str, out: &mut Outcome) {
        let length = text.chars().count() as i64;
        let checks = &schema.checks;
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            out.errors.too_long(&Path::root(&self.field(name)), usize::try_from(max).unwrap_or(0));
        } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
            self.invalid(&mut out.errors, name, text, &format!("{name} in body should be at least {min} chars long"));
        } else if let Some(pattern) = &checks.pattern {
            match pattern.matches(text) {
                Some(true) => {}
                Some(false) => {
                    let detail = format!("{name} in body should match '{}'", pattern.text);
                    self.invalid(&mut out.errors, name, text, &detail);
                }
                None => {
                    let detail = format!("{name} in body should match '{}, but pattern is invalid'", pattern.text);
                    self.invalid(&mut out.errors, name, text, &detail);
                }
            }
        }
    }

    fn check_format(&self, text: &str, schema: &Schema, name: &str, out: &mut Outcome) {
        let format = schema.checks.format.as_str();
        let is_text = !matches!(schema.ty, Some(JsonType::Integer | JsonType::Number));
        if is_text && !format.is_empty() && !formats::matches(format, text) {
            let detail = format!("{name} in body must be of type {format}: {}", go_quote(text));
            out.errors.type_invalid(&Path::root(&self.field(name)), text, &detail);
        }
    }

    fn check_items(&self, items: &[Tree], old: Option<&Tree>, schema: &Schema, name: &str, out: &mut Outcome) {
        if let Some(inner) = schema.items.as_deref() {
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| correlated(item, old, schema));
                out.merge(self.node(item, old, inner, &format!("{name}[{index}]")));
            }
        }
        let (size, checks) = (items.len() as i64, &schema.checks);
        if let Some(min) = checks.min_items.filter(|min| size < *min) {
            self.invalid(&mut out.errors, name, size, &format!("{name} in body should have at least {min} items"));
        }
        if let Some(max) = checks.max_items.filter(|max| size > *max) {
            out.errors.too_many(&Path::root(&self.field(name)), items.len(), usize::try_from(max).unwrap_or(0));
        }
        let repeats = || items.iter().enumerate().any(|(at, item)| items[..at].contains(item));
        if checks.unique_items && repeats() {
            self.invalid(&mut out.errors, name, "", &format!("{name} in body shouldn't contain duplicates"));
        }
        out.checks += 1;
    }

    fn check_fields(&self, map: &Map, old: Option<&Tree>, schema: &Schema, name: &str, out: &mut Outcome) {
        let (size, checks) = (map.len() as i64, &schema.checks);
        if let Some(min) = checks.min_properties.filter(|min| size < *min) {
            self.invalid(&mut out.errors, name, size, &format!("{name} in body should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| size > *max) {
            out.errors.too_many(&Path::root(&self.field(name)), map.len(), usize::try_from(max).unwrap_or(0));
        }
        for (key, value) in map.iter().filter(|(key, _)| schema.property(key).is_none()) {
            match &schema.additional {
                Additional::Schema(inner) => {
                    out.merge(self.node(value, old_field(old, key, name), inner, &format!("{name}.{key}")));
                }
                Additional::Forbidden => {
                    let detail = format!("{name}.{key} in body is a forbidden property");
                    self.invalid(&mut out.errors, name, key, &detail);
                }
                Additional::Unset | Additional::Any => {}
            }
        }
        for (key, inner) in &schema.properties {
            let Some(value) = map.get(key) else { continue };
            let name = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
            let is_root = !name.contains('.');
            let old = if is_root { old_field(old, key, "") } else { old_field(old, key, &name) };
            out.merge(self.node(value, old, inner, &name));
        }
        for key in checks.required.iter().filter(|key| !map.contains(key)) {
            out.errors.required(&Path::root(&self.field(&format!("{name}.{key}"))), "");
        }
    }

    fn check_alternatives(&self, value: &Tree, old: Option<&Tree>, schema: &Schema, name: &str, out: &mut Outcome) {
        self.check_any_of(value, old, &schema.any_of, name, out);
        self.check_one_of(value, old, &schema.one_of, name, out);
        let mut valid = 0;
        for inner in &schema.all_of {
            let outcome = self.checked(value, old, inner, name);
            valid += usize::from(outcome.is_valid());
            out.merge(outcome);
        }
        if valid != schema.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let detail = format!("{} must validate all the schemas (allOf){none}", go_quote(name));
            self.plain(&mut out.errors, &detail);
        }
        if let Some(inner) = schema.not.as_deref()
            && self.checked(value, old, inner, name).is_valid()
        {
            self.plain(&mut out.errors, &format!("{} must not validate the schema (not)", go_quote(name)));
        }
        out.checks += 1;
    }

    fn check_any_of(&self, value: &Tree, old: Option<&Tree>, schemas: &[Schema], name: &str, out: &mut Outcome) {
        let mut closest: Option<Outcome> = None;
        for inner in schemas {
            let outcome = self.checked(value, old, inner, name);
            if outcome.is_valid() {
                out.merge(outcome);
                return;
            }
            if closest.as_ref().is_none_or(|closest| outcome.checks > closest.checks) {
                closest = Some(outcome);
            }
        }
        if let Some(closest) = closest {
            let detail = format!("{} must validate at least one schema (anyOf)", go_quote(name));
            self.plain(&mut out.errors, &detail);
            out.merge(closest);
        }
    }

    fn check_one_of(&self, value: &Tree, old: Option<&Tree>, schemas: &[Schema], name: &str, out: &mut Outcome) {
        if schemas.is_empty() {
            return;
        }
        let (mut valid, mut closest): (Vec<Outcome>, Option<Outcome>) = (Vec::new(), None);
        for inner in schemas {
            let outcome = self.checked(value, old, inner, name);
            if outcome.is_valid() {
                valid.push(outcome);
            } else if closest.as_ref().is_none_or(|closest| outcome.checks > closest.checks) {
                closest = Some(outcome);
            }
        }
        let found = match valid.len() {
            1 => return out.checks += valid.iter().map(|outcome| outcome.checks).sum::<usize>(),
            0 => "Found none valid".to_string(),
            count => format!("Found {count} valid alternatives"),
        };
        let detail = format!("{} must validate one and only one schema (oneOf). {found}", go_quote(name));
        self.plain(&mut out.errors, &detail);
        if let Some(closest) = closest.filter(|_| valid.is_empty()) {
            out.merge(closest);
        }
    }
}

/// The stored value of a field. Kind and apiVersion of the object itself are always checked.
fn old_field<'a>(old: Option<&'a Tree>, key: &str, name: &str) -> Option<&'a Tree> {
    match (name, key) {
        ("", "kind" | "apiVersion") => None,
        _ => old.and_then(|old| old.get(key)),
    }
}

/// The stored item with the same keys; items of other lists have no identity.
pub(super) fn correlated<'a>(item: &Tree, old: &'a Tree, schema: &Schema) -> Option<&'a Tree> {
    if schema.list_type != ListType::Map {
        return None;
    }
    let key = |item: &Tree, name: &Str| {
        let default = || schema.items.as_deref()?.property(name)?.default.clone();
        item.get(name).cloned().or_else(default)
    };
    let is_same = |other: &&Tree| schema.list_keys.iter().all(|name| key(item, name) == key(other, name));
    let mut found = old.as_list()?.iter().filter(is_same);
    // Items with a repeated key cannot be distinguished.
    found.next().filter(|_| found.next().is_none())
}

/// The JSON type of a value, and the format of a number.
fn type_of(value: &Tree) -> (&'static str, &'static str) {
    match value {
        Tree::Null => ("null", ""),
        Tree::Bool(_) => ("boolean", ""),
        Tree::Int(_) => ("integer", "int64"),
        Tree::Float(_) => ("number", "float64"),
        Tree::Str(_) => ("string", ""),
        Tree::List(_) => ("array", ""),
        Tree::Map(_) => ("object", ""),
    }
}

fn is_of(value: &Tree, ty: JsonType) -> bool {
    match (value, ty) {
        (Tree::Map(_), JsonType::Object) | (Tree::List(_), JsonType::Array) | (Tree::Str(_), JsonType::String) => true,
        (Tree::Int(_), JsonType::Integer | JsonType::Number) | (Tree::Bool(_), JsonType::Boolean) => true,
        (Tree::Float(_), JsonType::Number) => true,
        (Tree::Float(number), JsonType::Integer) => is_integer(*number),
        _ => false,
    }
}

/// Floats can only count so far.
fn is_integer(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0
}

/// Numbers are equal whatever their notation.
fn is_same(allowed: &Tree, value: &Tree) -> bool {
    use super::schema::number;
    match (number(allowed), number(value)) {
        (Some(allowed), Some(value)) => allowed == value,
        _ => allowed == value,
    }
}

fn shown_value(value: &Tree) -> String {
    match value {
        Tree::Str(text) => text.to_string(),
        other => String::from_utf8_lossy(&api::json::encode(other, None)).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::json;

    fn read(text: &str) -> Tree {
        json::decode(text.as_bytes()).expect("valid JSON")
    }

    fn check(schema: &str, value: &str, want: &[&str]) {
        let mut errors = Errors::new();
        validate(&read(value), None, &Schema::compile(&read(schema)), "", &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want, "{schema} {value}");
    }

    #[test]
    fn types_are_checked() {
        let field = |props: &str| format!(r#"{{"type":"object","properties":{{"a":{props}}}}}"#);
        check(
            &field(r#"{"type":"integer"}"#),
            r#"{"a":"x"}"#,
            &[r#"a: Invalid value: "string": a in body must be of type integer: "string""#],
        );
        check(
            &field(r#"{"type":"integer","format":"int32"}"#),
            r#"{"a":true}"#,
            &[r#"a: Invalid value: "": a in body must be of type int32: """#],
        );
        check(
            &field(r#"{"x-kubernetes-int-or-string":true}"#),
            r#"{"a":1.5}"#,
            &[r#"a: Invalid value: "number": a in body must be of type integer,string: "number""#],
        );
        check(
            &field(r#"{"type":"string"}"#),
            r#"{"a":null}"#,
            &[r#"a: Invalid value: "null": a in body must be of type string: "null""#],
        );
        check(&field(r#"{"type":"string","nullable":true}"#), r#"{"a":null}"#, &[]);
        check(
            &field(r#"{"type":"string","format":"date-time"}"#),
            r#"{"a":"x"}"#,
            &[r#"a: Invalid value: "x": a in body must be of type date-time: "x""#],
        );
    }

    #[test]
    fn values_are_checked() {
        let field = |props: &str| format!(r#"{{"type":"object","required":["a"],"properties":{{"a":{props}}}}}"#);
        check(&field(r#"{"type":"string"}"#), "{}", &["a: Required value"]);
        check(
            &field(r#"{"type":"string","enum":["x","y"]}"#),
            r#"{"a":"z"}"#,
            &[r#"a: Unsupported value: "z": supported values: "x", "y""#],
        );
        check(
            &field(r#"{"type":"string","minLength":2,"pattern":"^b"}"#),
            r#"{"a":"b"}"#,
            &[r#"a: Invalid value: "b": a in body should be at least 2 chars long"#],
        );
        check(
            &field(r#"{"type":"string","pattern":"^b"}"#),
            r#"{"a":"c"}"#,
            &[r#"a: Invalid value: "c": a in body should match '^b'"#],
        );
        check(
            &field(r#"{"type":"string","maxLength":1}"#),
            r#"{"a":"éé"}"#,
            &["a: Too long: may not be more than 1 bytes"],
        );
        check(
            &field(r#"{"type":"array","maxItems":1,"items":{"type":"string"}}"#),
            r#"{"a":["b","c"]}"#,
            &["a: Too many: 2: must have at most 1 items"],
        );
        check(
            &field(r#"{"type":"object","additionalProperties":{"type":"string"}}"#),
            r#"{"a":{"b":1}}"#,
            &[r#"a.b: Invalid value: "integer": a.b in body must be of type string: "integer""#],
        );
        check(
            &field(
                r#"{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"}},"oneOf":[{"required":["x"]},{"required":["y"]}]}"#,
            ),
            r#"{"a":{"x":"1","y":"2"}}"#,
            &[
                r#"<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        );
    }

    #[test]
    fn unchanged_values_may_stay_invalid() {
        let schema = Schema::compile(&read(
            r#"{"type":"object","properties":{"a":{"type":"string","maxLength":1},"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string"},"v":{"type":"string","maxLength":1}}}}}}"#,
        ));
        let old = read(r#"{"a":"long","l":[{"k":"1","v":"long"}]}"#);
        let check = |new: &str, want: usize| {
            let mut errors = Errors::new();
            validate(&read(new), Some(&old), &schema, "", &mut errors);
            assert_eq!(errors.len(), want, "{new}");
        };
        check(r#"{"a":"long","l":[{"k":"2","v":"x"},{"k":"1","v":"long"}]}"#, 0);
        check(r#"{"a":"longer","l":[{"k":"1","v":"long"}]}"#, 1);
        check(r#"{"a":"long","l":[{"k":"2","v":"long"}]}"#, 1);
    }
}
