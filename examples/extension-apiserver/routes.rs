//! Requests: authentication, authorization, and the verbs of the resource.

use std::time::{Duration, SystemTime};

use api::query::Query;
use api::selector::{FieldSelector, Selector};
use api::status::Status;
use api::{Tree, json, tree};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::authentication::User;
use crate::authorization::{self, Attributes};
use crate::cluster::Cluster;
use crate::discovery;
use crate::greetings::{API_VERSION, GROUP, KIND, RESOURCE, validate};
use crate::store::{Change, Key, Store};

pub(crate) type Body = BoxBody<Bytes, std::convert::Infallible>;

const MAX_BODY_BYTES: usize = 1 << 20;
/// Events that wait for a slow client; then its watch waits.
const WATCH_BUFFER: usize = 16;
const WATCH_TIMEOUT: Duration = Duration::from_secs(1800);

pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    store: std::sync::Arc<Store>,
}

/// A path below the resource; no namespace means all of them.
struct Target {
    namespace: String,
    name: String,
}

impl Target {
    fn parse(path: &str) -> Option<Target> {
        let rest = path.strip_prefix(&format!("/apis/{API_VERSION}/"))?;
        let words: Vec<&str> = rest.split('/').collect();
        let (namespace, name) = match words.as_slice() {
            [RESOURCE] => ("", ""),
            ["namespaces", namespace, RESOURCE] => (*namespace, ""),
            ["namespaces", namespace, RESOURCE, name] => (*namespace, *name),
            _ => return None,
        };
        Some(Target { namespace: namespace.to_string(), name: name.to_string() })
    }

    fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }
}

/// Which objects of a collection are meant.
struct Selection {
    namespace: String,
    labels: Selector,
    fields: FieldSelector,
}

impl Selection {
    fn new(target: &Target, query: &Query) -> Result<Selection, Status> {
        let bad = |error: api::selector::Error| Status::bad_request(error.to_string());
        let labels = Selector::parse(query.get("labelSelector")).map_err(bad)?;
        let fields = FieldSelector::parse(query.get("fieldSelector")).map_err(bad)?;
        let known = ["metadata.name", "metadata.namespace"];
        if let Some(term) = fields.terms().iter().find(|term| !known.contains(&term.field.as_str())) {
            return Err(Status::bad_request(format!("field label not supported: {}", term.field)));
        }
        Ok(Selection { namespace: target.namespace.clone(), labels, fields })
    }

    fn matches(&self, object: &Tree) -> bool {
        (self.namespace.is_empty() || self.namespace == object.str("metadata.namespace"))
            && self.labels.matches_map(object.map("metadata.labels"))
            && self.fields.matches_with(|field| object.str(field).to_string())
    }
}

impl Server {
    pub(crate) fn new(cluster: Cluster) -> Server {
        Server { cluster, store: std::sync::Arc::new(Store::new()) }
    }

