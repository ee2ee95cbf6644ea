//! Validation of ObjectMeta for create and update, the same for every kind. It does not match on kinds; a kind
//! provides its scope and name rule.

use std::collections::BTreeSet;

use api::field::{Errors, Path, go_quote};
use api::validation::{dns1123_label, label_value, qualified_name};
use api::{Map, Tree};

use crate::gojson::{self, EMPTY, GoField, field};
use crate::{Kind, names};

const MAX_ANNOTATION_BYTES: usize = 256 << 10;
const MAX_MANAGER_BYTES: usize = 128;
const MAX_SUBRESOURCE_BYTES: usize = 256;
/// Finalizers that need no domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];
/// Groups whose objects may have any finalizer: upstream validates them without the core rule.
const FREE_FINALIZERS: &[&str] = &["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];

/// OwnerReference as errors print it.
const OWNER: &[GoField] = &[
    field("apiVersion", "apiVersion", EMPTY),
    field("kind", "kind", EMPTY),
    field("name", "name", EMPTY),
    field("uid", "uid", EMPTY),
    field("controller", "controller", ""),
    field("blockOwnerDeletion", "blockOwnerDeletion", ""),
];

const METADATA: Path<'static> = Path::root("metadata");

impl Kind {
    /// Validates a new object, after its name was generated if requested.
    pub fn validate_create(&self, object: &Tree, errors: &mut Errors) {
        if !self.metadata_last {
            validate_object_meta(self, object, errors);
        }
        (self.validate)(object, errors);
        if self.metadata_last && errors.is_empty() {
            validate_object_meta(self, object, errors);
        }
    }
}

/// Validates the metadata of an object to be created, after its name was generated if requested.
pub fn validate_object_meta(kind: &Kind, object: &Tree, errors: &mut Errors) {
    let before = errors.len();
    validate_new(object.at("metadata"), kind.namespaced, kind.validate_name, &METADATA, errors);
    validate_finalizer_domains(kind, object, errors);
    if errors.len() == before {
        let name = object.str("metadata.name");
        errors.invalid_all(&METADATA.field("name"), name, names::path_segment(name, false));
    }
}

/// Validates the metadata of an update. `object` has its resourceVersion, and immutable fields (uid, timestamps) were
/// copied from the stored object.
pub fn validate_object_meta_update(kind: &Kind, object: &Tree, old: &Tree, errors: &mut Errors) {
    validate_change(object.at("metadata"), old.at("metadata"), errors);
    validate_common(object.at("metadata"), &METADATA, errors);
    validate_finalizer_domains(kind, object, errors);
}

/// The same for custom resources, whose finalizers need no domain.
pub fn validate_custom_meta_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate_change(object.at("metadata"), old.at("metadata"), errors);
    validate_common(object.at("metadata"), &METADATA, errors);
}

/// The metadata of an object, or of a template that must have a name.
pub(crate) fn validate_new(
    meta: &Tree,
    namespaced: bool,
    validate_name: fn(&str, bool) -> Vec<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let generate_name = meta.str("generateName");
    if !generate_name.is_empty() {
        errors.invalid_all(&path.field("generateName"), generate_name, validate_name(generate_name, true));
    }
    match meta.str("name") {
        "" => errors.required(&path.field("name"), "name or generateName is required"),
        name => errors.invalid_all(&path.field("name"), name, validate_name(name, false)),
    }
    validate_namespace(meta.str("namespace"), namespaced, &path.field("namespace"), errors);
    let generation = meta.int("generation").unwrap_or(0);
    if generation < 0 {
        errors.invalid(&path.field("generation"), generation, "must be greater than or equal to 0");
    }
    validate_common(meta, path, errors);
}

/// Labels: qualified names with short values.
pub fn validate_labels(labels: &Map, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels.iter() {
        errors.invalid_all(path, key, qualified_name(key));
        let value = value.as_str().unwrap_or("");
        errors.invalid_all(path, value, label_value(value));
    }
}

/// Annotations: case-insensitive qualified names, with a limit on the total size.
pub fn validate_annotations(annotations: &Map, path: &Path<'_>, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.iter() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let messages = if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            qualified_name(&key.to_lowercase())
        } else {
            qualified_name(key)
        };
        errors.invalid_all(path, key, messages);
    }
    if bytes > MAX_ANNOTATION_BYTES {
        errors.too_long(path, MAX_ANNOTATION_BYTES);
    }
}

