//! /proxy of pods, services and nodes: forwards a request to the object's address, and returns its response.

pub(crate) mod forward;
mod links;
pub(crate) mod target;

use std::sync::Arc;

use api::status::Status;
use http::{HeaderValue, Method, StatusCode, header};

use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::request::body::Body;
use crate::storage::resource::Resource;

pub(super) async fn handle(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let target = match resource.kind.plural() {
        "pods" => target::pod(registry, resource, call).await?,
        "services" => target::service(registry, &call.head.info.namespace, &call.head.info.name)?,
        _ => target::node(registry, &call.head.info.name).await?,
    };
    let (prefix, rest) = split_path(&call.head.path, resource.kind.namespaced);
    // Relative links of a page work only below a path that ends in a slash.
    if rest.is_empty() && matches!(call.head.method, Method::GET | Method::HEAD) && call.content.upgrade.is_none() {
        return redirect(&call.head.path, &call.head.raw_query);
    }
    let (prefix, rest) = (prefix.to_string(), rest.to_string());
    forward::forward(call, &target, &prefix, &rest).await
}

/// The path up to and including `proxy`, and the rest, as the client sent them.
fn split_path(path: &str, namespaced: bool) -> (&str, &str) {
    let steps = if namespaced { 7 } else { 5 };
    let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(steps);
    match slashes.next() {
        Some(at) => path.split_at(at),
        None => (path, ""),
    }
}

fn redirect(path: &str, query: &str) -> Result<HttpResponse, Status> {
    let place = if query.is_empty() { format!("{path}/") } else { format!("{path}/?{query}") };
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_str(&place).map_err(Status::internal)?);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_behind_the_proxy_is_kept_as_written() {
        let cases = [
            ("/api/v1/namespaces/a/pods/b/proxy", true, ("/api/v1/namespaces/a/pods/b/proxy", "")),
            ("/api/v1/namespaces/a/pods/b:80/proxy/", true, ("/api/v1/namespaces/a/pods/b:80/proxy", "/")),
            ("/api/v1/namespaces/a/pods/b/proxy/x%2Fy/z", true, ("/api/v1/namespaces/a/pods/b/proxy", "/x%2Fy/z")),
            ("/api/v1/nodes/n/proxy/stats", false, ("/api/v1/nodes/n/proxy", "/stats")),
        ];
        for (path, namespaced, want) in cases {
            assert_eq!(split_path(path, namespaced), want, "{path}");
        }
    }
}
