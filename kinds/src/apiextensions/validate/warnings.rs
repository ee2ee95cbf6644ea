//! Warnings about the parts of a definition that are not checked, or not supported everywhere.

use api::Tree;

use super::schema;

/// Warnings about a definition: formats that are not checked, and sets that apply cannot merge.
pub(in super::super) fn warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    let known = old.map(found_warnings).unwrap_or_default();
    found_warnings(object).into_iter().filter(|warning| !known.contains(warning)).collect()
}

fn found_warnings(object: &Tree) -> Vec<String> {
    let (mut formats, mut sets) = (Vec::new(), std::collections::BTreeSet::new());
    let mut seen: Vec<&Tree> = Vec::new();
    for version in object.list("spec.versions") {
        let props = version.at("schema.openAPIV3Schema");
        if seen.contains(&props) {
            continue;
        }
        seen.push(props);
        schema::any_schema(props, &mut |props| {
            if !is_known_format(props) {
                formats.push(format!("unrecognized format {:?}", props.str("format")));
            }
            let ty = props.at("items").str("type");
            if props.str("x-kubernetes-list-type") == "set" && matches!(ty, "object" | "array") {
                sets.insert(format!(
                    "x-kubernetes-list-type: set for items of type {ty:?} is not supported by server-side apply or CEL validation rules"
                ));
            }
            false
        });
    }
    formats.into_iter().chain(sets).collect()
}

fn is_known_format(props: &Tree) -> bool {
    let format = props.str("format");
    match props.str("type") {
        _ if format.is_empty() => true,
        "" | "string" => crate::custom::is_known_format(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}
