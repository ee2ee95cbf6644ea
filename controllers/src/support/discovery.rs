//! What the server serves, read from the aggregated discovery documents: of each group's resources the
//! version that the group prefers.

use std::collections::BTreeSet;

use api::Tree;
use api::tree::Str;
use client::{Client, Resource, Result};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATHS: [&str; 2] = ["/api", "/apis"];

/// A resource that is served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    pub group: Str,
    pub version: Str,
    pub plural: Str,
    pub kind: Str,
    pub namespaced: bool,
    pub verbs: BTreeSet<Str>,
}

impl Served {
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }

    pub fn resource(&self) -> Resource {
        Resource::named(&self.group, &self.version, &self.plural)
    }

    /// As upstream prints it: the group's slash stands there even for the core group.
    pub fn slashed(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovery {
    /// In the order of group and name.
    pub resources: Vec<Served>,
    /// `GROUP/VERSION` of those whose server did not answer, so that what they serve is not known.
    pub stale: Vec<String>,
}

/// Asks the server.
pub async fn ask(client: &Client) -> Result<Discovery> {
    let mut documents = Vec::new();
    for path in PATHS {
        documents.push(client.get_path(path, ACCEPT).await?);
    }
    Ok(Discovery::read(&documents))
}

impl Discovery {
    pub fn read(documents: &[Tree]) -> Discovery {
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
                // The versions come in the order in which the group prefers them.
                if seen.insert(resource.str("resource")) {
                    self.resources.push(read_resource(name, version.str("version"), resource));
                }
            }
        }
    }

    /// Whether something of a group is not known.
    pub fn is_stale(&self, group: &str) -> bool {
        self.stale.iter().any(|stale| stale.split_once('/').is_some_and(|(name, _)| name == group))
    }

    /// Which resource holds a kind of a group.
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<&Served> {
        self.resources.iter().find(|served| served.group == group && served.kind == kind)
    }
}

fn read_resource(group: &str, version: &str, resource: &Tree) -> Served {
    Served {
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
    fn of_two_versions_the_preferred_one_is_taken() {
        let core = r#"{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
            {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["delete"]}]}]}]}"#;
        let read = |text: &str| api::json::decode(text.as_bytes()).expect("JSON");
        let discovery = Discovery::read(&[read(core), read(DOCUMENT)]);
        let paths: Vec<String> = discovery.resources.iter().map(|served| served.resource().path("")).collect();
        assert_eq!(paths, ["/api/v1/pods", "/apis/e.com/v1/olds", "/apis/e.com/v2/things"]);
        assert_eq!(discovery.stale, ["e.com/v1"]);
        assert!(discovery.is_stale("e.com") && !discovery.is_stale("com"));
        let things = discovery.of_kind("e.com", "Thing").expect("it is served");
        assert_eq!(things.resource().path("a"), "/apis/e.com/v2/namespaces/a/things");
        assert!(things.can(&["list", "delete"]) && !things.can(&["watch"]));
    }
}
