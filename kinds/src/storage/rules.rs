//! Shared by the storage kinds: driver names, parameters, topologies.

use std::collections::HashSet;

use crate::podspec::small_set::SmallSet;
use api::field::{Errors, Path};
use api::validation::qualified_name;
use api::{Map, Tree, json};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 << 10;

pub(crate) fn validate_parameters(parameters: &Map, path: &Path<'_>, errors: &mut Errors) {
    if parameters.len() > MAX_PARAMETERS {
        return errors.too_long(path, MAX_PARAMETERS);
    }
    let mut bytes = 0;
    for (key, value) in parameters.iter() {
        if key.is_empty() {
            errors.invalid(path, key, "field can not be empty.");
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_PARAMETER_BYTES {
        errors.too_long(path, MAX_PARAMETER_BYTES);
    }
}

/// The topologies in which volumes of a class may be provisioned.
pub(crate) fn validate_topologies(terms: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index);
        validate_term(term, &path.field("matchLabelExpressions"), errors);
        if !seen.insert(json::encode(term, None)) {
            errors.duplicate(&path.field("matchLabelExpressions"), "");
        }
    }
}

fn validate_term(term: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let expressions = term.list("matchLabelExpressions");
    for (index, expression) in expressions.iter().enumerate() {
        let path = path.index(index);
        let (key, values) = (expression.str("key"), expression.list("values"));
        if values.is_empty() {
            errors.required(&path.field("values"), "");
        }
        let mut seen = SmallSet::new();
        let mut values_seen = SmallSet::new();
        for (at, value) in values.iter().enumerate().filter(|(_, value)| !values_seen.insert(value.as_str())) {
            errors.duplicate(&path.field("values").index(at), value);
        }
        errors.invalid_all(&path.field("key"), key, qualified_name(key));
        if !seen.insert(key) {
            errors.duplicate(&path.field("key"), key);
        }
    }
}
