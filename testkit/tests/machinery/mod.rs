//! The client library against a real server, over HTTPS and in process.

pub mod manager;

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::election::{Election, Lock, Timing};
use client::https::Https;
use client::{
    Client, DeleteOptions, Events, Fence, Informers, Metrics, Patch, Random, Resource, Selection, Store, index, key_of,
    writes,
};
use stdx::clock::{Clock, SystemClock};
use testkit::{Cluster, Storage};

const MAPS: Resource = Resource::core("configmaps");
const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");

fn in_process(cluster: &Cluster) -> Client {
    cluster::control_plane::in_process::client(cluster.server(), "admin".to_string(), &["system:masters"])
}

/// A client with the administrator's certificate.
fn https(cluster: &Cluster) -> Client {
    let (ca, admin) = (cluster.pki().read("ca"), cluster.pki().read("admin"));
    let tls = testkit::client::tls(&ca.expect("a file").expect("a CA bundle"), admin.expect("a file").as_ref());
    let address = cluster.address();
    let transport = Https::new(&address.ip().to_string(), address.port(), None, Arc::new(tls)).expect("an address");
    Client::new(Arc::new(transport), "machinery")
}

fn map(name: &str, value: &str) -> Tree {
    tree! {
        "apiVersion" => "v1",
        "kind" => "ConfigMap",
        "metadata" => tree! { "name" => name, "labels" => tree! { "of" => "us" } },
        "data" => tree! { "value" => value },
    }
}

