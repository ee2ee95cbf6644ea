//! API requests.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json, tree};
use bytes::Bytes;
use http::{Method, Request, header};

use crate::{
    Body, DiscardBody, Error, Fence, ObjectFrames, Resource, Result, ThrottledTransport, Transport, Watch, cause,
    fence, writes,
};

const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The server times out after a minute; a hanging server is not waited for longer.
const DEADLINE: Duration = Duration::from_secs(65);

/// Sends requests to an API server.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    /// The user agent, and the default field manager.
    agent: &'static str,
    /// The fencing header for writes of an elected component.
    fence: Option<Fence>,
}

/// The four patch types.
#[derive(Debug, Clone, Copy)]
pub enum Patch<'a> {
    Json(&'a Tree),
    Merge(&'a Tree),
    Strategic(&'a Tree),
    /// Server-side apply; `force` takes over conflicting fields.
    Apply {
        object: &'a Tree,
        manager: &'a str,
        force: bool,
    },
}

impl Patch<'_> {
    fn media(&self) -> &'static str {
        match self {
            Patch::Json(_) => "application/json-patch+json",
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    fn body(&self) -> &Tree {
        match self {
            Patch::Json(body) | Patch::Merge(body) | Patch::Strategic(body) => body,
            Patch::Apply { object, .. } => object,
        }
    }

    fn query(&self) -> String {
        match self {
            Patch::Apply { manager, force, .. } => format!("fieldManager={manager}&force={force}"),
            _ => String::new(),
        }
    }
}

/// How the dependents of a deleted object are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// Options of a deletion.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteOptions<'a> {
    /// A uid precondition.
    pub uid: Option<&'a str>,
    /// A resourceVersion precondition.
    pub resource_version: Option<&'a str>,
    pub propagation: Option<Propagation>,
    pub grace_period_seconds: Option<i64>,
}

impl<'a> DeleteOptions<'a> {
    /// With the uid of the observed object.
    pub fn of(object: &'a Tree) -> DeleteOptions<'a> {
        DeleteOptions { uid: Some(object.str("metadata.uid")), ..DeleteOptions::default() }
    }

    fn to_tree(self) -> Tree {
        let mut options = tree! { "apiVersion" => "v1", "kind" => "DeleteOptions" };
        if let Some(uid) = self.uid {
            options.child("preconditions").set("uid", uid);
        }
        if let Some(version) = self.resource_version {
            options.child("preconditions").set("resourceVersion", version);
        }
        if let Some(propagation) = self.propagation {
            options.set("propagationPolicy", format!("{propagation:?}"));
        }
        if let Some(seconds) = self.grace_period_seconds {
            options.set("gracePeriodSeconds", seconds);
        }
        options
    }
}

/// Reads.
impl Client {
    /// A client with a transport; `agent` becomes the User-Agent.
    pub fn new(transport: Arc<dyn Transport>, agent: &'static str) -> Client {
        Client { transport, agent, fence: None }
    }

    /// The same client with fenced writes.
    pub fn fenced(&self, fence: Fence) -> Client {
        Client { fence: Some(fence), ..self.clone() }
    }

    /// The same client with a rate limit.
    pub fn throttled(&self, per_second: f64, burst: u32) -> Client {
        Client { transport: ThrottledTransport::wrap(self.transport.clone(), per_second, burst), ..self.clone() }
    }

    /// Reads one object.
    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Tree> {
        self.call(Method::GET, &resource.object_path(namespace, name), "", None).await
    }

    /// `scale`, `status`, and proxied subresources of pods.
    pub async fn get_subresource(&self, resource: Resource, namespace: &str, name: &str, sub: &str) -> Result<Tree> {
        self.call(Method::GET, &below(resource, namespace, name, sub), "", None).await
    }

    /// Any path with a JSON response, such as discovery; `accept` may be empty.
    pub async fn get_path(&self, path: &str, accept: &str) -> Result<Tree> {
        let accept = if accept.is_empty() { JSON } else { accept };
        let request = self.request(Method::GET, path, ("", accept), None)?;
        let (code, bytes) = with_timeout(self.exchange(request)).await?;
        parse_response(code, &bytes)
    }

    /// A page of a list; `query` is the query string.
    pub async fn list(&self, resource: Resource, namespace: &str, query: &str) -> Result<Tree> {
        self.call(Method::GET, &with_query(&resource.path(namespace), query), "", None).await
    }

    /// A page of a list, of one namespace or of all if it is empty: its metadata, and the objects' bytes.
    pub async fn list_objects(&self, resource: Resource, namespace: &str, query: &str) -> Result<(Tree, Vec<Bytes>)> {
        let path = with_query(&resource.path(namespace), query);
        let mut request = self.request(Method::GET, &path, ("", JSON), None)?;
        request.extensions_mut().insert(ObjectFrames);
        with_timeout(async {
            let (code, body) = self.send(request).await?;
            if code != 200 {
                return Err(parse_response(code, &body.whole().await?)
                    .err()
                    .unwrap_or_else(|| unexpected_status(code)));
            }
            if body.pieces { whole_pieces(body).await } else { split(&body.whole().await?) }
        })
        .await
    }

    /// Only the object's metadata.
    pub async fn get_metadata(&self, resource: Resource, namespace: &str, name: &str) -> Result<Tree> {
        self.get_path(&resource.object_path(namespace, name), METADATA).await
    }

    /// Lists the metadata of objects only.
    pub async fn list_metadata(&self, resource: Resource, namespace: &str, query: &str) -> Result<Tree> {
        self.get_path(&with_query(&resource.path(namespace), query), METADATA_LIST).await
    }

    /// Watches objects from the resourceVersion in the query.
    pub async fn watch(&self, resource: Resource, query: &str) -> Result<Watch> {
        self.watch_as(&resource.path(""), query, JSON).await
    }

    /// Watches one namespace, for clients with access to only that.
    pub async fn watch_namespace(&self, resource: Resource, namespace: &str, query: &str) -> Result<Watch> {
        self.watch_as(&resource.path(namespace), query, JSON).await
    }

    pub(crate) async fn watch_metadata(&self, resource: Resource, query: &str) -> Result<Watch> {
        self.watch_as(&resource.path(""), query, METADATA).await
    }

    async fn watch_as(&self, path: &str, query: &str, accept: &str) -> Result<Watch> {
        let path = with_query(&with_query(path, "watch=true"), query);
        let mut request = self.request(Method::GET, &path, ("", accept), None)?;
        request.extensions_mut().insert(ObjectFrames);
        with_timeout(async {
            let (code, body) = self.send(request).await?;
            if code == 200 {
                return Ok(Watch::new(body));
            }
            Err(parse_response(code, &body.whole().await?).err().unwrap_or_else(|| unexpected_status(code)))
        })
        .await
    }
}

impl Client {
    /// Posts to a path that is not an object, such as a review; nothing is written.
    pub async fn post_path(&self, path: &str, body: &Tree) -> Result<Tree> {
        self.call(Method::POST, path, JSON, Some(body)).await
    }
}

/// Writes. Responses are recorded for `writes::record_writes`.
impl Client {
    /// Creates an object.
    pub async fn create(&self, resource: Resource, namespace: &str, object: &Tree) -> Result<Tree> {
        self.put(resource, Method::POST, &resource.path(namespace), JSON, object).await
    }

    /// Like `create`, ignoring the returned object; an in-process server then does not encode it.
    pub(crate) async fn create_unread(&self, resource: Resource, namespace: &str, object: &Tree) -> Result<()> {
        self.post_unread(&resource.path(namespace), object).await
    }

    /// Creates a subresource, ignoring the response.
    pub async fn create_subresource_unread(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        object: &Tree,
    ) -> Result<()> {
        self.post_unread(&below(resource, namespace, name, sub), object).await
    }

    async fn post_unread(&self, path: &str, object: &Tree) -> Result<()> {
        let mut request = self.request(Method::POST, path, (JSON, JSON), Some(object))?;
        request.extensions_mut().insert(DiscardBody);
        let (code, bytes) = with_timeout(self.exchange(request)).await?;
        if (200..300).contains(&code) { Ok(()) } else { parse_response(code, &bytes).map(drop) }
    }

    /// Replaces an object.
    pub async fn update(&self, resource: Resource, namespace: &str, name: &str, object: &Tree) -> Result<Tree> {
        self.put(resource, Method::PUT, &resource.object_path(namespace, name), JSON, object).await
    }

    /// Replaces the status of an object.
    pub async fn update_status(&self, resource: Resource, namespace: &str, name: &str, object: &Tree) -> Result<Tree> {
        self.update_subresource(resource, namespace, name, "status", object).await
    }

    /// Replaces a subresource of an object.
    pub async fn update_subresource(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        object: &Tree,
    ) -> Result<Tree> {
        self.put(resource, Method::PUT, &below(resource, namespace, name, sub), JSON, object).await
    }

    /// `binding`, `eviction`, `token`.
    pub async fn create_subresource(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        object: &Tree,
    ) -> Result<Tree> {
        // The response is not an object of this resource, so that its revision is not recorded.
        self.call(Method::POST, &below(resource, namespace, name, sub), JSON, Some(object)).await
    }

    /// Patches an object, or a subresource if `sub` is not empty.
    pub async fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        patch: Patch<'_>,
    ) -> Result<Tree> {
        let path = with_query(&below(resource, namespace, name, sub), &patch.query());
        self.put(resource, Method::PATCH, &path, patch.media(), patch.body()).await
    }

    /// Server-side apply with force.
    pub async fn apply(&self, resource: Resource, namespace: &str, object: &Tree, manager: &str) -> Result<Tree> {
        let patch = Patch::Apply { object, manager, force: true };
        self.patch(resource, namespace, object.str("metadata.name"), "", patch).await
    }

    /// Returns the terminating object, or a Status if it is already deleted.
    pub async fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: DeleteOptions<'_>,
    ) -> Result<Tree> {
        let path = resource.object_path(namespace, name);
        let response = self.call(Method::DELETE, &path, JSON, Some(&options.to_tree())).await?;
        writes::deleted(resource, namespace, name, &response);
        Ok(response)
    }

    /// Deletes the objects selected by `query`.
    pub async fn delete_collection(
        &self,
        resource: Resource,
        namespace: &str,
        query: &str,
        options: DeleteOptions<'_>,
    ) -> Result<Tree> {
        let path = with_query(&resource.path(namespace), query);
        // Metadata is sufficient for the deleted objects.
        let request = self.request(Method::DELETE, &path, (JSON, METADATA_LIST), Some(&options.to_tree()))?;
        let (code, bytes) = with_timeout(self.exchange(request)).await?;
        parse_response(code, &bytes)
    }

    async fn put(&self, resource: Resource, method: Method, path: &str, media: &str, object: &Tree) -> Result<Tree> {
        let response = self.call(method, path, media, Some(object)).await?;
        writes::put(resource, &response);
        Ok(response)
    }

    async fn call(&self, method: Method, path: &str, media: &str, object: Option<&Tree>) -> Result<Tree> {
        let (code, bytes) = with_timeout(self.exchange(self.request(method, path, (media, JSON), object)?)).await?;
        parse_response(code, &bytes)
    }

    /// `media` is the content type and the accepted type.
    fn request(
        &self,
        method: Method,
        path: &str,
        media: (&str, &str),
        object: Option<&Tree>,
    ) -> Result<Request<Bytes>> {
        let writes = method != Method::GET;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, media.1)
            .header(header::USER_AGENT, self.agent);
        if !media.0.is_empty() {
            request = request.header(header::CONTENT_TYPE, media.0);
        }
        if let Some(term) = self.fence.as_ref().filter(|_| writes).and_then(Fence::term) {
            request = request.header(fence::HEADER, term);
        }
        if let Some(cause) = writes.then(cause::header).flatten() {
            request = request.header(cause::HEADER, cause);
        }
        let body = object.map_or_else(Bytes::new, |object| Bytes::from(json::encode(object, None)));
        request.body(body).map_err(|error| Error::Transport(error.to_string()))
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<(u16, Bytes)> {
        let (code, body) = self.send(request).await?;
        Ok((code, body.whole().await?))
    }

    async fn send(&self, request: Request<Bytes>) -> Result<(u16, Body)> {
        let (parts, body) = self.transport.send(request).await?.into_parts();
        Ok((parts.status.as_u16(), body))
    }
}

