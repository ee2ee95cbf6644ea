//! ConfigMaps, Secrets and trust bundles that pods of this node refer to. Each object has one watch, shared by all pods
//! that name it and ended with the last of them: a node may only read these objects one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json};
use bytes::Bytes;
use client::{Client, Error, Event, Random, Resource, Watch, ordered};
use stdx::backoff::Backoff;
use stdx::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use crate::model::pod;

pub(crate) const CONFIG_MAPS: Resource = Resource::core("configmaps");
pub(crate) const SECRETS: Resource = Resource::core("secrets");
pub(crate) const TRUST_BUNDLES: Resource = Resource::new("certificates.k8s.io", "v1", "clustertrustbundles");

/// How long a caller waits for the first response, as in upstream's caches.
const WAIT: Duration = Duration::from_secs(1);
/// An API server that has not seen the pod's binding yet forbids its objects for a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A reference of a pod: an object, or all objects of a resource if the name is "".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) resource: Resource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Reference {
    pub(crate) fn new(resource: Resource, namespace: &str, name: &str) -> Reference {
        Reference { resource, namespace: namespace.to_string(), name: name.to_string() }
    }

    fn query(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("fieldSelector=metadata.name%3D{}", self.name) }
    }

    /// The resource in the singular, for messages.
    fn singular(&self) -> &str {
        self.resource.plural.trim_end_matches('s')
    }
}

/// JSON by name.
type ObjectsByName = BTreeMap<String, Bytes>;

/// None before the first response.
type WatchedObjects = Option<Arc<ObjectsByName>>;

/// Objects that pods of this node refer to, kept up to date by watches.
pub struct Objects {
    shared: Arc<Shared>,
}

/// An object that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("object {namespace:?}/{name:?} not registered")]
    NotRegistered { namespace: String, name: String },
    /// The API server has not sent it yet.
    #[error("failed to sync {resource} cache: timed out waiting for the condition{}", cause(.source.as_deref()))]
    Unknown { resource: String, source: Option<Arc<Error>> },
    #[error(transparent)]
    Json(#[from] json::Error),
}

impl ObjectError {
    fn not_registered(reference: &Reference) -> ObjectError {
        let Reference { namespace, name, .. } = reference.clone();
        ObjectError::NotRegistered { namespace, name }
    }
}

fn cause(error: Option<&Error>) -> String {
    error.map(|error| format!(": {}", error.message())).unwrap_or_default()
}

struct Shared {
    client: Client,
    random: Random,
    /// Called with the UID of each pod that a change concerns.
    changed: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, BTreeSet<Reference>>,
    followed: BTreeMap<Reference, WatchEntry>,
}

struct WatchEntry {
    pods: BTreeSet<String>,
    known: Arc<ordered::Sender<WatchedObjects>>,
    /// A caller did not wait for the first response; its pods are notified of it.
    missed: bool,
    /// Why the object has not been read yet.
    error: Option<Arc<Error>>,
    task: JoinHandle<()>,
}

impl Drop for WatchEntry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Objects {
    /// `changed` is called with the UID of each pod that a change concerns.
    pub fn new(client: Client, seed: u64, changed: impl Fn(&str) + Send + Sync + 'static) -> Objects {
        let shared =
            Shared { client, random: Random::seeded(seed), changed: Box::new(changed), state: Mutex::default() };
        Objects { shared: Arc::new(shared) }
    }

    /// Watches the objects that the pod refers to now, and stops watching those that only it referred to before. Static
    /// pods refer to no objects.
    pub fn register(&self, pod: &Tree) {
        let wanted = if pod::is_static(pod) { BTreeSet::new() } else { references(pod) };
        let mut state = self.shared.state();
        let before = state.pods.get(pod::uid(pod)).cloned().unwrap_or_default();
        for gone in before.difference(&wanted) {
            remove_pod(&mut state, gone, pod::uid(pod));
        }
        for reference in &wanted {
            self.add_pod(&mut state, reference, pod::uid(pod));
        }
        state.pods.insert(pod::uid(pod).to_string(), wanted);
    }

    pub(crate) fn unregister(&self, uid: &str) {
        let mut state = self.shared.state();
        for reference in state.pods.remove(uid).unwrap_or_default() {
            remove_pod(&mut state, &reference, uid);
        }
    }

    /// Notifies a pod of another change.
    pub(crate) fn notify_pod(&self, uid: &str) {
        (self.shared.changed)(uid);
    }

