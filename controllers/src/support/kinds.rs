//! Which resource serves a kind, asked of discovery and remembered.

use std::collections::BTreeMap;

use api::Tree;
use client::{Client, Resource, Result};
use stdx::sync::Mutex;

/// A resource that serves a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    pub resource: Resource,
    /// It has a `scale` below its objects.
    pub scales: bool,
}

/// What discovery said, by version and kind; asked again after [`Kinds::forget`].
#[derive(Default)]
pub struct Kinds(Mutex<BTreeMap<(String, String), Served>>);

impl Kinds {
    /// None where nothing serves the kind.
    pub async fn find(&self, client: &Client, api_version: &str, kind: &str) -> Result<Option<Served>> {
        // References may leave the version of the first group out.
        let api_version = if api_version.is_empty() { "v1" } else { api_version };
        let place = (api_version.to_string(), kind.to_string());
        if let Some(known) = self.known().get(&place) {
            return Ok(Some(*known));
        }
        let path =
            if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
        let list = match client.get_path(&path, "").await {
            Err(error) if error.code() == Some(404) => return Ok(None),
            result => result?,
        };
        let Some(served) = read(&list, api_version, kind) else { return Ok(None) };
        self.known().insert(place, served);
        Ok(Some(served))
    }

    /// What was known of a kind turned out to be wrong.
    pub fn forget(&self, api_version: &str, kind: &str) {
        self.known().remove(&(api_version.to_string(), kind.to_string()));
    }

    fn known(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<(String, String), Served>> {
        self.0.lock()
    }
}

fn read(list: &Tree, api_version: &str, kind: &str) -> Option<Served> {
    let resources = list.list("resources");
    let is_it = |resource: &&Tree| resource.str("kind") == kind && !resource.str("name").contains('/');
    let name = resources.iter().find(is_it)?.str("name");
    let scale = format!("{name}/scale");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let scales = resources.iter().any(|resource| resource.str("name") == scale);
    Some(Served { resource: Resource::named(group, version, name), scales })
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn discovery_says_what_serves_a_kind() {
        let list = r#"{"resources":[{"name":"foos/status","kind":"Foo"},{"name":"foos","kind":"Foo"},{"name":"foos/scale","kind":"Scale"},{"name":"bars","kind":"Bar"}]}"#;
        let list = decode(list.as_bytes()).expect("a list");
        let foo = read(&list, "example.com/v1", "Foo").expect("a resource");
        assert_eq!((foo.resource.path("n").as_str(), foo.scales), ("/apis/example.com/v1/namespaces/n/foos", true));
        assert!(!read(&list, "example.com/v1", "Bar").expect("a resource").scales);
        assert_eq!(read(&list, "example.com/v1", "Scale"), None);
    }
}
