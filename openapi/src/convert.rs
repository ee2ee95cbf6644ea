//! OpenAPI v2 documents of extension API servers that have no v3, converted as upstream does.

use api::{Map, Tree, list, tree};

const V2_DEFINITIONS: &str = "#/definitions/";
const V3_SCHEMAS: &str = "#/components/schemas/";
const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];

/// The v3 document of a v2 document.
pub fn convert_to_v3(document: &Tree) -> Tree {
    let paths = document.map("paths").iter().map(|(path, item)| (path, convert_path(item)));
    let schemas = convert_values(document.map("definitions"), convert_schema);
    let parameters = convert_values(document.map("parameters"), convert_parameter);
    let mut components = tree! { "schemas" => Tree::Map(schemas) };
    if !parameters.is_empty() {
        components.set("parameters", Tree::Map(parameters));
    }
    tree! {
        "openapi" => "3.0.0", "info" => document.at("info").clone(),
        "paths" => Tree::Map(collect(paths)), "components" => components,
    }
}

fn collect<'a>(entries: impl Iterator<Item = (&'a str, Tree)>) -> Map {
    let mut map = Map::new();
    entries.for_each(|(key, value)| drop(map.insert(key, value)));
    map
}

fn convert_values(map: &Map, convert: fn(&Tree) -> Tree) -> Map {
    collect(map.iter().map(|(key, value)| (key, convert(value))))
}

fn convert_path(item: &Tree) -> Tree {
    let convert = |(key, value): (&str, &Tree)| match key {
        "parameters" => convert_parameters(value.as_list().unwrap_or_default()),
        key if METHODS.contains(&key) => convert_operation(value),
        _ => value.clone(),
    };
    let empty = Map::new();
    let entries = item.as_map().unwrap_or(&empty).iter();
    Tree::Map(collect(entries.map(|(key, value)| (key, convert((key, value))))))
}

fn convert_parameters(parameters: &[Tree]) -> Tree {
    Tree::List(parameters.iter().map(convert_parameter).collect())
}

fn convert_operation(operation: &Tree) -> Tree {
    let Some(fields) = operation.as_map() else { return tree! {} };
    let dropped = ["consumes", "produces", "schemes", "parameters", "responses"];
    let kept = fields.iter().filter(|(key, _)| !dropped.contains(key));
    let mut out = Tree::Map(collect(kept.map(|(key, value)| (key, value.clone()))));
    let is_body = |parameter: &&Tree| parameter.str("name") == "body" && parameter.has("schema");
    let (bodies, others): (Vec<&Tree>, Vec<&Tree>) = operation.list("parameters").iter().partition(is_body);
    if !others.is_empty() {
        out.set("parameters", Tree::List(others.into_iter().map(convert_parameter).collect()));
    }
    if let Some(body) = bodies.last() {
        out.set("requestBody", tree! { "content" => contents(operation.list("consumes"), body.at("schema")) });
    }
    let convert = |response: &Tree| convert_response(response, operation.list("produces"));
    let responses = operation.map("responses").iter();
    out.set("responses", Tree::Map(collect(responses.map(|(code, response)| (code, convert(response))))));
    out
}

fn convert_response(response: &Tree, produces: &[Tree]) -> Tree {
    let mut out = tree! { "description" => response.str("description") };
    if response.has("schema") {
        out.set("content", contents(produces, response.at("schema")));
    }
    out
}

/// A schema for each media type.
fn contents(types: &[Tree], schema: &Tree) -> Tree {
    let schema = tree! { "schema" => convert_schema(schema) };
    Tree::Map(collect(types.iter().filter_map(Tree::as_str).map(|media| (media, schema.clone()))))
}

fn convert_parameter(parameter: &Tree) -> Tree {
    let reference = parameter.str("$ref");
    if !reference.is_empty() {
        return tree! { "$ref" => reference.replacen("#/parameters/", "#/components/parameters/", 1) };
    }
    let kept = ["name", "description", "in", "required", "allowEmptyValue"];
    let mut out = select(parameter, &kept);
    let schema = match parameter.get("schema") {
        Some(schema) => convert_schema(schema),
        None => select(parameter, &["type", "format", "uniqueItems"]),
    };
    out.set("schema", schema);
    out
}

