//! A served kind in the request path: a row of the built-in kinds, or a version of a definition. No module above this
//! one distinguishes the two.

use std::sync::{Arc, OnceLock};

use api::field::Errors;
use api::schema::{Type, TypeRef};
use api::{Str, Tree};
use kinds::custom::{CustomKind, Definition, Version};
use kinds::quota::CountedKind;
use kinds::{Context, Conversion, Lifecycle, ScalePaths, StatusRules, Subresource, Verb};

use crate::common::deadline::Deadline;
use crate::storage::cache::Item;

/// A kind in one version.
pub struct Kind {
    names: Names,
    pub namespaced: bool,
    pub lifecycle: Lifecycle,
    /// Whether a PUT to a missing name creates the object.
    pub create_on_update: bool,
    /// Whether a PUT without a resourceVersion is accepted.
    pub unconditional_update: bool,
    rules: Rules,
}

struct Names {
    group: Str,
    version: Str,
    kind: Str,
    plural: Str,
    singular: Str,
    storage: Str,
    api_version: Str,
}

enum Rules {
    Row(&'static kinds::Kind),
    Custom(Arc<CustomVersion>),
}

/// The schemas of a definition. Each is compiled when it is first used; all are freed with the last request that uses
/// one of them.
pub(crate) struct Schemas {
    pub(crate) definition: Arc<Definition>,
    source: Arc<Item>,
    /// The compiled kinds in the order of the versions.
    compiled: Vec<OnceLock<CustomKind>>,
}

impl Schemas {
    pub(crate) fn new(definition: Arc<Definition>, source: Arc<Item>) -> Schemas {
        let compiled = definition.versions.iter().map(|_| OnceLock::new()).collect();
        Schemas { definition, source, compiled }
    }

    fn kind(&self, at: usize) -> &CustomKind {
        let version = &self.definition.versions[at].name;
        self.compiled[at].get_or_init(|| CustomKind::compile(&self.source.tree(), version))
    }

    /// The kind in a version, `GROUP/VERSION`.
    pub(crate) fn find(&self, api_version: &str) -> Option<&CustomKind> {
        let version = api_version.strip_prefix(self.definition.group.as_str())?.strip_prefix('/')?;
        let at = self.definition.versions.iter().position(|row| row.name == version)?;
        Some(self.kind(at))
    }

    /// The apiVersion in which objects are stored.
    pub(crate) fn storage_version(&self) -> String {
        let version = self.definition.storage_version().map_or("", |version| version.name.as_str());
        format!("{}/{version}", self.definition.group)
    }
}

/// A version of a definition.
pub(crate) struct CustomVersion {
    pub(crate) definition: Arc<Definition>,
    pub(crate) version: Version,
    pub(crate) schemas: Arc<Schemas>,
    at: usize,
}

impl CustomVersion {
    pub(crate) fn new(definition: Arc<Definition>, schemas: Arc<Schemas>, at: usize) -> CustomVersion {
        CustomVersion { version: definition.versions[at].clone(), definition, schemas, at }
    }

    pub(crate) fn kind(&self) -> &CustomKind {
        self.schemas.kind(self.at)
    }
}

/// A column of a Table.
pub(crate) struct Column<'a> {
    pub name: &'a str,
    pub ty: &'a str,
    pub format: &'a str,
    pub description: &'a str,
    pub priority: i64,
}

/// Verbs of a custom resource, in the order of its discovery.
const CUSTOM_VERBS: &[Verb] = &[
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];
const TERMINATING_VERBS: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];
const SUBRESOURCE_VERBS: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
const STATUS: Subresource = Subresource { name: "status", gvk: None, verbs: SUBRESOURCE_VERBS };
const SCALE: Subresource =
    Subresource { name: "scale", gvk: Some(("autoscaling", "v1", "Scale")), verbs: SUBRESOURCE_VERBS };
static SUBRESOURCES: [&[Subresource]; 4] = [&[], &[STATUS], &[SCALE], &[STATUS, SCALE]];

