//! Extension API servers in discovery: their groups and versions among the built-in ones, and their resources.

use std::cmp::Reverse;
use std::sync::Arc;

use api::{Str, Tree, tree};
use kinds::custom::compare_versions;

use crate::aggregation::priorities::{group_priority, version_priority};
use crate::aggregation::{Aggregator, ApiService};

/// The group that this server serves without an APIService.
const FIRST_GROUP: &str = "apiregistration.k8s.io";

/// The group versions of extension API servers.
pub(super) struct Extensions {
    services: Vec<Arc<ApiService>>,
}

impl Extensions {
    pub(super) fn new(aggregator: &Aggregator) -> Extensions {
        Extensions { services: aggregator.all() }
    }

    pub(super) fn has_group(&self, group: &str) -> bool {
        self.group_entries(group).next().is_some()
    }

    fn group_entries<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<ApiService>> {
        self.services.iter().filter(move |service| service.group == group)
    }

    pub(super) fn find(&self, group: &str, version: &str) -> Option<&Arc<ApiService>> {
        self.services.iter().find(|service| service.group == group && service.version == version)
    }

    /// All groups by priority. `names` are the groups of this server, in order.
    pub(super) fn merge_groups(&self, mut names: Vec<Str>) -> Vec<Str> {
        if self.services.is_empty() {
            return names;
        }
        let own = names.clone();
        for service in &self.services {
            if !names.iter().any(|name| *name == service.group) {
                names.push(Str::new(&service.group));
            }
        }
        let priority = |group: &Str| {
            let local = if own.contains(group) { group_priority(group) } else { 0 };
            self.group_entries(group).map(|service| service.group_priority).max().unwrap_or(0).max(local)
        };
        names.sort_by_cached_key(|group| (group != FIRST_GROUP, Reverse(priority(group)), group.clone()));
        names
    }

    /// All versions of a group by priority. `versions` are the versions of this server, in order.
    pub(super) fn merge_versions(&self, group: &str, mut versions: Vec<Str>) -> Vec<Str> {
        if !self.has_group(group) {
            return versions;
        }
        for service in self.group_entries(group) {
            if !versions.iter().any(|version| *version == service.version) {
                versions.push(Str::new(&service.version));
            }
        }
        let priority = |version: &Str| {
            let remote = self.find(group, version).map(|service| service.version_priority);
            remote.unwrap_or_else(|| version_priority(group, version))
        };
        versions.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| compare_versions(b, a)));
        versions
    }
}

/// A version of an aggregated document. An unavailable server keeps its last known resources.
pub(super) fn aggregated_version(aggregator: &Aggregator, service: &ApiService) -> Tree {
    let known = aggregator.resources(service);
    let is_current = service.is_available && known.is_some();
    let mut entry = tree! { "version" => service.version.as_str() };
    if let Some(list) = known {
        entry.set("resources", aggregated_resources(&list));
    }
    entry.set("freshness", if is_current { "Current" } else { "Stale" });
    entry
}

/// An APIResourceList in the form of aggregated discovery: subresources are part of their resource.
fn aggregated_resources(list: &Tree) -> Vec<Tree> {
    let all = list.list("resources");
    let is_resource = |entry: &&Tree| !entry.str("name").contains('/');
    all.iter().filter(is_resource).map(|entry| aggregated_resource(entry, all)).collect()
}

fn aggregated_resource(entry: &Tree, all: &[Tree]) -> Tree {
    let name = entry.str("name");
    let mut resource = tree! {
        "resource" => name,
        "responseKind" => response_kind(entry),
        "scope" => if entry.bool("namespaced") { "Namespaced" } else { "Cluster" },
        "singularResource" => entry.str("singularName"),
        "verbs" => entry.at("verbs").clone(),
    };
    for key in ["shortNames", "categories"] {
        if !entry.list(key).is_empty() {
            resource.set(key, entry.at(key).clone());
        }
    }
    let subresource = |entry: &Tree| {
        let (parent, sub) = entry.str("name").split_once('/')?;
        let own = parent == name;
        own.then(|| tree! { "subresource" => sub, "responseKind" => response_kind(entry), "verbs" => entry.at("verbs").clone() })
    };
    let subresources: Vec<Tree> = all.iter().filter_map(subresource).collect();
    if !subresources.is_empty() {
        resource.set("subresources", subresources);
    }
    resource
}

fn response_kind(entry: &Tree) -> Tree {
    tree! { "group" => entry.str("group"), "version" => entry.str("version"), "kind" => entry.str("kind") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(group: &str, version: &str, priorities: (i64, i64)) -> Arc<ApiService> {
        let spec = tree! {
            "group" => group, "version" => version, "groupPriorityMinimum" => priorities.0,
            "versionPriority" => priorities.1, "service" => tree! { "namespace" => "n", "name" => "s" },
        };
        let object = tree! { "metadata" => tree! { "name" => format!("{version}.{group}") }, "spec" => spec };
        Arc::new(ApiService::new(&object).expect("a remote service"))
    }

    #[test]
    fn groups_and_versions_are_ordered_by_priority() {
        let services = vec![
            service("a.example.com", "v1", (100, 10)),
            service("a.example.com", "v1beta1", (100, 15)),
            service("a.example.com", "v2", (100, 15)),
            service("b.example.com", "v1", (1000, 10)),
            service("apps", "v9", (1000, 15)),
        ];
        let extensions = Extensions { services };
        let names = |texts: &[&str]| texts.iter().map(|text| Str::new(text)).collect::<Vec<Str>>();
        let own = names(&["apiregistration.k8s.io", "apps", "batch", "aa.example.com"]);
        let want = ["apiregistration.k8s.io", "apps", "batch", "aa.example.com", "b.example.com", "a.example.com"];
        assert_eq!(extensions.merge_groups(own), want);
        assert_eq!(extensions.merge_versions("a.example.com", Vec::new()), ["v2", "v1beta1", "v1"]);
        assert_eq!(extensions.merge_versions("apps", names(&["v1"])), ["v9", "v1"]);
        assert_eq!(extensions.merge_versions("batch", names(&["v1"])), ["v1"]);
    }

    #[test]
    fn resources_of_lists_become_aggregated() {
        let list = r#"{"resources":[
            {"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get"],"shortNames":["th"]},
            {"name":"things/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["update"]}]}"#;
        let list = api::json::decode(list.as_bytes()).expect("JSON");
        let got = aggregated_resources(&list);
        let want = r#"{"resource":"things","responseKind":{"group":"","version":"","kind":"Thing"},"scope":"Namespaced","singularResource":"thing","verbs":["get"],"shortNames":["th"],"subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["update"]}]}"#;
        assert_eq!(got, [api::json::decode(want.as_bytes()).expect("JSON")]);
    }
}
