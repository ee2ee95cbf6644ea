//! The versions of a kind, for managed fields: managers name their fields in the version they wrote.

use std::sync::Arc;

use api::Tree;
use api::schema::TypeRef;

use crate::registry::{Registry, conversion};
use crate::storage::resource::Resource;

pub(crate) struct Versions<'a> {
    registry: &'a Registry,
    resource: &'a Resource,
    /// The versions of the same objects.
    others: Vec<Arc<Resource>>,
}

impl<'a> Versions<'a> {
    pub(crate) fn new(registry: &'a Registry, resource: &'a Resource) -> Versions<'a> {
        Versions { registry, resource, others: registry.storage.resources.versions_of(resource) }
    }

    fn find(&self, api_version: &str) -> Option<&Resource> {
        if api_version == self.resource.api_version() {
            return Some(self.resource);
        }
        self.others.iter().map(Arc::as_ref).find(|other| other.api_version() == api_version)
    }
}

impl api::apply::Versions for Versions<'_> {
    fn ty(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.find(api_version).map(Resource::ty)
    }

    fn convert(&self, tree: &Tree, from: &str, to: &str) -> Option<Tree> {
        if from == to {
            return Some(tree.clone());
        }
        let (from, to) = (self.find(from)?, self.find(to)?);
        if conversion::has_webhook(from) {
            return self.registry.conversions.cache.find(tree, to.api_version());
        }
        Some(from.convert(tree.clone(), to))
    }
}
