//! Nodes that are part of this process, such as fake nodes: nothing listens at their addresses, so the requests for
//! their kubelets are served here.

use api::Tree;
use api::query::Query;
use api::status::Status;
use http::{HeaderValue, Response, header};

use crate::request::body::Body;

/// Why a container has no log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// Nodes that this process simulates and that no kubelet serves.
pub trait LocalNodes: Send + Sync {
    /// The log of a pod's container, or the error; None if the pod's node does not run in this process.
    fn log(&self, pod: &Tree, container: &str, query: &Query) -> Option<Result<String, LogError>>;
}

/// The response to a request for a log, if the pod is on a local node.
pub fn log(
    nodes: &dyn LocalNodes,
    pod: &Tree,
    container: &str,
    query: &Query,
) -> Option<Result<Response<Body>, Status>> {
    let log = nodes.log(pod, container, query)?;
    Some(log.map(plain_text).map_err(|error| Status::bad_request(error.to_string())))
}

fn plain_text(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into_bytes()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
