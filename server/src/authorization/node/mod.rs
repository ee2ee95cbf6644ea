//! The Node authorizer: a kubelet may read the objects that its own pods refer to and write its own reports, but
//! nothing of other nodes. The NodeRestriction admission plugin checks the fields that it writes.

mod graph;

use std::sync::OnceLock;

use api::Tree;
use kinds::User;

use super::{Attributes, Authorizer, Rule, UserRules, Verdict};
use crate::storage::cache::{Caches, View};
use graph::{Graph, Kind};

pub(crate) use graph::Kind as Referred;

const USER_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";

/// The node authorizer.
pub struct Node {
    view: View<Graph>,
}

impl Node {
    /// Follows the pods and volumes in the caches.
    pub fn new(caches: &Caches) -> Node {
        Node { view: View::new(graph::SOURCES.iter().filter_map(|path| caches.get(path))) }
    }
}

/// The node name of a user: None for other users, "" for a node user without a name.
pub fn node_name(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(USER_PREFIX)?;
    user.groups.iter().any(|group| group == NODES).then_some(name)
}

/// Whether a pod refers to anything of a kind.
pub(crate) fn pod_refers_to(pod: &Tree, kind: Referred) -> bool {
    graph::references(pod).iter().any(|(other, name)| *other == kind && !name.is_empty())
}

impl Authorizer for Node {
    fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(match node_name(attributes.user) {
            None => Verdict::NO_OPINION,
            Some("") => Verdict::no_opinion(format!("unknown node for user {:?}", attributes.user.name)),
            Some(node) => decide_request(node, attributes, &|kind, attributes| {
                let key = key(attributes);
                self.view.read(|graph| graph.is_related(kind, &key, node))
            }),
        })
    }

    fn rules(&self, user: &User, _: &str) -> UserRules {
        let is_node = node_name(user).is_some();
        let error = is_node.then(|| "node authorizer does not support user rule resolution".to_string());
        UserRules { rules: Vec::new(), incomplete: is_node, error }
    }
}

fn key(attributes: &Attributes<'_>) -> String {
    match attributes.namespace {
        "" => attributes.name.to_string(),
        namespace => format!("{namespace}/{}", attributes.name),
    }
}

