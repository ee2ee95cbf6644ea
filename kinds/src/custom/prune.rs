//! Removes what a schema does not have: unknown fields, and nulls where null is not allowed.

use api::Tree;

use super::schema::{Additional, Schema};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields of an object and returns their paths, sorted.
pub(super) fn prune(object: &mut Tree, schema: &Schema) -> Vec<String> {
    let mut walk = Pruner { path: String::new(), unknown: Vec::new() };
    walk.object(object, schema);
    walk.unknown.sort();
    walk.unknown
}

/// The same for a value inside of an object, such as a default.
pub(crate) fn prune_value(value: &mut Tree, schema: &Schema) -> Vec<String> {
    let mut walk = Pruner { path: String::new(), unknown: Vec::new() };
    walk.value(value, Some(schema), false);
    walk.unknown
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    /// The root has the fields of every object, whether its schema names them or not.
    fn object(&mut self, object: &mut Tree, schema: &Schema) {
        if let Tree::Map(map) = object {
            map.retain(|key, value| META_FIELDS.contains(&key) || self.entry(key, value, schema, false));
        }
    }

    /// With `keeps` unknown fields of the value itself are kept.
    fn value(&mut self, value: &mut Tree, schema: Option<&Schema>, keeps: bool) {
        let keeps = keeps || schema.is_some_and(|schema| schema.preserves_unknown);
        match (value, schema) {
            (Tree::Map(map), None) => map.retain(|key, _| self.report(key)),
            (Tree::Map(map), Some(schema)) => map.retain(|key, value| {
                (schema.is_embedded && META_FIELDS.contains(&key)) || self.entry(key, value, schema, keeps)
            }),
            (Tree::List(items), schema) => {
                let inner = schema.and_then(|schema| schema.items.as_deref());
                if !(keeps && inner.is_none()) {
                    self.items(items, inner, keeps);
                }
            }
            _ => {}
        }
    }

    fn items(&mut self, items: &mut [Tree], schema: Option<&Schema>, keeps: bool) {
        for (index, item) in items.iter_mut().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            self.value(item, schema, keeps);
            self.path.truncate(length);
        }
    }

    /// Whether an entry is kept.
    fn entry(&mut self, key: &str, value: &mut Tree, schema: &Schema, keeps: bool) -> bool {
        let inner = match (schema.property(key), &schema.additional) {
            (Some(property), _) => Some(property),
            (None, Additional::Schema(additional)) => Some(&**additional),
            (None, Additional::Any) => None,
            (None, _) if keeps || schema.preserves_unknown => return true,
            (None, _) => return self.report(key),
        };
        let length = self.push(key);
        self.value(value, inner, false);
        self.path.truncate(length);
        true
    }

    fn push(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    /// Never keeps the field.
    fn report(&mut self, key: &str) -> bool {
        let length = self.push(key);
        self.unknown.push(self.path.clone());
        self.path.truncate(length);
        false
    }
}

/// Removes nulls of fields that are not nullable and have no default.
pub(super) fn prune_nulls(value: &mut Tree, schema: Option<&Schema>) {
    match value {
        Tree::Map(map) => map.retain(|key, value| {
            let inner = schema.and_then(|schema| schema.property(key).or_else(|| schema.additional_schema()));
            if value.is_null() && inner.is_some_and(|inner| !inner.nullable && inner.default.is_none()) {
                return false;
            }
            prune_nulls(value, inner);
            true
        }),
        Tree::List(items) => {
            let inner = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| prune_nulls(item, inner));
        }
        _ => {}
    }
}

/// Sets the defaults of missing fields, and of nulls that are not allowed.
pub(super) fn set_defaults(value: &mut Tree, schema: &Schema) {
    match value {
        Tree::Map(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let is_missing = map.get(name).is_none_or(|value| value.is_null() && !property.nullable);
                if is_missing {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(inner) = schema.property(name) {
                    set_defaults(value, inner);
                } else if let Some(inner) = schema.additional_schema() {
                    set_item_default(value, inner);
                }
            }
        }
        Tree::List(items) => {
            if let Some(inner) = schema.items.as_deref() {
                items.iter_mut().for_each(|item| set_item_default(item, inner));
            }
        }
        _ => {}
    }
}

fn set_item_default(value: &mut Tree, schema: &Schema) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or_default();
    }
    set_defaults(value, schema);
}

