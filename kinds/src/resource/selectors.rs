//! Device selectors: CEL expressions over a device, compiled and priced when they are written. Texts are upstream's.

use std::sync::{Arc, LazyLock};

use api::Tree;
use api::field::{Errors, Path};
use cel::{Env, Expressions, SizeEstimate, SizeEstimator, Type};

use super::rules::validate_items;

const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION_BYTES: usize = 10 * 1024;
/// The largest estimated cost for one device.
const MAX_COST: u64 = 1_000_000;

const MAX_ATTRIBUTES: u64 = 32;
const MAX_DOMAIN: u64 = 63;
const MAX_ID: u64 = 32;
const MAX_DRIVER: u64 = 63;
const MAX_ATTRIBUTE_VALUE: u64 = 64;

static ENV: LazyLock<Env> =
    LazyLock::new(|| devices::environment(Expressions::New).time_zones(crate::time_zones::database()));

/// The largest sizes of what a device has.
struct DeviceSizes;

impl SizeEstimator for DeviceSizes {
    fn estimate_size(&self, path: &[Arc<str>]) -> Option<SizeEstimate> {
        let path: Vec<&str> = path.iter().map(|part| &**part).collect();
        let max = match path[..] {
            ["device"] => 0,
            ["device", "driver"] => MAX_DRIVER,
            ["device", "allowMultipleAllocations"] => 1,
            ["device", "attributes" | "capacity"] => MAX_ATTRIBUTES,
            ["device", "attributes" | "capacity", "@keys"] => MAX_DOMAIN,
            ["device", "attributes" | "capacity", "@values" | "@items"] => MAX_ATTRIBUTES,
            ["device", "attributes" | "capacity", "@values" | "@items", "@keys"] => MAX_ID,
            ["device", "attributes", "@values" | "@items", _] => MAX_ATTRIBUTE_VALUE,
            ["device", "capacity", "@values" | "@items", "@values" | "@items"] => 0,
            _ => return None,
        };
        Some(SizeEstimate { min: 0, max })
    }
}

/// Validates selectors. Those that are `stored` already were valid when they were written.
pub(super) fn validate(selectors: &[Tree], stored: Option<&[Tree]>, path: &Path<'_>, errors: &mut Errors) {
    let is_stored = stored.is_some_and(|stored| stored == selectors);
    validate_items(selectors, MAX_SELECTORS, path, errors, |selector, path, errors| {
        if !selector.has("cel") {
            errors.required(&path.field("cel"), "");
        } else if !is_stored {
            validate_expression(selector.str("cel.expression"), &path.field("cel.expression"), errors);
        }
    });
}

fn validate_expression(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > MAX_EXPRESSION_BYTES {
        return errors.too_long(path, MAX_EXPRESSION_BYTES);
    }
    let program = match ENV.compile(text) {
        Ok(program) => program,
        Err(issues) => return errors.invalid(path, text, &format!("compilation failed: {issues}")),
    };
    if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
        let why = format!("must evaluate to bool or the unknown type, not {}", program.output_type());
        return errors.invalid(path, text, &why);
    }
    if let Some(error) = program.instantiation_error() {
        return errors.internal(path, &format!("program instantiation failed: {error}"));
    }
    if program.estimate_cost(&DeviceSizes).max > MAX_COST {
        errors.forbidden(path, "too complex, exceeds cost limit");
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn selector(text: &str) -> Tree {
        tree! { "cel" => tree! { "expression" => text } }
    }

    fn errors_of(selectors: &[Tree], stored: Option<&[Tree]>) -> Vec<String> {
        let mut errors = Errors::new();
        validate(selectors, stored, &Path::root("selectors"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expressions_are_compiled_and_priced() {
        let check = |text: &str, want: &str| {
            let errors = errors_of(&[selector(text)], None).join("; ");
            assert!(if want.is_empty() { errors.is_empty() } else { errors.starts_with(want) }, "{text}: {errors}");
        };
        let at = "selectors[0].cel.expression: ";
        check("device.driver == 'a.b'", "");
        check("device.attributes['a.b'].x", "");
        check("cel.bind(a, device.attributes['a.b'], a.x == 'y' && a.?z.orValue(false))", "");
        check("device.capacity['a.b'].mem.compareTo(quantity('1Gi')) >= 0", "");
        check("device.attributes.exists(d, device.attributes[d].exists(k, k.matches('a.*')))", "");
        check(
            "device.driver.size()",
            &format!("{at}Invalid value: \"device.driver.size()\": must evaluate to bool or the unknown type, not int"),
        );
        check(
            "device.nope",
            &format!(
                "{at}Invalid value: \"device.nope\": compilation failed: ERROR: <input>:1:7: undefined field 'nope'"
            ),
        );
        check("", &format!("{at}Invalid value: \"\": compilation failed: ERROR: <input>:1:0: Syntax error"));
        let nested = "lists.range(100).all(i, lists.range(100).all(j, lists.range(100).all(k, i + j + k >= 0)))";
        check(nested, &format!("{at}Forbidden: too complex, exceeds cost limit"));
        check(&"x".repeat(MAX_EXPRESSION_BYTES + 1), &format!("{at}Too long: may not be more than 10240 bytes"));
    }

    #[test]
    fn sizes_of_devices_bound_the_cost() {
        let cost = |text: &str| ENV.compile(text).map(|program| program.estimate_cost(&DeviceSizes).max);
        let value = "device.attributes['a.b'].x";
        assert!(cost(&format!("{value}.matches('a*b')")).is_ok_and(|cost| cost < 100), "values have 64 characters");
        assert!(cost("device.driver.startsWith('a')").is_ok_and(|cost| cost < 20), "names have 63 characters");
    }

    #[test]
    fn stored_selectors_are_not_compiled_again() {
        let (bad, other) = ([selector("nope(")], [selector("true")]);
        assert!(errors_of(&bad, Some(&bad)).is_empty());
        assert_eq!(errors_of(&bad, Some(&other)).len(), 1);
        let missing = [tree! {}];
        assert_eq!(errors_of(&missing, Some(&missing)), ["selectors[0].cel: Required value"]);
        let many: Vec<Tree> = (0..33).map(|_| selector("true")).collect();
        assert_eq!(errors_of(&many, None), ["selectors: Too many: 33: must have at most 32 items"]);
    }
}
