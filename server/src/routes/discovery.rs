//! Discovery: the lists of groups, versions and resources, plain and aggregated.

mod extension;

use std::sync::{Arc, OnceLock};

use api::status::Status;
use api::{Str, Tree, base64, json, tree};
use aws_lc_rs::digest::{SHA256, SHA512, digest};
use http::{HeaderValue, Method, header};
use kinds::custom::compare_versions;
use kinds::{Subresource, Verb};
use stdx::sync::Mutex;

use crate::aggregation::Aggregator;
use crate::call::{HttpResponse, build_response};
use crate::registry::respond;
use crate::request::body::Body;
use crate::request::head::RequestHead;
use crate::request::negotiate::{self, Accepted, Media, NotAcceptable};
use crate::routes::Routes;
use crate::storage::custom::is_served;
use crate::storage::kind::Kind;
use crate::storage::resource::{Resource, Resources};
use extension::Extensions;

/// The aggregated documents: built when they are first requested, and again after definitions have changed.
#[derive(Default)]
pub(crate) struct Documents {
    core: OnceLock<Arc<AggregatedDocument>>,
    groups: Mutex<Option<(Changes, Arc<AggregatedDocument>)>>,
}

/// The changes of definitions, and of extension API servers.
type Changes = (u64, (u64, u64));

struct AggregatedDocument {
    json: Vec<u8>,
    protobuf: Vec<u8>,
    etag: HeaderValue,
}

impl Documents {
    fn core(&self, resources: &Resources) -> Arc<AggregatedDocument> {
        let build = || Arc::new(AggregatedDocument::new(&aggregated_core(resources)));
        self.core.get_or_init(build).clone()
    }

    fn groups(&self, resources: &Resources, aggregator: &Aggregator) -> Arc<AggregatedDocument> {
        let changes = (resources.custom.changes(), aggregator.changes());
        let mut groups = self.groups.lock();
        match &*groups {
            Some((built, document)) if *built == changes => document.clone(),
            _ => {
                let document = Arc::new(AggregatedDocument::new(&aggregated(resources, aggregator)));
                *groups = Some((changes, document.clone()));
                document
            }
        }
    }
}

