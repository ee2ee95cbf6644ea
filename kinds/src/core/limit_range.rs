//! LimitRange.

use api::field::{Errors, Path};
use api::quantity::{Format, Quantity};
use api::validation::qualified_name;
use api::{Map, Tree};

use crate::cells;
use crate::kind::{Kind, column};
use crate::podspec::small_set::SmallSet;
use crate::resources::{self, read};

pub(crate) static KIND: Kind = Kind {
    short_names: &["limits"],
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    set_defaults,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    create_on_update: true,
    cells: cells::name_and_created,
    ..Kind::namespaced("", "v1", "LimitRange", "limitranges", "limitrange")
};

const TYPES: &[&str] = &["Pod", "Container", "PersistentVolumeClaim"];
const BOUNDS: &[&str] = &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// For containers a missing default is the maximum, and a missing default request the default or the minimum.
fn set_defaults(object: &mut Tree) {
    for limit in object.list_mut("spec.limits") {
        BOUNDS.iter().for_each(|bound| resources::round_up(limit, bound));
        if limit.str("type") == "Container" {
            fill(limit, "default", "max");
            fill(limit, "defaultRequest", "default");
            fill(limit, "defaultRequest", "min");
        }
    }
}

fn fill(limit: &mut Tree, bound: &str, source: &str) {
    for (name, quantity) in limit.map(source).clone().iter() {
        limit.child(bound).set_default(name, quantity.clone());
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.limits");
    let limits = object.list("spec.limits");
    let mut seen = SmallSet::new();
    for (index, limit) in limits.iter().enumerate() {
        let path = path.index(index);
        let ty = limit.str("type");
        validate_type(ty, &path.field("type"), errors);
        if !seen.insert(ty) {
            errors.duplicate(&path.field("type"), ty);
        }
        validate_limit(limit, &path, errors);
    }
}

fn validate_type(ty: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = qualified_name(ty);
    if !messages.is_empty() {
        errors.invalid_all(path, ty, messages);
    } else if !ty.contains('/') && !TYPES.contains(&ty) {
        errors.invalid(path, ty, "must be a standard limit type or fully qualified");
    }
}

fn validate_limit(limit: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let ty = limit.str("type");
    for bound in &BOUNDS[..2] {
        validate_names(ty, limit.map(bound), &path.field(bound), errors);
    }
    for bound in &BOUNDS[2..4] {
        if ty != "Pod" {
            validate_names(ty, limit.map(bound), &path.field(bound), errors);
        } else if !limit.map(bound).is_empty() {
            errors.forbidden(&path.field(bound), "may not be specified when `type` is 'Pod'");
        }
    }
    if ty == "PersistentVolumeClaim" && !limit.at("min").has("storage") && !limit.at("max").has("storage") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.field("limits"), detail);
    }
    validate_names(ty, limit.map(BOUNDS[4]), &path.field(BOUNDS[4]), errors);
    for name in names(limit) {
        Bounds::new(limit, name).validate(name, path, errors);
    }
}

fn validate_names(ty: &str, quantities: &Map, path: &Path<'_>, errors: &mut Errors) {
    for name in quantities.keys() {
        match ty {
            "Pod" | "Container" => resources::validate_container_name(name, &path.key(name), errors),
            _ => resources::validate_name(name, &path.key(name), errors),
        }
    }
}

fn names(limit: &Tree) -> Vec<&str> {
    let mut names: Vec<&str> = BOUNDS.iter().flat_map(|bound| limit.map(bound).keys()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The quantities of one resource in a limit.
struct Bounds {
    max: Option<Quantity>,
    min: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Bounds {
    fn new(limit: &Tree, name: &str) -> Bounds {
        let get = |bound: &str| limit.map(bound).get(name).map(read);
        // Defaults were rejected for pods above, and are not compared.
        let default = |bound: &str| if limit.str("type") == "Pod" { None } else { get(bound) };
        Bounds {
            max: get("max"),
            min: get("min"),
            default: default("default"),
            request: default("defaultRequest"),
            ratio: get("maxLimitRequestRatio"),
        }
    }

    fn validate(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let mut compare =
            |low: &Option<Quantity>, high: &Option<Quantity>, bound: &str, of_high: bool, words: [&str; 2]| {
                if let (Some(low), Some(high)) = (low, high)
                    && low > high
                {
                    let shown = if of_high { high } else { low };
                    let detail = format!("{} value {low} is greater than {} value {high}", words[0], words[1]);
                    errors.invalid(&path.field(bound).key(name), shown.to_string(), &detail);
                }
            };
        compare(&self.min, &self.max, "min", false, ["min", "max"]);
        compare(&self.min, &self.request, "defaultRequest", true, ["min", "default request"]);
        compare(&self.request, &self.max, "defaultRequest", false, ["default request", "max"]);
        compare(&self.request, &self.default, "defaultRequest", false, ["default request", "default limit"]);
        compare(&self.min, &self.default, "default", false, ["min", "default"]);
        compare(&self.default, &self.max, "default", true, ["default", "max"]);
        self.validate_ratio(&path.field("maxLimitRequestRatio").key(name), errors);
        self.validate_overcommit(name, &path.field("defaultRequest").key(name), errors);
    }

    fn validate_ratio(&self, path: &Path<'_>, errors: &mut Errors) {
        let Some(ratio) = &self.ratio else { return };
        if *ratio < Quantity::new(1, Format::DecimalSI) {
            errors.invalid(path, ratio.to_string(), &format!("ratio {ratio} is less than 1"));
        }
        let (Some(min), Some(max)) = (&self.min, &self.max) else { return };
        let most = max.as_f64() / min.as_f64();
        if ratio.as_f64() > most {
            let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
            errors.invalid(path, ratio.to_string(), &detail);
        }
    }

    fn validate_overcommit(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let (Some(default), Some(request)) = (&self.default, &self.request) else { return };
        if default != request && !resources::is_overcommit_allowed(name) {
            let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
            errors.invalid(path, request.to_string(), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn defaults_follow_from_bounds() {
        let limit = tree! { "type" => "Container", "max" => tree! { "cpu" => "2" }, "min" => tree! { "cpu" => "1", "memory" => "1Mi" } };
        let mut object = tree! { "spec" => tree! { "limits" => list![limit] } };
        set_defaults(&mut object);
        let limit = &object.list("spec.limits")[0];
        assert_eq!(limit.at("default"), &tree! { "cpu" => "2" });
        assert_eq!(limit.at("defaultRequest"), &tree! { "cpu" => "2", "memory" => "1Mi" });
    }

    #[test]
    fn bounds_are_in_order() {
        let check = |limit: Tree, want: &[&str]| {
            let mut errors = Errors::new();
            validate(&tree! { "spec" => tree! { "limits" => list![limit] } }, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        check(
            tree! { "type" => "Container", "min" => tree! { "cpu" => "2" }, "max" => tree! { "cpu" => "1" } },
            &["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"],
        );
        check(
            tree! { "type" => "Container", "min" => tree! { "cpu" => "1" }, "max" => tree! { "cpu" => "2" }, "maxLimitRequestRatio" => tree! { "cpu" => "3" } },
            &[
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
            ],
        );
    }
}