impl Kind {
    /// A built-in kind.
    pub(crate) fn built_in(row: &'static kinds::Kind) -> Kind {
        Kind {
            names: Names {
                group: Str::const_new(row.group),
                version: Str::const_new(row.version),
                kind: Str::const_new(row.kind),
                plural: Str::const_new(row.plural),
                singular: Str::const_new(row.singular),
                storage: Str::const_new(row.storage),
                api_version: Str::from(row.api_version()),
            },
            namespaced: row.namespaced,
            lifecycle: row.lifecycle,
            create_on_update: row.create_on_update,
            unconditional_update: row.unconditional_update,
            rules: Rules::Row(row),
        }
    }

    /// A version of a custom kind.
    pub(crate) fn custom(version: Arc<CustomVersion>) -> Kind {
        let definition = &version.definition;
        Kind {
            names: Names {
                group: definition.group.clone(),
                version: version.version.name.clone(),
                kind: definition.kind.clone(),
                plural: definition.plural.clone(),
                singular: definition.singular.clone(),
                storage: Str::from(definition.storage()),
                api_version: Str::from(format!("{}/{}", definition.group, version.version.name)),
            },
            namespaced: definition.namespaced,
            lifecycle: Lifecycle::DEFAULT,
            create_on_update: false,
            unconditional_update: false,
            rules: Rules::Custom(version),
        }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.names.group
    }

    /// The version in its group.
    pub fn version(&self) -> &str {
        &self.names.version
    }

    /// The name of the kind: `ConfigMap`.
    pub fn kind(&self) -> &str {
        &self.names.kind
    }

    /// The resource: `configmaps`.
    pub fn plural(&self) -> &str {
        &self.names.plural
    }

    /// `configmap`
    pub fn singular(&self) -> &str {
        &self.names.singular
    }

    /// The path below the storage prefix; empty for kinds that are never stored.
    pub fn storage(&self) -> &str {
        &self.names.storage
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> &str {
        &self.names.api_version
    }

    /// The kind of its lists.
    pub(crate) fn list_kind(&self) -> String {
        match &self.rules {
            Rules::Custom(custom) if !custom.definition.list_kind.is_empty() => custom.definition.list_kind.to_string(),
            _ => format!("{}List", self.names.kind),
        }
    }

    pub(crate) fn short_names(&self) -> Vec<&str> {
        match &self.rules {
            Rules::Row(row) => row.short_names.to_vec(),
            Rules::Custom(custom) => custom.definition.short_names.iter().map(Str::as_str).collect(),
        }
    }

    pub(crate) fn categories(&self) -> Vec<&str> {
        match &self.rules {
            Rules::Row(row) => row.categories.to_vec(),
            Rules::Custom(custom) => custom.definition.categories.iter().map(Str::as_str).collect(),
        }
    }

    /// The verbs in discovery order.
    pub fn verbs(&self) -> &'static [Verb] {
        match &self.rules {
            Rules::Row(row) => row.verbs,
            Rules::Custom(custom) if custom.definition.is_terminating => TERMINATING_VERBS,
            Rules::Custom(_) => CUSTOM_VERBS,
        }
    }

    /// Whether the verb is served. A definition that is being deleted rejects creates with its own error.
    pub fn has(&self, verb: Verb) -> bool {
        match &self.rules {
            Rules::Row(row) => row.has(verb),
            Rules::Custom(_) => true,
        }
    }

