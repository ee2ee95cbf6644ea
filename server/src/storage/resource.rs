//! The served resources: a kind, its storage path, and its cache.

use std::collections::HashMap;
use std::sync::Arc;

use api::apply::FieldSet;
use api::schema::{Type, TypeRef};
use api::status::Status;
use api::{Str, Tree, json};
use bytes::Bytes;
use kinds::certificates::certificate_signing_request::APPROVAL;

use crate::storage::cache::{Cache, Caches, Item};
use crate::storage::custom::CustomResources;
use crate::storage::kind::{CustomVersion, Kind};

/// A served resource: its kind in one version, and the storage of its objects.
pub struct Resource {
    pub kind: Kind,
    /// The built-in kind in whose form objects are stored; None if that is the kind itself.
    stored: Option<&'static kinds::Kind>,
    /// None for kinds that are never stored.
    pub(crate) cache: Option<Arc<Cache>>,
    /// The fields that a write to the object itself, to its status, and to its approval cannot own.
    reset: FieldSet,
    status_reset: FieldSet,
    approval_reset: FieldSet,
    key_prefix: String,
    /// Custom resources that were written after this revision have the shape of the current schema.
    since: u64,
    /// Distinguishes the encodings of resources that share a cache.
    code: u32,
}

impl Resource {
    fn built_in(row: &'static kinds::Kind, prefix: &str, caches: &Caches) -> Resource {
        let is = |to: kinds::Conversion| {
            move |kind: &&kinds::Kind| kind.group == to.group && kind.version == to.version && kind.kind == to.kind
        };
        let stored = row.conversion.and_then(|to| kinds::served().iter().copied().find(is(to)));
        let stored = stored.filter(|stored| !std::ptr::eq(*stored, row));
        let storage = stored.unwrap_or(row).storage;
        Resource::new(Kind::built_in(row), stored, (prefix, storage), caches.get(storage))
    }

    /// A version of a definition.
    pub(crate) fn custom(version: CustomVersion, prefix: &str, cache: Arc<Cache>, since: u64, code: u32) -> Resource {
        let kind = Kind::custom(Arc::new(version));
        let storage = kind.storage().to_string();
        Resource { since, code, ..Resource::new(kind, None, (prefix, &storage), Some(cache)) }
    }

    fn new(
        kind: Kind,
        stored: Option<&'static kinds::Kind>,
        (prefix, storage): (&str, &str),
        cache: Option<Arc<Cache>>,
    ) -> Resource {
        Resource {
            reset: FieldSet::of(kind.reset_paths("")),
            status_reset: FieldSet::of(kind.reset_paths("status")),
            approval_reset: FieldSet::of(APPROVAL.reset),
            key_prefix: format!("{}/{storage}/", prefix.trim_end_matches('/')),
            kind,
            stored,
            cache,
            since: 0,
            code: u32::from(stored.is_some()),
        }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> &str {
        self.kind.api_version()
    }

    /// The row of the form in which objects are stored; None for custom resources.
    pub(crate) fn stored_row(&self) -> Option<&'static kinds::Kind> {
        self.stored.or(self.kind.row())
    }

    /// Group and kind of the form in which objects are stored.
    pub(crate) fn stored_kind(&self) -> (&str, &str) {
        match self.stored {
            Some(stored) => (stored.group, stored.kind),
            None => (self.kind.group(), self.kind.kind()),
        }
    }

    /// The fields that a write through this subresource cannot own.
    pub fn reset(&self, subresource: &str) -> &FieldSet {
        match subresource {
            "status" => &self.status_reset,
            "approval" => &self.approval_reset,
            _ => &self.reset,
        }
    }

