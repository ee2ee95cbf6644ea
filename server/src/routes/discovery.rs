//! What is served: the lists of groups, versions and resources, plain and aggregated.

use std::sync::Arc;

use api::status::Status;
use api::{Tree, base64, json, tree};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use http::{HeaderValue, Method, header};
use kinds::{Kind, Subresource, Verb};

use crate::call::{Answer, answer};
use crate::registry::respond;
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::negotiate::{self, Accepted, Media, NotAcceptable};
use crate::routes::Routes;
use crate::storage::resource::{Resource, Resources};

/// The aggregated documents, made once.
pub(crate) struct Documents {
    core: Aggregated,
    groups: Aggregated,
}

struct Aggregated {
    json: Vec<u8>,
    protobuf: Vec<u8>,
    etag: HeaderValue,
}

impl Documents {
    pub(crate) fn new(resources: &Resources) -> Documents {
        let mut groups = group_names(resources);
        groups.retain(|group| !group.is_empty());
        Documents {
            core: Aggregated::new(&aggregated(resources, &[""])),
            groups: Aggregated::new(&aggregated(resources, &groups)),
        }
    }
}

impl Aggregated {
    fn new(tree: &Tree) -> Aggregated {
        let json = json::encode(tree, api::schema::type_of("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"));
        let etag = format!("\"{}\"", hex(digest(&SHA512, &json).as_ref()));
        let protobuf = crate::request::codec::protobuf(tree, "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
        Aggregated { json, protobuf, etag: HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"0\"")) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Groups in the order of preference, the core group first.
fn group_names(resources: &Resources) -> Vec<&'static str> {
    let mut names = Vec::new();
    for resource in resources.all() {
        if !names.contains(&resource.kind.group) {
            names.push(resource.kind.group);
        }
    }
    names
}

fn versions_of(resources: &Resources, group: &str) -> Vec<&'static str> {
    let mut versions = Vec::new();
    for resource in resources.all().iter().filter(|resource| resource.kind.group == group) {
        if !versions.contains(&resource.kind.version) {
            versions.push(resource.kind.version);
        }
    }
    versions
}

fn resources_of<'a>(
    resources: &'a Resources,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Resource>> {
    resources.all().iter().filter(move |resource| resource.kind.group == group && resource.kind.version == version)
}

/// Serves /api, /apis and the paths below them down to a version.
pub(crate) fn route(routes: &Routes, head: &RequestHead) -> Result<Option<Answer>, Status> {
    if head.path.starts_with("//") {
        return Ok(None);
    }
    let parts: Vec<&str> = head.path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => top(head, &routes.discovery.core, api_versions(routes)).map(Some),
        ["apis"] => top(head, &routes.discovery.groups, group_list(routes)).map(Some),
        ["api", "v1"] => plain(head, resource_list(routes, "", "v1")).map(Some),
        ["api", _] => Err(Status::no_resource()),
        ["apis", group] if !group.is_empty() && routes.registry.storage.resources.has_group(group) => {
            plain_any(head, api_group(routes, group)).map(Some)
        }
        ["apis", group, version] if routes.registry.storage.resources.has_version(group, version) => {
            plain(head, resource_list(routes, group, version)).map(Some)
        }
        ["apis", group, _] if !group.is_empty() && routes.registry.storage.resources.has_group(group) => {
            Err(Status::no_resource())
        }
        _ => Ok(None),
    }
}

fn check_method(head: &RequestHead) -> Result<(), Status> {
    if matches!(head.method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Status::method_not_allowed()) }
}

fn plain(head: &RequestHead, tree: Tree) -> Result<Answer, Status> {
    check_method(head)?;
    plain_any(head, tree)
}

fn plain_any(head: &RequestHead, tree: Tree) -> Result<Answer, Status> {
    let accepted = negotiate::accept(head.header(header::ACCEPT), false)?;
    Ok(encoded(&tree, accepted))
}

