//! Tolerations.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::selector;

pub(crate) fn validate(tolerations: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        validate_one(toleration, &path.index(index), errors);
    }
}

pub(crate) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn validate_one(toleration: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (key, operator) = (toleration.str("key"), toleration.str("operator"));
    let (value, effect) = (toleration.str("value"), toleration.str("effect"));
    if !key.is_empty() {
        selector::validate_label_name(key, &path.field("key"), errors);
    }
    let at = path.field("operator");
    if key.is_empty() && operator != "Exists" {
        let text = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(&at, operator, text);
    }
    if toleration.has("tolerationSeconds") && effect != "NoExecute" {
        errors.invalid(&path.field("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    match operator {
        "" | "Equal" => {
            let messages = validation::label_value(value);
            if !messages.is_empty() {
                errors.invalid(&at, value, &messages.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            errors.invalid(&at, value, "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        // Upstream defines these but disables them.
        "Lt" | "Gt" => errors.not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => errors.not_supported(&at, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.field("effect"), effect, EFFECTS);
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn validates_operators() {
        let check = |operator: &str, want: &str| {
            let mut errors = Errors::new();
            let toleration = tree! { "key" => "a", "operator" => operator, "value" => "1" };
            validate(&[toleration], &Path::root("t"), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), want);
        };
        check("", "");
        check("Equal", "");
        check("Exists", "t[0].operator: Invalid value: \"1\": value must be empty when `operator` is 'Exists'");
        check("X", "t[0].operator: Unsupported value: \"X\": supported values: \"Equal\", \"Exists\"");
        let all = "supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"";
        check("Lt", &format!("t[0].operator: Unsupported value: \"Lt\": {all}"));
        check("Gt", &format!("t[0].operator: Unsupported value: \"Gt\": {all}"));
    }
}