impl AggregatedDocument {
    fn new(tree: &Tree) -> AggregatedDocument {
        let json = json::encode(tree, api::schema::type_of("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"));
        let etag = format!("\"{}\"", hex(digest(&SHA512, &json).as_ref()));
        let protobuf = crate::request::codec::protobuf(tree, "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
        AggregatedDocument {
            json,
            protobuf,
            etag: HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"0\"")),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Groups in the order of preference: the core group first, those of definitions last.
fn group_names(resources: &Resources) -> Vec<Str> {
    let mut names: Vec<Str> = Vec::new();
    for resource in resources.built_in() {
        if names.last().is_none_or(|last| last != resource.kind.group())
            && !names.iter().any(|name| name == resource.kind.group())
        {
            names.push(Str::new(resource.kind.group()));
        }
    }
    let custom: Vec<Str> = resources.custom.groups().into_iter().filter(|group| !names.contains(group)).collect();
    names.extend(custom);
    names
}

/// The resources of a group: the built-in ones, then those of definitions by name.
fn resources_of(resources: &Resources, group: &str) -> Vec<Arc<Resource>> {
    let built_in = resources.built_in().iter().filter(|resource| resource.kind.group() == group);
    let mut all: Vec<Arc<Resource>> = built_in.cloned().collect();
    for entry in resources.custom.group_entries(group) {
        all.extend(resources.custom.resources(&entry).iter().filter(|resource| is_served(resource)).cloned());
    }
    all
}

/// The versions of a group by preference: those of built-in kinds in the order of their list.
fn versions_of(resources: &[Arc<Resource>]) -> Vec<Str> {
    let mut versions: Vec<Str> = Vec::new();
    let mut add = |resource: &Arc<Resource>| {
        if !versions.iter().any(|version| version == resource.kind.version()) {
            versions.push(Str::new(resource.kind.version()));
        }
    };
    let (built_in, mut custom): (Vec<_>, Vec<_>) = resources.iter().partition(|resource| resource.kind.row().is_some());
    custom.sort_by(|a, b| compare_versions(b.kind.version(), a.kind.version()));
    built_in.into_iter().chain(custom).for_each(&mut add);
    versions
}

/// Serves /api, /apis and the paths below them down to a version.
pub(crate) fn route(routes: &Routes, head: &RequestHead) -> Result<Option<HttpResponse>, Status> {
    if head.path.starts_with("//") {
        return Ok(None);
    }
    let resources = &routes.registry.storage.resources;
    let parts: Vec<&str> = head.path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => top(head, || routes.discovery.core(resources), || api_versions(routes)).map(Some),
        ["apis"] => {
            let groups = || routes.discovery.groups(resources, &routes.aggregator);
            top(head, groups, || group_list(resources, &routes.aggregator)).map(Some)
        }
        ["api", "v1"] => plain(head, resource_list(&resources_of(resources, ""), "", "v1")).map(Some),
        ["api", _] => Err(Status::no_resource()),
        ["apis", group] if !group.is_empty() => {
            let (found, extensions) = (resources_of(resources, group), Extensions::new(&routes.aggregator));
            let is_served = !found.is_empty() || extensions.has_group(group);
            is_served.then(|| plain_any(head, api_group(&found, &extensions, group))).transpose()
        }
        ["apis", group, version] if !group.is_empty() => version_list(resources, head, group, version),
        _ => Ok(None),
    }
}

fn version_list(
    resources: &Resources,
    head: &RequestHead,
    group: &str,
    version: &str,
) -> Result<Option<HttpResponse>, Status> {
    let found = resources_of(resources, group);
    if found.iter().any(|resource| resource.kind.version() == version) {
        return plain(head, resource_list(&found, group, version)).map(Some);
    }
    // In upstream another handler serves the groups of definitions, and has no Status for this.
    if resources.has_group(group) { Err(Status::no_resource()) } else { Ok(None) }
}

fn check_method(head: &RequestHead) -> Result<(), Status> {
    if matches!(head.method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Status::method_not_allowed()) }
}

fn plain(head: &RequestHead, tree: Tree) -> Result<HttpResponse, Status> {
    check_method(head)?;
    plain_any(head, tree)
}

fn plain_any(head: &RequestHead, tree: Tree) -> Result<HttpResponse, Status> {
    let accepted = negotiate::accept(head.header(header::ACCEPT), false)?;
    Ok(encoded(&tree, accepted))
}

/// Discovery types are looked up by name: they have no group of their own.
fn encoded(tree: &Tree, accepted: Accepted) -> HttpResponse {
    let ty = api::schema::type_named("meta/v1", tree.str("kind"));
    match (accepted.media, ty) {
        (Media::Protobuf, Some(ty)) => build_response(200, accepted.media.name(), api::protobuf::encode(tree, ty)),
        (Media::Protobuf, None) => respond::encoded_as(200, tree, ty, Accepted::JSON),
        _ => respond::encoded_as(200, tree, ty, accepted),
    }
}

fn top(
    head: &RequestHead,
    documents: impl FnOnce() -> Arc<AggregatedDocument>,
    plain: impl FnOnce() -> Tree,
) -> Result<HttpResponse, Status> {
    // Upstream's list of groups accepts every method.
    if head.path.trim_end_matches('/') == "/api" {
        check_method(head)?;
    }
    match requested(head.header(header::ACCEPT).unwrap_or("")) {
        RequestedFormat::Aggregated(media) => Ok(aggregated_response(head, &documents(), media)),
        RequestedFormat::Plain => plain_any(head, plain()),
        RequestedFormat::Nothing => Err(NotAcceptable::Representation.into()),
    }
}

enum RequestedFormat {
    Aggregated(Media),
    Plain,
    Nothing,
}

