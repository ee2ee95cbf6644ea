//! The served resources from aggregated discovery, in the preferred version of each group.

use std::collections::BTreeSet;

use api::Tree;
use api::tree::Str;
use client::{Client, Resource, Result};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATHS: [&str; 2] = ["/api", "/apis"];

/// A served resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServedResource {
    pub group: Str,
    pub version: Str,
    pub plural: Str,
    pub kind: Str,
    pub namespaced: bool,
    pub verbs: BTreeSet<Str>,
}

impl ServedResource {
    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }

    pub(crate) fn resource(&self) -> Resource {
        Resource::named(&self.group, &self.version, &self.plural)
    }

    /// `GROUP/VERSION` as upstream prints it: with a slash even for the core group.
    pub(crate) fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Discovery {
    /// Sorted by group and name.
    pub resources: Vec<ServedResource>,
    /// `GROUP/VERSION` of API services that did not respond, whose resources are unknown.
    pub stale: Vec<String>,
}

/// Reads the discovery documents.
pub(crate) async fn fetch(client: &Client) -> Result<Discovery> {
    let mut documents = Vec::new();
    for path in PATHS {
        documents.push(client.get_path(path, ACCEPT).await?);
    }
    Ok(Discovery::read(&documents))
}

impl Discovery {
    pub(crate) fn read(documents: &[Tree]) -> Discovery {
        let mut discovery = Discovery::default();
        for group in documents.iter().flat_map(|document| document.list("items")) {
            discovery.read_group(group);
        }
        discovery.resources.sort();
        discovery
    }

    fn read_group(&mut self, group: &Tree) {
        let name = group.str("metadata.name");
        let mut seen = BTreeSet::new();
        for version in group.list("versions") {
            if version.str("freshness") == "Stale" {
                self.stale.push(format!("{name}/{}", version.str("version")));
            }
            for resource in version.list("resources") {
                // Versions are in the group's order of preference.
                if seen.insert(resource.str("resource")) {
                    self.resources.push(read_resource(name, version.str("version"), resource));
                }
            }
        }
    }

    /// Whether resources of a group are unknown.
    pub(crate) fn is_stale(&self, group: &str) -> bool {
        self.stale.iter().any(|stale| stale.split_once('/').is_some_and(|(name, _)| name == group))
    }

    /// The resource of a kind.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&ServedResource> {
        let start = self.resources.partition_point(|served| served.group.as_str() < group);
        let of_group = self.resources[start..].iter().take_while(|served| served.group == group);
        of_group.into_iter().find(|served| served.kind == kind)
    }
}

fn read_resource(group: &str, version: &str, resource: &Tree) -> ServedResource {
    ServedResource {
        group: group.into(),
        version: version.into(),
        plural: resource.str("resource").into(),
        kind: resource.str("responseKind.kind").into(),
        namespaced: resource.str("scope") == "Namespaced",
        verbs: resource.list("verbs").iter().filter_map(Tree::as_str).map(Str::new).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"items":[
        {"metadata":{"name":"e.com"},"versions":[
            {"version":"v2","freshness":"Current","resources":[
                {"resource":"things","responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list","delete"]}]},
            {"version":"v1","freshness":"Stale","resources":[
                {"resource":"things","responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list"]},
                {"resource":"olds","responseKind":{"kind":"Old"},"scope":"Cluster","verbs":["list"]}]}]}]}"#;

    #[test]
    fn uses_the_preferred_version() {
        let core = r#"{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
            {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["delete"]}]}]}]}"#;
        let read = |text: &str| api::json::decode(text.as_bytes()).expect("JSON");
        let discovery = Discovery::read(&[read(core), read(DOCUMENT)]);
        let paths: Vec<String> = discovery.resources.iter().map(|served| served.resource().path("")).collect();
        assert_eq!(paths, ["/api/v1/pods", "/apis/e.com/v1/olds", "/apis/e.com/v2/things"]);
        assert_eq!(discovery.stale, ["e.com/v1"]);
        assert!(discovery.is_stale("e.com") && !discovery.is_stale("com"));
        let things = discovery.find_kind("e.com", "Thing").expect("it is served");
        assert_eq!(things.resource().path("a"), "/apis/e.com/v2/namespaces/a/things");
        assert!(things.supports(&["list", "delete"]) && !things.supports(&["watch"]));
    }
}
