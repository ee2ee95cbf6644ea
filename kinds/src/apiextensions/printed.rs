//! Schemas and versions as upstream's errors print them: its internal types, with every field.

use api::field::Value;
use api::{Tree, json};

/// Name in the schema, name of the Go field, and its zero value.
const FIELDS: &[(&str, &str, &str)] = &[
    ("id", "ID", "\"\""),
    ("$schema", "Schema", "\"\""),
    ("$ref", "Ref", "null"),
    ("description", "Description", "\"\""),
    ("type", "Type", "\"\""),
    ("nullable", "Nullable", "false"),
    ("format", "Format", "\"\""),
    ("title", "Title", "\"\""),
    ("default", "Default", "null"),
    ("maximum", "Maximum", "null"),
    ("exclusiveMaximum", "ExclusiveMaximum", "false"),
    ("minimum", "Minimum", "null"),
    ("exclusiveMinimum", "ExclusiveMinimum", "false"),
    ("maxLength", "MaxLength", "null"),
    ("minLength", "MinLength", "null"),
    ("pattern", "Pattern", "\"\""),
    ("maxItems", "MaxItems", "null"),
    ("minItems", "MinItems", "null"),
    ("uniqueItems", "UniqueItems", "false"),
    ("multipleOf", "MultipleOf", "null"),
    ("enum", "Enum", "null"),
    ("maxProperties", "MaxProperties", "null"),
    ("minProperties", "MinProperties", "null"),
    ("required", "Required", "null"),
    ("items", "Items", "null"),
    ("allOf", "AllOf", "null"),
    ("oneOf", "OneOf", "null"),
    ("anyOf", "AnyOf", "null"),
    ("not", "Not", "null"),
    ("properties", "Properties", "null"),
    ("additionalProperties", "AdditionalProperties", "null"),
    ("patternProperties", "PatternProperties", "null"),
    ("dependencies", "Dependencies", "null"),
    ("additionalItems", "AdditionalItems", "null"),
    ("definitions", "Definitions", "null"),
    ("externalDocs", "ExternalDocs", "null"),
    ("example", "Example", "null"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", "null"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", "false"),
    ("x-kubernetes-int-or-string", "XIntOrString", "false"),
    ("x-kubernetes-list-map-keys", "XListMapKeys", "null"),
    ("x-kubernetes-list-type", "XListType", "null"),
    ("x-kubernetes-map-type", "XMapType", "null"),
    ("x-kubernetes-validations", "XValidations", "null"),
];

/// The Go names of the fields that a schema sets, in their order.
pub(crate) fn set_fields(props: &Tree) -> impl Iterator<Item = &'static str> {
    let is_set = |key: &str| match props.get(key) {
        None | Some(Tree::Null) => false,
        Some(Tree::Bool(value)) => {
            *value || key == "x-kubernetes-preserve-unknown-fields" || key == "additionalProperties"
        }
        Some(Tree::Str(text)) => !text.is_empty(),
        Some(_) => true,
    };
    FIELDS.iter().filter(move |(key, _, _)| is_set(key)).map(|(_, name, _)| *name)
}

/// A schema.
pub(crate) fn schema(props: &Tree) -> Value {
    Value::raw(schema_text(props))
}

fn schema_text(props: &Tree) -> String {
    let field = |(key, name, zero): &(&str, &str, &str)| {
        let value = props.get(key).filter(|value| !value.is_null());
        format!("\"{name}\":{}", value.map_or_else(|| zero.to_string(), |value| field_text(key, value)))
    };
    format!("{{{}}}", FIELDS.iter().map(field).collect::<Vec<_>>().join(","))
}

