//! One version of a definition as a kind: the counterpart of a row of built-in kinds, with data instead of functions.

use api::field::{Errors, Path, Value};
use api::schema::CustomObject;
use api::{Str, Tree, time, validation};
use jsonpath::text_of;

use super::column_path::ColumnPath;
use super::metadata::{self, MetadataError};
use super::rules::{self, EvaluationOptions, Interrupt, RuleSet};
use super::schema::Schema;
use super::{list_types, prune, types, validate};
use crate::{cells, meta, names};

/// A column of a custom resource. The first one is always the name.
#[derive(Debug)]
pub struct CustomColumn {
    pub name: Str,
    pub ty: Str,
    pub format: Str,
    pub description: Str,
    pub priority: i64,
    path: ColumnPath,
}

/// The dotted paths of the scale subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomScale {
    pub spec_replicas: Str,
    pub status_replicas: Str,
    pub selector: Option<Str>,
}

/// A version of a custom kind with its compiled schema.
#[derive(Debug)]
pub struct CustomKind {
    api_version: Str,
    kind: Str,
    namespaced: bool,
    schema: Schema,
    has_embedded: bool,
    rules: Option<RuleSet>,
    /// Its type for server-side apply.
    pub ty: CustomObject,
    pub has_status: bool,
    pub scale: Option<CustomScale>,
    pub columns: Vec<CustomColumn>,
    /// The names of selectable fields, and where they are.
    pub selectable: Vec<(Str, ColumnPath)>,
}

const AGE_PATH: &str = ".metadata.creationTimestamp";
const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

impl CustomKind {
    /// Compiles a version of a definition.
    pub fn compile(definition: &Tree, version: &str) -> CustomKind {
        let spec = definition.at("spec");
        let row = spec.list("versions").iter().find(|row| row.str("name") == version).unwrap_or(&Tree::Null);
        let mut schema = Schema::compile(row.at("schema.openAPIV3Schema"));
        schema.preserves_unknown |= spec.bool("preserveUnknownFields");
        let kind = spec.str("names.kind");
        CustomKind {
            api_version: Str::from(format!("{}/{version}", spec.str("group"))),
            kind: Str::new(kind),
            namespaced: spec.str("scope") == "Namespaced",
            has_embedded: prune::has_embedded(&schema),
            rules: RuleSet::for_object(row.at("schema.openAPIV3Schema")),
            ty: types::object_type(kind, &schema),
            schema,
            has_status: row.at("subresources").has("status"),
            scale: read_scale(row.at("subresources.scale")),
            columns: read_columns(row.list("additionalPrinterColumns")),
            selectable: read_selectable(row.list("selectableFields")),
        }
    }

    /// Gives a decoded object its shape: typed metadata, no unknown fields. Their paths are returned.
    pub fn conform(&self, object: &mut Tree) -> Result<Vec<String>, MetadataError> {
        let mut in_metadata = Vec::new();
        metadata::conform(object, &self.schema, self.has_embedded, &mut in_metadata)?;
        let mut unknown = prune::prune(object, &self.schema);
        unknown.append(&mut in_metadata);
        Ok(unknown)
    }

    /// Removes nulls that are not allowed and sets defaults; called on what clients send and on what is read.
    pub fn set_defaults(&self, object: &mut Tree) {
        prune::prune_nulls(object, Some(&self.schema));
        prune::set_defaults(object, &self.schema);
    }

    /// Clears what a create cannot set.
    pub fn prepare_create(&self, object: &mut Tree) {
        if self.has_status {
            object.remove("status");
        }
        object.child("metadata").set("generation", 1);
    }

    /// Keeps the status if it has its own endpoint; a change of anything but the metadata is a new generation.
    pub fn prepare_update(&self, object: &mut Tree, old: &Tree) {
        if self.has_status {
            crate::kind::keep_old(object, old, "status");
        }
        let generation = old.int("metadata.generation").unwrap_or(0);
        let next = generation + i64::from(!is_same_content(object, old));
        if next > 0 {
            object.child("metadata").set("generation", next);
        }
    }

    /// A status update changes the status, and who owns it.
    pub fn prepare_status(&self, object: &mut Tree, old: &Tree) {
        let managed = object.at("metadata.managedFields").clone();
        let status = object.remove("status");
        *object = old.clone();
        crate::kind::keep_old(object.child("metadata"), &api::tree! { "managedFields" => managed }, "managedFields");
        match status {
            Some(status) => object.set("status", status),
            None => drop(object.remove("status")),
        }
    }

    /// Validates a new object. An interruption of its rules is an error.
    pub fn validate_create(&self, object: &Tree, interrupt: Interrupt<'_>, errors: &mut Errors) {
        if !self.validate_type(object, errors) {
            return;
        }
        meta::validate_new(
            object.at("metadata"),
            self.namespaced,
            names::dns_subdomain,
            &Path::root("metadata"),
            errors,
        );
        validate::validate(object, None, &self.schema, "", errors);
        self.validate_scale(object, true, errors);
        self.validate_structure(object, None, errors);
        self.evaluate_rules(object, None, interrupt, errors);
    }