/// The first clause that can be served.
fn requested(accept: &str) -> RequestedFormat {
    let mut any_aggregated = false;
    for clause in accept.split(',').map(str::trim) {
        let name = clause.split(';').next().unwrap_or("").trim();
        let has = |param: &str| clause.split(';').any(|part| part.trim() == param);
        let aggregated = clause.contains("as=APIGroupDiscoveryList");
        any_aggregated |= aggregated;
        let served = has("g=apidiscovery.k8s.io") && has("v=v2");
        match name {
            "application/json" if aggregated && served => return RequestedFormat::Aggregated(Media::Json),
            "application/vnd.kubernetes.protobuf" if aggregated && served => {
                return RequestedFormat::Aggregated(Media::Protobuf);
            }
            _ if !aggregated => return RequestedFormat::Plain,
            _ => {}
        }
    }
    if any_aggregated { RequestedFormat::Nothing } else { RequestedFormat::Plain }
}

fn aggregated_response(head: &RequestHead, documents: &AggregatedDocument, media: Media) -> HttpResponse {
    let same = head.header(header::IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == documents.etag.as_bytes());
    let (content_type, bytes) = match media {
        Media::Protobuf => (
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            &documents.protobuf,
        ),
        _ => ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &documents.json),
    };
    let mut response = if same {
        build_response(304, content_type, Body::empty())
    } else {
        build_response(200, content_type, bytes.clone())
    };
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

fn group_list(resources: &Resources, aggregator: &Aggregator) -> Tree {
    let extensions = Extensions::new(aggregator);
    let entry = |group: &Str| group_entry(&resources_of(resources, group), &extensions, group);
    let groups: Vec<Tree> = named_groups(resources, &extensions).iter().map(entry).collect();
    tree! { "kind" => "APIGroupList", "apiVersion" => "v1", "groups" => groups }
}

/// All groups except the core group, in order.
fn named_groups(resources: &Resources, extensions: &Extensions) -> Vec<Str> {
    let mut names = group_names(resources);
    names.retain(|group| !group.is_empty());
    extensions.merge_groups(names)
}

fn group_entry(resources: &[Arc<Resource>], extensions: &Extensions, group: &str) -> Tree {
    let version =
        |version: &Str| tree! { "groupVersion" => format!("{group}/{version}"), "version" => version.clone() };
    let versions = extensions.merge_versions(group, versions_of(resources));
    let versions: Vec<Tree> = versions.iter().map(version).collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    tree! { "name" => group, "versions" => versions, "preferredVersion" => preferred }
}