/// A finalizer without a domain must be a standard one.
pub(crate) fn validate_finalizer_domain(finalizer: &str, path: &Path<'_>, errors: &mut Errors) {
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        errors.invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

/// An Invalid error if a field differs from the stored one.
pub(crate) fn validate_immutable(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if new != old {
        errors.invalid(path, new, "field is immutable");
    }
}

fn validate_namespace(namespace: &str, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    match (namespaced, namespace) {
        (true, "") => errors.required(path, ""),
        (true, namespace) => errors.invalid_all(path, namespace, dns1123_label(namespace)),
        (false, "") => {}
        (false, _) => errors.forbidden(path, "not allowed on this type"),
    }
}

fn validate_common(meta: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(meta.map("labels"), &path.field("labels"), errors);
    validate_annotations(meta.map("annotations"), &path.field("annotations"), errors);
    validate_owner_references(meta.list("ownerReferences"), &path.field("ownerReferences"), errors);
    validate_finalizers(meta.at("finalizers"), &path.field("finalizers"), errors);
    validate_managed_fields(meta.list("managedFields"), &path.field("managedFields"), errors);
}

fn validate_change(meta: &Tree, old: &Tree, errors: &mut Errors) {
    if old.has("deletionTimestamp") {
        validate_no_new_finalizers(meta, old, errors);
    }
    if meta.str("resourceVersion").is_empty() {
        errors.invalid(&METADATA.field("resourceVersion"), "", "must be specified for an update");
    }
    let generation = meta.int("generation").unwrap_or(0);
    if generation < old.int("generation").unwrap_or(0) {
        errors.invalid(&METADATA.field("generation"), generation, "must not be decremented");
    }
    let fixed = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in fixed {
        let (new, old) = (meta.at(field), old.at(field));
        if new.is_null() && !old.is_null() && old.as_str().is_some_and(|_| !field.ends_with("Timestamp")) {
            errors.invalid(&METADATA.field(field), "", "field is immutable");
        } else {
            validate_immutable(new, old, &METADATA.field(field), errors);
        }
    }
}

fn validate_no_new_finalizers(meta: &Tree, old: &Tree, errors: &mut Errors) {
    let names = |meta: &Tree| -> BTreeSet<String> {
        meta.list("finalizers").iter().filter_map(Tree::as_str).map(str::to_string).collect()
    };
    let added: Vec<String> = names(meta).difference(&names(old)).map(|name| go_quote(name)).collect();
    if added.is_empty() {
        return;
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    errors.forbidden(&METADATA.field("finalizers"), &detail);
}

fn validate_owner_references(references: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for (index, reference) in references.iter().enumerate() {
        validate_owner_reference(reference, &path.index(index), errors);
    }
    // The error prints all references, so it is reported once.
    let mut controllers = references.iter().filter(|reference| reference.bool("controller"));
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            owner_name(first),
            owner_name(second)
        );
        errors.invalid(path, gojson::list(references, OWNER), &detail);
    }
}

fn validate_owner_reference(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let api_version = reference.str("apiVersion");
    if api_version.is_empty() {
        errors.required(&path.field("apiVersion"), "must not be empty");
    } else if api_version.bytes().filter(|byte| *byte == b'/').count() > 1 {
        errors.invalid(&path.field("apiVersion"), api_version, "must be <group>/<version> or <version>");
    } else if api_version.ends_with('/') {
        errors.invalid(&path.field("apiVersion"), api_version, "version must not be empty");
    }
    for field in ["kind", "name", "uid"] {
        if reference.str(field).is_empty() {
            errors.required(&path.field(field), "must not be empty");
        }
    }
    // Events are too short-lived to own objects.
    if matches!(api_version, "v1" | "/v1") && reference.str("kind") == "Event" {
        errors.invalid(path, gojson::value(reference, OWNER), "/v1, Kind=Event is disallowed from being an owner");
    }
}

fn owner_name(reference: &Tree) -> String {
    format!("{}/{}", reference.str("kind"), reference.str("name"))
}

