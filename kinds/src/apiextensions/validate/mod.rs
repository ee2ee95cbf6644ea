//! The rules of a definition, with upstream's texts. What all versions have in common is reported at the top of the
//! specification, as upstream's internal form has it there.

mod conversion;
mod defaults;
mod pattern;
mod rules;
mod schema;
mod selectable;
mod structural;
mod version;
mod warnings;

pub(super) use warnings::warnings;

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{dns1035_label, dns1123_subdomain};

use super::printed;
use crate::custom::{Approval, approval_state, is_true};
use schema::SchemaChecks;
use version::{validate_columns, validate_subresources};

const MAX_SELECTABLE: usize = 8;

/// The rules that apply: an update does not tighten rules that the stored definition violates.
struct Options<'a> {
    old: Option<&'a Tree>,
    schema: SchemaChecks,
    requires_schema: bool,
    requires_structure: bool,
    requires_pruned_defaults: bool,
    requires_review_version: bool,
    /// The expressions of the stored definition.
    rules: Vec<String>,
}

impl Options<'_> {
    /// Whether the stored definition has the same schema.
    fn has_schema(&self, props: &Tree) -> bool {
        let versions = self.old.map_or(&[][..], |old| old.list("spec.versions"));
        versions.iter().any(|version| version.at("schema.openAPIV3Schema") == props)
    }
}

/// A new definition, except its metadata.
pub(super) fn validate(object: &Tree, errors: &mut Errors) {
    let name = object.str("metadata.name");
    if name != format!("{}.{}", object.str("spec.names.plural"), object.str("spec.group")) {
        let path = Path::root("metadata");
        errors.invalid(&path.field("name"), name, r#"must be spec.names.plural+"."+spec.group"#);
    }
    let options = Options {
        old: None,
        schema: SchemaChecks::ALL,
        requires_schema: true,
        requires_structure: true,
        requires_pruned_defaults: true,
        requires_review_version: true,
        rules: Vec::new(),
    };
    validate_spec(object.at("spec"), &options, errors);
    validate_rest(object, None, errors);
}

/// An update, except the metadata.
pub(super) fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let old_spec = old.at("spec");
    validate_spec(object.at("spec"), &update_options(old), errors);
    let path = Path::root("spec");
    let immutable = |key: &str, path: &Path<'_>, errors: &mut Errors| {
        let (new, old) = (object.at("spec").at(key), old_spec.at(key));
        crate::meta::validate_immutable(new, old, path, errors);
    };
    if is_true(old, "Established") {
        immutable("scope", &path.field("scope"), errors);
        immutable("names.kind", &path.field("names").field("kind"), errors);
    }
    immutable("group", &path.field("group"), errors);
    immutable("names.plural", &path.field("names").field("plural"), errors);
    validate_rest(object, Some(old), errors);
}

/// An update of the status.
pub(super) fn validate_status(object: &Tree, _: &Tree, errors: &mut Errors) {
    validate_names(object.at("status.acceptedNames"), &Path::root("status").field("acceptedNames"), errors);
}

fn update_options(old: &Tree) -> Options<'_> {
    let spec = old.at("spec");
    let schemas: Vec<&Tree> = spec
        .list("versions")
        .iter()
        .map(|version| version.at("schema.openAPIV3Schema"))
        .filter(|props| !props.is_null())
        .collect();
    let any = |check: &dyn Fn(&Tree) -> bool| {
        schemas.iter().any(|props| schema::any_schema(props, &mut |props| check(props)))
    };
    let has_bad_type =
        |props: &Tree| crate::custom::JsonType::parse(props.str("type")).is_none() && !props.str("type").is_empty();
    let has_bad_set =
        |props: &Tree| props.str("x-kubernetes-list-type") == "set" && schema::non_atomic(props.at("items")).is_some();
    let has_bad_keys = |props: &Tree| {
        let mut errors = Errors::new();
        schema::validate_key_fields(props, &Path::nil(), &mut errors);
        !errors.is_empty()
    };
    let versions = spec.list("conversion.webhook.conversionReviewVersions");
    Options {
        old: Some(old),
        schema: SchemaChecks {
            valid_types: !any(&has_bad_type),
            atomic_sets: !any(&has_bad_set),
            list_keys: !any(&has_bad_keys),
        },
        requires_schema: schemas.len() == spec.list("versions").len(),
        requires_structure: schemas.iter().all(|props| structural::is_structural(props)),
        requires_pruned_defaults: true,
        requires_review_version: versions.is_empty() || versions.iter().any(conversion::is_review_version),
        rules: expressions(&schemas),
    }
}

