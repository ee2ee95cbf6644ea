//! The metadata of custom resources and of the resources that are embedded in them: typed as everywhere, although the
//! rest of the object has no type.

use api::field::{Errors, Path, Value};
use api::json::Strict;
use api::schema::type_named;
use api::{Tree, typed, validation};

use super::prune::each_embedded;
use super::schema::Schema;
use crate::{meta, names};

/// Metadata that is not of its type.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MetadataError {
    #[error("{path}: Invalid value: {value}: must be a string")]
    NotText { path: String, value: String },
    #[error("{}", shown_error(path, value, source))]
    Metadata { path: String, value: String, source: typed::Error },
}

impl MetadataError {
    /// As an error of its field.
    pub(crate) fn report(&self, errors: &mut Errors) {
        match self {
            MetadataError::NotText { path, value } => {
                errors.invalid(&Path::root(path), Value::raw(value.as_str()), "must be a string");
            }
            MetadataError::Metadata { path, value, source } => {
                errors.invalid(&Path::root(path), Value::raw(value.as_str()), &source.to_string());
            }
        }
    }
}

/// Conforms the metadata of an object and of its embedded resources, and reports unknown fields, sorted.
pub(crate) fn conform(
    object: &mut Tree,
    schema: &Schema,
    has_embedded: bool,
    unknown: &mut Vec<String>,
) -> Result<(), MetadataError> {
    let mut result = conform_one(object, "", unknown);
    if has_embedded && result.is_ok() {
        each_embedded(object, schema, "", &mut |embedded, path| {
            if result.is_ok() && !path.is_empty() {
                result = conform_one(embedded, path, unknown);
            }
        });
    }
    unknown.sort();
    result
}

/// The same for a value inside of an object, such as a default, at a path.
pub(crate) fn conform_embedded(value: &mut Tree, schema: &Schema, path: &str) -> Result<(), MetadataError> {
    let mut result = Ok(());
    each_embedded(value, schema, path, &mut |embedded, path| {
        if result.is_ok() {
            result = conform_one(embedded, path, &mut Vec::new());
        }
    });
    result
}

fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// Upstream decodes the metadata of the object itself without its path.
fn shown_error(path: &str, value: &str, source: &typed::Error) -> String {
    if path == "metadata" { source.to_string() } else { format!("{path}: Invalid value: {value}: {source}") }
}

fn shown(value: &Tree) -> String {
    String::from_utf8_lossy(&api::json::encode(value, None)).into_owned()
}

fn conform_one(object: &mut Tree, path: &str, unknown: &mut Vec<String>) -> Result<(), MetadataError> {
    for key in ["apiVersion", "kind"] {
        if let Some(value) = object.get(key).filter(|value| value.as_str().is_none()) {
            return Err(MetadataError::NotText { path: child_path(path, key), value: shown(value) });
        }
    }
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    let path = child_path(path, "metadata");
    conform_metadata(metadata, &path, unknown)
}

fn conform_metadata(metadata: &mut Tree, path: &str, unknown: &mut Vec<String>) -> Result<(), MetadataError> {
    let Some(ty) = type_named("meta/v1", "ObjectMeta") else { return Ok(()) };
    if metadata.is_null() {
        *metadata = Tree::map_new();
        return Ok(());
    }
    let before = shown(metadata);
    let mut strict = Strict::default();
    typed::conform(metadata, ty, &mut strict).map_err(|source| MetadataError::Metadata {
        path: path.to_string(),
        value: before,
        source,
    })?;
    for problem in strict.problems {
        if let Some(field) = problem.strip_prefix("unknown field \"").and_then(|rest| rest.strip_suffix('"')) {
            unknown.push(format!("{path}.{field}"));
        }
    }
    Ok(())
}

/// Validates the embedded resources of an object, or of a value at a path.
pub(crate) fn validate_embedded(object: &Tree, schema: &Schema, path: &str, errors: &mut Errors) {
    // The walk needs a mutable tree only for conforming.
    let mut object = object.clone();
    each_embedded(&mut object, schema, path, &mut |embedded, path| {
        if !path.is_empty() {
            validate_one(embedded, path, errors);
        }
    });
}

fn validate_one(object: &Tree, path: &str, errors: &mut Errors) {
    for key in ["apiVersion", "kind"] {
        if object.get(key).is_none() {
            errors.required(&Path::root(path).field(key), "");
        }
    }
    validate_type(object, path, errors);
    if object.get("metadata").is_some() {
        let mut metadata = object.at("metadata").clone();
        if metadata.str("name").is_empty() {
            metadata.set("name", "fakename");
        }
        let namespaced = !metadata.str("namespace").is_empty();
        meta::validate_new(&metadata, namespaced, names::path_segment, &Path::root(path).field("metadata"), errors);
    }
}

fn validate_type(object: &Tree, path: &str, errors: &mut Errors) {
    let root = Path::root(path);
    match object.get("apiVersion") {
        Some(Tree::Str(version)) if version.is_empty() => {
            errors.invalid(&root.field("apiVersion"), "", "must not be empty");
        }
        Some(Tree::Str(version)) if version.matches('/').count() > 1 => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.invalid(&root.field("apiVersion"), version.as_str(), &detail);
        }
        Some(Tree::Str(_)) | None => {}
        Some(other) => errors.invalid(&root.field("apiVersion"), other, "must be a string"),
    }
    match object.get("kind") {
        Some(Tree::Str(kind)) if kind.is_empty() => errors.invalid(&root.field("kind"), "", "must not be empty"),
        Some(Tree::Str(kind)) => {
            let messages = validation::dns1035_label(&kind.to_lowercase());
            if !messages.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {}", messages.join(","));
                errors.invalid(&root.field("kind"), kind.as_str(), &detail);
            }
        }
        Some(other) => errors.invalid(&root.field("kind"), other, "must be a string"),
        None => {}
    }
}
