//! The resources that a server has: discovery, its cache below `~/.kube/cache`, and the resolution of the names that
//! users write.

mod cache;
mod mapper;

pub(crate) use cache::{Cache, read_groups};
pub(crate) use mapper::Mapper;

use api::query::encode_segment;
use api::{Str, Tree};

/// A resource as discovery describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) is_namespaced: bool,
    pub(crate) verbs: Vec<Str>,
    pub(crate) short_names: Vec<Str>,
    pub(crate) categories: Vec<Str>,
    /// `scale`, `status`, and other parts of its objects.
    pub(crate) subresources: Vec<String>,
}

impl Resource {
    /// `apps/v1`, or `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`, or `pods`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The name in warnings: `nodes`, or `clusterroles` with `in group` and the group.
    pub(crate) fn plural_in_group(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}' in group '{}", self.plural, self.group) }
    }

    /// `deployment.apps`, as messages name an object.
    pub(crate) fn kind_name(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) }
    }

    /// `Deployment.apps`, as errors name a kind.
    pub(crate) fn kind_name_upper(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether the server serves a verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    /// The path of its objects, in a namespace if it has one and it is given.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let base = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.is_namespaced && !namespace.is_empty() {
            format!("{base}/namespaces/{}/{}", encode_segment(namespace), self.plural)
        } else {
            format!("{base}/{}", self.plural)
        }
    }

    /// The path of an object.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), encode_segment(name))
    }
}

/// The versions of a group and the resources of each version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) preferred: String,
    /// In the server's order; None if the server could not say what a version has.
    pub(crate) versions: Vec<(String, Option<Vec<Resource>>)>,
}

/// Reads the two documents of aggregated discovery.
pub(crate) fn read_aggregated(documents: &[Tree]) -> Vec<Group> {
    documents.iter().flat_map(|document| document.list("items")).map(read_group).collect()
}

fn read_group(item: &Tree) -> Group {
    let name = item.str("metadata.name").to_string();
    let versions = item.list("versions").iter().map(|version| {
        let number = version.str("version").to_string();
        let is_stale = version.str("freshness") == "Stale" && version.list("resources").is_empty();
        let resources = version.list("resources").iter().filter_map(|one| read_resource(one, &name, &number)).collect();
        (number, (!is_stale).then_some(resources))
    });
    let versions: Vec<_> = versions.collect();
    let preferred = versions.first().map(|(version, _)| version.clone()).unwrap_or_default();
    Group { name, preferred, versions }
}

fn read_resource(item: &Tree, group: &str, version: &str) -> Option<Resource> {
    let kind = item.str("responseKind.kind");
    if kind.is_empty() {
        return None;
    }
    let plural = item.str("resource").to_string();
    let singular = item.str("singularResource");
    let subresources = item.list("subresources").iter().map(|sub| sub.str("subresource").to_string());
    Some(Resource {
        group: group.to_string(),
        version: version.to_string(),
        singular: if singular.is_empty() { kind.to_lowercase() } else { singular.to_string() },
        plural,
        kind: kind.to_string(),
        is_namespaced: item.str("scope") == "Namespaced",
        verbs: texts(item.list("verbs")),
        short_names: texts(item.list("shortNames")),
        categories: texts(item.list("categories")),
        subresources: subresources.collect(),
    })
}

fn texts(list: &[Tree]) -> Vec<Str> {
    list.iter().filter_map(Tree::as_str).map(Str::from).collect()
}

/// Reads an APIResourceList, of a server without aggregated discovery.
pub(crate) fn read_resource_list(list: &Tree) -> Vec<Resource> {
    let (group, version) = list.str("groupVersion").rsplit_once('/').unwrap_or(("", list.str("groupVersion")));
    let mut resources: Vec<Resource> = Vec::new();
    for item in list.list("resources") {
        let name = item.str("name");
        if let Some((parent, sub)) = name.split_once('/') {
            if let Some(resource) = resources.iter_mut().find(|one| one.plural == parent) {
                resource.subresources.push(sub.to_string());
            }
            continue;
        }
        let kind = item.str("kind").to_string();
        let singular = item.str("singularName");
        resources.push(Resource {
            group: group.to_string(),
            version: version.to_string(),
            plural: name.to_string(),
            singular: if singular.is_empty() { kind.to_lowercase() } else { singular.to_string() },
            kind,
            is_namespaced: item.bool("namespaced"),
            verbs: texts(item.list("verbs")),
            short_names: texts(item.list("shortNames")),
            categories: texts(item.list("categories")),
            subresources: Vec::new(),
        });
    }
    resources
}
