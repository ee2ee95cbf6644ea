//! Shared by the four kinds: policy rules, role references, subjects.

use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;
use api::{Tree, validation};

use crate::cells;
use crate::gojson::{self, EMPTY, GoField, field};

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLE_REF: &[GoField] =
    &[field("apiGroup", "APIGroup", EMPTY), field("kind", "Kind", EMPTY), field("name", "Name", EMPTY)];

/// A namespaced role cannot have non-resource URLs.
pub(crate) fn validate_rules(object: &Tree, namespaced: bool, errors: &mut Errors) {
    let path = Path::root("rules");
    for (index, rule) in object.list("rules").iter().enumerate() {
        validate_rule(rule, namespaced, &path.index(index), errors);
    }
}

fn validate_rule(rule: &Tree, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let empty = |field: &str| rule.list(field).is_empty();
    if empty("verbs") {
        errors.required(&path.field("verbs"), "");
    }
    if empty("nonResourceURLs") {
        if empty("apiGroups") {
            errors.required(&path.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if empty("resources") {
            errors.required(&path.field("resources"), "resource rules must supply at least one resource");
        }
        return;
    }
    let (urls, path) = (rule.at("nonResourceURLs"), path.field("nonResourceURLs"));
    if namespaced {
        errors.invalid(&path, urls, "namespaced rules cannot apply to non-resource URLs");
    }
    if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
        errors.invalid(&path, urls, "rules cannot apply to both regular resources and non-resource URLs");
    }
}

/// Users, groups and roles are of this API group; service accounts are of the core group.
pub(crate) fn set_binding_defaults(object: &mut Tree) {
    let reference = object.child("roleRef");
    if reference.str("apiGroup").is_empty() {
        reference.set("apiGroup", GROUP);
    }
    for subject in object.list_mut("subjects") {
        if subject.str("apiGroup").is_empty() && matches!(subject.str("kind"), "User" | "Group") {
            subject.set("apiGroup", GROUP);
        }
    }
}

pub(crate) fn validate_binding(object: &Tree, namespaced: bool, errors: &mut Errors) {
    validate_role_ref(object.at("roleRef"), namespaced, errors);
    let path = Path::root("subjects");
    for (index, subject) in object.list("subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &path.index(index), errors);
    }
}

fn validate_role_ref(reference: &Tree, namespaced: bool, errors: &mut Errors) {
    let path = Path::root("roleRef");
    if reference.str("apiGroup") != GROUP {
        errors.not_supported(&path.field("apiGroup"), reference.str("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&reference.str("kind")) {
        errors.not_supported(&path.field("kind"), reference.str("kind"), kinds);
    }
    match reference.str("name") {
        "" => errors.required(&path.field("name"), ""),
        name => errors.invalid_all(&path.field("name"), name, validation::path_segment_name(name)),
    }
}

fn validate_subject(subject: &Tree, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let (name, group) = (subject.str("name"), subject.str("apiGroup"));
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    }
    match subject.str("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_all(&path.field("name"), name, dns1123_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&path.field("apiGroup"), group, &[""]);
            }
            if !namespaced && subject.str("namespace").is_empty() {
                errors.required(&path.field("namespace"), "");
            }
        }
        "User" | "Group" if group != GROUP => errors.not_supported(&path.field("apiGroup"), group, &[GROUP]),
        "User" | "Group" => {}
        kind => errors.not_supported(&path.field("kind"), kind, &["ServiceAccount", "User", "Group"]),
    }
}

/// The role of a binding is immutable, since changing it would grant another role to all subjects.
pub(crate) fn validate_binding_update(object: &Tree, old: &Tree, namespaced: bool, errors: &mut Errors) {
    validate_binding(object, namespaced, errors);
    if object.at("roleRef") != old.at("roleRef") {
        let shown = gojson::value(object.at("roleRef"), ROLE_REF);
        errors.invalid(&Path::root("roleRef"), shown, "field is immutable");
    }
}

pub(crate) fn binding_cells(object: &Tree, now: i64) -> Vec<Tree> {
    let role = format!("{}/{}", object.str("roleRef.kind"), object.str("roleRef.name"));
    vec![
        cells::name(object),
        Tree::from(role),
        cells::age(object, now),
        subjects(object, "User"),
        subjects(object, "Group"),
        subjects(object, "ServiceAccount"),
    ]
}

fn subjects(object: &Tree, kind: &str) -> Tree {
    let named = object.list("subjects").iter().filter(|subject| subject.str("kind") == kind);
    let names: Vec<String> = named
        .map(|subject| match subject.str("namespace") {
            namespace if !namespace.is_empty() && kind == "ServiceAccount" => {
                format!("{namespace}/{}", subject.str("name"))
            }
            _ => subject.str("name").to_string(),
        })
        .collect();
    Tree::from(names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn rules_have_resources_or_urls() {
        let check = |rule: Tree, namespaced: bool, want: &[&str]| {
            let mut errors = Errors::new();
            validate_rules(&tree! { "rules" => list![rule] }, namespaced, &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), want);
        };
        check(tree! { "verbs" => list!["get"], "apiGroups" => list![""], "resources" => list!["pods"] }, true, &[]);
        check(tree! { "verbs" => list!["get"] }, true, &["rules[0].apiGroups", "rules[0].resources"]);
        check(tree! { "verbs" => list!["get"], "nonResourceURLs" => list!["/x"] }, false, &[]);
        check(tree! { "nonResourceURLs" => list!["/x"] }, true, &["rules[0].verbs", "rules[0].nonResourceURLs"]);
    }

    #[test]
    fn bindings_have_defaults_and_subjects() {
        let mut object = tree! {
            "roleRef" => tree! { "kind" => "Role", "name" => "r" },
            "subjects" => list![tree! { "kind" => "User", "name" => "u" }, tree! { "kind" => "ServiceAccount", "name" => "s", "namespace" => "n" }],
        };
        set_binding_defaults(&mut object);
        let mut errors = Errors::new();
        validate_binding(&object, true, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(binding_cells(&object, 0)[3..], [Tree::from("u"), Tree::from(""), Tree::from("n/s")]);
    }
}