fn informers(client: &Client) -> (Informers, Arc<Store>) {
    let informers = Informers::new(client.clone(), Arc::new(Random::seeded(1)));
    let informer = informers.informer(Selection::all(MAPS));
    informer.index_by(index::LABELS);
    informers.start();
    (informers, informer.store().clone())
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(testkit::client::DEADLINE, work).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// Every write gets a response, is recorded, and reaches the informer.
async fn writes_are_seen(client: Client) {
    client.create(MAPS, "default", &map("before", "0")).await.expect("created");
    let (informers, store) = informers(&client);
    in_time("the first list", informers.synced()).await;
    assert_eq!(store.get("default/before").expect("it was listed").str("kind"), "ConfigMap");
    let (result, written) = writes::record_writes(async {
        client.create(MAPS, "default", &map("one", "1")).await?;
        client.create(MAPS, "default", &map("two", "1")).await?;
        let merge = tree! { "data" => tree! { "value" => "2" } };
        let patched = client.patch(MAPS, "default", "one", "", Patch::Merge(&merge)).await?;
        assert_eq!(patched.map("data").str("value"), "2");
        let stale = DeleteOptions { resource_version: Some("1"), ..DeleteOptions::default() };
        assert!(client.delete(MAPS, "default", "two", stale).await.expect_err("a precondition").is_conflict());
        client.delete(MAPS, "default", "two", DeleteOptions::default()).await
    })
    .await;
    result.expect("deleted");
    assert_eq!(written.len(), 4);
    in_time("what was written", informers.wait_for(&written)).await;
    assert_eq!(store.get("default/one").expect("it is there").map("data").str("value"), "2");
    assert!(store.get("default/two").is_none());
    let selector = api::selector::Selector::parse("of=us").expect("a selector");
    let names: Vec<_> = store.select("default", &selector).iter().map(|map| key_of(map)).collect();
    assert_eq!(names, ["default/before".into(), "default/one".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_seen_in_process() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = in_process(&cluster);
    writes_are_seen(client.clone()).await;
    let (informers, store) = informers(&client);
    in_time("the list", informers.synced()).await;
    let cache = cluster.server().registry.storage.caches.get("configmaps").expect("a cache");
    let shared = |key: &str| {
        let object = store.object(key).expect("it is there");
        object.bytes().as_ptr() == cache.get(key).expect("it is there").bytes.as_ptr()
    };
    assert!(shared("default/one"), "what was listed is not copied");
    let changed = client.update(MAPS, "default", "one", &map("one", "3")).await.expect("updated");
    in_time("the change", store.wait_for(client::revision_of(&changed).expect("a revision"))).await;
    assert!(shared("default/one"), "what was watched is not copied");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_seen_over_https() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    writes_are_seen(https(&cluster)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watches_and_requests_share_few_connections() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = https(&cluster);
    let mut watches = Vec::new();
    for _ in 0..120 {
        watches.push(client.watch(MAPS, "resourceVersion=0").await.expect("a watch"));
    }
    // More streams than one connection accepts: a request still finds a connection.
    for number in 0..20 {
        client.create(MAPS, "default", &map(&format!("m{number}"), "")).await.expect("created");
    }
    for watch in &mut watches {
        let first = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("in time");
        assert!(matches!(first, Some(Ok(client::Event::Put(_)))));
    }
    cluster.stop().await;
    drop(watches);
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_deleted_and_subresources_written() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = in_process(&cluster);
    for number in 0..3 {
        client.create(MAPS, "default", &map(&format!("m{number}"), "")).await.expect("created");
    }
    let deleted = client.delete_collection(MAPS, "default", "labelSelector=of%3Dus", DeleteOptions::default()).await;
    assert!(deleted.is_ok(), "{deleted:?}");
    let left = client.list(MAPS, "default", "labelSelector=of%3Dus").await.expect("a list");
    assert!(left.list("items").is_empty());
    let namespaces = Resource::core("namespaces");
    let mut namespace = client.get(namespaces, "", "default").await.expect("a namespace");
    let condition = tree! { "type" => "Test", "status" => "True" };
    namespace.child("status").set("conditions", api::list![condition]);
    let updated = client.update_status(namespaces, "", "default", &namespace).await.expect("updated");
    assert_eq!(updated.list("status.conditions")[0].str("type"), "Test");
    cluster.stop().await;
}

fn election(cluster: &Cluster, identity: &str) -> Election {
    let client = in_process(cluster);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let events = Events::start(clock.clone(), Metrics::default());
    Election {
        lock: Lock { namespace: "kube-system".into(), name: "test".into(), identity: identity.into() },
        timing: Timing {
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(100),
            stops_at_deadline: false,
        },
        recorder: events.recorder(client.clone(), "test"),
        client,
        clock,
        random: Arc::new(Random::seeded(3)),
        metrics: Metrics::default(),
        fence: Fence::default(),
        announces: Box::new(Vec::new),
        observed: Default::default(),
    }
}

/// A renewal that is cancelled when the leader stops may have been written all the same.
#[tokio::test(flavor = "multi_thread")]
async fn releases_a_lease_that_was_renewed_unobserved() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let mut leader = election(&cluster, "leader");
    in_time("the election", leader.acquire()).await;
    let client = in_process(&cluster);
    let mut lease = client.get(LEASES, "kube-system", "test").await.expect("a lease");
    lease.child("spec").set("renewTime", "2031-01-01T00:00:00.000000Z");
    client.update(LEASES, "kube-system", "test", &lease).await.expect("renewed");
    leader.release().await;
    let lease = client.get(LEASES, "kube-system", "test").await.expect("a lease");
    assert_eq!(lease.str("spec.holderIdentity"), "");
    cluster.stop().await;
}

/// A candidate with the default timing.
fn candidate(cluster: &Cluster, identity: &str) -> Election {
    Election { timing: Timing::default(), ..election(cluster, identity) }
}

/// Far less than a retry period, and than the lease lasts: the candidate watches.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_is_taken_at_once() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let (mut first, mut second) = (candidate(&cluster, "first"), candidate(&cluster, "second"));
    let mut best = Duration::MAX;
    // The best of several: other programs may delay one.
    for _ in 0..5 {
        in_time("the first election", first.acquire()).await;
        let taken = tokio::spawn(async move {
            second.acquire().await;
            (second, tokio::time::Instant::now())
        });
        // Long enough that the candidate has observed the lease, and watches it.
        in_time("a renewal", async {
            tokio::time::timeout(Duration::from_millis(700), first.renew_until_lost()).await
        })
        .await
        .expect_err("the lease is kept");
        let released = tokio::time::Instant::now();
        first.release().await;
        let (mut leads, at) = in_time("the second election", taken).await.expect("no panic");
        best = best.min(at.saturating_duration_since(released));
        leads.release().await;
        second = leads;
    }
    assert!(best < Timing::default().lease_duration / 2, "{best:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_does_not_renew_is_replaced_when_its_lease_expires() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let (mut first, mut second) = (candidate(&cluster, "first"), candidate(&cluster, "second"));
    for _ in 0..3 {
        in_time("the first election", first.acquire()).await;
        let killed = tokio::time::Instant::now();
        in_time("the second election", second.acquire()).await;
        let waited = killed.elapsed();
        assert!(waited >= Duration::from_millis(1900), "the lease was taken after {waited:?}");
        second.release().await;
    }
    cluster.stop().await;
}

/// The first leader is paused, the second takes over: later writes of the first are rejected.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_cannot_write() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let (mut first, mut second) = (election(&cluster, "first"), election(&cluster, "second"));
    let as_first = in_process(&cluster).fenced(first.fence.clone());
    let as_second = in_process(&cluster).fenced(second.fence.clone());
    in_time("the first election", first.acquire()).await;
    as_first.create(MAPS, "default", &map("a", "1")).await.expect("the leader writes");
    // While the first leader renews, the second does not get the lease, and writes succeed.
    let writes = async {
        for number in 0..20 {
            as_first.update(MAPS, "default", "a", &map("a", &number.to_string())).await.expect("the leader writes");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        biased;
        () = writes => {}
        () = first.renew_until_lost() => panic!("the lease is kept"),
        () = second.acquire() => panic!("another candidate leads"),
    }
    // From here on the first leader is paused.
    in_time("the second election", second.acquire()).await;
    let update = as_first.update(MAPS, "default", "a", &map("a", "late")).await.expect_err("it is fenced off");
    assert!(update.is_conflict() && update.to_string().contains("fenced off"), "{update}");
    assert!(update.to_string().contains(r#"is not held by "first" in transition 0"#), "{update}");
    let create = as_first.create(MAPS, "default", &map("b", "late")).await.expect_err("it is fenced off");
    let delete = as_first.delete(MAPS, "default", "a", DeleteOptions::default()).await.expect_err("it is fenced off");
    assert!(create.is_conflict() && delete.is_conflict(), "{create} {delete}");
    as_second.update(MAPS, "default", "a", &map("a", "new")).await.expect("the new leader writes");
    in_time("it finds out", first.renew_until_lost()).await;
    // A released lease is acquired at once.
    second.release().await;
    in_time("the third election", first.acquire()).await;
    as_second.update(MAPS, "default", "a", &map("a", "late")).await.expect_err("it is fenced off");
    as_first.update(MAPS, "default", "a", &map("a", "newer")).await.expect("the leader writes");
    let lease = in_process(&cluster).get(LEASES, "kube-system", "test").await.expect("a lease");
    assert_eq!((lease.str("spec.holderIdentity"), lease.int("spec.leaseTransitions")), ("first", Some(2)));
    cluster.stop().await;
}
