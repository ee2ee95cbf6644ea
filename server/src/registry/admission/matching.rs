//! Selects the webhooks and policies for a request: rules, scopes, selectors, and other versions of the same resource.

use std::sync::Arc;

use api::Tree;
use api::selector::{self, Selector};
use api::status::Status;

use crate::registry::admission::{Attributes, Operation};
use crate::storage::resource::Resource;

/// The requests that a webhook, a policy or a binding is about.
pub(crate) struct Criteria {
    /// None for all resources.
    pub rules: Option<Vec<Tree>>,
    pub excluded: Vec<Tree>,
    /// Whether other versions of the same object match too.
    pub equivalent: bool,
    pub namespace_selector: Result<Selector, selector::Error>,
    pub object_selector: Result<Selector, selector::Error>,
}

/// A request that meets the criteria.
pub(crate) struct Match {
    /// The version of the resource that the rules name; None if it is that of the request.
    pub other: Option<Arc<Resource>>,
}

impl Criteria {
    /// The selectors and the match policy of a webhook or of matched resources.
    pub(crate) fn new(tree: &Tree, rules: Option<Vec<Tree>>, excluded: Vec<Tree>) -> Criteria {
        Criteria {
            rules,
            excluded,
            equivalent: tree.str("matchPolicy") != "Exact",
            namespace_selector: Selector::from_object(tree.at("namespaceSelector")),
            object_selector: Selector::from_object(tree.at("objectSelector")),
        }
    }

    /// Whether a request meets the criteria. Invalid selectors count only if the rules match.
    pub(crate) fn find(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<Option<Match>, Status> {
        if self.by_rules(&self.excluded, attributes).is_some() {
            return Ok(None);
        }
        let found = match &self.rules {
            None => Some(None),
            Some(rules) => self.by_rules(rules, attributes),
        };
        let Some(other) = found else { return Ok(None) };
        let objects = self.object_selector.as_ref().map_err(Status::internal)?;
        let namespaces = self.namespace_selector.as_ref().map_err(Status::internal)?;
        if !matches_object(objects, object, old) || !matches_namespace(namespaces, attributes, object)? {
            return Ok(None);
        }
        Ok(Some(Match { other }))
    }

    /// The outer None: no match. The inner None: a match in the request's own version.
    fn by_rules(&self, rules: &[Tree], attributes: &Attributes<'_>) -> Option<Option<Arc<Resource>>> {
        if rules.is_empty() {
            return None;
        }
        let own = request(attributes, attributes.resource);
        if rules.iter().any(|rule| matches_rule(rule, &own)) {
            return Some(None);
        }
        if !self.equivalent {
            return None;
        }
        let others = attributes.registry.storage.resources.versions_of(attributes.resource);
        let is_other = |other: &Arc<Resource>| is_equivalent(other, attributes.resource);
        let others: Vec<Arc<Resource>> = others.into_iter().filter(is_other).collect();
        let matching = |rule: &Tree| others.iter().find(|other| matches_rule(rule, &request(attributes, other)));
        rules.iter().find_map(matching).cloned().map(Some)
    }
}

/// The attributes that rules match.
pub(crate) struct Request<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// "" for what is in no namespace; namespaces themselves are in none.
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Whether two resources are versions or groups of the same stored objects.
fn is_equivalent(other: &Resource, own: &Resource) -> bool {
    other.api_version() != own.api_version() && !other.kind.storage().is_empty()
}

fn request<'a>(attributes: &'a Attributes<'_>, resource: &'a Resource) -> Request<'a> {
    Request {
        operation: attributes.operation,
        group: resource.kind.group(),
        version: resource.kind.version(),
        resource: resource.kind.plural(),
        subresource: attributes.subresource,
        namespace: if resource.kind.namespaced { attributes.namespace } else { "" },
        name: attributes.name,
    }
}