fn api_group(resources: &[Arc<Resource>], extensions: &Extensions, group: &str) -> Tree {
    let mut tree = group_entry(resources, extensions, group);
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

fn resource_list(all: &[Arc<Resource>], group: &str, version: &str) -> Tree {
    let mut resources = Vec::new();
    for resource in all.iter().filter(|resource| resource.kind.version() == version) {
        resources.push(resource_entry(resource));
        for sub in resource.kind.subresources() {
            resources.push(subresource_entry(&resource.kind, sub));
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
    let kind = &resource.kind;
    let mut entry = tree! {
        "name" => kind.plural(), "singularName" => kind.singular(), "namespaced" => kind.namespaced,
        "kind" => kind.kind(), "verbs" => verbs(kind.verbs()),
    };
    for (key, values) in [("shortNames", kind.short_names()), ("categories", kind.categories())] {
        if !values.is_empty() {
            entry.set(key, names(&values));
        }
    }
    if !kind.storage().is_empty() && kind.has(Verb::Create) {
        entry.set("storageVersionHash", storage_hash(resource));
    }
    entry
}

/// Upstream's fingerprint of the version in which a kind is stored.
fn storage_hash(resource: &Resource) -> String {
    let text = match (resource.stored_row(), resource.kind.definition()) {
        (Some(row), _) => {
            format!("{}/{}/{}", row.group, row.upstream_version.unwrap_or(row.version), row.kind)
        }
        (None, Some(custom)) => {
            let version = custom.definition.storage_version().map_or("", |version| version.name.as_str());
            format!("{}/{version}/{}", resource.kind.group(), resource.kind.kind())
        }
        (None, None) => String::new(),
    };
    base64::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

fn subresource_entry(kind: &Kind, sub: &Subresource) -> Tree {
    let mut entry = tree! {
        "name" => format!("{}/{}", kind.plural(), sub.name), "singularName" => "", "namespaced" => kind.namespaced,
        "kind" => sub.gvk.map_or(kind.kind(), |(_, _, kind)| kind), "verbs" => verbs(sub.verbs),
    };
    if let Some((group, version, _)) = sub.gvk.filter(|(group, _, _)| *group != kind.group()) {
        entry.set("group", group);
        entry.set("version", version);
    }
    entry
}

fn aggregated(resources: &Resources, aggregator: &Aggregator) -> Tree {
    let extensions = Extensions::new(aggregator);
    let entry = |group: &Str| {
        let all = resources_of(resources, group);
        let version = |version: &Str| match extensions.find(group, version) {
            Some(service) => extension::aggregated_version(aggregator, service),
            None => aggregated_version(&all, version),
        };
        let versions = extensions.merge_versions(group, versions_of(&all));
        aggregated_group(group, versions.iter().map(version).collect())
    };
    list_of(named_groups(resources, &extensions).iter().map(entry).collect())
}

fn aggregated_core(resources: &Resources) -> Tree {
    let all = resources_of(resources, "");
    let versions = versions_of(&all).iter().map(|version| aggregated_version(&all, version)).collect();
    list_of(vec![aggregated_group("", versions)])
}

fn list_of(items: Vec<Tree>) -> Tree {
    tree! { "kind" => "APIGroupDiscoveryList", "apiVersion" => "apidiscovery.k8s.io/v2", "metadata" => tree! {}, "items" => items }
}

fn aggregated_group(group: &str, versions: Vec<Tree>) -> Tree {
    let metadata = if group.is_empty() {
        tree! {}
    } else {
        tree! { "name" => group }
    };
    tree! { "metadata" => metadata, "versions" => versions }
}

fn aggregated_version(all: &[Arc<Resource>], version: &Str) -> Tree {
    let of_version = all.iter().filter(|resource| resource.kind.version() == version.as_str());
    let resources: Vec<Tree> = of_version.map(|resource| aggregated_resource(&resource.kind)).collect();
    tree! { "version" => version.clone(), "resources" => resources, "freshness" => "Current" }
}

fn response_kind(group: &str, version: &str, kind: &str) -> Tree {
    tree! { "group" => group, "version" => version, "kind" => kind }
}

fn aggregated_resource(kind: &Kind) -> Tree {
    let mut entry = tree! {
        "resource" => kind.plural(),
        "responseKind" => own_kind(kind),
        "scope" => if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource" => kind.singular(),
        "verbs" => verbs(kind.verbs()),
    };
    for (key, values) in [("shortNames", kind.short_names()), ("categories", kind.categories())] {
        if !values.is_empty() {
            entry.set(key, names(&values));
        }
    }
    if !kind.subresources().is_empty() {
        let subresources: Vec<Tree> = kind.subresources().iter().map(|sub| aggregated_subresource(kind, sub)).collect();
        entry.set("subresources", subresources);
    }
    entry
}

/// Upstream omits the group and version of built-in kinds, which are those of the enclosing entry.
fn own_kind(kind: &Kind) -> Tree {
    match kind.definition() {
        Some(_) => response_kind(kind.group(), kind.version(), kind.kind()),
        None => response_kind("", "", kind.kind()),
    }
}

fn aggregated_subresource(kind: &Kind, sub: &Subresource) -> Tree {
    let (group, version, name) = match sub.gvk {
        Some((group, version, name)) if group != kind.group() => (group, version, name),
        Some((_, _, name)) => ("", "", name),
        None => {
            return tree! {
                "subresource" => sub.name, "responseKind" => own_kind(kind), "verbs" => verbs(sub.verbs),
            };
        }
    };
    tree! { "subresource" => sub.name, "responseKind" => response_kind(group, version, name), "verbs" => verbs(sub.verbs) }
}
