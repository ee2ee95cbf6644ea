//! A kind as data: names, rules and small pure functions. The request path is implemented once in the server; a kind
//! never has its own handler.

use api::field::Errors;
use api::schema::{Type, type_of};
use api::{Map, Str, Tree};

/// A verb of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// The verb in discovery and audit events.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

/// Every verb of a stored kind, in discovery order.
pub const ALL_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

/// The user of the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Map,
}

/// The part of the request that prepare functions may use.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Seconds since the Unix epoch.
    pub now: i64,
    pub user: &'a User,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub ty: &'static str,
    pub format: &'static str,
    pub priority: u8,
}

/// A column of a Table.
pub const fn column(name: &'static str, ty: &'static str, format: &'static str, priority: u8) -> Column {
    Column { name, ty, format, priority }
}

/// A field selector of a kind besides metadata.name and metadata.namespace.
#[derive(Clone, Copy)]
pub struct Selectable {
    pub name: &'static str,
    pub get: fn(&Tree, &'static str) -> Str,
}

/// A selector that reads the field of the same name.
pub const fn selectable(name: &'static str) -> Selectable {
    Selectable { name, get: scalar_at }
}

/// The text of a scalar at a dotted path; empty if it is not set.
pub(crate) fn scalar_at(object: &Tree, path: &'static str) -> Str {
    match object.at(path) {
        Tree::Str(text) => text.clone(),
        Tree::Bool(value) => Str::const_new(if *value { "true" } else { "false" }),
        Tree::Int(number) => Str::from(number.to_string()),
        _ => Str::const_new(""),
    }
}

/// A subresource. The server implements it by name.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    pub name: &'static str,
    /// Group, version and kind if they differ from the parent's.
    pub gvk: Option<(&'static str, &'static str, &'static str)>,
    /// In discovery order.
    pub verbs: &'static [Verb],
}

/// The rules of the status subresource.
#[derive(Clone, Copy)]
pub struct StatusRules {
    /// Restores everything that a status update must not change.
    pub prepare: fn(&mut Tree, &Tree, &Context<'_>),
    pub validate: fn(&Tree, &Tree, &mut Errors),
    /// Fields that a status update cannot own (managed fields), as dotted paths.
    pub reset: &'static [&'static str],
}

/// The dotted paths of the numbers in the scale subresource.
#[derive(Debug, Clone, Copy)]
pub struct ScalePaths<'a> {
    pub spec_replicas: &'a str,
    pub status_replicas: &'a str,
    /// A LabelSelector, a plain map of labels, or a selector as text; empty if there is none.
    pub selector: &'a str,
}

/// A kind that is stored in the form of another one.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub to_storage: fn(Tree) -> Tree,
    pub from_storage: fn(Tree) -> Tree,
}

/// The definition of a kind for the server.
#[derive(Clone, Copy)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The resource: `configmaps`.
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [Verb],
    pub subresources: &'static [Subresource],
    /// The path below the storage prefix; empty for kinds that are never stored.
    pub storage: &'static str,
    pub conversion: Option<Conversion>,
    /// The version that upstream stores, if it differs: only its hash is used.
    pub upstream_version: Option<&'static str>,
    /// Why this kind is unsupported: creates are rejected with this text.
    pub refused: Option<&'static str>,

    /// Validates a name (with true: a generateName prefix) and returns upstream's messages.
    pub validate_name: fn(&str, bool) -> Vec<String>,
    /// Metadata is validated only after the kind's own rules have passed, as upstream does for this kind.
    pub metadata_last: bool,
    /// Called for every incoming object and for stored objects of an older version.
    pub set_defaults: fn(&mut Tree),
    /// Clears the status, and sets the generation and other server-owned fields.
    pub prepare_create: fn(&mut Tree, &Context<'_>),
    /// The new object, then the stored one.
    pub prepare_update: fn(&mut Tree, &Tree, &Context<'_>),
    /// Validates everything except the metadata, which is validated the same way for all kinds.
    pub validate: fn(&Tree, &mut Errors),
    /// Validates an update; `validate` is not called before it, so call it where upstream does.
    pub validate_update: fn(&Tree, &Tree, &mut Errors),
    /// Texts for Warning headers; with the stored object on update.
    pub warnings: fn(&Tree, Option<&Tree>) -> Vec<String>,
    /// Warnings for an update of the status.
    pub status_warnings: fn(&Tree) -> Vec<String>,
    /// Fields that a write to the main resource cannot own, as dotted paths.
    pub reset: &'static [&'static str],
    pub status: Option<StatusRules>,
    pub scale: Option<ScalePaths<'static>>,
    /// Whether a PUT to a missing name creates the object.
    pub create_on_update: bool,
    /// Whether a PUT without a resourceVersion is accepted.
    pub unconditional_update: bool,
    pub lifecycle: Lifecycle,

    pub columns: &'static [Column],
    /// The cells of a table row; `now` is in seconds since the Unix epoch.
    pub cells: fn(&Tree, i64) -> Vec<Tree>,
    pub selectable: &'static [Selectable],
}

