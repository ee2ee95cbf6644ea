//! Schedulers that are killed between decision and binding, and lost responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::client::{Error, ResponseFuture, Transport};
use bytes::Bytes;
use cluster::control_plane::in_process::LocalClients;
use http::Request;
use stdx::wait::until_async;

use super::*;

/// The fault that affects bindings.
#[derive(Clone, Copy, PartialEq)]
enum BindingFault {
    Open,
    /// Bindings never arrive.
    Held,
    /// Bindings arrive, and the response to the first one is lost.
    LosesAnswer,
}

struct FailingTransport {
    inner: Arc<dyn Transport>,
    way: BindingFault,
    bindings: Arc<AtomicUsize>,
}

impl Transport for FailingTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        if !request.uri().path().ends_with("/binding") {
            return self.inner.send(request);
        }
        let first = self.bindings.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            if self.way == BindingFault::Held {
                std::future::pending::<()>().await;
            }
            let answer = self.inner.send(request).await;
            if first && self.way == BindingFault::LosesAnswer {
                return Err(Error::Transport("the answer is lost".to_string()));
            }
            answer
        })
    }
}

/// Another scheduler of the cluster, and how many bindings it has tried.
fn scheduler(cluster: &Cluster, way: BindingFault) -> (scheduler::SchedulerHandle, Arc<AtomicUsize>) {
    let (mut local, bindings) = (LocalClients::new(cluster.server()), Arc::new(AtomicUsize::new(0)));
    let counted = bindings.clone();
    local.around = Arc::new(move |inner| Arc::new(FailingTransport { inner, way, bindings: counted.clone() }));
    (scheduler::start(local.scheduler(Configuration::default())).expect("a scheduler"), bindings)
}

async fn reached(bindings: &AtomicUsize, count: usize) {
    let tried = || bindings.load(Ordering::SeqCst) >= count;
    until_async("a binding is tried", testkit::client::DEADLINE, tried).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_killed_scheduler_are_bound_by_the_next() {
    let cluster = start_as(None, &[("one", "1", "10")]).await;
    let (first, bindings) = scheduler(&cluster, BindingFault::Held);
    let path = create(&cluster.client, &pod("p", "1")).await;
    reached(&bindings, 1).await;
    first.abort();
    assert!(!is_bound(200, &cluster.client.get(&path).await.tree()));
    let (second, _) = scheduler(&cluster, BindingFault::Open);
    cluster.client.until(&path, is_bound).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_with_lost_responses_keep_their_node() {
    let cluster = start_as(None, &[("one", "1", "10")]).await;
    let client = &cluster.client;
    let (running, bindings) = scheduler(&cluster, BindingFault::LosesAnswer);
    let paths = [create(client, &pod("a", "1")).await, create(client, &pod("b", "1")).await];
    for path in &paths {
        client.until(path, |_, pod| is_bound(200, pod) || condition(pod, "PodScheduled").is_some()).await;
    }
    let mut bound = 0;
    for path in &paths {
        bound += usize::from(is_bound(200, &client.get(path).await.tree()));
    }
    assert_eq!((bound, bindings.load(Ordering::SeqCst)), (1, 1), "there is room for one");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_of_one_name_bind_no_pod_twice() {
    let cluster = start_as(None, &[("one", "100", "100"), ("two", "100", "100")]).await;
    let client = &cluster.client;
    let running = [scheduler(&cluster, BindingFault::Open).0, scheduler(&cluster, BindingFault::Open).0];
    let mut bound = Vec::new();
    for number in 0..30 {
        let path = create(client, &pod(&format!("p{number}"), "10m")).await;
        bound.push((client.until(&path, is_bound).await, path));
    }
    for (before, path) in bound {
        let now = client.get(&path).await.tree();
        assert_eq!(now.str("spec.nodeName"), before.str("spec.nodeName"));
    }
    for one in running {
        one.stop().await;
    }
}