/// Discovery's own types are found by name: they have no group of their own.
fn encoded(tree: &Tree, accepted: Accepted) -> Answer {
    let ty = api::schema::type_named("meta/v1", tree.str("kind"));
    match (accepted.media, ty) {
        (Media::Protobuf, Some(ty)) => answer(200, accepted.media.name(), api::protobuf::encode(tree, ty)),
        (Media::Protobuf, None) => respond::encoded_as(200, tree, ty, Accepted::JSON),
        _ => respond::encoded_as(200, tree, ty, accepted),
    }
}

fn top(head: &RequestHead, documents: &Aggregated, plain: Tree) -> Result<Answer, Status> {
    // Upstream's list of groups accepts every method.
    if head.path.trim_end_matches('/') == "/api" {
        check_method(head)?;
    }
    match requested(head.header(header::ACCEPT).unwrap_or("")) {
        Requested::Aggregated(media) => Ok(aggregated_answer(head, documents, media)),
        Requested::Plain => plain_any(head, plain),
        Requested::Nothing => Err(NotAcceptable::Shape.into()),
    }
}

enum Requested {
    Aggregated(Media),
    Plain,
    Nothing,
}

/// The first clause that can be served.
fn requested(accept: &str) -> Requested {
    let mut asked = false;
    for clause in accept.split(',').map(str::trim) {
        let name = clause.split(';').next().unwrap_or("").trim();
        let has = |param: &str| clause.split(';').any(|part| part.trim() == param);
        let aggregated = clause.contains("as=APIGroupDiscoveryList");
        asked |= aggregated;
        let served = has("g=apidiscovery.k8s.io") && has("v=v2");
        match name {
            "application/json" if aggregated && served => return Requested::Aggregated(Media::Json),
            "application/vnd.kubernetes.protobuf" if aggregated && served => {
                return Requested::Aggregated(Media::Protobuf);
            }
            _ if !aggregated => return Requested::Plain,
            _ => {}
        }
    }
    if asked { Requested::Nothing } else { Requested::Plain }
}