fn select(tree: &Tree, keys: &[&'static str]) -> Tree {
    Tree::Map(collect(keys.iter().filter_map(|key| Some((*key, tree.get(key)?.clone())))))
}

/// References point to components; a reference with a description or a default is wrapped in `allOf`, next to which
/// both are allowed.
fn convert_schema(schema: &Tree) -> Tree {
    let Some(fields) = schema.as_map() else { return schema.clone() };
    let mut out = Tree::Map(collect(fields.iter().map(|(key, value)| (key, convert_field(key, value)))));
    if let Some(reference) = fields.get("$ref").filter(|_| fields.len() > 1) {
        let reference = convert_field("$ref", reference);
        out.remove("$ref");
        out.set("allOf", list![tree! { "$ref" => reference }]);
    }
    out
}

fn convert_field(key: &str, value: &Tree) -> Tree {
    match (key, value) {
        ("$ref", Tree::Str(reference)) => Tree::from(reference.replacen(V2_DEFINITIONS, V3_SCHEMAS, 1)),
        ("properties", Tree::Map(properties)) => Tree::Map(convert_values(properties, convert_schema)),
        ("items" | "allOf" | "anyOf" | "oneOf", Tree::List(schemas)) => {
            Tree::List(schemas.iter().map(convert_schema).collect())
        }
        ("items" | "additionalProperties" | "additionalItems" | "not", schema) => convert_schema(schema),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn check(from: &str, convert: fn(&Tree) -> Tree, want: &str) {
        let read = |text: &str| json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(convert(&read(from)), read(want), "{from}");
    }

    #[test]
    fn documents_are_converted() {
        check(
            r##"{"swagger":"2.0","info":{"title":"t","version":"v1"},"definitions":{"A":{"type":"object",
                "properties":{"b":{"$ref":"#/definitions/B"},"c":{"description":"d","$ref":"#/definitions/B"}}},"B":{"type":"string"}},
                "parameters":{"p-1":{"name":"p","in":"query","type":"string","uniqueItems":true}},
                "paths":{"/a":{"parameters":[{"$ref":"#/parameters/p-1"}],"post":{"operationId":"o","consumes":["*/*"],
                "produces":["application/json","application/yaml"],"parameters":[{"name":"body","in":"body","schema":{"$ref":"#/definitions/A"}},
                {"name":"n","in":"path","required":true,"type":"integer"}],"x-kubernetes-action":"post",
                "responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/A"}},"401":{"description":"Unauthorized"}}}}}}"##,
            convert_to_v3,
            r##"{"openapi":"3.0.0","info":{"title":"t","version":"v1"},"components":{"schemas":{"A":{"type":"object",
                "properties":{"b":{"$ref":"#/components/schemas/B"},"c":{"description":"d","allOf":[{"$ref":"#/components/schemas/B"}]}}},
                "B":{"type":"string"}},"parameters":{"p-1":{"name":"p","in":"query","schema":{"type":"string","uniqueItems":true}}}},
                "paths":{"/a":{"parameters":[{"$ref":"#/components/parameters/p-1"}],"post":{"operationId":"o","x-kubernetes-action":"post",
                "parameters":[{"name":"n","in":"path","required":true,"schema":{"type":"integer"}}],
                "requestBody":{"content":{"*/*":{"schema":{"$ref":"#/components/schemas/A"}}}},
                "responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}},
                "application/yaml":{"schema":{"$ref":"#/components/schemas/A"}}}},"401":{"description":"Unauthorized"}}}}}}"##,
        );
    }

    #[test]
    fn schemas_below_schemas_are_converted() {
        check(
            r##"{"items":{"$ref":"#/definitions/A"},"additionalProperties":{"items":{"$ref":"#/definitions/B"}},"additionalItems":false}"##,
            convert_schema,
            r##"{"items":{"$ref":"#/components/schemas/A"},"additionalProperties":{"items":{"$ref":"#/components/schemas/B"}},"additionalItems":false}"##,
        );
        check(
            r#"{"properties":{"$ref":{"type":"string"}}}"#,
            convert_schema,
            r#"{"properties":{"$ref":{"type":"string"}}}"#,
        );
        check(r#"7"#, convert_path, "{}");
    }
}