/// Whether an object is related to the requesting node.
type RelationCheck<'a> = &'a dyn Fn(Kind, &Attributes<'_>) -> bool;

fn decide_request(node: &str, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if attributes.path.is_some() {
        return by_rules(attributes);
    }
    match (attributes.group, attributes.resource) {
        ("", "secrets") => read_one(node, Kind::Secret, attributes, is_related),
        ("", "configmaps") => read_one(node, Kind::ConfigMap, attributes, is_related),
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => match attributes.verb {
            "update" | "patch" => related(node, Kind::Claim, attributes, is_related),
            _ => Verdict::no_opinion("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => get_one(node, Kind::Claim, attributes, is_related),
        ("", "persistentvolumes") => get_one(node, Kind::Volume, attributes, is_related),
        ("resource.k8s.io", "resourceclaims") => get_one(node, Kind::ResourceClaim, attributes, is_related),
        ("storage.k8s.io", "volumeattachments") => get_one(node, Kind::Attachment, attributes, is_related),
        ("", "serviceaccounts") => account(node, attributes, is_related),
        ("coordination.k8s.io", "leases") => lease(node, attributes),
        ("storage.k8s.io", "csinodes") => csi_node(node, attributes),
        ("resource.k8s.io", "resourceslices") => slice(node, attributes, is_related),
        ("certificates.k8s.io", "podcertificaterequests") => certificate_request(node, attributes, is_related),
        ("", "nodes") => own_node(node, attributes),
        ("", "pods") => pod(node, attributes, is_related),
        _ => by_rules(attributes),
    }
}

/// The permissions that all nodes have.
fn by_rules(attributes: &Attributes<'_>) -> Verdict {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| Rule::read_all(&crate::authorization::rbac::policy::cluster_role("system:node")));
    if rules.iter().any(|rule| rule.allows(attributes)) { Verdict::ALLOW } else { Verdict::NO_OPINION }
}

fn related(node: &str, kind: Kind, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if attributes.name.is_empty() {
        return Verdict::no_opinion("No Object name found");
    }
    if is_related(kind, attributes) {
        return Verdict::ALLOW;
    }
    Verdict::no_opinion(format!("no relationship found between node '{node}' and this object"))
}

fn get_one(node: &str, kind: Kind, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if attributes.verb != "get" {
        return Verdict::no_opinion("can only get individual resources of this type");
    }
    if !attributes.subresource.is_empty() {
        return Verdict::no_opinion("cannot get subresource");
    }
    related(node, kind, attributes, is_related)
}

fn read_one(node: &str, kind: Kind, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if !attributes.is_read_only() {
        return Verdict::no_opinion("can only read resources of this type");
    }
    if !attributes.subresource.is_empty() {
        return Verdict::no_opinion("cannot read subresource");
    }
    if attributes.namespace.is_empty() {
        return Verdict::no_opinion("can only read namespaced object of this type");
    }
    related(node, kind, attributes, is_related)
}

/// Tokens for the service accounts of its pods, and the accounts themselves, which name the image pull secrets.
fn account(node: &str, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if attributes.verb == "get" {
        return get_one(node, Kind::Account, attributes, is_related);
    }
    if attributes.verb != "create" || attributes.name.is_empty() {
        return Verdict::no_opinion("can only create tokens for individual service accounts");
    }
    if attributes.subresource != "token" {
        return Verdict::no_opinion("can only create token subresource of serviceaccount");
    }
    related(node, Kind::Account, attributes, is_related)
}

fn is_single_verb(verb: &str) -> bool {
    matches!(verb, "get" | "create" | "update" | "patch" | "delete")
}

/// The name of a new object is not known yet: admission checks it.
fn is_own(node: &str, attributes: &Attributes<'_>) -> bool {
    attributes.verb == "create" || attributes.name == node
}

fn lease(node: &str, attributes: &Attributes<'_>) -> Verdict {
    if !is_single_verb(attributes.verb) {
        return Verdict::no_opinion("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != "kube-node-lease" {
        return Verdict::no_opinion("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if !is_own(node, attributes) {
        return Verdict::no_opinion("can only access node lease with the same name as the requesting node");
    }
    Verdict::ALLOW
}

fn csi_node(node: &str, attributes: &Attributes<'_>) -> Verdict {
    if !is_single_verb(attributes.verb) {
        return Verdict::no_opinion("can only get, create, update, patch, or delete a CSINode");
    }
    if !attributes.subresource.is_empty() {
        return Verdict::no_opinion("cannot authorize CSINode subresources");
    }
    if !is_own(node, attributes) {
        return Verdict::no_opinion("can only access CSINode with the same name as the requesting node");
    }
    Verdict::ALLOW
}

fn slice(node: &str, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if !attributes.subresource.is_empty() {
        return Verdict::no_opinion("cannot authorize ResourceSlice subresources");
    }
    match attributes.verb {
        "create" => Verdict::ALLOW,
        "get" | "update" | "patch" | "delete" => related(node, Kind::Slice, attributes, is_related),
        "watch" | "list" | "deletecollection" if attributes.fields.exact("spec.nodeName") == Some(node) => {
            Verdict::ALLOW
        }
        "watch" | "list" | "deletecollection" => {
            Verdict::no_opinion("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => Verdict::no_opinion(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

fn certificate_request(node: &str, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    if !attributes.subresource.is_empty() {
        return Verdict::no_opinion("nodes may not access the status subresource of PodCertificateRequests");
    }
    match attributes.verb {
        "create" => Verdict::ALLOW,
        "get" => related(node, Kind::CertificateRequest, attributes, is_related),
        "list" | "watch" if attributes.fields.exact("spec.nodeName") == Some(node) => Verdict::ALLOW,
        "list" | "watch" => {
            Verdict::no_opinion("can only list/watch podcertificaterequests with spec.nodeName field selector")
        }
        _ => Verdict::no_opinion("can only get, list, watch and create podcertificaterequests"),
    }
}

/// Compares the name and does not use the graph: a kubelet reads its node before it has created it.
fn own_node(node: &str, attributes: &Attributes<'_>) -> Verdict {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Verdict::ALLOW,
        ("", "get" | "list" | "watch") => match &*attributes.name {
            name if name == node => Verdict::ALLOW,
            "" => Verdict::no_opinion(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Verdict::no_opinion(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Verdict::NO_OPINION,
    }
}

fn pod(node: &str, attributes: &Attributes<'_>, is_related: RelationCheck<'_>) -> Verdict {
    match (attributes.subresource, attributes.verb) {
        ("", "get") => get_one(node, Kind::Pod, attributes, is_related),
        ("", "list" | "watch") if attributes.fields.exact("spec.nodeName") == Some(node) => Verdict::ALLOW,
        ("", "list" | "watch") if !attributes.name.is_empty() => related(node, Kind::Pod, attributes, is_related),
        ("", "list" | "watch") => Verdict::no_opinion("can only list/watch pods with spec.nodeName field selector"),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Verdict::ALLOW,
        _ => Verdict::NO_OPINION,
    }
}

#[cfg(test)]
mod tests {
    use api::selector::FieldSelector;

    use super::*;

    fn kubelet(name: &str) -> User {
        let groups = vec![NODES.to_string()];
        User { name: format!("{USER_PREFIX}{name}"), groups, ..User::default() }
    }

    /// Everything named `mine` has to do with node `n`.
    fn ask(requested: &str, fields: &str) -> String {
        let user = kubelet("n");
        let mut attributes = Attributes::parse(&user, requested);
        attributes.fields = FieldSelector::parse(fields).expect("the test's own selector");
        let verdict = decide_request("n", &attributes, &|_, attributes| attributes.name == "mine");
        if verdict.is_allowed() { "allowed".to_string() } else { verdict.reason.to_string() }
    }

    #[test]
    fn only_nodes_are_nodes() {
        assert_eq!(node_name(&kubelet("n")), Some("n"));
        assert_eq!(node_name(&User { groups: Vec::new(), ..kubelet("n") }), None);
        assert_eq!(node_name(&User { name: "n".to_string(), ..kubelet("n") }), None);
    }

    #[test]
    fn a_node_reads_what_its_pods_refer_to() {
        let stranger = "no relationship found between node 'n' and this object";
        let cases = [
            ("get secrets@a mine", "allowed"),
            ("list secrets@a mine", "allowed"),
            ("get secrets@a other", stranger),
            ("list secrets@a", "No Object name found"),
            ("list secrets", "can only read namespaced object of this type"),
            ("update secrets@a mine", "can only read resources of this type"),
            ("get configmaps@a mine", "allowed"),
            ("get persistentvolumeclaims@a mine", "allowed"),
            ("list persistentvolumeclaims@a", "can only get individual resources of this type"),
            ("patch persistentvolumeclaims/status@a mine", "allowed"),
            ("get persistentvolumes other", stranger),
            ("create serviceaccounts/token@a mine", "allowed"),
            ("create serviceaccounts/token@a other", stranger),
            ("create serviceaccounts@a", "can only create tokens for individual service accounts"),
            ("get pods@a mine", "allowed"),
            ("get pods@a other", stranger),
            ("create pods@a", "allowed"),
            ("update pods@a mine", ""),
            ("get nodes n", "allowed"),
            ("get nodes m", "node 'n' cannot read 'm', only its own Node object"),
            ("list nodes", "node 'n' cannot read all nodes, only its own Node object"),
            ("delete nodes n", ""),
            ("update coordination.k8s.io:leases@kube-node-lease n", "allowed"),
            (
                "update coordination.k8s.io:leases@kube-node-lease m",
                "can only access node lease with the same name as the requesting node",
            ),
            (
                "get coordination.k8s.io:leases@a n",
                r#"can only access leases in the "kube-node-lease" system namespace"#,
            ),
            ("get storage.k8s.io:csinodes n", "allowed"),
            ("list services", "allowed"),
            ("delete services@a x", ""),
        ];
        for (requested, want) in cases {
            assert_eq!(ask(requested, ""), want, "{requested}");
        }
    }

    #[test]
    fn node_lists_only_its_own_objects() {
        let pods = "can only list/watch pods with spec.nodeName field selector";
        assert_eq!(ask("list pods", ""), pods);
        assert_eq!(ask("list pods", "spec.nodeName=m"), pods);
        assert_eq!(ask("watch pods", "spec.nodeName=n"), "allowed");
        assert_eq!(ask("list resource.k8s.io:resourceslices", "spec.nodeName=n"), "allowed");
        assert_ne!(ask("list resource.k8s.io:resourceslices", "spec.nodeName!=n"), "allowed");
    }
}
