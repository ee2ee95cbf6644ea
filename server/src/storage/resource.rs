//! The served resources: a kind, its storage path, and its cache.

use std::collections::HashMap;
use std::sync::Arc;

use api::apply::FieldSet;
use api::schema::Type;
use api::status::Status;
use api::{Str, Tree, json};
use bytes::Bytes;
use kinds::Kind;
use kinds::certificates::certificate_signing_request::APPROVAL;

use crate::storage::cache::{Cache, Caches, Item};

/// A served resource: its kind in one version, and where its objects are stored.
pub struct Resource {
    pub kind: &'static Kind,
    /// The kind in whose form objects are stored; the same kind for all but a few.
    pub stored: &'static Kind,
    /// None for kinds that are never stored.
    pub(crate) cache: Option<Arc<Cache>>,
    pub api_version: &'static str,
    /// What a write to the object itself, to its status, and to its approval cannot own.
    reset: FieldSet,
    status_reset: FieldSet,
    approval_reset: FieldSet,
    key_prefix: String,
}

impl Resource {
    fn new(kind: &'static Kind, prefix: &str, caches: &Caches) -> Resource {
        let stored = kind
            .conversion
            .and_then(|to| {
                kinds::served()
                    .iter()
                    .copied()
                    .find(|k| k.group == to.group && k.version == to.version && k.kind == to.kind)
            })
            .unwrap_or(kind);
        Resource {
            kind,
            stored,
            cache: caches.get(stored.storage),
            api_version: kind.api_version().leak(),
            reset: FieldSet::of(kind.reset),
            status_reset: FieldSet::of(kind.status.map_or(&[], |status| status.reset)),
            approval_reset: FieldSet::of(APPROVAL.reset),
            key_prefix: format!("{}/{}/", prefix.trim_end_matches('/'), stored.storage),
        }
    }

    /// What a write through this subresource cannot own.
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

    /// What the keys of the store begin with.
    pub(crate) fn store_prefix(&self) -> &str {
        &self.key_prefix
    }

    pub(crate) fn cache(&self) -> Result<&Arc<Cache>, Status> {
        self.cache.as_ref().ok_or_else(Status::method_not_allowed)
    }

    /// True where the stored bytes are what a client of this resource gets.
    pub(crate) fn serves_stored_bytes(&self) -> bool {
        std::ptr::eq(self.kind, self.stored)
    }

    /// The kind's type in the schema table.
    pub fn ty(&self) -> &'static Type {
        self.kind.schema()
    }

    /// The object in this resource's version.
    pub fn read(&self, item: &Item) -> Tree {
        let tree = item.tree();
        match self.kind.conversion {
            Some(conversion) if !self.serves_stored_bytes() => shaped((conversion.from_storage)(tree), self.ty()),
            _ => tree,
        }
    }

    /// Defaults as upstream sets them: those of this version, then those of the stored form.
    pub(crate) fn set_defaults(&self, object: &mut Tree) {
        (self.kind.set_defaults)(object);
        if let Some(conversion) = self.kind.conversion
            && !self.serves_stored_bytes()
        {
            let mut stored = shaped((conversion.to_storage)(object.take()), self.stored.schema());
            (self.stored.set_defaults)(&mut stored);
            *object = shaped((conversion.from_storage)(stored), self.ty());
        }
    }

    /// JSON to store, with a hole for the revision.
    pub fn encode(&self, tree: &Tree) -> (Vec<u8>, usize) {
        match self.kind.conversion {
            Some(conversion) if !self.serves_stored_bytes() => {
                let ty = self.stored.schema();
                json::encode_with_hole(&shaped((conversion.to_storage)(tree.clone()), ty), Some(ty))
            }
            _ => json::encode_with_hole(tree, Some(self.ty())),
        }
    }

    /// An object of this resource's version in that of another one, which is stored in the same form.
    pub fn convert(&self, tree: Tree, to: &Resource) -> Tree {
        let stored = match self.kind.conversion {
            Some(conversion) if !self.serves_stored_bytes() => {
                shaped((conversion.to_storage)(tree), self.stored.schema())
            }
            _ => tree,
        };
        match to.kind.conversion {
            Some(conversion) if !to.serves_stored_bytes() => shaped((conversion.from_storage)(stored), to.ty()),
            _ => stored,
        }
    }

    /// The 404 of a missing object.
    pub fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.kind.group, self.kind.plural, name)
    }
}

/// A converted object with the zero values of its new type in place.
fn shaped(mut tree: Tree, ty: &'static Type) -> Tree {
    // Conversions give the right types: there is nothing to refuse.
    let _ = api::typed::conform(&mut tree, ty, &mut api::json::Strict::default());
    tree
}

/// All resources, by the parts of their path.
pub struct Resources {
    by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
    all: Vec<Arc<Resource>>,
}

impl Resources {
    /// All resources that are served, below a prefix of the store.
    pub fn new(prefix: &str, caches: &Caches) -> Resources {
        let all: Vec<_> = kinds::served().iter().map(|kind| Arc::new(Resource::new(kind, prefix, caches))).collect();
        let mut by_plural: HashMap<_, Vec<_>> = HashMap::new();
        for resource in &all {
            by_plural.entry(resource.kind.plural).or_default().push(resource.clone());
        }
        Resources { by_plural, all }
    }

    /// A resource by group, version and plural name.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let candidates = self.by_plural.get(plural)?;
        candidates.iter().find(|resource| resource.kind.group == group && resource.kind.version == version)
    }

    /// All resources in the order of their list.
    pub fn all(&self) -> &[Arc<Resource>] {
        &self.all
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.all.iter().any(|resource| resource.kind.group == group)
    }

    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.all.iter().any(|resource| resource.kind.group == group && resource.kind.version == version)
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

/// A value of our own store is served as it is.
pub fn adopt_own(entry: &store::Entry) -> Option<Bytes> {
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
