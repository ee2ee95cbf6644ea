//! Label selectors and label maps in fields of other objects.

use api::Tree;
use api::field::{Errors, Path};
use api::validation;

pub(crate) use crate::meta::validate_labels;

/// Validates a LabelSelector; a missing one is valid.
pub(crate) fn validate_label_selector(selector: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(selector.map("matchLabels"), &path.field("matchLabels"), errors);
    let expressions = path.field("matchExpressions");
    for (index, requirement) in selector.list("matchExpressions").iter().enumerate() {
        validate_requirement(requirement, &expressions.index(index), errors);
    }
}

fn validate_requirement(requirement: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors
                .forbidden(&path.field("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => errors.invalid(&path.field("operator"), operator, "not a valid selector operator"),
    }
    validate_label_name(requirement.str("key"), &path.field("key"), errors);
    let list = path.field("values");
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        errors.invalid_all(&list.index(index), value, validation::label_value(value));
    }
}

pub(crate) fn validate_label_name(key: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_all(path, key, validation::qualified_name(key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn check(selector: Tree, expected: &[&str]) {
        let mut errors = Errors::new();
        validate_label_selector(&selector, &Path::root("selector"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{selector:?}");
    }

    #[test]
    fn validates_selectors() {
        let expression = |operator: &str, values: Tree| tree! { "matchExpressions" => list![tree! { "key" => "a", "operator" => operator, "values" => values }] };
        check(Tree::Null, &[]);
        check(expression("In", list!["b"]), &[]);
        check(
            expression("In", list![]),
            &[
                "selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        );
        check(
            expression("Exists", list!["b"]),
            &[
                "selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ],
        );
        check(
            expression("Gt", list![]),
            &["selector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator"],
        );
    }
}
