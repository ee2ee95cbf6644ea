//! Validation of meta/v1 conditions in the status of kinds.

use crate::podspec::small_set::SmallSet;
use api::Tree;
use api::field::{Errors, Path};
use api::validation::qualified_name;

const MAX_REASON_BYTES: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 32 * 1024;
const REASON_MESSAGE: &str = "a condition reason must start with alphabetic character, optionally followed by a \
     string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  \
     or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
     '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Validates a list of conditions: each is well formed, and types are unique.
pub(crate) fn validate_conditions(conditions: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let ty = condition.str("type");
        if !seen.insert(ty) {
            errors.duplicate(&path.field("type"), ty);
        }
        validate_condition(condition, &path, errors);
    }
}

fn validate_condition(condition: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let ty = condition.str("type");
    errors.invalid_all(&path.field("type"), ty, qualified_name(ty));
    let status = condition.str("status");
    if !matches!(status, "False" | "True" | "Unknown") {
        errors.not_supported(&path.field("status"), status, &["False", "True", "Unknown"]);
    }
    let generation = condition.int("observedGeneration").unwrap_or(0);
    if generation < 0 {
        errors.invalid(&path.field("observedGeneration"), generation, "must be greater than or equal to zero");
    }
    if !condition.has("lastTransitionTime") {
        errors.required(&path.field("lastTransitionTime"), "must be set");
    }
    validate_reason(condition.str("reason"), &path.field("reason"), errors);
    if condition.str("message").len() > MAX_MESSAGE_BYTES {
        errors.too_long(&path.field("message"), MAX_MESSAGE_BYTES);
    }
}

fn validate_reason(reason: &str, path: &Path<'_>, errors: &mut Errors) {
    if reason.is_empty() {
        return errors.required(path, "must be set");
    }
    if !is_reason(reason.as_bytes()) {
        errors.invalid(path, reason, REASON_MESSAGE);
    }
    if reason.len() > MAX_REASON_BYTES {
        errors.too_long(path, MAX_REASON_BYTES);
    }
}

fn is_reason(reason: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    reason.first().is_some_and(u8::is_ascii_alphabetic)
        && reason.last().is_some_and(word)
        && reason.iter().all(|byte| word(byte) || matches!(byte, b',' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn validates_conditions() {
        let good = tree! { "type" => "Ready", "status" => "True", "reason" => "Done", "lastTransitionTime" => "x" };
        let bad = tree! { "type" => "Ready", "status" => "Maybe", "reason" => "1x" };
        let conditions = list![good, bad];
        let mut errors = Errors::new();
        validate_conditions(conditions.as_list().unwrap_or(&[]), &Path::root("c"), &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["c[1].type", "c[1].status", "c[1].lastTransitionTime", "c[1].reason"]);
    }
}