fn field_text(key: &str, value: &Tree) -> String {
    match (key, value) {
        ("properties" | "patternProperties" | "definitions", Tree::Map(map)) => {
            let entries =
                map.iter().map(|(name, props)| format!("{}:{}", plain(&Tree::from(name)), schema_text(props)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        ("allOf" | "anyOf" | "oneOf", Tree::List(items)) => list_text(items),
        ("items", Tree::List(items)) => format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", list_text(items)),
        ("items", props) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema_text(props)),
        ("not", props) => schema_text(props),
        ("additionalProperties" | "additionalItems", Tree::Bool(allows)) => {
            format!("{{\"Allows\":{allows},\"Schema\":null}}")
        }
        ("additionalProperties" | "additionalItems", props) => {
            format!("{{\"Allows\":true,\"Schema\":{}}}", schema_text(props))
        }
        ("x-kubernetes-validations", Tree::List(rules)) => {
            format!("[{}]", rules.iter().map(rule_text).collect::<Vec<_>>().join(","))
        }
        ("externalDocs", docs) => {
            let text = |key: &str| plain(&Tree::from(docs.str(key)));
            format!("{{\"Description\":{},\"URL\":{}}}", text("description"), text("url"))
        }
        (_, value) => plain(value),
    }
}

fn list_text(items: &[Tree]) -> String {
    format!("[{}]", items.iter().map(schema_text).collect::<Vec<_>>().join(","))
}

/// A rule of `x-kubernetes-validations`.
pub(crate) fn rule_text(rule: &Tree) -> String {
    let text = |key: &str| plain(&Tree::from(rule.str(key)));
    let pointer = |key: &str| rule.get(key).map_or_else(|| "null".to_string(), plain);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        pointer("reason"),
        text("fieldPath"),
        pointer("optionalOldSelf"),
    )
}

/// JSON as Go writes it: safe inside of HTML.
fn plain(value: &Tree) -> String {
    let text = String::from_utf8_lossy(&json::encode(value, None)).into_owned();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Versions, without what all of them have in common.
pub(crate) fn versions(rows: &[Tree], common: impl Fn(&str) -> bool) -> Value {
    let row = |row: &Tree| {
        let own = |key: &str| row.get(key).filter(|value| !common(key) && !value.is_null());
        let schema = own("schema").map_or_else(
            || "null".to_string(),
            |schema| match schema.get("openAPIV3Schema") {
                Some(props) => format!("{{\"OpenAPIV3Schema\":{}}}", schema_text(props)),
                None => "{\"OpenAPIV3Schema\":null}".to_string(),
            },
        );
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            plain(&Tree::from(row.str("name"))),
            row.bool("served"),
            row.bool("storage"),
            row.bool("deprecated"),
            row.get("deprecationWarning").map_or_else(|| "null".to_string(), plain),
            own("subresources").map_or_else(|| "null".to_string(), subresources_text),
            own("additionalPrinterColumns").map_or_else(|| "null".to_string(), columns_text),
            own("selectableFields").map_or_else(|| "null".to_string(), selectable_text),
        )
    };
    Value::raw(format!("[{}]", rows.iter().map(row).collect::<Vec<_>>().join(",")))
}

fn subresources_text(subresources: &Tree) -> String {
    let status = if subresources.has("status") { "{}" } else { "null" };
    let scale = match subresources.get("scale") {
        Some(scale) => format!(
            "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
            plain(&Tree::from(scale.str("specReplicasPath"))),
            plain(&Tree::from(scale.str("statusReplicasPath"))),
            scale.get("labelSelectorPath").map_or_else(|| "null".to_string(), plain),
        ),
        None => "null".to_string(),
    };
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn columns_text(columns: &Tree) -> String {
    let column = |column: &Tree| {
        let text = |key: &str| plain(&Tree::from(column.str(key)));
        format!(
            "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{},\"JSONPath\":{}}}",
            text("name"),
            text("type"),
            text("format"),
            text("description"),
            column.int("priority").unwrap_or(0),
            text("jsonPath"),
        )
    };
    format!("[{}]", columns.as_list().unwrap_or(&[]).iter().map(column).collect::<Vec<_>>().join(","))
}

fn selectable_text(fields: &Tree) -> String {
    let field = |field: &Tree| format!("{{\"JSONPath\":{}}}", plain(&Tree::from(field.str("jsonPath"))));
    format!("[{}]", fields.as_list().unwrap_or(&[]).iter().map(field).collect::<Vec<_>>().join(","))
}
