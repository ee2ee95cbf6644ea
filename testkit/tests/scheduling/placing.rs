//! Placement by selectors, taints, affinity, spreading and volumes.

use api::{Tree, list, tree};
use testkit::{Client, Cluster};

use super::{NODES, PODS, condition, create, is_bound, pod, start};

const ZONE: &str = "topology.kubernetes.io/zone";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn label(client: &Client, node: &str, key: &str, value: &str) {
    let patch = format!(r#"{{"metadata":{{"labels":{{"{key}":"{value}"}}}}}}"#);
    assert_eq!(client.patch(&format!("{NODES}/{node}"), "merge", &patch).await.code, 200);
}

async fn three_zones() -> Cluster {
    let cluster = start(&["default-scheduler"], &[("a", "9", "50"), ("b", "9", "50"), ("c", "9", "50")]).await;
    for node in ["a", "b", "c"] {
        label(&cluster.client, node, ZONE, &format!("zone-{node}")).await;
    }
    cluster
}

fn labelled(name: &str, app: &str) -> Tree {
    let mut pod = pod(name, "100m");
    pod.child("metadata").set("labels", tree! { "app" => app });
    pod
}

fn near(kind: &str, app: &str) -> Tree {
    let selector = tree! { "matchLabels" => tree! { "app" => app } };
    let term = tree! { "topologyKey" => ZONE, "labelSelector" => selector };
    tree! { kind => tree! { "requiredDuringSchedulingIgnoredDuringExecution" => list![term] } }
}

async fn node_of(client: &Client, path: &str) -> String {
    client.until(path, is_bound).await.str("spec.nodeName").to_string()
}

async fn message(client: &Client, path: &str) -> String {
    let waits = client.until(path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    condition(&waits, "PodScheduled").map(|one| one.str("message").to_string()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_selectors_taints_and_affinity() {
    let cluster = three_zones().await;
    let client = &cluster.client;
    let taint = r#"{"spec":{"taints":[{"key":"own","effect":"NoSchedule"}]}}"#;
    assert_eq!(client.patch(&format!("{NODES}/c"), "merge", taint).await.code, 200);
    let mut chosen = labelled("chosen", "db");
    chosen.child("spec").set("nodeSelector", tree! { ZONE => "zone-b" });
    assert_eq!(node_of(client, &create(client, &chosen).await).await, "b");
    let mut beside = labelled("beside", "web");
    beside.child("spec").set("affinity", near("podAffinity", "db"));
    assert_eq!(node_of(client, &create(client, &beside).await).await, "b");
    let mut apart = labelled("apart", "db");
    apart.child("spec").set("affinity", near("podAntiAffinity", "db"));
    assert_eq!(node_of(client, &create(client, &apart).await).await, "a");
    let mut more = labelled("more", "db");
    more.child("spec").set("affinity", near("podAntiAffinity", "db"));
    let more = create(client, &more).await;
    let text = message(client, &more).await;
    let want =
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod anti-affinity rules.";
    assert!(text.starts_with(want), "{text}");
    // Removing the taint frees capacity.
    assert_eq!(client.patch(&format!("{NODES}/c"), "merge", r#"{"spec":{"taints":null}}"#).await.code, 200);
    assert_eq!(node_of(client, &more).await, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_spread_over_zones() {
    let cluster = three_zones().await;
    let client = &cluster.client;
    let mut nodes = Vec::new();
    for number in 0..6 {
        let mut pod = labelled(&format!("p{number}"), "web");
        let selector = tree! { "matchLabels" => tree! { "app" => "web" } };
        let constraint = tree! {
            "maxSkew" => 1, "topologyKey" => ZONE, "whenUnsatisfiable" => "DoNotSchedule", "labelSelector" => selector,
        };
        pod.child("spec").set("topologySpreadConstraints", list![constraint]);
        nodes.push(node_of(client, &create(client, &pod).await).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["a", "a", "b", "b", "c", "c"]);
}

fn user_of(name: &str, claim: &str) -> Tree {
    let mut pod = pod(name, "100m");
    let volume = tree! { "name" => "v", "persistentVolumeClaim" => tree! { "claimName" => claim } };
    pod.child("spec").set("volumes", list![volume]);
    pod
}

async fn make_claim(client: &Client, name: &str, class: &str) {
    let spec = tree! {
        "storageClassName" => class,
        "accessModes" => list!["ReadWriteOnce"],
        "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
    };
    let claim = tree! { "metadata" => tree! { "name" => name }, "spec" => spec };
    assert_eq!(client.post(CLAIMS, &claim).await.code, 201);
}

/// A volume that only one node reaches, for claims that wait for their first consumer.
async fn local_volume(client: &Client, name: &str, node: &str) {
    let requirement = tree! { "key" => "kubernetes.io/hostname", "operator" => "In", "values" => list![node] };
    let term = tree! { "matchExpressions" => list![requirement] };
    let spec = tree! {
        "storageClassName" => "local",
        "capacity" => tree! { "storage" => "2Gi" },
        "accessModes" => list!["ReadWriteOnce"],
        "local" => tree! { "path" => "/data" },
        "nodeAffinity" => tree! { "required" => tree! { "nodeSelectorTerms" => list![term] } },
    };
    let volume = tree! { "metadata" => tree! { "name" => name }, "spec" => spec };
    let reply = client.post("/api/v1/persistentvolumes", &volume).await;
    assert_eq!(reply.code, 201, "{:?}", reply.tree());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_follow_their_volumes() {
    let cluster = Cluster::start_with_nodes(3).await;
    let client = &cluster.client;
    let class = |name: &str, provisioner: &str| {
        let meta = tree! { "name" => name };
        tree! { "metadata" => meta, "provisioner" => provisioner, "volumeBindingMode" => "WaitForFirstConsumer" }
    };
    let local = class("local", "kubernetes.io/no-provisioner");
    assert_eq!(client.post("/apis/storage.k8s.io/v1/storageclasses", &local).await.code, 201);
    let nodes = client.until(NODES, |_, list| list.list("items").len() == 3).await;
    let last = nodes.list("items")[2].str("metadata.name").to_string();
    make_claim(client, "static", "local").await;
    make_claim(client, "other", "local").await;
    let waiting = create(client, &user_of("p", "static")).await;
    let text = message(client, &waiting).await;
    assert!(text.contains("3 node(s) didn't find available persistent volumes to bind"), "{text}");
    local_volume(client, "v", &last).await;
    assert_eq!(node_of(client, &waiting).await, last);
    let claim = client.until(&format!("{CLAIMS}/static"), |_, claim| claim.str("status.phase") == "Bound").await;
    assert_eq!(claim.str("spec.volumeName"), "v");
    // The volume is bound: another pod that needs such a volume waits.
    let text = message(client, &create(client, &user_of("q", "other")).await).await;
    assert!(text.contains("3 node(s) didn't find available persistent volumes to bind"), "{text}");
    assert_eq!(client.get(&format!("{PODS}/missing")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_provisioned_for_the_first_consumer() {
    let cluster = Cluster::start_with_nodes(2).await;
    let client = &cluster.client;
    let class = tree! {
        "metadata" => tree! { "name" => "made" },
        "provisioner" => "other.example.com",
        "volumeBindingMode" => "WaitForFirstConsumer",
    };
    assert_eq!(client.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.code, 201);
    make_claim(client, "new", "made").await;
    let path = create(client, &user_of("p", "new")).await;
    let selected =
        |claim: &Tree| claim.map("metadata.annotations").str("volume.kubernetes.io/selected-node").to_string();
    let claim = client.until(&format!("{CLAIMS}/new"), |_, claim| !selected(claim).is_empty()).await;
    let node = selected(&claim);
    assert!(!is_bound(200, &client.get(&path).await.tree()), "it waits for its volume");
    // The test creates the volume, as a provisioner does.
    let reference = tree! {
        "apiVersion" => "v1", "kind" => "PersistentVolumeClaim", "namespace" => "default", "name" => "new",
        "uid" => claim.str("metadata.uid"),
    };
    let spec = tree! {
        "storageClassName" => "made",
        "capacity" => tree! { "storage" => "1Gi" },
        "accessModes" => list!["ReadWriteOnce"],
        "csi" => tree! { "driver" => "other.example.com", "volumeHandle" => "h" },
        "claimRef" => reference,
    };
    let volume = tree! { "metadata" => tree! { "name" => "made-one" }, "spec" => spec };
    assert_eq!(client.post("/api/v1/persistentvolumes", &volume).await.code, 201);
    assert_eq!(node_of(client, &path).await, node);
}