    /// The key inside the cache.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.kind.namespaced { format!("{namespace}/{name}") } else { name.to_string() }
    }

    /// The key in the store.
    pub(crate) fn store_key(&self, namespace: &str, name: &str) -> String {
        format!("{}{}", self.key_prefix, self.key(namespace, name))
    }

    /// The prefix of the keys in the store.
    pub(crate) fn store_prefix(&self) -> &str {
        &self.key_prefix
    }

    pub(crate) fn cache(&self) -> Result<&Arc<Cache>, Status> {
        self.cache.as_ref().ok_or_else(Status::method_not_allowed)
    }

    /// Whether every client of this resource gets the stored bytes.
    pub(crate) fn serves_stored_bytes(&self) -> bool {
        self.stored.is_none() && self.kind.row().is_some()
    }

    /// Whether every client gets the stored bytes of this object. A custom resource may have been stored in another
    /// version, or with an older schema.
    pub(crate) fn serves_bytes_of(&self, item: &Item) -> bool {
        let is_current = |custom: &CustomVersion| custom.version.storage && item.revision > self.since;
        match self.kind.definition() {
            None => self.stored.is_none(),
            Some(custom) => is_current(custom),
        }
    }

    /// Distinguishes the encodings of resources that share a cache.
    pub(crate) fn code(&self) -> u32 {
        self.code
    }

    /// The kind's type in the schema table; None for custom resources.
    pub fn table_type(&self) -> Option<&'static Type> {
        self.kind.table_type()
    }

    /// The kind's type for server-side apply.
    pub fn ty(&self) -> TypeRef<'_> {
        self.kind.ty()
    }

    /// The object in this resource's version.
    pub fn read(&self, item: &Item) -> Tree {
        let tree = item.tree();
        match (self.stored, self.kind.conversion()) {
            (Some(_), Some(conversion)) => shaped((conversion.from_storage)(tree), self.table_type()),
            _ if self.kind.definition().is_some() && !self.serves_bytes_of(item) => self.read_custom(tree),
            _ => tree,
        }
    }

    /// A stored custom resource in this version: with the defaults of the version in which it is stored, and without
    /// fields that this version does not have.
    fn read_custom(&self, mut tree: Tree) -> Tree {
        self.set_stored_defaults(&mut tree);
        tree.set("apiVersion", self.api_version());
        self.shape_read(&mut tree);
        tree
    }

    fn set_stored_defaults(&self, tree: &mut Tree) {
        let stored = self.kind.definition().and_then(|custom| custom.schemas.find(tree.str("apiVersion")));
        if let Some(stored) = stored {
            stored.set_defaults(tree);
        }
    }

    /// A stored custom resource in the version in which it is stored, with the defaults of that version.
    pub(crate) fn read_stored(&self, item: &Item) -> Tree {
        let mut tree = item.tree();
        self.set_stored_defaults(&mut tree);
        tree
    }

    /// Removes fields that this version of a custom resource does not have. A stored object is served whatever its
    /// metadata.
    pub(crate) fn shape_read(&self, tree: &mut Tree) {
        if let Some(kind) = self.kind.custom_kind() {
            let _ = kind.conform(tree);
        }
    }

    /// Sets defaults as upstream does: the defaults of this version, then those of the stored form.
    pub(crate) fn set_defaults(&self, object: &mut Tree) {
        self.kind.set_defaults(object);
        if let (Some(stored), Some(conversion)) = (self.stored, self.kind.conversion()) {
            let mut tree = shaped((conversion.to_storage)(object.take()), Some(stored.schema()));
            (stored.set_defaults)(&mut tree);
            *object = shaped((conversion.from_storage)(tree), self.table_type());
        }
    }

    /// JSON to store, with a hole for the revision.
    pub fn encode(&self, tree: &Tree) -> (Vec<u8>, usize) {
        match (self.stored, self.kind.conversion()) {
            (Some(stored), Some(conversion)) => {
                let ty = Some(stored.schema());
                json::encode_with_hole(&shaped((conversion.to_storage)(tree.clone()), ty), ty)
            }
            _ => self.encode_own(tree),
        }
    }

    fn encode_own(&self, tree: &Tree) -> (Vec<u8>, usize) {
        match self.kind.definition() {
            Some(custom) if !custom.version.storage => {
                let (mut stored, version) = (tree.clone(), custom.schemas.storage_version());
                stored.set("apiVersion", version.as_str());
                if let Some(kind) = custom.schemas.find(&version) {
                    kind.set_defaults(&mut stored);
                    // Only fields of the stored version are stored; the metadata was already read.
                    let _ = kind.conform(&mut stored);
                }
                json::encode_with_hole(&stored, None)
            }
            _ => json::encode_with_hole(tree, self.table_type()),
        }
    }

    /// Converts an object of this resource to the version of another one with the same stored form.
    pub fn convert(&self, mut tree: Tree, to: &Resource) -> Tree {
        if to.kind.definition().is_some() {
            tree.set("apiVersion", to.api_version());
            return tree;
        }
        let stored = match (self.stored, self.kind.conversion()) {
            (Some(stored), Some(conversion)) => shaped((conversion.to_storage)(tree), Some(stored.schema())),
            _ => tree,
        };
        match (to.stored, to.kind.conversion()) {
            (Some(_), Some(conversion)) => shaped((conversion.from_storage)(stored), to.table_type()),
            _ => stored,
        }
    }

    /// The 404 of a missing object.
    pub fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.kind.group(), self.kind.plural(), name)
    }
}