    /// The subresources in discovery order.
    pub fn subresources(&self) -> &'static [Subresource] {
        match &self.rules {
            Rules::Row(row) => row.subresources,
            Rules::Custom(custom) => {
                let version = &custom.version;
                SUBRESOURCES[usize::from(version.has_status) + 2 * usize::from(version.has_scale)]
            }
        }
    }

    /// The subresource of a name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources().iter().find(|sub| sub.name == name)
    }

    /// The row of a built-in kind.
    pub(crate) fn row(&self) -> Option<&'static kinds::Kind> {
        match &self.rules {
            Rules::Row(row) => Some(row),
            Rules::Custom(_) => None,
        }
    }

    /// The version of a definition, if it is a custom kind.
    pub(crate) fn definition(&self) -> Option<&Arc<CustomVersion>> {
        match &self.rules {
            Rules::Row(_) => None,
            Rules::Custom(custom) => Some(custom),
        }
    }

    /// The compiled schema of a custom kind.
    pub(crate) fn custom_kind(&self) -> Option<&CustomKind> {
        self.definition().map(|custom| custom.kind())
    }

    /// The conversion of a built-in kind that is stored in the form of another one.
    pub(crate) fn conversion(&self) -> Option<Conversion> {
        self.row().and_then(|row| row.conversion)
    }

    /// The type of its objects in the schema table; custom resources are not in it.
    pub fn table_type(&self) -> Option<&'static Type> {
        self.row().map(kinds::Kind::schema)
    }

    /// The type of its objects for server-side apply.
    pub(crate) fn ty(&self) -> TypeRef<'_> {
        match &self.rules {
            Rules::Row(row) => TypeRef::Table(row.schema()),
            Rules::Custom(custom) => TypeRef::Custom(&custom.kind().ty),
        }
    }

    /// The warning of every request to a deprecated version.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        match &self.rules {
            Rules::Row(row) => row.lifecycle.deprecation,
            Rules::Custom(custom) => custom.version.deprecation.as_deref(),
        }
    }

    /// Why creates are rejected: the kind is unsupported, or its definition is being deleted.
    pub(crate) fn refusal(&self, object: &Tree) -> Option<&'static str> {
        match &self.rules {
            Rules::Row(row) => row.refused.filter(|_| (row.lifecycle.is_refused)(object)),
            Rules::Custom(custom) if custom.definition.is_terminating => {
                Some("create not allowed while custom resource definition is terminating")
            }
            Rules::Custom(_) => None,
        }
    }

    pub(crate) fn set_defaults(&self, object: &mut Tree) {
        match &self.rules {
            Rules::Row(row) => (row.set_defaults)(object),
            Rules::Custom(custom) => custom.kind().set_defaults(object),
        }
    }

    pub(crate) fn prepare_create(&self, object: &mut Tree, context: &Context<'_>) {
        match &self.rules {
            Rules::Row(row) => (row.prepare_create)(object, context),
            Rules::Custom(custom) => custom.kind().prepare_create(object),
        }
    }

    pub(crate) fn prepare_update(&self, object: &mut Tree, old: &Tree, context: &Context<'_>) {
        match &self.rules {
            Rules::Row(row) => (row.prepare_update)(object, old, context),
            Rules::Custom(custom) => custom.kind().prepare_update(object, old),
        }
    }

    /// Prepares a status; false if the kind has no status subresource.
    pub(crate) fn prepare_status(&self, object: &mut Tree, old: &Tree, context: &Context<'_>) -> bool {
        match (&self.rules, self.status_rules()) {
            (Rules::Row(_), Some(rules)) => (rules.prepare)(object, old, context),
            (Rules::Row(_), None) => return false,
            (Rules::Custom(custom), _) => custom.kind().prepare_status(object, old),
        }
        true
    }

    fn status_rules(&self) -> Option<StatusRules> {
        self.row().and_then(|row| row.status)
    }

    /// Adds what must always be present.
    pub(crate) fn fill(&self, object: &mut Tree) {
        if let Some(ty) = self.table_type() {
            api::typed::fill(object, ty);
        }
    }

    /// Validates a new object. The deadline interrupts the rules of custom resources; the caller checks it afterwards.
    pub(crate) fn validate_create(&self, object: &Tree, deadline: Deadline, errors: &mut Errors) {
        match &self.rules {
            Rules::Row(row) => row.validate_create(object, errors),
            Rules::Custom(custom) => custom.kind().validate_create(object, &|| deadline.is_over(), errors),
        }
    }

    pub(crate) fn validate_metadata_update(&self, object: &Tree, old: &Tree, errors: &mut Errors) {
        match &self.rules {
            Rules::Row(row) => kinds::meta::validate_object_meta_update(row, object, old, errors),
            Rules::Custom(_) => kinds::meta::validate_custom_meta_update(object, old, errors),
        }
    }

    /// Validates an update of an object that is not visible to clients yet.
    pub(crate) fn validate_unseen(&self, object: &Tree, old: &Tree, deadline: Deadline, errors: &mut Errors) {
        match &self.rules {
            Rules::Row(row) => (row.validate)(object, errors),
            Rules::Custom(custom) => custom.kind().validate_update(object, old, &|| deadline.is_over(), errors),
        }
    }

    pub(crate) fn validate_update(&self, object: &Tree, old: &Tree, deadline: Deadline, errors: &mut Errors) {
        match &self.rules {
            Rules::Row(row) => (row.validate_update)(object, old, errors),
            Rules::Custom(custom) => custom.kind().validate_update(object, old, &|| deadline.is_over(), errors),
        }
    }

    pub(crate) fn validate_status(&self, object: &Tree, old: &Tree, deadline: Deadline, errors: &mut Errors) {
        match (&self.rules, self.status_rules()) {
            (Rules::Custom(custom), _) => custom.kind().validate_status(object, old, &|| deadline.is_over(), errors),
            (Rules::Row(_), Some(rules)) => (rules.validate)(object, old, errors),
            (Rules::Row(_), None) => {}
        }
    }

    pub(crate) fn warnings(&self, object: &Tree, old: Option<&Tree>) -> Vec<String> {
        match &self.rules {
            Rules::Row(row) => (row.warnings)(object, old),
            Rules::Custom(custom) => custom.kind().warnings(object, old),
        }
    }

    pub(crate) fn status_warnings(&self, object: &Tree, old: &Tree) -> Vec<String> {
        match &self.rules {
            Rules::Row(row) => (row.status_warnings)(object),
            Rules::Custom(custom) => custom.kind().warnings(object, Some(old)),
        }
    }

    /// The fields that a write to the object, or to its status, cannot own.
    pub(crate) fn reset_paths(&self, subresource: &str) -> &'static [&'static str] {
        match (&self.rules, subresource) {
            (Rules::Row(row), "status") => row.status.map_or(&[], |status| status.reset),
            (Rules::Row(row), _) => row.reset,
            (Rules::Custom(_), "status") => &["metadata", "spec"],
            (Rules::Custom(custom), _) if custom.version.has_status => &["status"],
            (Rules::Custom(_), _) => &[],
        }
    }

    pub(crate) fn scale(&self) -> Option<ScalePaths<'_>> {
        match &self.rules {
            Rules::Row(row) => row.scale,
            Rules::Custom(custom) => custom.kind().scale.as_ref().map(|scale| ScalePaths {
                spec_replicas: &scale.spec_replicas,
                status_replicas: &scale.status_replicas,
                selector: scale.selector.as_deref().unwrap_or(""),
            }),
        }
    }

    pub(crate) fn columns(&self) -> Vec<Column<'_>> {
        match &self.rules {
            Rules::Row(row) => row.columns.iter().map(row_column).collect(),
            Rules::Custom(custom) => {
                let own = custom.kind().columns.iter().map(|column| Column {
                    name: &column.name,
                    ty: &column.ty,
                    format: &column.format,
                    description: &column.description,
                    priority: column.priority,
                });
                std::iter::once(NAME_COLUMN).chain(own).collect()
            }
        }
    }

    pub(crate) fn cells(&self, object: &Tree, now: i64) -> Vec<Tree> {
        match &self.rules {
            Rules::Row(row) => (row.cells)(object, now),
            Rules::Custom(custom) => custom.kind().cells(object, now),
        }
    }

    /// The names by which quotas count its objects.
    pub(crate) fn counted(&self) -> CountedKind<'_> {
        CountedKind { group: self.group(), kind: self.kind(), plural: self.plural() }
    }

    /// Whether objects can be selected by fields other than name and namespace.
    pub(crate) fn has_selectable(&self) -> bool {
        match &self.rules {
            Rules::Row(row) => !row.selectable.is_empty(),
            Rules::Custom(_) => true,
        }
    }

    /// Whether objects can be selected by a field, besides name and namespace.
    pub(crate) fn is_selectable(&self, name: &str) -> bool {
        match &self.rules {
            Rules::Row(row) => row.selectable.iter().any(|selectable| selectable.name == name),
            Rules::Custom(custom) => custom.kind().selectable.iter().any(|(known, _)| known == name),
        }
    }
}

const NAME_COLUMN: Column<'static> = Column {
    name: "Name",
    ty: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

fn row_column(column: &'static kinds::Column) -> Column<'static> {
    Column {
        name: column.name,
        ty: column.ty,
        format: column.format,
        description: column.name,
        priority: i64::from(column.priority),
    }
}
