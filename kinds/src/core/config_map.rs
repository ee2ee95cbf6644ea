//! ConfigMap.

use api::field::{Errors, Path};
use api::validation::config_map_key;
use api::{Map, Tree};

use crate::cells;
use crate::kind::{Kind, column};

/// ConfigMap.
pub static KIND: Kind = Kind {
    short_names: &["cm"],
    columns: &[column("Name", "string", "name", 0), column("Data", "string", "", 0), column("Age", "string", "", 0)],
    validate,
    validate_update,
    cells,
    ..Kind::namespaced("", "v1", "ConfigMap", "configmaps", "configmap")
};

/// The total size of all values; the same for Secrets.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
pub(super) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

fn validate(object: &Tree, errors: &mut Errors) {
    let (data, binary) = (object.map("data"), object.map("binaryData"));
    validate_keys(data, &Path::root("data"), errors);
    for key in data.keys().filter(|key| binary.contains(key)) {
        errors.invalid(&Path::root("data").key(key), key, "duplicate of key present in binaryData");
    }
    validate_keys(binary, &Path::root("binaryData"), errors);
    let text_bytes: usize = data.iter().map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    if text_bytes + decoded_bytes(binary) > MAX_BYTES {
        // Concerns the whole object; upstream's path for that prints as empty brackets.
        errors.too_long(&Path::nil().key(""), MAX_BYTES);
    }
}

pub(super) fn validate_keys(data: &Map, path: &Path<'_>, errors: &mut Errors) {
    for key in data.keys() {
        errors.invalid_all(&path.key(key), key, config_map_key(key));
    }
}

pub(super) fn decoded_bytes(data: &Map) -> usize {
    data.iter().map(|(_, value)| decoded_len(value.as_str().unwrap_or(""))).sum()
}

/// The decoded size of valid base64 text.
fn decoded_len(text: &str) -> usize {
    let digits = text.bytes().filter(|byte| !matches!(byte, b'=' | b'\r' | b'\n')).count();
    digits * 3 / 4
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if old.bool("immutable") {
        validate_frozen(object, old, &["data", "binaryData"], errors);
    }
    validate(object, errors);
}

pub(super) fn validate_frozen(object: &Tree, old: &Tree, fields: &[&str], errors: &mut Errors) {
    if !object.bool("immutable") {
        errors.forbidden(&Path::root("immutable"), IMMUTABLE);
    }
    for field in fields.iter().filter(|field| object.at(field) != old.at(field)) {
        errors.forbidden(&Path::root(field), IMMUTABLE);
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let count = object.map("data").len() + object.map("binaryData").len();
    vec![cells::name(object), Tree::Int(count as i64), cells::age(object, now)]
}
