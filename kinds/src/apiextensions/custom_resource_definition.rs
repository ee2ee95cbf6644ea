//! CustomResourceDefinition.

use api::{Tree, tree};

use super::validate;
use crate::kind::{Context, Kind, Lifecycle, StatusRules, Subresource, Verb, bump_generation, column};
use crate::{cells, names, prepare};

pub(crate) static KIND: Kind = Kind {
    upstream_version: Some("v1beta1"),
    storage: "apiextensions.k8s.io/customresourcedefinitions",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Scope", "string", "", 0),
        column("Versions", "string", "", 0),
        column("Created At", "date", "", 0),
        column("Group", "string", "", 1),
        column("Kind", "string", "", 1),
        column("ShortNames", "string", "", 1),
        column("Established", "boolean", "", 1),
    ],
    validate_name: names::dns_subdomain,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: validate::warnings,
    set_defaults,
    prepare_create,
    prepare_update,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate::validate_status, reset: &["spec"] }),
    unconditional_update: false,
    lifecycle: Lifecycle {
        returns_deleted: true,
        deletion_finalizer: Some("customresourcecleanup.apiextensions.k8s.io"),
        mark_deleted,
        is_settled: Some(is_settled),
        has_dependents: false,
        ..Lifecycle::DEFAULT
    },
    cells,
    ..Kind::cluster(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
    )
};

fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    let kind = spec.str("names.kind").to_string();
    let names = spec.child("names");
    if names.str("singular").is_empty() {
        names.set("singular", kind.to_lowercase());
    }
    if names.str("listKind").is_empty() && !kind.is_empty() {
        names.set("listKind", format!("{kind}List"));
    }
    spec.set_default("conversion", tree! { "strategy" => "None" });
    if let Some(service) = spec.at_mut("conversion.webhook.clientConfig.service") {
        service.set_default("port", 443);
    }
    if object.list("status.storedVersions").is_empty() {
        let stored = stored_versions(object);
        object.child("status").set("storedVersions", stored);
    }
}

/// The storage version is the first stored version.
fn prepare_create(object: &mut Tree, _: &Context<'_>) {
    object.set("status", tree! { "storedVersions" => stored_versions(object) });
    prepare::first_generation(object);
}

fn stored_versions(object: &Tree) -> Vec<Tree> {
    let stored = object.list("spec.versions").iter().find(|version| version.bool("storage"));
    stored.map(|version| Tree::from(version.str("name"))).into_iter().collect()
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    bump_generation(object, old, &["spec"]);
    let now_stored = object.list("spec.versions").iter().find(|version| version.bool("storage"));
    let Some(name) = now_stored.map(|version| Tree::from(version.str("name"))) else { return };
    let stored = object.child("status").list_entry("storedVersions");
    if !stored.contains(&name) {
        stored.push(name);
    }
}

/// Whether the names are accepted and served, or rejected.
fn is_settled(definition: &Tree) -> bool {
    definition.list("status.conditions").iter().any(|condition| {
        condition.str("type") == "Established"
            && (condition.str("status") == "True" || condition.str("reason") != "Installing")
    })
}

/// The definition is kept until its objects are deleted.
fn mark_deleted(object: &mut Tree) {
    let now = object.str("metadata.deletionTimestamp").to_string();
    let conditions = object.child("status").list_entry("conditions");
    conditions.retain(|condition| condition.str("type") != "Terminating");
    conditions.push(tree! {
        "type" => "Terminating", "status" => "True", "lastTransitionTime" => now, "reason" => "InstanceDeletionPending",
        "message" => "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
}

fn cells(object: &Tree, _: i64) -> Vec<Tree> {
    let versions = object.list("spec.versions").iter().filter(|version| version.bool("served"));
    let versions: Vec<String> = versions.map(version_text).collect();
    let established = object.list("status.conditions").iter().find(|item| item.str("type") == "Established");
    vec![
        cells::name(object),
        Tree::from(object.str("spec.scope")),
        Tree::from(versions.join(",")),
        Tree::from(object.str("metadata.creationTimestamp")),
        Tree::from(object.str("spec.group")),
        Tree::from(object.str("spec.names.kind")),
        cells::joined(object.list("spec.names.shortNames"), ""),
        Tree::Bool(established.is_some_and(|condition| condition.str("status") == "True")),
    ]
}

fn version_text(version: &Tree) -> String {
    let mark = if version.bool("storage") { "(storage)" } else { "" };
    format!("{}{mark}", version.str("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    #[test]
    fn names_follow_from_the_kind() {
        let mut object = tree! { "spec" => tree! { "names" => tree! { "plural" => "foos", "kind" => "Foo" } } };
        set_defaults(&mut object);
        assert_eq!(object.str("spec.names.singular"), "foo");
        assert_eq!(object.str("spec.names.listKind"), "FooList");
        assert_eq!(object.str("spec.conversion.strategy"), "None");
    }

    #[test]
    fn cells_mark_the_stored_version() {
        let versions = list![
            tree! { "name" => "v1", "served" => true, "storage" => true },
            tree! { "name" => "v2", "served" => true }
        ];
        let object = tree! { "spec" => tree! { "versions" => versions } };
        assert_eq!(cells(&object, 0)[2], Tree::from("v1(storage),v2"));
    }
}