fn validate_rest(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    validate_status(object, object, errors);
    validate_stored_versions(object, errors);
    validate_approval(object, old, errors);
    let had = old.is_some_and(|old| old.bool("spec.preserveUnknownFields"));
    if object.bool("spec.preserveUnknownFields") && !had {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&Path::root("spec").field("preserveUnknownFields"), true, why);
    }
}

/// The common fields of all versions are validated once.
struct CommonFields<'a> {
    versions: &'a [Tree],
}

impl CommonFields<'_> {
    fn has(&self, key: &str) -> bool {
        let Some(first) = self.versions.first() else { return false };
        self.versions.iter().all(|version| version.at(key) == first.at(key))
    }

    /// The value of all versions.
    fn get(&self, key: &str) -> Option<&Tree> {
        let value = self.versions.first()?.get(key)?;
        (self.has(key) && !value.is_null()).then_some(value)
    }
}

fn validate_spec(spec: &Tree, options: &Options<'_>, errors: &mut Errors) {
    let path = Path::root("spec");
    let versions = spec.list("versions");
    let common = CommonFields { versions };
    validate_group(spec.str("group"), &path.field("group"), errors);
    validate_one_of(spec.str("scope"), &["Cluster", "Namespaced"], &path.field("scope"), errors);
    validate_schemas_present(spec, options, &path, errors);
    for (index, version) in versions.iter().enumerate() {
        let path = path.field("versions");
        validate_version(version, &common, options, &path.index(index), errors);
    }
    validate_version_list(spec, &common, &path, errors);
    let names = path.field("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if spec.at("names").str(key).is_empty() {
            errors.required(&names.field(key), "");
        }
    }
    validate_names(spec.at("names"), &names, errors);
    if let Some(schema) = common.get("schema") {
        let has_status = versions.iter().any(|version| version.at("subresources").has("status"));
        validate_schema(schema, has_status, options, &path.field("validation"), errors);
    }
    if let Some(subresources) = common.get("subresources") {
        validate_subresources(subresources, &path.field("subresources"), errors);
    }
    if let Some(columns) = common.get("additionalPrinterColumns") {
        validate_columns(columns, &path.field("additionalPrinterColumns"), errors);
    }
    if let Some(fields) = common.get("selectableFields") {
        let first = versions.first().unwrap_or(&Tree::Null);
        let is_old = options.old.is_some_and(|old| has_same_fields(first, old));
        match common.get("schema") {
            Some(schema) => selectable::validate(
                fields,
                schema.at("openAPIV3Schema"),
                (!is_old).then_some(MAX_SELECTABLE),
                &path.field("selectableFields"),
                errors,
            ),
            None => {
                let why = "may only be set when validations.schema is included";
                errors.invalid(&path.field("selectableFields"), "", why);
            }
        }
    }
    conversion::validate(spec, options, &path.field("conversion"), errors);
}

/// Too many fields may stay.
fn has_same_fields(version: &Tree, old: &Tree) -> bool {
    let before = old.list("spec.versions").iter().find(|before| before.str("name") == version.str("name"));
    before.is_some_and(|before| before.at("selectableFields") == version.at("selectableFields"))
}

fn validate_group(group: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(path, "");
    } else if !messages.is_empty() {
        errors.invalid(path, group, &messages.join(","));
    } else if !group.contains('.') {
        errors.invalid(path, group, "should be a domain with at least one dot");
    }
}

fn validate_one_of(value: &str, accepted: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match value {
        "" => errors.required(path, ""),
        value if accepted.contains(&value) => {}
        value => errors.not_supported(path, value, accepted),
    }
}

