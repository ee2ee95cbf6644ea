//! The fields by which objects can be selected.

use api::Tree;
use api::field::{Errors, Path};

use crate::custom::resolve_field_path;

pub(super) fn validate(fields: &Tree, schema: &Tree, limit: Option<usize>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, field) in fields.as_list().unwrap_or(&[]).iter().enumerate() {
        let path = path.index(index);
        let (path, text) = (path.field("jsonPath"), field.str("jsonPath"));
        if text.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let found = match resolve_field_path(text, schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&path, text, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.invalid(&path, text, "must not point to fields in metadata");
        }
        let schema = found.schema;
        if !matches!(schema.str("type"), "string" | "boolean" | "integer") || schema.bool("x-kubernetes-int-or-string")
        {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&path, text, why);
        }
        if seen.contains(&found.text) {
            errors.duplicate(&path, text);
        } else {
            seen.push(found.text);
        }
    }
    if let Some(limit) = limit.filter(|limit| seen.len() > *limit) {
        errors.too_many(path, seen.len(), limit);
    }
}
