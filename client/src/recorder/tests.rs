use stdx::sync::Mutex;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;

use super::*;
use crate::{Body, ResponseFuture, Transport};
use stdx::clock::SystemClock;

/// Takes a while for each request, and records the times of requests and responses.
#[derive(Default)]
struct Slow(Mutex<Vec<(Method, tokio::time::Instant, tokio::time::Instant)>>);

const TAKES: Duration = Duration::from_millis(10);

impl Transport for Arc<Slow> {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(async move {
            let came = tokio::time::Instant::now();
            tokio::time::sleep(TAKES).await;
            self.0.lock().push((request.method().clone(), came, tokio::time::Instant::now()));
            let mut answer = Response::new(Body::new(Full::new(Bytes::from_static(b"{}"))));
            *answer.status_mut() = http::StatusCode::CREATED;
            Ok(answer)
        })
    }
}

fn recorder(slow: &Arc<Slow>, metrics: &Metrics) -> Recorder {
    let events = Events::start(Arc::new(SystemClock), metrics.clone());
    events.recorder(Client::new(Arc::new(slow.clone()), "test"), "test").on("host")
}

fn object(name: &str) -> Tree {
    tree! { "kind" => "Pod", "metadata" => tree! { "name" => name, "namespace" => "default", "uid" => name } }
}

fn note() -> EventDetails<'static> {
    EventDetails { reason: "Scheduled", action: "Binding", related: None, text: "done".to_string() }
}

async fn written(slow: &Slow, count: usize) {
    while slow.0.lock().len() < count {
        tokio::time::sleep(TAKES).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_are_written_if_the_caller_waits() {
    const MANY: usize = 5 * WAITING;
    let (slow, metrics) = (Arc::new(Slow::default()), Metrics::default());
    let recorder = recorder(&slow, &metrics);
    let began = tokio::time::Instant::now();
    for number in 0..MANY {
        recorder.queue_normal_event(&object(&number.to_string()), note()).await;
    }
    written(&slow, MANY).await;
    let alone = TAKES * u32::try_from(MANY).expect("a number");
    assert!(began.elapsed() < alone / 30, "they are written beside each other");
    // Callers that do not wait lose events beyond the queue length.
    for number in 0..2 * WAITING {
        recorder.record_normal(&object(&format!("late-{number}")), note());
    }
    written(&slow, MANY + WAITING).await;
    tokio::time::sleep(TAKES * 100).await;
    assert_eq!(slow.0.lock().len(), MANY + WAITING);
}

#[tokio::test(start_paused = true)]
async fn repeated_events_wait_for_the_first() {
    let (slow, metrics) = (Arc::new(Slow::default()), Metrics::default());
    let recorder = recorder(&slow, &metrics);
    for name in ["a", "b", "a", "a"] {
        recorder.record_normal(&object(name), note());
    }
    written(&slow, 4).await;
    let seen = slow.0.lock().clone();
    let methods: Vec<&Method> = seen.iter().map(|(method, ..)| method).collect();
    assert_eq!(methods, [Method::POST, Method::POST, Method::PATCH, Method::PATCH]);
    assert_eq!(seen[0].1, seen[1].1, "the first two go together");
    assert!(seen[2].1 >= seen[1].2 && seen[3].1 >= seen[2].2, "later ones one by one");
}