    /// Validates an update; the metadata is validated by the caller.
    pub fn validate_update(&self, object: &Tree, old: &Tree, interrupt: Interrupt<'_>, errors: &mut Errors) {
        if !self.validate_type(object, errors) {
            return;
        }
        validate::validate(object, Some(old), &self.schema, "", errors);
        self.validate_scale(object, true, errors);
        self.validate_structure(object, Some(old), errors);
        self.evaluate_rules(object, Some(old), interrupt, errors);
    }

    /// Validates an update of the status.
    pub fn validate_status(&self, object: &Tree, old: &Tree, interrupt: Interrupt<'_>, errors: &mut Errors) {
        if !self.validate_type(object, errors) {
            return;
        }
        if let (Some(status), Some(schema)) = (object.get("status"), self.schema.property("status")) {
            validate::validate(status, old.get("status"), schema, "status", errors);
        }
        self.validate_scale(object, false, errors);
        self.validate_lists(object, Some(old), errors);
        self.evaluate_rules(object, Some(old), interrupt, errors);
    }

    /// Rules expect values of the right types and sizes.
    fn evaluate_rules(&self, object: &Tree, old: Option<&Tree>, interrupt: Interrupt<'_>, errors: &mut Errors) {
        let Some(rules) = &self.rules else { return };
        if validate::blocks_rules(errors) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            return errors.invalid(&Path::nil(), Value::raw("null"), why);
        }
        let options = EvaluationOptions { ratchets: old.is_some(), interrupt: Some(interrupt) };
        rules::evaluate(rules, object, old, options, &Path::nil(), errors);
    }

    fn validate_type(&self, object: &Tree, errors: &mut Errors) -> bool {
        let before = errors.len();
        for (key, want) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            if object.str(key) != want.as_str() {
                errors.invalid(&Path::root(key), object.str(key), &format!("must be {want}"));
            }
        }
        errors.len() == before
    }

    fn validate_structure(&self, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
        if self.has_embedded {
            metadata::validate_embedded(object, &self.schema, "", errors);
        }
        self.validate_lists(object, old, errors);
    }

    /// Duplicates that are stored already may stay.
    fn validate_lists(&self, object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
        let check = |object: &Tree| {
            let mut errors = Errors::new();
            list_types::validate(object, &self.schema, &Path::nil(), &mut errors);
            errors
        };
        if old.is_none_or(|old| check(old).is_empty()) {
            errors.extend(check(object));
        }
    }

    /// The numbers that the scale subresource reads.
    fn validate_scale(&self, object: &Tree, with_spec: bool, errors: &mut Errors) {
        let Some(scale) = &self.scale else { return };
        if with_spec {
            validate_replicas(object, &scale.spec_replicas, errors);
        }
        validate_replicas(object, &scale.status_replicas, errors);
        if let Some(path) = &scale.selector
            && let Err(why) = nested(object, path, "string", |value| value.as_str().map(str::to_string))
        {
            errors.invalid(&Path::root(&format!(".{path}")), "", &why.to_string());
        }
    }

    /// Warnings about finalizers that may conflict with other finalizers.
    pub fn warnings(&self, object: &Tree, old: Option<&Tree>) -> Vec<String> {
        let had = |name: &Tree| old.is_some_and(|old| old.list("metadata.finalizers").contains(name));
        let mut added: Vec<&str> =
            object.list("metadata.finalizers").iter().filter(|name| !had(name)).filter_map(Tree::as_str).collect();
        added.sort_unstable();
        added.dedup();
        added.into_iter().flat_map(finalizer_warnings).collect()
    }

    /// The cells of a table row; `now` is in seconds since the Unix epoch.
    pub fn cells(&self, object: &Tree, now: i64) -> Vec<Tree> {
        let mut out = vec![cells::name(object)];
        out.extend(self.columns.iter().map(|column| column.cell(object, now)));
        out
    }

    /// The text of a selectable field, by which it is selected.
    pub fn selectable_text(&self, object: &Tree, name: &str) -> Str {
        let field = self.selectable.iter().find(|(known, _)| known == name);
        let value = field.and_then(|(_, path)| path.first(object)).map(|value| text_of(&value));
        Str::from(value.unwrap_or_default())
    }
}

