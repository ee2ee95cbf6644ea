//! IPAddress: an address used by a service.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::ingress::validate_reference_names;
use crate::kind::{Kind, column};
use crate::{cells, checks};

const SPEC: Path<'static> = Path::root("spec");

pub(crate) static KIND: Kind = Kind {
    short_names: &["ip"],
    validate_name: |name, _| validation::ip(name),
    validate,
    validate_update,
    columns: &[column("Name", "string", "name", 0), column("ParentRef", "string", "", 0)],
    cells: row,
    ..Kind::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress")
};

fn validate(address: &Tree, errors: &mut Errors) {
    let parent = address.at("spec.parentRef");
    let path = SPEC.field("parentRef");
    if parent.is_null() {
        return errors.required(&path, "");
    }
    // An empty group is that of Services.
    if !parent.str("group").is_empty() {
        let group = parent.str("group");
        errors.invalid_all(&path.field("group"), group, validation::dns1123_subdomain(group));
    }
    validate_reference_names(parent, &["resource", "name"], &path, errors);
    if !parent.str("namespace").is_empty() {
        validate_reference_names(parent, &["namespace"], &path, errors);
    }
}

fn validate_update(address: &Tree, old: &Tree, errors: &mut Errors) {
    checks::declared_immutable((address.at("spec"), old.at("spec")), "parentRef", &SPEC, errors);
}

/// One cell more than columns: upstream declares no age but sends it.
fn row(address: &Tree, now: i64) -> Vec<Tree> {
    let parent = address.at("spec.parentRef");
    let mut text = parent.str("resource").to_string();
    if !parent.str("group").is_empty() {
        text = format!("{text}.{}", parent.str("group"));
    }
    if !parent.str("namespace").is_empty() {
        text = format!("{text}/{}", parent.str("namespace"));
    }
    vec![cells::name(address), Tree::from(format!("{text}/{}", parent.str("name"))), cells::age(address, now)]
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn parents_are_named() {
        let cases = [
            (tree! { "resource" => "services", "name" => "a", "namespace" => "n" }, ""),
            (tree! { "resource" => "services" }, "spec.parentRef.name: Required value"),
            (Tree::Null, "spec.parentRef: Required value"),
        ];
        for (parent, want) in cases {
            let mut errors = Errors::new();
            validate(&tree! { "spec" => tree! { "parentRef" => parent } }, &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }
}
