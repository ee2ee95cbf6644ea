//! Pods that wait for a Permit plugin of these tests, and nodes that change meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::control_plane::in_process::LocalClients;
use podmodel::Pod;
use scheduler::framework::{Event, Permit, Plugin, Point, Rejection, WaitingPods};
use stdx::sync::Mutex;

use super::*;

const NAME: &str = "Turnstile";

/// Permits pods by their names: `held-…` wait until the test allows them, `trio-…` until there are three of them,
/// `brief-…` wait for a moment, `never-…` are rejected, and all other pods are allowed.
#[derive(Default)]
struct PermitPlugin(Mutex<BTreeSet<String>>);

impl Plugin for PermitPlugin {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Permit]
    }

    fn permit(&self, waiting: &Arc<WaitingPods>, pod: &Pod, _node: &str) -> Permit {
        let minute = Duration::from_secs(60);
        match pod.name.split('-').next().unwrap_or("") {
            "held" if self.0.lock().insert(pod.uid.to_string()) => Permit::Wait(minute),
            "brief" => Permit::Wait(Duration::from_millis(300)),
            "never" => Permit::Refuse(Rejection::unschedulable("it is never let in")),
            "trio" => {
                let others = waiting.list();
                if others.len() < 2 {
                    return Permit::Wait(minute);
                }
                others.iter().for_each(|other| other.allow(NAME));
                Permit::Allow
            }
            _ => Permit::Allow,
        }
    }

    fn may_help(&self, _: &Pod, event: &Event) -> bool {
        matches!(event, Event::NodeAdded(_))
    }
}

fn scheduler(cluster: &Cluster) -> scheduler::SchedulerHandle {
    let profile = scheduler::default_profile().with_plugin(Arc::new(PermitPlugin::default()), 0);
    let configuration = Configuration { profiles: vec![profile], ..Configuration::default() };
    scheduler::start(LocalClients::new(cluster.server()).scheduler(configuration)).expect("a scheduler")
}

async fn waiting(running: &scheduler::SchedulerHandle, count: usize) -> Vec<Arc<scheduler::framework::WaitingPod>> {
    let pods = running.waiting_pods();
    crate::until("they wait for leave", async || pods.list().len() == count).await;
    pods.list()
}

#[tokio::test(flavor = "multi_thread")]
async fn permit_binds_waiting_pods_together() {
    let cluster = start_as(None, &[("one", "4", "10")]).await;
    let client = &cluster.client;
    let running = scheduler(&cluster);
    let mut paths = vec![create(client, &pod("trio-0", "1")).await, create(client, &pod("trio-1", "1")).await];
    assert_eq!(waiting(&running, 2).await[0].pending(), [NAME]);
    // Their places are theirs meanwhile.
    let big = create(client, &pod("big", "3")).await;
    client.until(&big, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    paths.push(create(client, &pod("trio-2", "1")).await);
    for path in &paths {
        client.until(path, is_bound).await;
    }
    assert!(running.waiting_pods().list().is_empty());
    assert!(!is_bound(200, &client.get(&big).await.tree()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_pods_release_their_reservation() {
    let cluster = start_as(None, &[("one", "1", "10")]).await;
    let client = &cluster.client;
    let running = scheduler(&cluster);
    let says = async |path: &str, want: &str| {
        let has_message =
            |_: u16, pod: &Tree| condition(pod, "PodScheduled").is_some_and(|one| one.str("message") == want);
        let pod = client.until(path, has_message).await;
        let one = condition(&pod, "PodScheduled").expect("a condition").clone();
        assert_eq!((one.str("status"), one.str("reason")), ("False", "Unschedulable"));
    };
    let never = create(client, &pod("never-1", "1")).await;
    says(&never, "0/1 nodes are available: it is never let in.").await;
    let brief = create(client, &pod("brief-1", "1")).await;
    says(&brief, "0/1 nodes are available: rejected due to timeout after waiting 300ms at plugin Turnstile.").await;
    let response = client.get(&format!("{WHY}/brief-1")).await;
    assert_eq!(response.code, 503, "the server knows no scheduler: {:?}", response.tree());
    let held = create(client, &pod("held-1", "1")).await;
    waiting(&running, 1).await[0].reject(NAME, "not today");
    says(&held, "0/1 nodes are available: not today.").await;
    // A pod that is deleted while it waits releases its slot too.
    create(client, &pod("held-2", "1")).await;
    waiting(&running, 1).await;
    assert_eq!(client.delete(&format!("{PODS}/held-2?gracePeriodSeconds=0")).await.code, 200);
    client.until(&create(client, &pod("free", "1")).await, is_bound).await;
    assert!(running.waiting_pods().list().is_empty());
    running.stop().await;
}

/// A pod was decided to go to the first node, which then changes: it goes to the second.
async fn goes_elsewhere(what: &str, change: impl AsyncFnOnce(&Client)) {
    let cluster = start_as(None, &[("one", "2", "10")]).await;
    let client = &cluster.client;
    let running = scheduler(&cluster);
    let path = create(client, &pod("held-1", "2")).await;
    let one = waiting(&running, 1).await.remove(0);
    assert_eq!(one.node, "one");
    add_node(client, "two", "2", "10").await;
    change(client).await;
    // A pod that is scheduled afterwards shows that the scheduler has processed everything.
    client.until(&create(client, &pod("after", "1")).await, is_bound).await;
    assert_eq!(client.delete(&format!("{PODS}/after?gracePeriodSeconds=0")).await.code, 200);
    one.allow(NAME);
    let bound = client.until(&path, is_bound).await;
    assert_eq!(bound.str("spec.nodeName"), "two", "{what}");
    let message = event(client, "held-1", "FailedScheduling").await;
    assert!(message.contains("node \"one\" has changed since it was selected"), "{what}: {message}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_deleted_before_binding_is_dropped() {
    let node = format!("{NODES}/one");
    let patched = async |client: &Client, path: &str, patch: &str| {
        assert_eq!(client.patch(path, "merge", patch).await.code, 200);
    };
    goes_elsewhere("deleted", async |client| assert_eq!(client.delete(&node).await.code, 200)).await;
    goes_elsewhere("cordoned", async |client| patched(client, &node, r#"{"spec":{"unschedulable":true}}"#).await).await;
    goes_elsewhere("shrunk", async |client| {
        patched(client, &format!("{node}/status"), r#"{"status":{"allocatable":{"cpu":"1"}}}"#).await;
    })
    .await;
    let taint = r#"{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}"#;
    goes_elsewhere("tainted", async |client| patched(client, &node, taint).await).await;
}