async fn with_timeout<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| Err(Error::Transport("timed out waiting for the response".to_string())))
}

async fn whole_pieces(mut body: Body) -> Result<(Tree, Vec<Bytes>)> {
    let head = body.next().await.unwrap_or_else(|| Err(Error::Answer("list response has no metadata".to_string())))?;
    let mut objects = Vec::new();
    while let Some(object) = body.next().await {
        objects.push(object?);
    }
    Ok((parse_response(200, &head)?, objects))
}

/// Each object is copied: a slice would keep the whole page alive.
fn split(page: &[u8]) -> Result<(Tree, Vec<Bytes>)> {
    let bad = |error: json::Error| Error::Answer(error.to_string());
    let (head, items) = json::decode_around(page, "items").map_err(bad)?;
    let items = items.map(|range| &page[range]).filter(|items| *items != b"null").unwrap_or(b"[]");
    let objects = json::items(items).map_err(bad)?;
    Ok((head, objects.into_iter().map(|range| Bytes::copy_from_slice(&items[range])).collect()))
}

fn below(resource: Resource, namespace: &str, name: &str, sub: &str) -> String {
    let path = resource.object_path(namespace, name);
    if sub.is_empty() { path } else { format!("{path}/{sub}") }
}

fn with_query(path: &str, query: &str) -> String {
    match (query, path.contains('?')) {
        ("", _) => path.to_string(),
        (query, true) => format!("{path}&{query}"),
        (query, false) => format!("{path}?{query}"),
    }
}

fn parse_response(code: u16, bytes: &[u8]) -> Result<Tree> {
    // Managed fields are dropped: they are not needed, and writes without them do not change them.
    let tree = json::decode_unmanaged(bytes);
    match (200..300).contains(&code) {
        true => tree.map_err(|error| Error::Answer(error.to_string())),
        // A proxy may respond without a Status.
        false => Err(Error::status(code, &tree.unwrap_or_default())),
    }
}

fn unexpected_status(code: u16) -> Error {
    Error::Answer(format!("unexpected status code {code}"))
}
