//! `/tiphys/v1/tunnel`: a node opens a connection through which this server reaches its kubelet and its pods. The node is
//! that of the client certificate, so that each node opens its own tunnel only.

use api::Tree;
use api::status::Status;
use http::{HeaderValue, Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use kinds::User;
use tunnel::{PATH, PROTOCOL, Tunnel};

use crate::call::{Call, HttpResponse};
use crate::request::body::Body;
use crate::routes::Routes;

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";
/// Users that a client certificate has authenticated have this credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
const CERTIFICATE: &str = "X509SHA256=";

/// None for another path.
pub(crate) fn route(routes: &Routes, call: &mut Call) -> Option<Result<HttpResponse, Status>> {
    (call.head.path == PATH).then(|| open(routes, call))
}

fn open(routes: &Routes, call: &mut Call) -> Result<HttpResponse, Status> {
    if call.head.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let user = call.caller.user.as_deref().filter(|_| call.caller.original_user().is_none());
    let node = user.and_then(node_of).map(str::to_string);
    let node = node.ok_or_else(|| Status::forbidden("", "nodes", "", "only a node may open its tunnel"))?;
    let is_tunnel = call.head.header(header::UPGRADE).is_some_and(|protocol| protocol == PROTOCOL);
    let upgrade = call.content.upgrade.take().filter(|_| is_tunnel);
    let upgrade = upgrade.ok_or_else(|| Status::bad_request(format!("an upgrade to {PROTOCOL} is required")))?;
    let (registry, mut closing) = (routes.registry.clone(), routes.registry.closing.subscribe());
    tokio::spawn(async move {
        let opened = match upgrade.await {
            Ok(connection) => Tunnel::open(TokioIo::new(connection)).await,
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(tunnel) => match registry.dialer.add(&node, tunnel) {
                true => tracing::info!(node, "tunnel opened"),
                false => tracing::warn!(node, "too many tunnels"),
            },
            Err(error) => tracing::debug!(node, %error, "failed to open tunnel"),
        }
        let _ = closing.wait_for(|closing| *closing).await;
        registry.dialer.close();
    });
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

/// The name of a node that a certificate has authenticated.
fn node_of(user: &User) -> Option<&str> {
    let credentials = user.extra.get(CREDENTIAL).and_then(Tree::as_list).unwrap_or_default();
    let has_certificate = credentials.iter().filter_map(Tree::as_str).any(|id| id.starts_with(CERTIFICATE));
    let is_node = user.groups.iter().any(|group| group == NODES);
    user.name.strip_prefix(NODE).filter(|name| has_certificate && is_node && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use api::{Map, list};

    use super::*;

    #[test]
    fn only_certificates_of_nodes_open_tunnels() {
        let check = |name: &str, group: &str, credential: &str, want: Option<&str>| {
            let mut extra = Map::new();
            extra.insert(CREDENTIAL, list![credential]);
            let user = User { name: name.to_string(), uid: String::new(), groups: vec![group.to_string()], extra };
            assert_eq!(node_of(&user), want, "{name} {group} {credential}");
        };
        check("system:node:n1", NODES, "X509SHA256=00", Some("n1"));
        check("system:node:n1", NODES, "JTI=00", None);
        check("system:node:n1", "system:masters", "X509SHA256=00", None);
        check("system:node:", NODES, "X509SHA256=00", None);
        check("kubernetes-admin", NODES, "X509SHA256=00", None);
    }
}