/// How objects of a kind are stored and deleted, where that differs between kinds.
#[derive(Debug, Clone, Copy)]
pub struct Lifecycle {
    /// Objects expire `--event-ttl` after their last write.
    pub expires: bool,
    /// Whether a write of this object, over the stored one, may be acknowledged before it is on disk.
    pub is_relaxed: fn(&Tree, Option<&Tree>) -> bool,
    /// Whether the refusal of this kind applies to the object.
    pub is_refused: fn(&Tree) -> bool,
    /// Addresses and ports are allocated in the same commit and written into the object.
    pub allocates: bool,
    /// The path of labels that are the client's own if it sends no labels.
    pub labels_from: Option<&'static str>,
    /// A deletion returns the object instead of a Status.
    pub returns_deleted: bool,
    /// The seconds between the request to delete an object and its end, from the seconds that the client requests.
    pub grace_period: Option<fn(&Tree, Option<i64>) -> i64>,
    /// The object has finalizers in its spec, is marked at the first deletion even without any, and shows no grace period.
    pub spec_finalizers: bool,
    /// The finalizer that the server adds to a deleted object, which shows no grace period then.
    pub deletion_finalizer: Option<&'static str>,
    /// Changes an object that is marked for deletion.
    pub mark_deleted: fn(&mut Tree),
    /// Dependents are orphaned unless the client requests their deletion.
    pub orphans_by_default: bool,
    /// Whether the garbage collector watches the kind, so that objects can have dependents.
    pub has_dependents: bool,
    /// The warning of a deletion that names no propagation policy.
    pub deletion_warning: Option<&'static str>,
    /// Whether a controller has processed a new object. If set, the response to a create waits briefly until it returns
    /// true.
    pub is_settled: Option<fn(&Tree) -> bool>,
    /// The warning of every request to a deprecated kind.
    pub deprecation: Option<&'static str>,
}

impl Lifecycle {
    /// The lifecycle of most kinds.
    pub const DEFAULT: Lifecycle = Lifecycle {
        expires: false,
        is_relaxed: |_, _| false,
        is_refused: |_| true,
        allocates: false,
        labels_from: None,
        returns_deleted: false,
        grace_period: None,
        spec_finalizers: false,
        deletion_finalizer: None,
        mark_deleted: |_| {},
        orphans_by_default: false,
        has_dependents: true,
        deletion_warning: None,
        is_settled: None,
        deprecation: None,
    };

    /// Most kinds, with deletions that return the object.
    pub(crate) const RETURNS_DELETED: Lifecycle = Lifecycle { returns_deleted: true, ..Lifecycle::DEFAULT };
}

const NAME_AND_AGE: &[Column] = &[column("Name", "string", "name", 0), column("Age", "string", "", 0)];

fn no_defaults(_: &mut Tree) {}
fn no_prepare_create(_: &mut Tree, _: &Context<'_>) {}
fn no_prepare_update(_: &mut Tree, _: &Tree, _: &Context<'_>) {}
fn no_validate(_: &Tree, _: &mut Errors) {}
fn no_validate_update(_: &Tree, _: &Tree, _: &mut Errors) {}
fn no_warnings(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}

impl Kind {
    /// A namespaced kind with all verbs and no rules: the base of a definition.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Kind {
        Kind {
            group,
            version,
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            namespaced: true,
            verbs: ALL_VERBS,
            subresources: &[],
            storage: plural,
            conversion: None,
            upstream_version: None,
            refused: None,
            validate_name: crate::names::dns_subdomain,
            metadata_last: false,
            set_defaults: no_defaults,
            prepare_create: no_prepare_create,
            prepare_update: no_prepare_update,
            validate: no_validate,
            validate_update: no_validate_update,
            warnings: no_warnings,
            status_warnings: |_| Vec::new(),
            reset: &[],
            status: None,
            scale: None,
            create_on_update: false,
            unconditional_update: true,
            lifecycle: Lifecycle::DEFAULT,
            columns: NAME_AND_AGE,
            cells: crate::cells::name_and_age,
            selectable: &[],
        }
    }

    /// A kind that has no namespace.
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Kind {
        Kind { namespaced: false, ..Kind::namespaced(group, version, kind, plural, singular) }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The type of its objects in the schema table.
    pub fn schema(&self) -> &'static Type {
        type_of(self.group, self.version, self.kind).expect("every kind's type is in the schema table (tested)")
    }

    /// Whether the verb is served.
    pub fn has(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of a name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// Increments `metadata.generation` if one of these dotted paths differs, otherwise keeps it.
pub(crate) fn bump_generation(object: &mut Tree, old: &Tree, paths: &[&str]) {
    let generation = old.int("metadata.generation").unwrap_or(0);
    let changed = paths.iter().any(|path| object.at(path) != old.at(path));
    let next = generation + i64::from(changed);
    if next > 0 {
        object.child("metadata").set("generation", next);
    }
}

/// Copies the field at a top-level key from the stored object, or removes it if that has none.
pub fn keep_old(object: &mut Tree, old: &Tree, key: &str) {
    match old.get(key) {
        Some(value) => object.set(key, value.clone()),
        None => {
            object.remove(key);
        }
    }
}
