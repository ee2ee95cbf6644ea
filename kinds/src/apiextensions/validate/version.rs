//! Subresources and columns of a version.

use api::Tree;
use api::field::{Errors, Path};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

pub(super) fn validate_subresources(subresources: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(scale @ Tree::Map(_)) = subresources.get("scale") else { return };
    let rows: [(&str, &[&str], &str); 3] = [
        ("specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ];
    let path = path.field("scale");
    for (key, prefixes, why) in rows {
        let (path, value) = (path.field(key), scale.str(key));
        if value.is_empty() {
            if key != "labelSelectorPath" {
                errors.required(&path, "");
            }
        } else if !value.starts_with('.') {
            errors.invalid(&path, value, "must be a simple json path starting with .");
        } else if !prefixes.iter().any(|prefix| value.starts_with(prefix)) {
            errors.invalid(&path, value, why);
        }
    }
}

pub(super) fn validate_columns(columns: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, column) in columns.as_list().unwrap_or(&[]).iter().enumerate() {
        let path = path.index(index);
        if column.str("name").is_empty() {
            errors.required(&path.field("name"), "");
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match column.str("type") {
            "" => errors.required(&path.field("type"), &types),
            ty if COLUMN_TYPES.contains(&ty) => {}
            ty => errors.invalid(&path.field("type"), ty, &types),
        }
        let format = column.str("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&path.field("format"), format, &why);
        }
        match column.str("jsonPath") {
            "" => errors.required(&path.field("JSONPath"), ""),
            text if text.starts_with('.') => {}
            text => errors.invalid(&path.field("JSONPath"), text, "must be a simple json path starting with ."),
        }
    }
}