/// Calls `each` for every embedded resource below a value, with its path.
pub(crate) fn each_embedded(value: &mut Tree, schema: &Schema, path: &str, each: &mut impl FnMut(&mut Tree, &str)) {
    match value {
        Tree::Map(_) => {
            if schema.is_embedded {
                each(value, path);
            }
            let Tree::Map(map) = value else { return };
            for (key, value) in map.iter_mut() {
                let dot = if path.is_empty() { "" } else { "." };
                if let Some(inner) = schema.property(key) {
                    each_embedded(value, inner, &format!("{path}{dot}{key}"), each);
                } else if let Some(inner) = schema.additional_schema() {
                    each_embedded(value, inner, &format!("{path}[{key}]"), each);
                }
            }
        }
        Tree::List(items) => {
            let Some(inner) = schema.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                each_embedded(item, inner, &format!("{path}[{index}]"), each);
            }
        }
        _ => {}
    }
}

/// Whether a schema has embedded resources anywhere, so that most objects need not be walked.
pub(crate) fn has_embedded(schema: &Schema) -> bool {
    schema.is_embedded
        || schema.properties.iter().any(|(_, inner)| has_embedded(inner))
        || schema.additional_schema().is_some_and(has_embedded)
        || schema.items.as_deref().is_some_and(has_embedded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::json;

    fn read(text: &str) -> Tree {
        json::decode(text.as_bytes()).expect("valid JSON")
    }

    fn text(tree: &Tree) -> String {
        String::from_utf8(json::encode(tree, None)).expect("UTF-8")
    }

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = Schema::compile(&read(
            r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
                "a":{"type":"string"},
                "map":{"type":"object","additionalProperties":{"type":"object","properties":{"k":{"type":"string"}}}},
                "any":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"in":{"type":"object","properties":{"x":{"type":"string"}}}}},
                "tmpl":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"spec":{"type":"object"}}},
                "list":{"type":"array","items":{"type":"object","properties":{"n":{"type":"string"}}}}}}}}"#,
        ));
        let cases = [
            (
                r#"{"kind":"K","metadata":{"name":"n","x":1},"spec":{"a":"1","b":2},"other":{}}"#,
                r#"{"kind":"K","metadata":{"name":"n","x":1},"spec":{"a":"1"}}"#,
                vec!["other", "spec.b"],
            ),
            (r#"{"spec":{"map":{"z":{"k":"1","q":1}}}}"#, r#"{"spec":{"map":{"z":{"k":"1"}}}}"#, vec!["spec.map.z.q"]),
            (
                r#"{"spec":{"any":{"free":{"y":1},"in":{"x":"1","z":2}}}}"#,
                r#"{"spec":{"any":{"free":{"y":1},"in":{"x":"1"}}}}"#,
                vec!["spec.any.in.z"],
            ),
            (
                r#"{"spec":{"tmpl":{"apiVersion":"v1","kind":"A","metadata":{"q":1},"spec":{"p":1},"z":2}}}"#,
                r#"{"spec":{"tmpl":{"apiVersion":"v1","kind":"A","metadata":{"q":1},"spec":{}}}}"#,
                vec!["spec.tmpl.spec.p", "spec.tmpl.z"],
            ),
            (r#"{"spec":{"list":[{"n":"1"},{"m":1}]}}"#, r#"{"spec":{"list":[{"n":"1"},{}]}}"#, vec!["spec.list[1].m"]),
        ];
        for (input, output, unknown) in cases {
            let mut object = read(input);
            assert_eq!(prune(&mut object, &schema), unknown, "{input}");
            assert_eq!(text(&object), output);
        }
    }

    #[test]
    fn defaults_fill_missing_fields_and_forbidden_nulls() {
        let schema = Schema::compile(&read(
            r#"{"type":"object","properties":{
                "a":{"type":"integer","default":1},
                "n":{"type":"string","nullable":true,"default":"x"},
                "plain":{"type":"string"},
                "o":{"type":"object","default":{},"properties":{"p":{"type":"string","default":"q"}}},
                "l":{"type":"array","items":{"type":"string","default":"i"}}}}"#,
        ));
        let cases = [
            ("{}", r#"{"a":1,"n":"x","o":{"p":"q"}}"#),
            (
                r#"{"a":null,"n":null,"plain":null,"o":null,"l":[null,"b"]}"#,
                r#"{"a":1,"l":["i","b"],"n":null,"o":{"p":"q"}}"#,
            ),
            (r#"{"a":2,"n":"y","o":{"p":"z"}}"#, r#"{"a":2,"n":"y","o":{"p":"z"}}"#),
        ];
        for (input, output) in cases {
            let mut object = read(input);
            prune_nulls(&mut object, Some(&schema));
            set_defaults(&mut object, &schema);
            assert_eq!(text(&object), output, "{input}");
        }
    }
}
