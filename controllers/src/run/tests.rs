use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use client::{Body, Resource, ResponseFuture, Selection, Transport};
use http::{Request, Response};
use stdx::clock::SystemClock;
use stdx::sync::Mutex;
use tokio::sync::mpsc;

use super::*;
use crate::framework::ReconcileFuture;

const PODS: Resource = Resource::core("pods");

/// A server with one resource, whose watch sends changes only when the test allows it.
#[derive(Default)]
struct SlowServer {
    written: Mutex<Vec<String>>,
    watchers: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
}

impl SlowServer {
    fn show(&self) {
        let line = |object: &String| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        let lines: String = self.written.lock().iter().map(line).collect();
        for watcher in &*self.watchers.lock() {
            watcher.send(Bytes::from(lines.clone())).expect("a watcher");
        }
    }
}

struct Lines(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<std::result::Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|lines| lines.map(|lines| Ok(http_body::Frame::data(lines))))
    }
}

struct SlowTransport(Arc<SlowServer>);

impl Transport for SlowTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        if request.uri().path().ends_with("/refused") {
            return Box::pin(async { Err(Error::Transport("refused".to_string())) });
        }
        let body = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.0.watchers.lock().push(sender);
            Body::new(Lines(receiver))
        } else if request.method() == http::Method::POST {
            let mut written = self.0.written.lock();
            let number = written.len() + 1;
            let object =
                format!(r#"{{"metadata":{{"namespace":"a","name":"x{number}","resourceVersion":"{number}"}}}}"#);
            written.push(object.clone());
            Body::new(http_body_util::Full::new(Bytes::from(object)))
        } else {
            Body::new(http_body_util::Full::new(Bytes::from(r#"{"metadata":{"resourceVersion":"0"},"items":[]}"#)))
        };
        Box::pin(async move { Ok(Response::new(body)) })
    }
}

/// Creates a pod if none exists; panics at the key "panic", and never requeues the key "later".
struct OnePod {
    client: Client,
    store: Arc<client::Store>,
    runs: Arc<Mutex<Vec<String>>>,
}

impl Reconcile for OnePod {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async move {
            self.runs.lock().push(key.to_string());
            assert!(key != "panic", "on purpose");
            if key == "later" {
                return Ok(Outcome::RequeueAfter(Duration::MAX));
            }
            if self.store.is_empty() {
                self.client.create(PODS, "a", &api::tree! {}).await?;
            }
            Ok(Outcome::Done)
        })
    }
}

type Runs = Arc<Mutex<Vec<String>>>;

/// A controller with some workers on a slow server.
fn worker(server: &Arc<SlowServer>, workers: usize) -> (Arc<Queue>, Runs, Vec<JoinHandle<()>>) {
    let client = Client::new(Arc::new(SlowTransport(server.clone())), "test");
    let random = Arc::new(Random::seeded(1));
    let informers = Arc::new(Informers::new(client.clone(), random.clone()));
    let informer = informers.informer(Selection::all(PODS));
    // No controller needs this informer, which never lists.
    informers.informer(Selection::all(Resource::core("refused")));
    let store = informer.store().clone();
    informers.start();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let context = Context {
        recorder: Events::start(clock.clone(), Metrics::default()).recorder(client.clone(), "test"),
        client: client.clone(),
        clock,
        options: Arc::default(),
        queue: Arc::default(),
        metrics: Metrics::default(),
        informers,
    };
    let runs = Arc::default();
    let reconcile = Box::new(OnePod { client, store, runs: Arc::clone(&runs) });
    let descriptor = Descriptor {
        name: "test",
        alias: "",
        account: "test",
        resource: None,
        on_by_default: true,
        workers: |_| 1,
        start: |_, _| None,
    };
    let (worker, _) = Worker::new(&descriptor, &context, reconcile, vec![informer], Metrics::default());
    let running = worker.spawn(workers);
    let tasks = running.take();
    (running.queue, runs, tasks)
}

async fn wait(what: &str, holds: impl Fn() -> bool) {
    stdx::wait::until_async(what, Duration::from_secs(60), holds).await;
}

#[tokio::test(start_paused = true)]
async fn keys_wait_for_their_own_writes() {
    let server = Arc::new(SlowServer::default());
    let (queue, runs, tasks) = worker(&server, 2);
    let count = || runs.lock().len();
    queue.add("k".into());
    wait("the first run", || server.written.lock().len() == 1).await;
    queue.add("k".into());
    queue.add("other".into());
    wait("another key is not held up", || runs.lock().contains(&"other".to_string())).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(count(), 2, "k does not run before its pod is shown");
    server.show();
    wait("the second run of k", || count() == 3).await;
    // The other key found no pod either and created its own; k has created one.
    assert_eq!(server.written.lock().len(), 2);
    queue.close();
    for task in tasks {
        task.await.expect("it ends");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_only_its_key() {
    let server = Arc::new(SlowServer::default());
    let (queue, runs, _tasks) = worker(&server, 1);
    let count = |key: &str| runs.lock().iter().filter(|other| *other == key).count();
    queue.add("panic".into());
    queue.add("k".into());
    wait("repeated retries", || count("panic") >= 4).await;
    assert_eq!(count("k"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_longest_pause_does_not_end_the_worker() {
    let server = Arc::new(SlowServer::default());
    let (queue, runs, tasks) = worker(&server, 1);
    queue.add("later".into());
    queue.add("k".into());
    wait("the key after the longest pause", || runs.lock().contains(&"k".to_string())).await;
    queue.close();
    for task in tasks {
        task.await.expect("the worker ends without a panic");
    }
}

/// A log that panics at a warning, which the worker writes outside of the reconcile.
struct PanickingLog;

impl tracing::Subscriber for PanickingLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let is_warning = *event.metadata().level() == tracing::Level::WARN;
        assert!(!is_warning || event.metadata().target() != "controllers::run", "on purpose");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_panic_outside_of_the_reconcile_does_not_end_the_worker() {
    let _log = tracing::subscriber::set_default(PanickingLog);
    let server = Arc::new(SlowServer::default());
    let (queue, runs, _tasks) = worker(&server, 1);
    let count = |key: &str| runs.lock().iter().filter(|other| *other == key).count();
    queue.add("panic".into());
    queue.add("k".into());
    wait("repeated retries", || count("panic") >= 4).await;
    assert_eq!(count("k"), 1);
}