fn validate_schemas_present(spec: &Tree, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let versions = path.field("versions");
    let missing = |version: &Tree| version.at("schema.openAPIV3Schema").is_null();
    for (index, version) in spec.list("versions").iter().enumerate().filter(|(_, version)| missing(version)) {
        let path = versions.index(index);
        let path = path.field("schema");
        if options.requires_schema {
            errors.required(&path.field("openAPIV3Schema"), "");
        } else if !spec.bool("preserveUnknownFields") && version.bool("served") {
            errors.required(&path.field("openAPIV3Schema"), "because otherwise all fields are pruned");
        }
    }
}

fn validate_version(
    version: &Tree,
    common: &CommonFields<'_>,
    options: &Options<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = version.str("name");
    let messages = dns1035_label(name);
    if !messages.is_empty() {
        errors.invalid(&path.field("name"), name, &messages.join(","));
    }
    validate_deprecation(version, &path.field("deprecationWarning"), errors);
    let own = |key: &str| version.get(key).filter(|value| !value.is_null() && !common.has(key));
    if let Some(schema) = own("schema") {
        let has_status = version.at("subresources").has("status");
        validate_schema(schema, has_status, options, &path.field("schema"), errors);
    }
    if let Some(subresources) = own("subresources") {
        validate_subresources(subresources, &path.field("subresources"), errors);
    }
    if let Some(columns) = own("additionalPrinterColumns") {
        validate_columns(columns, &path.field("additionalPrinterColumns"), errors);
    }
    if let Some(fields) = own("selectableFields") {
        let is_old = options.old.is_some_and(|old| has_same_fields(version, old));
        let schema = version.at("schema.openAPIV3Schema");
        let limit = (!is_old).then_some(MAX_SELECTABLE);
        selectable::validate(fields, schema, limit, &path.field("selectableFields"), errors);
    }
}

fn validate_deprecation(version: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = version.at("deprecationWarning").as_str() else { return };
    if !version.bool("deprecated") {
        return errors.invalid(path, warning, "can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        errors.invalid(path, warning, "must be <= 256 characters long");
    }
    if warning.is_empty() {
        errors.invalid(path, warning, "must not be an empty string");
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' ')) {
        let why = format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errors.invalid(path, warning, &why);
    }
}

fn validate_version_list(spec: &Tree, common: &CommonFields<'_>, path: &Path<'_>, errors: &mut Errors) {
    let versions = spec.list("versions");
    let shown = || printed::versions(versions, |key| common.has(key));
    let names: std::collections::BTreeSet<&str> = versions.iter().map(|version| version.str("name")).collect();
    if names.len() != versions.len() {
        errors.invalid(&path.field("versions"), shown(), "must contain unique version names");
    }
    if versions.iter().filter(|version| version.bool("storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.invalid(&path.field("versions"), shown(), why);
    }
    if let Some(name) = versions.first().map(|version| version.str("name")) {
        let messages = dns1035_label(name);
        if !messages.is_empty() && !name.is_empty() {
            errors.invalid(&path.field("version"), name, &messages.join(","));
        }
    }
}

fn validate_names(names: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let check = |path: &Path<'_>, name: &str, mixed: bool, errors: &mut Errors| {
        let messages = if mixed { dns1035_label(&name.to_lowercase()) } else { dns1035_label(name) };
        if !messages.is_empty() {
            let start = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid(path, name, &format!("{start}{}", messages.join(",")));
        }
    };
    for (key, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let name = names.str(key);
        if !name.is_empty() {
            check(&path.field(key), name, mixed, errors);
        }
    }
    let list = |key: &str, errors: &mut Errors| {
        for (index, name) in names.list(key).iter().enumerate() {
            check(&path.field(key).index(index), name.as_str().unwrap_or(""), false, errors);
        }
    };
    list("shortNames", errors);
    if !names.str("kind").is_empty() && names.str("kind") == names.str("listKind") {
        let why = "kind and listKind may not be the same";
        errors.invalid(&path.field("listKind"), names.str("listKind"), why);
    }
    list("categories", errors);
}

/// What makes the schemas of a stored definition not structural. New definitions cannot have such schemas, but those of
/// older servers can.
pub fn structural_violations(definition: &Tree) -> Errors {
    let mut errors = Errors::new();
    let spec = Path::root("spec");
    if definition.bool("spec.preserveUnknownFields") {
        errors.invalid(&spec.field("preserveUnknownFields"), true, "must be false");
    }
    let versions = spec.field("versions");
    for (index, version) in definition.list("spec.versions").iter().enumerate() {
        let props = version.at("schema.openAPIV3Schema");
        if !props.is_null() {
            let path = versions.index(index);
            structural::validate(props, &path.field("schema").field("openAPIV3Schema"), &mut errors);
        }
    }
    errors
}

