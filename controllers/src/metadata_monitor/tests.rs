use bytes::Bytes;
use client::{Body, ResponseFuture, Transport};
use http::{Request, Response};

use super::*;

const DISCOVERY: &str = r#"{"items":[{"versions":[{"version":"v1","resources":[
    {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list","watch","delete"]}]}]}]}"#;
const PODS: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[
    {"metadata":{"namespace":"a","name":"x","uid":"u1"}},{"metadata":{"namespace":"a","name":"y","uid":"u2"}}]}"#;

/// A server with two pods whose watches stay silent. It records the requested paths.
#[derive(Default)]
struct Server(Mutex<Vec<String>>);

impl Transport for Server {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        self.0.lock().push(path.to_string());
        if query.contains("watch=true") {
            return Box::pin(std::future::pending());
        }
        let body = match path {
            "/api" => DISCOVERY,
            "/api/v1/pods" => PODS,
            _ => r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#,
        };
        Box::pin(async move { Ok(Response::new(Body::new(http_body_util::Full::new(Bytes::from(body))))) })
    }
}

#[derive(Default)]
struct RecordingListener {
    uids: Mutex<BTreeSet<String>>,
    lists: Mutex<Vec<usize>>,
}

impl Listener for RecordingListener {
    fn put(&self, _: &ServedResource, object: &Tree) {
        self.uids.lock().insert(object.str("metadata.uid").to_string());
    }

    fn deleted(&self, _: &ServedResource, _: &Tree) {}

    fn listed(&self, _: &ServedResource, uids: &BTreeSet<Str>) {
        self.lists.lock().push(uids.len());
    }
}

#[tokio::test(start_paused = true)]
async fn every_listener_receives_the_complete_lists() {
    let server = Arc::new(Server::default());
    let client = Client::new(server.clone(), "test");
    let random = Arc::new(Random::seeded(1));
    let informers = Informers::new(client.clone(), random.clone());
    let metadata_monitor = MetadataMonitor::new(client, random, Metrics::default());

    let listeners: Vec<Arc<RecordingListener>> = (0..3).map(|_| Arc::default()).collect();
    for early in &listeners[..2] {
        metadata_monitor.listen(early.clone());
        // Anything that could run before the next controller is created runs now.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(server.0.lock().is_empty(), "no request before the start");
    }
    metadata_monitor.start(&informers);
    informers.start();
    metadata_monitor.synced().await;
    metadata_monitor.listen(listeners[2].clone());
    metadata_monitor.synced().await;

    for (number, listener) in listeners.iter().enumerate() {
        let uids = listener.uids.lock().iter().cloned().collect::<Vec<_>>();
        assert_eq!(uids, ["u1", "u2"], "listener {number}");
        assert_eq!(listener.lists.lock().last(), Some(&2), "listener {number}");
    }
}
