//! The objects that a description shows besides its own: events, pods, replica sets, endpoints.

use api::Tree;

use super::network::Backends;
use super::values::selector_text;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::Info;
use crate::transport::Request;

/// Why a related object cannot be shown: the server's message where it has responded.
#[derive(Debug)]
pub(super) struct RelatedError(Error);

impl std::fmt::Display for RelatedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.status() {
            Some(status) => f.write_str(&status.message),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for RelatedError {}

/// Pages of one list; a server that always has another one is broken.
const MAX_PAGES: usize = 10_000;

/// Lists a collection, page by page.
pub(super) async fn list(context: &Context, path: &str, query: &[(&str, &str)]) -> Result<Vec<Tree>> {
    let client = context.client().await?;
    let chunk = context.flags.int("chunk-size");
    let mut items = Vec::new();
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let mut request = Request::get(path);
        for (name, value) in query {
            request = request.query(name, *value);
        }
        if chunk > 0 {
            request = request.query("limit", chunk.to_string());
        }
        if !token.is_empty() {
            request = request.query("continue", token.clone());
        }
        let mut page = client.tree(&request).await?;
        token = page.str("metadata.continue").to_string();
        if let Some(Tree::List(found)) = page.remove("items") {
            items.extend(found);
        }
        if token.is_empty() {
            return Ok(items);
        }
    }
    Err(Error::new("the server returns too many pages"))
}

/// The path of a collection of the core group.
pub(super) fn core(namespace: &str, resource: &str) -> String {
    match namespace {
        "" => format!("/api/v1/{resource}"),
        namespace => format!("/api/v1/namespaces/{namespace}/{resource}"),
    }
}

/// The events of an object; None if they are not wanted or may not be listed.
pub(super) async fn events(context: &Context, object: &Tree) -> Option<Vec<Tree>> {
    if !context.flags.bool("show-events") {
        return None;
    }
    let (kind, uid) = (object.str("kind"), object.str("metadata.uid"));
    let mut found = match kind {
        // Mirror pods have the UID of their annotation in events.
        "Pod" => {
            let mirror = object.at("metadata.annotations").get("kubernetes.io/config.mirror").and_then(Tree::as_str);
            search(context, object, "", mirror.unwrap_or(uid)).await?
        }
        _ => search(context, object, kind, uid).await?,
    };
    if kind == "Node" {
        // The kubelet uses the name as UID.
        found.extend(search(context, object, kind, object.str("metadata.name")).await.unwrap_or_default());
    }
    Some(found)
}

async fn search(context: &Context, object: &Tree, kind: &str, uid: &str) -> Option<Vec<Tree>> {
    let (name, namespace) = (object.str("metadata.name"), object.str("metadata.namespace"));
    let terms = [("kind", kind), ("name", name), ("namespace", namespace), ("uid", uid)];
    let is_used = |(key, value): &&(&str, &str)| *key == "name" || *key == "namespace" || !value.is_empty();
    let selector: Vec<String> =
        terms.iter().filter(is_used).map(|(key, value)| format!("involvedObject.{key}={value}")).collect();
    list(context, &core(namespace, "events"), &[("fieldSelector", &selector.join(","))]).await.ok()
}

/// The pods that a controller selects.
pub(super) async fn selected_pods(context: &Context, object: &Tree) -> Result<Vec<Tree>> {
    let selector =
        match object.at("spec.selector.matchLabels").is_null() && !object.at("spec.selector").has("matchExpressions") {
            true => api::tree! { "matchLabels" => object.at("spec.selector").clone() },
            false => object.at("spec.selector").clone(),
        };
    let path = core(object.str("metadata.namespace"), "pods");
    list(context, &path, &[("labelSelector", &selector_text(&selector))]).await
}

pub(super) async fn replica_sets(context: &Context, object: &Tree) -> Vec<Tree> {
    let path = format!("/apis/apps/v1/namespaces/{}/replicasets", object.str("metadata.namespace"));
    let selector = selector_text(object.at("spec.selector"));
    list(context, &path, &[("labelSelector", &selector)]).await.unwrap_or_default()
}

/// The endpoint slices of a service.
pub(super) async fn slices(context: &Context, namespace: &str, service: &str) -> Result<Vec<Tree>> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    list(context, &path, &[("labelSelector", &format!("kubernetes.io/service-name={service}"))]).await
}

/// The services that an ingress names, with their slices.
pub(super) async fn backends(context: &Context, ingress: &Tree) -> Backends {
    let namespace = ingress.str("metadata.namespace");
    let mut out = Backends::new();
    for name in super::network::backend_services(ingress) {
        let found = backend(context, namespace, &name).await.map_err(RelatedError);
        out.insert(name, found);
    }
    out
}

async fn backend(context: &Context, namespace: &str, name: &str) -> Result<(Tree, Vec<Tree>)> {
    let slices = slices(context, namespace, name).await?;
    let request = Request::get(format!("{}/{name}", core(namespace, "services")));
    Ok((context.client().await?.tree(&request).await?, slices))
}

/// The pods of a node that have not ended; None if the user may not list them.
pub(super) async fn node_pods(context: &Context, node: &str) -> Result<Option<Vec<Tree>>> {
    let selector = format!("spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded");
    match list(context, &core("", "pods"), &[("fieldSelector", &selector)]).await {
        Ok(pods) => Ok(Some(pods)),
        Err(error) if error.status().is_some_and(|status| status.code == 403) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn node_lease(context: &Context, node: &str) -> std::result::Result<Tree, RelatedError> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
    let read = async { context.client().await?.tree(&Request::get(path)).await };
    read.await.map_err(RelatedError)
}

/// A list that may be missing in old servers.
pub(super) async fn list_if_served(context: &Context, path: &str) -> Result<Option<Vec<Tree>>> {
    match list(context, path, &[]).await {
        Ok(items) => Ok(Some(items)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object as the server has it now, with its kind.
pub(super) fn with_kind(info: &Info) -> Tree {
    let mut object = info.object.clone();
    object.set_default("kind", info.resource.kind.to_string());
    object
}