    pub(crate) async fn respond(&self, user: Option<User>, request: Request<Incoming>) -> Response<Body> {
        if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz") {
            return text(200, "text/plain", "ok");
        }
        let response = match user {
            Some(user) => self.route(&user, request).await,
            None => Err(Status::unauthorized()),
        };
        response.unwrap_or_else(|status| object(status.code, &status.to_tree()))
    }

    async fn route(&self, user: &User, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let path = request.uri().path().to_string();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let Some(target) = Target::parse(&path) else {
            let verb = request.method().as_str().to_lowercase();
            authorization::check(&self.cluster, user, &Attributes::Path { verb: &verb, path: &path }).await?;
            let document = discovery::document(&path).filter(|_| request.method() == Method::GET);
            return document.map(|tree| object(200, &tree)).ok_or_else(Status::no_resource);
        };
        let verb = verb(request.method(), &target, &query)?;
        let attributes = Attributes::Resource { verb, namespace: &target.namespace, name: &target.name };
        authorization::check(&self.cluster, user, &attributes).await?;
        match verb {
            "list" => self.list(&Selection::new(&target, &query)?),
            "watch" => self.watch(Selection::new(&target, &query)?, &query),
            "get" => Ok(object(200, &self.store.get(&target.key())?)),
            "delete" => self.delete(&target),
            "create" => self.create(target, &read(request).await?),
            "update" => self.update(&target, &read(request).await?),
            _ => self.patch(&target, request).await,
        }
    }

    fn list(&self, selection: &Selection) -> Result<Response<Body>, Status> {
        let (objects, revision) = self.store.list();
        let items = objects.into_iter().filter(|object| selection.matches(object)).collect();
        let list = tree! {
            "kind" => format!("{KIND}List"), "apiVersion" => API_VERSION,
            "metadata" => tree! { "resourceVersion" => revision.to_string() }, "items" => Tree::List(items),
        };
        Ok(object(200, &list))
    }

    fn create(&self, target: Target, body: &Tree) -> Result<Response<Body>, Status> {
        let mut new = body.clone();
        let namespace = new.str("metadata.namespace");
        if !namespace.is_empty() && namespace != target.namespace {
            return Err(Status::bad_request("the namespace of the object does not match the namespace of the request"));
        }
        validate(&new)?;
        let metadata = new.child("metadata");
        metadata.set("namespace", target.namespace.as_str());
        metadata.set("uid", random_uid()?);
        metadata.set("creationTimestamp", now().as_str());
        let key = (target.namespace, new.str("metadata.name").to_string());
        Ok(object(201, &self.store.create(key, new)?))
    }

    fn update(&self, target: &Target, body: &Tree) -> Result<Response<Body>, Status> {
        if body.str("metadata.name") != target.name {
            return Err(Status::bad_request("the name of the object does not match the name on the URL"));
        }
        validate(body)?;
        Ok(object(200, &self.store.update(target.key(), |_| Ok(body.clone()))?))
    }

    async fn patch(&self, target: &Target, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/merge-patch+json") {
            return Err(Status::unsupported_media_type("the only patch is application/merge-patch+json"));
        }
        let patch = read(request).await?;
        let change = |old: Tree| {
            let new = api::patch::merge(old, &patch);
            validate(&new).map(|()| new)
        };
        Ok(object(200, &self.store.update(target.key(), change)?))
    }

    fn delete(&self, target: &Target) -> Result<Response<Body>, Status> {
        let old = self.store.delete(&target.key())?;
        Ok(object(200, &api::status::deleted(GROUP, RESOURCE, &target.name, old.str("metadata.uid"))))
    }

    /// The objects that exist unless a revision is given, then every change.
    fn watch(&self, selection: Selection, query: &Query) -> Result<Response<Body>, Status> {
        let (first, revision) = match query.get("resourceVersion") {
            "" | "0" => self.store.list(),
            text => (Vec::new(), text.parse().map_err(|_| Status::bad_request("resourceVersion is not a number"))?),
        };
        let seconds = query.get("timeoutSeconds").parse().map_or(WATCH_TIMEOUT, Duration::from_secs).min(WATCH_TIMEOUT);
        let (sender, receiver) = mpsc::channel(WATCH_BUFFER);
        let store = self.store.clone();
        tokio::spawn(async move {
            let all = follow(&store, &selection, first, revision, &sender);
            // The stream ends with its timeout; the client begins another one.
            let _ = tokio::time::timeout(seconds, all).await;
        });
        let body = StreamBody::new(ReceiverStream::new(receiver)).boxed();
        Ok(response(200, "application/json", body))
    }
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>;

/// Sends events until the client leaves, or until changes are missed.
async fn follow(store: &Store, selection: &Selection, first: Vec<Tree>, mut revision: u64, sender: &Sender) {
    let mut news = store.subscribe();
    let mut changes: Vec<Change> =
        first.into_iter().map(|object| Change { revision, event: "ADDED", object }).collect();
    loop {
        for change in changes.drain(..).filter(|change| selection.matches(&change.object)) {
            if send(sender, change.event, change.object).await.is_none() {
                return;
            }
        }
        news.mark_unchanged();
        match store.changes_after(revision) {
            Ok(newer) if newer.is_empty() => {
                let closed =
                    tokio::select! { changed = news.changed() => changed.is_err(), () = sender.closed() => true };
                if closed {
                    return;
                }
            }
            Ok(newer) => {
                revision = newer.last().map_or(revision, |change| change.revision);
                changes = newer;
            }
            Err(status) => {
                send(sender, "ERROR", status.to_tree()).await;
                return;
            }
        }
    }
}

async fn send(sender: &Sender, event: &str, object: Tree) -> Option<()> {
    let mut line = json::encode(&tree! { "type" => event, "object" => object }, None);
    line.push(b'\n');
    sender.send(Ok(Frame::data(Bytes::from(line)))).await.ok()
}

fn verb(method: &Method, target: &Target, query: &Query) -> Result<&'static str, Status> {
    let is_collection = target.name.is_empty();
    match *method {
        Method::GET if is_collection && query.flag("watch") => Ok("watch"),
        Method::GET if is_collection => Ok("list"),
        Method::GET => Ok("get"),
        Method::POST if is_collection && !target.namespace.is_empty() => Ok("create"),
        Method::PUT if !is_collection => Ok("update"),
        Method::PATCH if !is_collection => Ok("patch"),
        Method::DELETE if !is_collection => Ok("delete"),
        _ => Err(Status::method_not_allowed()),
    }
}

async fn read(request: Request<Incoming>) -> Result<Tree, Status> {
    let body = http_client::body::read(request.into_body(), MAX_BODY_BYTES).await;
    let body = body.map_err(|error| Status::bad_request(error.to_string()))?;
    json::decode(&body).map_err(|error| Status::bad_request(error.to_string()))
}

fn object(code: u16, tree: &Tree) -> Response<Body> {
    text(code, "application/json", json::encode(tree, None))
}

fn text(code: u16, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    response(code, kind, Full::new(body.into()).boxed())
}

fn response(code: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

fn random_uid() -> Result<String, Status> {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(Status::internal)?;
    Ok(uid.trim().to_string())
}

fn now() -> api::Str {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    api::time::format_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