fn validate_schema(schema: &Tree, has_status: bool, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let props = schema.at("openAPIV3Schema");
    if props.is_null() {
        return;
    }
    let path = path.field("openAPIV3Schema");
    if has_status {
        validate_status_root(props, &path, errors);
    }
    if props.bool("nullable") {
        errors.forbidden(&path.field("nullable"), "nullable cannot be true at the root");
    }
    let before = errors.len();
    if options.requires_structure && !has_unsupported(props) {
        structural::validate(props, &path, errors);
        if errors.len() == before {
            defaults::validate(props, options.requires_pruned_defaults, &path, errors);
        }
    }
    schema::validate_root(props, options.schema, &path, errors);
    // The rules of a schema with other errors are not compiled: their errors would not help.
    if errors.len() == before {
        let known = rules::StoredRules { texts: &options.rules, is_unchanged: options.has_schema(props) };
        rules::validate(props, &known, &path, errors);
    }
}

/// Such schemas have no structure that could be validated.
fn has_unsupported(props: &Tree) -> bool {
    const KEYS: &[&str] =
        &["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    schema::any_schema(props, &mut |props| {
        KEYS.iter().any(|key| !props.str(key).is_empty() || matches!(props.at(key), Tree::Map(_) | Tree::Bool(_)))
            || matches!(props.at("items"), Tree::List(_))
            || props.at("x-kubernetes-preserve-unknown-fields").as_bool() == Some(false)
    })
}

fn expressions(schemas: &[&Tree]) -> Vec<String> {
    let mut out = Vec::new();
    for props in schemas {
        schema::any_schema(props, &mut |props| {
            for rule in props.list("x-kubernetes-validations") {
                out.extend([rule.str("rule"), rule.str("messageExpression")].map(str::to_string));
            }
            false
        });
    }
    out
}

const ROOT_FIELDS: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations";

/// With a status of its own, only some fields are allowed at the root.
fn validate_status_root(props: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for name in printed::set_fields(props) {
        if name == "Type" && props.str("type") != "object" {
            let why =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            return errors.invalid(&path.field("type"), props.str("type"), why);
        }
        if !ROOT_FIELDS.split(' ').any(|allowed| allowed == name) {
            let why = format!(
                "only [{ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            return errors.invalid(path, printed::schema(props), &why);
        }
    }
}

fn validate_stored_versions(object: &Tree, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.field("storedVersions");
    let stored = object.list("status.storedVersions");
    if stored.is_empty() {
        return errors.invalid(&path, api::field::Value::raw("null"), "must have at least one stored version");
    }
    let versions = object.list("spec.versions");
    for version in versions.iter().filter(|version| version.bool("storage")) {
        let name = version.str("name");
        if !stored.iter().any(|stored| stored.as_str() == Some(name)) {
            errors.invalid(&path, object.at("status.storedVersions"), &format!("must have the storage version {name}"));
        }
    }
    for (index, name) in stored.iter().filter_map(Tree::as_str).enumerate() {
        if !versions.iter().any(|version| version.str("name") == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(index), name, &why);
        }
    }
}

fn validate_approval(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    const NAME: &str = "api-approved.kubernetes.io";
    let group = object.str("spec.group");
    let is_protected =
        |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if !is_protected("k8s.io") && !is_protected("kubernetes.io") {
        return;
    }
    let state_of = |object: &Tree| approval_state(object.map("metadata.annotations").str(NAME));
    let (state, why) = state_of(object);
    if old.is_some_and(|old| state_of(old).0 == state) {
        return;
    }
    let annotations = Path::root("metadata");
    let annotations = annotations.field("annotations");
    match state {
        Approval::Missing => errors.required(&annotations.key(NAME), &why),
        Approval::Invalid => {
            errors.invalid(&annotations.key(NAME), object.map("metadata.annotations").str(NAME), &why);
        }
        Approval::Approved | Approval::Bypassed => {}
    }
}

#[cfg(test)]
mod tests;