impl CustomColumn {
    fn cell(&self, object: &Tree, now: i64) -> Tree {
        let Some(value) = self.path.first(object) else { return Tree::Null };
        match (self.ty.as_str(), value.as_ref()) {
            ("string", value) => Tree::from(text_of(value)),
            (_, Tree::Null) => Tree::Null,
            ("integer", Tree::Int(number)) => Tree::Int(*number),
            ("integer", Tree::Float(number)) => Tree::Int(*number as i64),
            ("number", Tree::Int(number)) => Tree::Float(*number as f64),
            ("number", Tree::Float(number)) => Tree::Float(*number),
            ("boolean", Tree::Bool(value)) => Tree::Bool(*value),
            ("date", Tree::Str(text)) => Tree::from(age(text, now)),
            _ => Tree::Null,
        }
    }
}

fn age(text: &str, now: i64) -> String {
    match time::parse(text) {
        Ok(time) => time::human_duration(now - time.seconds),
        Err(_) => "<invalid>".to_string(),
    }
}

fn is_same_content(object: &Tree, old: &Tree) -> bool {
    let content = |tree: &Tree| {
        let mut map = tree.as_map().cloned().unwrap_or_default();
        map.remove("metadata");
        map
    };
    content(object) == content(old)
}

fn validate_replicas(object: &Tree, path: &str, errors: &mut Errors) {
    let field = format!(".{path}");
    let root = Path::root(&field);
    match nested(object, path, "int64", Tree::as_int) {
        Err(why) => errors.invalid(&root, 0, &why.to_string()),
        Ok(Some(replicas)) if replicas < 0 => {
            errors.invalid(&root, replicas, "should be a non-negative integer");
        }
        Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
            errors.invalid(&root, replicas, &format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
    }
}

/// A value at a dotted path, or upstream's text if it or a parent is of another type.
fn nested<T>(
    object: &Tree,
    path: &str,
    go: &str,
    read: impl Fn(&Tree) -> Option<T>,
) -> Result<Option<T>, AccessorError> {
    let mut here = object;
    for step in path.split('.') {
        let Tree::Map(map) = here else {
            return Err(accessor_error(path, here, "map[string]interface{}"));
        };
        match map.get(step) {
            Some(next) => here = next,
            None => return Ok(None),
        }
    }
    match read(here) {
        Some(value) => Ok(Some(value)),
        None => Err(accessor_error(path, here, go)),
    }
}

/// A value on a path is of another type. The text is upstream's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct AccessorError(String);

fn accessor_error(path: &str, value: &Tree, expected: &str) -> AccessorError {
    let actual = match value {
        Tree::Null => "<nil>",
        Tree::Bool(_) => "bool",
        Tree::Int(_) => "int64",
        Tree::Float(_) => "float64",
        Tree::Str(_) => "string",
        Tree::List(_) => "[]interface {}",
        Tree::Map(_) => "map[string]interface {}",
    };
    let shown = match value {
        Tree::Null => "<nil>".to_string(),
        value => text_of(value),
    };
    AccessorError(format!(".{path} accessor error: {shown} is of the type {actual}, expected {expected}"))
}

fn finalizer_warnings(name: &str) -> Vec<String> {
    const FIELD: &str = "metadata.finalizers";
    let mut out: Vec<String> =
        validation::qualified_name(name).into_iter().map(|why| format!("{FIELD}: {name:?}: {why}")).collect();
    if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        out.push(format!(
            "{FIELD}: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    out
}

fn read_scale(scale: &Tree) -> Option<CustomScale> {
    let path = |key: &str| Str::new(scale.str(key).trim_start_matches('.'));
    matches!(scale, Tree::Map(_)).then(|| CustomScale {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        selector: scale.has("labelSelectorPath").then(|| path("labelSelectorPath")),
    })
}

/// A path that cannot be parsed drops all columns, as in upstream.
fn read_columns(rows: &[Tree]) -> Vec<CustomColumn> {
    if rows.is_empty() {
        let path = ColumnPath::parse(AGE_PATH).ok();
        return path.into_iter().map(age_column).collect();
    }
    let mut out = Vec::with_capacity(rows.len());
    for row in rows {
        let Ok(path) = ColumnPath::parse(row.str("jsonPath")) else { break };
        let description = match row.str("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {}", row.str("jsonPath")),
            text => text.to_string(),
        };
        out.push(CustomColumn {
            name: Str::new(row.str("name")),
            ty: Str::new(row.str("type")),
            format: Str::new(row.str("format")),
            description: Str::from(description),
            priority: row.int("priority").unwrap_or(0),
            path,
        });
    }
    out
}

fn age_column(path: ColumnPath) -> CustomColumn {
    CustomColumn {
        name: Str::new("Age"),
        ty: Str::new("date"),
        format: Str::new(""),
        description: Str::new(AGE_DESCRIPTION),
        priority: 0,
        path,
    }
}

fn read_selectable(rows: &[Tree]) -> Vec<(Str, ColumnPath)> {
    let read = |row: &Tree| {
        let text = row.str("jsonPath");
        Some((Str::new(text.trim_start_matches('.')), ColumnPath::parse(text).ok()?))
    };
    rows.iter().filter_map(read).collect()
}
