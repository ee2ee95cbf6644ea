//! ServiceCIDR: a range of service addresses.

use api::field::{Errors, Path, Value};
use api::{Tree, validation};

use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::{cells, prepare, strategy};

const SPEC: Path<'static> = Path::root("spec");
const IMMUTABLE: &str = "field is immutable";

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: |_, _, _| {}, reset: &["spec"] }),
    columns: &[column("Name", "string", "name", 0), column("CIDRs", "string", "", 0), column("Age", "string", "", 0)],
    cells: row,
    ..Kind::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "servicecidr")
};

fn validate(range: &Tree, errors: &mut Errors) {
    let cidrs = range.list("spec.cidrs");
    let path = SPEC.field("cidrs");
    match cidrs.len() {
        0 => return errors.required(&path, "at least one CIDR required"),
        1 | 2 => {}
        _ => {
            let spec = api::json::encode(range.at("spec.cidrs"), None);
            let shown = format!("{{\"CIDRs\":{}}}", String::from_utf8_lossy(&spec));
            return errors.invalid(&path, Value::raw(shown), "may only hold up to 2 values");
        }
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or("");
        errors.invalid_all(&path.index(index), cidr, validation::cidr(cidr));
    }
    let families: Vec<Option<bool>> = cidrs.iter().map(is_ipv6).collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, range.at("spec.cidrs"), text);
    }
}

fn is_ipv6(cidr: &Tree) -> Option<bool> {
    validation::parse_cidr(cidr.as_str()?).map(|cidr| !cidr.is_ipv4())
}

/// Only a second range of the other IP family may be added.
fn validate_update(range: &Tree, old: &Tree, errors: &mut Errors) {
    let (cidrs, stored) = (range.list("spec.cidrs"), old.list("spec.cidrs"));
    let path = SPEC.field("cidrs");
    if cidrs.len() == stored.len() {
        for index in (0..cidrs.len()).filter(|index| cidrs[*index] != stored[*index]) {
            errors.invalid(&path.index(index), &cidrs[index], IMMUTABLE);
        }
    } else if stored.len() == 1 && cidrs.len() == 2 {
        if cidrs[0] != stored[0] {
            errors.invalid(&path.index(0), &cidrs[0], IMMUTABLE);
        }
        validate(range, errors);
    } else {
        errors.invalid(&path, range.at("spec.cidrs"), IMMUTABLE);
    }
}

fn warnings(range: &Tree, _: Option<&Tree>) -> Vec<String> {
    let cidrs = range.list("spec.cidrs").iter().filter_map(Tree::as_str).enumerate();
    cidrs.flat_map(|(index, cidr)| validation::cidr_warnings(&format!("spec.cidrs[{index}]"), cidr)).collect()
}

fn row(range: &Tree, now: i64) -> Vec<Tree> {
    let cidrs: Vec<&str> = range.list("spec.cidrs").iter().filter_map(Tree::as_str).collect();
    vec![cells::name(range), Tree::from(cidrs.join(",")), cells::age(range, now)]
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn ranges_can_only_become_dual_stack() {
        let range = |cidrs: Tree| tree! { "spec" => tree! { "cidrs" => cidrs } };
        let old = range(list!["10.0.0.0/24"]);
        let cases = [
            (list!["10.0.0.0/24"], ""),
            (list!["10.0.0.0/24", "fd00::/112"], ""),
            (list!["10.1.0.0/24"], "spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"),
            (Tree::Null, "spec.cidrs: Invalid value: null: field is immutable"),
        ];
        for (cidrs, want) in cases {
            let mut errors = Errors::new();
            validate_update(&range(cidrs), &old, &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }
}