fn aggregated_answer(head: &RequestHead, documents: &Aggregated, media: Media) -> Answer {
    let same = head.header(header::IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == documents.etag.as_bytes());
    let (content_type, bytes) = match media {
        Media::Protobuf => (
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            &documents.protobuf,
        ),
        _ => ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &documents.json),
    };
    let mut response =
        if same { answer(304, content_type, Body::empty()) } else { answer(200, content_type, bytes.clone()) };
    if same {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    response.headers_mut().insert(header::ETAG, documents.etag.clone());
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn api_versions(routes: &Routes) -> Tree {
    let address = std::net::SocketAddr::new(routes.registry.config.advertise_address, routes.registry.config.port);
    tree! {
        "kind" => "APIVersions",
        "versions" => api::list!["v1"],
        "serverAddressByClientCIDRs" => api::list![tree! { "clientCIDR" => "0.0.0.0/0", "serverAddress" => address.to_string() }],
    }
}

fn group_list(routes: &Routes) -> Tree {
    let groups = group_names(&routes.registry.storage.resources).into_iter().filter(|group| !group.is_empty());
    let groups: Vec<Tree> = groups.map(|group| group_entry(routes, group)).collect();
    tree! { "kind" => "APIGroupList", "apiVersion" => "v1", "groups" => groups }
}

fn group_entry(routes: &Routes, group: &str) -> Tree {
    let version = |version: &&str| tree! { "groupVersion" => format!("{group}/{version}"), "version" => *version };
    let versions: Vec<Tree> = versions_of(&routes.registry.storage.resources, group).iter().map(version).collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    tree! { "name" => group, "versions" => versions, "preferredVersion" => preferred }
}

fn api_group(routes: &Routes, group: &str) -> Tree {
    let mut tree = group_entry(routes, group);
    tree.set("kind", "APIGroup");
    tree.set("apiVersion", "v1");
    tree
}

fn verbs(verbs: &[Verb]) -> Tree {
    Tree::List(verbs.iter().map(|verb| Tree::from(verb.name())).collect())
}

fn names(names: &[&str]) -> Tree {
    Tree::List(names.iter().map(|name| Tree::from(*name)).collect())
}

fn resource_list(routes: &Routes, group: &str, version: &str) -> Tree {
    let mut resources = Vec::new();
    for resource in resources_of(&routes.registry.storage.resources, group, version) {
        resources.push(resource_entry(resource));
        for sub in resource.kind.subresources {
            resources.push(subresource_entry(resource.kind, sub));
        }
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    let mut tree = tree! { "kind" => "APIResourceList", "groupVersion" => group_version, "resources" => resources };
    if !group.is_empty() {
        tree.set("apiVersion", "v1");
    }
    tree
}

fn resource_entry(resource: &Resource) -> Tree {
    let kind = resource.kind;
    let mut entry = tree! {
        "name" => kind.plural, "singularName" => kind.singular, "namespaced" => kind.namespaced,
        "kind" => kind.kind, "verbs" => verbs(kind.verbs),
    };
    for (key, values) in [("shortNames", kind.short_names), ("categories", kind.categories)] {
        if !values.is_empty() {
            entry.set(key, names(values));
        }
    }
    if !kind.storage.is_empty() && kind.has(Verb::Create) {
        entry.set("storageVersionHash", storage_hash(resource.stored));
    }
    entry
}

/// Upstream's fingerprint of the version in which a kind is stored.
fn storage_hash(kind: &Kind) -> String {
    let version = kind.upstream_version.unwrap_or(kind.version);
    let text = format!("{}/{}/{}", kind.group, version, kind.kind);
    base64::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

fn subresource_entry(kind: &Kind, sub: &Subresource) -> Tree {
    let mut entry = tree! {
        "name" => format!("{}/{}", kind.plural, sub.name), "singularName" => "", "namespaced" => kind.namespaced,
        "kind" => sub.gvk.map_or(kind.kind, |(_, _, kind)| kind), "verbs" => verbs(sub.verbs),
    };
    if let Some((group, version, _)) = sub.gvk.filter(|(group, _, _)| *group != kind.group) {
        entry.set("group", group);
        entry.set("version", version);
    }
    entry
}

fn aggregated(resources: &Resources, groups: &[&str]) -> Tree {
    let items: Vec<Tree> = groups.iter().map(|group| aggregated_group(resources, group)).collect();
    tree! { "kind" => "APIGroupDiscoveryList", "apiVersion" => "apidiscovery.k8s.io/v2", "metadata" => tree! {}, "items" => items }
}

fn aggregated_group(resources: &Resources, group: &str) -> Tree {
    let versions: Vec<Tree> = versions_of(resources, group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Tree> =
                resources_of(resources, group, version).map(|resource| aggregated_resource(resource.kind)).collect();
            tree! { "version" => version, "resources" => resources, "freshness" => "Current" }
        })
        .collect();
    let metadata = if group.is_empty() {
        tree! {}
    } else {
        tree! { "name" => group }
    };
    tree! { "metadata" => metadata, "versions" => versions }
}

fn response_kind(group: &str, version: &str, kind: &str) -> Tree {
    tree! { "group" => group, "version" => version, "kind" => kind }
}

fn aggregated_resource(kind: &Kind) -> Tree {
    let mut entry = tree! {
        "resource" => kind.plural,
        "responseKind" => response_kind("", "", kind.kind),
        "scope" => if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource" => kind.singular,
        "verbs" => verbs(kind.verbs),
    };
    for (key, values) in [("shortNames", kind.short_names), ("categories", kind.categories)] {
        if !values.is_empty() {
            entry.set(key, names(values));
        }
    }
    if !kind.subresources.is_empty() {
        let subresources: Vec<Tree> = kind.subresources.iter().map(|sub| aggregated_subresource(kind, sub)).collect();
        entry.set("subresources", subresources);
    }
    entry
}

fn aggregated_subresource(kind: &Kind, sub: &Subresource) -> Tree {
    let (group, version, name) = match sub.gvk {
        Some((group, version, name)) if group != kind.group => (group, version, name),
        Some((_, _, name)) => ("", "", name),
        None => ("", "", kind.kind),
    };
    tree! { "subresource" => sub.name, "responseKind" => response_kind(group, version, name), "verbs" => verbs(sub.verbs) }
}
