//! The resource that serves a kind, looked up in discovery and cached.

use std::collections::BTreeMap;

use api::Tree;
use client::{Client, Resource, Result};
use stdx::sync::Mutex;
use thiserror::Error;

/// A resource that serves a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestMapping {
    pub resource: Resource,
    /// The kind has a `scale` subresource.
    pub scales: bool,
}

/// Why an object of a kind cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum LookupError {
    #[error("{}", .0.message())]
    Request(#[from] client::Error),
    #[error("no matches for kind {kind:?} in group {group:?}")]
    NoMatch { kind: String, group: String },
}

/// Cached discovery results by apiVersion and kind; invalidated by [`Kinds::invalidate`].
#[derive(Default)]
pub(crate) struct Kinds(Mutex<BTreeMap<(String, String), RestMapping>>);

impl Kinds {
    /// None if the kind is not served.
    pub(crate) async fn find(&self, client: &Client, api_version: &str, kind: &str) -> Result<Option<RestMapping>> {
        // References may omit the version of the core group.
        let api_version = if api_version.is_empty() { "v1" } else { api_version };
        let place = (api_version.to_string(), kind.to_string());
        if let Some(known) = self.cache().get(&place) {
            return Ok(Some(*known));
        }
        let path =
            if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
        let list = match client.get_path(&path, "").await {
            Err(error) if error.code() == Some(404) => return Ok(None),
            result => result?,
        };
        let Some(served) = read(&list, api_version, kind) else { return Ok(None) };
        self.cache().insert(place, served);
        Ok(Some(served))
    }

    /// Like [`Kinds::find`], but a kind that is not served is an error.
    pub(crate) async fn require(
        &self,
        client: &Client,
        api_version: &str,
        kind: &str,
    ) -> std::result::Result<RestMapping, LookupError> {
        self.find(client, api_version, kind).await?.ok_or_else(|| {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            LookupError::NoMatch { kind: kind.to_string(), group: group.to_string() }
        })
    }

    /// Invalidates the cached result of a kind.
    pub(crate) fn invalidate(&self, api_version: &str, kind: &str) {
        self.cache().remove(&(api_version.to_string(), kind.to_string()));
    }

    fn cache(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<(String, String), RestMapping>> {
        self.0.lock()
    }
}

fn read(list: &Tree, api_version: &str, kind: &str) -> Option<RestMapping> {
    let resources = list.list("resources");
    let is_it = |resource: &&Tree| resource.str("kind") == kind && !resource.str("name").contains('/');
    let name = resources.iter().find(is_it)?.str("name");
    let scale = format!("{name}/scale");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let scales = resources.iter().any(|resource| resource.str("name") == scale);
    Some(RestMapping { resource: Resource::named(group, version, name), scales })
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn finds_the_resource_of_a_kind() {
        let list = r#"{"resources":[{"name":"foos/status","kind":"Foo"},{"name":"foos","kind":"Foo"},{"name":"foos/scale","kind":"Scale"},{"name":"bars","kind":"Bar"}]}"#;
        let list = decode(list.as_bytes()).expect("a list");
        let foo = read(&list, "example.com/v1", "Foo").expect("a resource");
        assert_eq!((foo.resource.path("n").as_str(), foo.scales), ("/apis/example.com/v1/namespaces/n/foos", true));
        assert!(!read(&list, "example.com/v1", "Bar").expect("a resource").scales);
        assert_eq!(read(&list, "example.com/v1", "Scale"), None);
    }
}