pub(crate) fn matches_rule(rule: &Tree, request: &Request<'_>) -> bool {
    let any = |key: &str, value: &str| {
        rule.list(key).iter().filter_map(Tree::as_str).any(|entry| entry == "*" || entry == value)
    };
    let scope = match rule.str("scope") {
        "Namespaced" => !request.namespace.is_empty(),
        "Cluster" => request.namespace.is_empty(),
        _ => true,
    };
    let names = rule.list("resourceNames");
    let is_named = names.is_empty() || names.iter().any(|name| name.as_str() == Some(request.name));
    scope
        && is_named
        && any("operations", operation_name(request.operation))
        && any("apiGroups", request.group)
        && any("apiVersions", request.version)
        && rule.list("resources").iter().filter_map(Tree::as_str).any(|entry| matches_resource(entry, request))
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*` (no subresource) and `*/*`.
fn matches_resource(entry: &str, request: &Request<'_>) -> bool {
    let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
    (resource == "*" || resource == request.resource) && (subresource == "*" || subresource == request.subresource)
}

pub(crate) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// The object as it is, or as it was.
fn matches_object(selector: &Selector, object: Option<&Tree>, old: Option<&Tree>) -> bool {
    let has_metadata = |object: &&Tree| object.has("metadata");
    let matches = |object: &Tree| selector.matches_map(object.map("metadata.labels"));
    selector.is_everything() || object.into_iter().chain(old).filter(has_metadata).any(matches)
}

/// Matches the labels of the namespace; if the request writes a namespace, those of the written one.
fn matches_namespace(selector: &Selector, attributes: &Attributes<'_>, object: Option<&Tree>) -> Result<bool, Status> {
    let of_namespaces = attributes.is_kind("", "Namespace");
    if selector.is_everything() || (attributes.namespace.is_empty() && !of_namespaces) {
        return Ok(true);
    }
    if of_namespaces && let Some(namespace) = object.filter(|_| attributes.subresource.is_empty()) {
        return Ok(selector.matches_map(namespace.map("metadata.labels")));
    }
    let name = if of_namespaces { attributes.name } else { attributes.namespace };
    let namespace = attributes.registry.storage.object("namespaces", name);
    let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", name))?;
    Ok(selector.matches_map(namespace.map("metadata.labels")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn rules_match_as_upstream_matches_them() {
        let check = |rule: &str, path: &str, want: bool| {
            let parts: Vec<&str> = path.split(' ').collect();
            let [operation, group, version, resource, namespace] = parts[..] else { panic!("{path}") };
            let operation = match operation {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                "CONNECT" => Operation::Connect,
                _ => Operation::Delete,
            };
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let group = if group == "core" { "" } else { group };
            let namespace = if namespace == "-" { "" } else { namespace };
            let request = Request { operation, group, version, resource, subresource, namespace, name: "n" };
            let rule = format!(r#"{{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],{rule}}}"#);
            assert_eq!(matches_rule(&json(&rule), &request), want, "{rule} {path}");
        };
        check(r#""resources":["pods"]"#, "CREATE core v1 pods a", true);
        check(r#""resources":["pods"]"#, "CREATE core v1 pods/status a", false);
        check(r#""resources":["pods/*"]"#, "CONNECT core v1 pods/exec a", true);
        check(r#""resources":["*"]"#, "CREATE core v1 pods a", true);
        check(r#""resources":["*"]"#, "CREATE core v1 pods/status a", false);
        check(r#""resources":["*/*"]"#, "CREATE core v1 pods/status a", true);
        check(r#""resources":["*/scale"]"#, "UPDATE core v1 replicationcontrollers/scale a", true);
        check(r#""resources":["pods"]"#, "CREATE apps v1 pods a", false);
        check(r#""resources":["pods"],"resourceNames":["m","n"]"#, "CREATE core v1 pods a", true);
        check(r#""resources":["pods"],"resourceNames":["m"]"#, "CREATE core v1 pods a", false);
        check(r#""resources":["pods"]"#, "CREATE core v2 pods a", false);
        check(r#""resources":["*"],"scope":"Cluster""#, "CREATE core v1 nodes -", true);
        check(r#""resources":["*"],"scope":"Cluster""#, "CREATE core v1 pods a", false);
        check(r#""resources":["*"],"scope":"Namespaced""#, "CREATE core v1 nodes -", false);
        check(r#""resources":["*"],"scope":"Namespaced""#, "DELETE core v1 pods a", true);
    }

    #[test]
    fn matches_the_new_or_the_old_object() {
        let selector = Selector::parse("a=b").expect("a selector");
        let (yes, no) = (json(r#"{"metadata":{"labels":{"a":"b"}}}"#), json(r#"{"metadata":{}}"#));
        assert!(matches_object(&selector, Some(&no), Some(&yes)));
        assert!(matches_object(&selector, Some(&yes), None));
        assert!(!matches_object(&selector, Some(&no), None));
        assert!(!matches_object(&selector, Some(&json("{}")), None));
        assert!(matches_object(&Selector::everything(), None, None));
    }
}