fn validate_finalizers(finalizers: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let names = || finalizers.as_list().unwrap_or(&[]).iter().filter_map(Tree::as_str);
    for name in names() {
        errors.invalid_all(path, name, qualified_name(name));
    }
    if names().any(|name| name == "orphan") && names().any(|name| name == "foregroundDeletion") {
        errors.invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn validate_finalizer_domains(kind: &Kind, object: &Tree, errors: &mut Errors) {
    if FREE_FINALIZERS.contains(&kind.group) {
        return;
    }
    let path = METADATA.field("finalizers");
    for (index, finalizer) in object.list("metadata.finalizers").iter().enumerate() {
        validate_finalizer_domain(finalizer.as_str().unwrap_or(""), &path.index(index), errors);
    }
}

fn validate_managed_fields(entries: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let operation = entry.str("operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.invalid(&path.field("operation"), operation, "must be `Apply` or `Update`");
        }
        let fields_type = entry.str("fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.invalid(&path.field("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        validate_field_manager(entry.str("manager"), &path.field("manager"), errors);
        if entry.str("subresource").len() > MAX_SUBRESOURCE_BYTES {
            errors.too_long(&path.field("subresource"), MAX_SUBRESOURCE_BYTES);
        }
    }
}

/// The name of a field manager, in managed fields and request options.
pub fn validate_field_manager(manager: &str, path: &Path<'_>, errors: &mut Errors) {
    if manager.len() > MAX_MANAGER_BYTES {
        errors.too_long(path, MAX_MANAGER_BYTES);
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_print(*c)) {
        errors.invalid(path, manager, &format!("invalid character U+{:04X} (at position {position})", c as u32));
    }
}

/// Near Go's unicode.IsPrint: of spaces only the plain one, no control characters.
fn is_print(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || ('\u{200b}'..='\u{200f}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn kind() -> Kind {
        Kind::namespaced("", "v1", "ConfigMap", "configmaps", "configmap")
    }

    fn texts(errors: &Errors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn check_new(meta: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate_object_meta(&kind(), &tree! { "metadata" => meta }, &mut errors);
        assert_eq!(texts(&errors), want);
    }

    fn check_change(meta: Tree, old: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        let (object, old) = (tree! { "metadata" => meta }, tree! { "metadata" => old });
        validate_object_meta_update(&kind(), &object, &old, &mut errors);
        assert_eq!(texts(&errors), want);
    }

    #[test]
    fn requires_names_and_namespaces() {
        check_new(tree! { "name" => "a", "namespace" => "b" }, &[]);
        check_new(
            tree! {},
            &["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"],
        );
    }

    #[test]
    fn finalizers_need_a_domain() {
        check_new(
            tree! { "name" => "a", "namespace" => "b", "finalizers" => list!["e.com/a", "orphan", "x"] },
            &[
                "metadata.finalizers[2]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        );
        check_change(
            tree! { "name" => "a", "resourceVersion" => "1", "deletionTimestamp" => "t", "finalizers" => list!["e.com/b", "e.com/a"] },
            tree! { "name" => "a", "deletionTimestamp" => "t", "finalizers" => list!["e.com/a"] },
            &[
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"e.com/b\"}",
            ],
        );
    }

    #[test]
    fn only_one_owner_controls() {
        let owner = |name: &str, uid: &str| tree! { "apiVersion" => "v1", "kind" => "Pod", "name" => name, "uid" => uid, "controller" => true };
        check_new(
            tree! { "name" => "a", "namespace" => "b", "ownerReferences" => list![owner("x", "1"), owner("y", "2")] },
            &[
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"1\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"2\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/x and Pod/y",
            ],
        );
        check_new(
            tree! { "name" => "a", "namespace" => "b", "ownerReferences" => list![tree! { "apiVersion" => "a/b/c", "kind" => "Pod", "name" => "x" }] },
            &[
                "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ],
        );
    }

    #[test]
    fn identity_is_immutable() {
        check_change(
            tree! { "name" => "b", "resourceVersion" => "1", "uid" => "u" },
            tree! { "name" => "a", "uid" => "u" },
            &["metadata.name: Invalid value: \"b\": field is immutable"],
        );
    }

    #[test]
    fn annotations_have_a_limit() {
        check_new(
            tree! { "name" => "a", "namespace" => "b", "annotations" => tree! { "K" => "x".repeat(256 << 10) } },
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
    }

    #[test]
    fn field_managers_are_printable() {
        check_new(
            tree! { "name" => "a", "namespace" => "b", "managedFields" => list![tree! { "operation" => "Update", "manager" => "a\nb" }] },
            &["metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"],
        );
    }
}