/// A converted object with the zero values of its new type.
fn shaped(mut tree: Tree, ty: Option<&'static Type>) -> Tree {
    if let Some(ty) = ty {
        // Conversions produce the right types: nothing can be rejected.
        let _ = api::typed::conform(&mut tree, ty, &mut api::json::Strict::default());
    }
    tree
}

/// All resources, by the parts of their path: built-in resources and those of definitions.
pub struct Resources {
    by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
    built_in: Vec<Arc<Resource>>,
    pub(crate) custom: CustomResources,
}

impl Resources {
    /// All resources that are served, below a prefix of the store.
    pub fn new(prefix: &str, caches: &Arc<Caches>) -> Resources {
        let mut by_plural: HashMap<_, Vec<_>> = HashMap::new();
        let mut built_in = Vec::new();
        for row in kinds::served() {
            let resource = Arc::new(Resource::built_in(row, prefix, caches));
            by_plural.entry(row.plural).or_default().push(resource.clone());
            built_in.push(resource);
        }
        Resources { by_plural, built_in, custom: CustomResources::new(prefix, caches) }
    }

    /// A resource by group, version and plural name.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let is = |resource: &&Arc<Resource>| resource.kind.group() == group && resource.kind.version() == version;
        let known = self.by_plural.get(plural).and_then(|candidates| candidates.iter().find(is));
        match known {
            Some(resource) => Some(resource.clone()),
            None => self.custom.find(group, version, plural),
        }
    }

    /// A resource by group, version and kind.
    pub(crate) fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        let is = |resource: &&Arc<Resource>| {
            resource.kind.group() == group && resource.kind.version() == version && resource.kind.kind() == kind
        };
        if let Some(resource) = self.built_in.iter().find(is) {
            return Some(resource.clone());
        }
        let entry = self.custom.group_entries(group).into_iter().find(|entry| entry.definition.kind == kind)?;
        self.custom.find(group, version, &entry.definition.plural)
    }

    /// The built-in resources in the order of their list.
    pub fn built_in(&self) -> &[Arc<Resource>] {
        &self.built_in
    }

    /// The versions of a resource, which share their storage.
    pub(crate) fn versions_of(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        if resource.kind.definition().is_some() {
            return self.custom.siblings(resource);
        }
        let is_same = |other: &&Arc<Resource>| other.store_prefix() == resource.store_prefix();
        self.built_in.iter().filter(is_same).cloned().collect()
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.built_in.iter().any(|resource| resource.kind.group() == group)
    }
}

/// Storage paths of all kinds, each once.
pub fn storage_paths() -> impl Iterator<Item = String> {
    let mut paths: Vec<String> =
        kinds::served().iter().filter(|kind| !kind.storage.is_empty()).map(|kind| kind.storage.to_string()).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter()
}

/// A value of our own store is served unchanged. One that was encrypted by upstream's API server and copied from etcd
/// may be protobuf.
pub fn adopt_own(entry: &store::Entry) -> Option<Bytes> {
    if entry.value.starts_with(b"k8s\0") {
        return adopt_foreign(entry);
    }
    (!crate::storage::encryption::is_sealed(&entry.value)).then(|| entry.value.clone())
}

/// A value in etcd: ours has an empty resourceVersion, upstream's none, and may be protobuf. It is converted to
/// canonical JSON with its revision. An unreadable value is skipped and logged.
pub fn adopt_foreign(entry: &store::Entry) -> Option<Bytes> {
    let tree = if entry.value.starts_with(b"k8s\0") {
        api::protobuf::decode(&entry.value, None).ok()
    } else {
        json::decode(&entry.value).ok()
    };
    let Some(mut tree) = tree.filter(|tree| tree.has("metadata")) else {
        tracing::error!(key = %entry.key, "failed to decode stored value, skipping it");
        return None;
    };
    let (group, version) = split_api_version(tree.str("apiVersion"));
    let ty = api::schema::type_of(&group, &version, tree.str("kind"));
    tree.child("metadata").remove("resourceVersion");
    let (bytes, hole) = json::encode_with_hole(&tree, ty);
    Some(fill_hole(&bytes, hole, entry.revision))
}

pub(crate) fn split_api_version(api_version: &str) -> (Str, Str) {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    (Str::new(group), Str::new(version))
}

/// The bytes with a revision in the hole, in a buffer of exactly that size.
pub(crate) fn fill_hole(bytes: &[u8], hole: usize, revision: u64) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(revision).as_bytes();
    let mut out = Vec::with_capacity(bytes.len() + digits.len());
    out.extend_from_slice(&bytes[..hole]);
    out.extend_from_slice(digits);
    out.extend_from_slice(&bytes[hole..]);
    Bytes::from(out)
}