    fn add_pod(&self, state: &mut State, reference: &Reference, uid: &str) {
        let followed = state.followed.entry(reference.clone()).or_insert_with(|| {
            let known = Arc::new(ordered::Sender::new(None));
            let task = self.shared.start_reflector(reference, known.clone());
            WatchEntry { pods: BTreeSet::new(), known, missed: false, error: None, task }
        });
        let new = followed.pods.insert(uid.to_string());
        // An immutable object is not watched, but it may have been replaced by one of the same name.
        if new && followed.task.is_finished() {
            followed.task = self.shared.start_reflector(reference, followed.known.clone());
        }
    }

    /// The object, once there is a response; None if it does not exist.
    pub(crate) async fn get(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Tree>, ObjectError> {
        let found = self.found(&Reference::new(resource, namespace, name)).await?;
        found.get(name).map(|bytes| read(bytes)).transpose()
    }

    /// All objects of a resource, by name.
    pub(crate) async fn all(&self, resource: Resource) -> Result<Vec<Tree>, ObjectError> {
        self.found(&Reference::new(resource, "", "")).await?.values().map(|bytes| read(bytes)).collect()
    }

    async fn found(&self, reference: &Reference) -> Result<Arc<ObjectsByName>, ObjectError> {
        let mut receiver = match self.shared.state().followed.get(reference) {
            Some(followed) => followed.known.subscribe(),
            None => return Err(ObjectError::not_registered(reference)),
        };
        let first = async {
            loop {
                if let Some(found) = receiver.borrow_and_update().clone() {
                    return Some(found);
                }
                receiver.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(WAIT, first).await {
            Ok(Some(found)) => Ok(found),
            _ => Err(self.shared.record_miss(reference)),
        }
    }
}

impl Drop for Objects {
    /// The watching tasks hold the shared state.
    fn drop(&mut self) {
        self.shared.state().followed.clear();
    }
}

fn read(bytes: &[u8]) -> Result<Tree, ObjectError> {
    Ok(json::decode_unmanaged(bytes)?)
}

fn remove_pod(state: &mut State, reference: &Reference, uid: &str) {
    if let Some(followed) = state.followed.get_mut(reference) {
        followed.pods.remove(uid);
        if followed.pods.is_empty() {
            state.followed.remove(reference);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The caller has waited in vain; its pod is notified later.
    fn record_miss(&self, reference: &Reference) -> ObjectError {
        let mut state = self.state();
        let why = state.followed.get_mut(reference).and_then(|followed| {
            followed.missed = true;
            followed.error.clone()
        });
        ObjectError::Unknown { resource: reference.singular().to_string(), source: why }
    }

    fn start_reflector(
        self: &Arc<Shared>,
        reference: &Reference,
        known: Arc<ordered::Sender<WatchedObjects>>,
    ) -> JoinHandle<()> {
        let follower = Reflector { shared: self.clone(), reference: reference.clone(), known };
        tokio::spawn(follower.run())
    }
}

struct Reflector {
    shared: Arc<Shared>,
    reference: Reference,
    known: Arc<ordered::Sender<WatchedObjects>>,
}

enum ReflectorState {
    Listing,
    /// All changes up to this version were received.
    Watching(String),
    /// An object that cannot change.
    Done,
}

impl Reflector {
    async fn run(self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut step = ReflectorState::Listing;
        while !matches!(step, ReflectorState::Done) {
            match self.step(&step).await {
                Ok(next) => {
                    step = next;
                    backoff.reset();
                }
                Err(error) if error.is_expired() => step = ReflectorState::Listing,
                Err(error) => {
                    tracing::debug!(resource = self.reference.resource.plural, name = self.reference.name, %error, "watch ended, restarting");
                    self.failed(error);
                    tokio::time::sleep(self.shared.random.jitter(backoff.next_pause(), 0.5)).await;
                }
            }
        }
    }

    /// One list, or one watch to its end.
    async fn step(&self, step: &ReflectorState) -> client::Result<ReflectorState> {
        match step {
            ReflectorState::Listing => self.list().await,
            ReflectorState::Watching(version) => self.watch(version.clone()).await,
            ReflectorState::Done => Ok(ReflectorState::Done),
        }
    }

    async fn list(&self) -> client::Result<ReflectorState> {
        let Reference { resource, namespace, .. } = &self.reference;
        let (head, objects) = self.shared.client.list_objects(*resource, namespace, &self.reference.query()).await?;
        let found = objects
            .into_iter()
            .map(|bytes| Ok((object_name(&bytes)?, bytes)))
            .collect::<client::Result<ObjectsByName>>()?;
        self.publish(found);
        Ok(self.next(head.str("metadata.resourceVersion").to_string()))
    }

    async fn watch(&self, mut version: String) -> client::Result<ReflectorState> {
        let Reference { resource, namespace, .. } = &self.reference;
        let query = format!("{}&allowWatchBookmarks=true&resourceVersion={version}", self.reference.query());
        let query = query.trim_start_matches('&');
        let mut watch: Watch = self.shared.client.watch_namespace(*resource, namespace, query).await?;
        let mut seen = false;
        while let Some(event) = watch.next().await {
            version = self.apply_event(event?)?;
            seen = true;
            if let ReflectorState::Done = self.next(String::new()) {
                return Ok(ReflectorState::Done);
            }
        }
        if seen {
            Ok(ReflectorState::Watching(version))
        } else {
            Err(Error::Transport("the watch ended at once".to_string()))
        }
    }

    fn apply_event(&self, event: Event) -> client::Result<String> {
        let mut found = self.known.borrow().as_deref().cloned().unwrap_or_default();
        let version = match event {
            Event::Bookmark(version) => return Ok(version),
            Event::Put(bytes) => {
                let version = resource_version(&bytes)?;
                found.insert(object_name(&bytes)?, bytes);
                version
            }
            Event::Deleted(bytes) => {
                found.remove(&object_name(&bytes)?);
                resource_version(&bytes)?
            }
        };
        self.publish(found);
        Ok(version)
    }

    /// An immutable object alone needs no watch.
    fn next(&self, version: String) -> ReflectorState {
        let known = self.known.borrow();
        let object = known.as_deref().and_then(|found| found.get(&self.reference.name));
        let immutable = object.is_some_and(|bytes| read(bytes).is_ok_and(|object| object.bool("immutable")));
        if immutable { ReflectorState::Done } else { ReflectorState::Watching(version) }
    }

    fn failed(&self, error: Error) {
        if let Some(followed) = self.shared.state().followed.get_mut(&self.reference) {
            followed.error = Some(Arc::new(error));
        }
    }

    fn publish(&self, found: ObjectsByName) {
        let before = self.known.send_replace(Some(Arc::new(found)));
        let same = *self.known.borrow() == before;
        let mut pods = BTreeSet::new();
        if let Some(followed) = self.shared.state().followed.get_mut(&self.reference) {
            let first = before.is_none() && !std::mem::take(&mut followed.missed);
            followed.error = None;
            if !same && !first {
                pods = followed.pods.clone();
            }
        }
        pods.iter().for_each(|uid| (self.shared.changed)(uid));
    }
}

fn meta(bytes: &[u8]) -> client::Result<Tree> {
    json::decode_metadata(bytes).map_err(|error| Error::Answer(error.to_string()))
}

fn object_name(bytes: &[u8]) -> client::Result<String> {
    Ok(meta(bytes)?.str("metadata.name").to_string())
}

fn resource_version(bytes: &[u8]) -> client::Result<String> {
    Ok(meta(bytes)?.str("metadata.resourceVersion").to_string())
}

/// Every object that a pod needs on its node.
pub(crate) fn references(pod: &Tree) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    for container in pod::containers(pod) {
        for from in container.list("envFrom") {
            found.extend(named(pod, CONFIG_MAPS, from.str("configMapRef.name")));
            found.extend(named(pod, SECRETS, from.str("secretRef.name")));
        }
        for env in container.list("env") {
            found.extend(named(pod, CONFIG_MAPS, env.str("valueFrom.configMapKeyRef.name")));
            found.extend(named(pod, SECRETS, env.str("valueFrom.secretKeyRef.name")));
        }
    }
    for secret in pod.list("spec.imagePullSecrets") {
        found.extend(named(pod, SECRETS, secret.str("name")));
    }
    for volume in pod.list("spec.volumes") {
        found.extend(named(pod, CONFIG_MAPS, volume.str("configMap.name")));
        found.extend(named(pod, SECRETS, volume.str("secret.secretName")));
        found.extend(named(pod, SECRETS, volume.str("csi.nodePublishSecretRef.name")));
        for source in volume.list("projected.sources") {
            found.extend(named(pod, CONFIG_MAPS, source.str("configMap.name")));
            found.extend(named(pod, SECRETS, source.str("secret.name")));
            found.extend(source.has("clusterTrustBundle").then(|| Reference::new(TRUST_BUNDLES, "", "")));
        }
    }
    found
}

fn named(pod: &Tree, resource: Resource, name: &str) -> Option<Reference> {
    (!name.is_empty()).then(|| Reference::new(resource, pod::namespace(pod), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_references_of_a_pod() {
        let pod = api::yaml::decode(
            br#"
metadata: {name: p, namespace: a, uid: u}
spec:
  imagePullSecrets: [{name: pull}]
  initContainers: [{name: i, envFrom: [{configMapRef: {name: c1}}, {secretRef: {name: s1}}]}]
  containers:
  - name: m
    env:
    - {name: A, valueFrom: {configMapKeyRef: {name: c2, key: k}}}
    - {name: B, valueFrom: {secretKeyRef: {name: s2, key: k}}}
    - {name: C, value: x}
  volumes:
  - {name: a, configMap: {name: c3}}
  - {name: b, secret: {secretName: s3}}
  - {name: c, csi: {driver: d, nodePublishSecretRef: {name: s4}}}
  - {name: d, emptyDir: {}}
  - {name: e, projected: {sources: [{configMap: {name: c1}}, {secret: {name: s5}}, {clusterTrustBundle: {name: x, path: y}}]}}
"#,
        );
        let found = references(&pod.unwrap());
        let of = |resource| {
            let of = found.iter().filter(|reference| reference.resource == resource);
            of.map(|reference| format!("{}/{}", reference.namespace, reference.name)).collect::<Vec<_>>()
        };
        assert_eq!(of(CONFIG_MAPS), ["a/c1", "a/c2", "a/c3"]);
        assert_eq!(of(SECRETS), ["a/pull", "a/s1", "a/s2", "a/s3", "a/s4", "a/s5"]);
        assert_eq!(of(TRUST_BUNDLES), ["/"]);
    }

    /// A server that responds to lists with one ConfigMap, and to watches not at all.
    struct SilentServer {
        immutable: bool,
        asked: Mutex<Vec<String>>,
    }

    impl client::Transport for SilentServer {
        fn send(&self, request: http::Request<Bytes>) -> client::ResponseFuture<'_> {
            let uri = request.uri().to_string();
            let watches = uri.contains("watch=true");
            self.asked.lock().push(uri);
            let object = format!(
                r#"{{"metadata":{{"name":"m","resourceVersion":"3"}},"immutable":{},"data":{{"k":"v"}}}}"#,
                self.immutable
            );
            let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{object}]}}"#);
            Box::pin(async move {
                let body = client::Body::new(http_body_util::Full::new(Bytes::from(list)));
                if watches { std::future::pending().await } else { Ok(http::Response::new(body)) }
            })
        }
    }

    fn pod(uid: &str, map: &str) -> Tree {
        let text = format!(
            "{{metadata: {{namespace: a, uid: {uid}}}, spec: {{volumes: [{{name: v, configMap: {{name: {map}}}}}]}}}}"
        );
        api::yaml::decode(text.as_bytes()).unwrap()
    }

    fn objects(immutable: bool) -> (Objects, Arc<SilentServer>) {
        let server = Arc::new(SilentServer { immutable, asked: Mutex::default() });
        (Objects::new(Client::new(server.clone(), "test"), 1, |_| {}), server)
    }

    async fn settle() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_share_a_watch_until_the_last_one() {
        let (objects, server) = objects(false);
        objects.register(&pod("u1", "m"));
        objects.register(&pod("u2", "m"));
        objects.register(&pod("u2", "m"));
        let found = objects.get(CONFIG_MAPS, "a", "m").await.unwrap().unwrap();
        assert_eq!(found.map("data").str("k"), "v");
        settle().await;
        let path = "/api/v1/namespaces/a/configmaps?";
        let wanted = [
            format!("{path}fieldSelector=metadata.name%3Dm"),
            format!("{path}watch=true&fieldSelector=metadata.name%3Dm&allowWatchBookmarks=true&resourceVersion=7"),
        ];
        assert_eq!(*server.asked.lock(), wanted);
        objects.unregister("u1");
        assert!(objects.get(CONFIG_MAPS, "a", "m").await.is_ok());
        objects.register(&pod("u2", "other"));
        let gone = objects.get(CONFIG_MAPS, "a", "m").await.unwrap_err();
        assert_eq!(gone.to_string(), "object \"a\"/\"m\" not registered");
        let missing = objects.get(CONFIG_MAPS, "a", "other").await;
        assert!(missing.is_ok_and(|object| object.is_none()), "it is known to be missing");
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_watch_immutable_objects() {
        let (objects, server) = objects(true);
        objects.register(&pod("u1", "m"));
        assert!(objects.get(CONFIG_MAPS, "a", "m").await.unwrap().is_some());
        settle().await;
        assert_eq!(server.asked.lock().len(), 1);
        objects.register(&pod("u2", "m"));
        settle().await;
        assert_eq!(server.asked.lock().len(), 2, "another of its name may have come");
    }
}
