//! Services and storage with their controllers, through the API.

mod repair;
mod storage;

use api::{Tree, json, list, tree, yaml};
use testkit::{Client, Cluster};

pub const CORE: &str = "/api/v1/namespaces/default";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

pub async fn make(client: &Client, path: &str, object: &Tree) -> Tree {
    let reply = client.post(path, object).await;
    assert_eq!(reply.code, 201, "{path}: {}", reply.tree().str("message"));
    reply.tree()
}

/// Merges something into an object or its status.
pub async fn merge(client: &Client, path: &str, change: &Tree) {
    let text = String::from_utf8(json::encode(change, None)).expect("JSON is text");
    let reply = client.patch(path, "merge", &text).await;
    assert_eq!(reply.code, 200, "{path}: {}", reply.tree().str("message"));
}

/// Reads an object repeatedly until it satisfies a condition.
pub async fn see(client: &Client, path: &str, what: &str, is_so: impl Fn(&Tree) -> bool) -> Tree {
    super::until(what, async || is_so(&client.get(path).await.tree())).await;
    client.get(path).await.tree()
}

pub async fn gone(client: &Client, path: &str) {
    super::until(&format!("{path} is deleted"), async || client.get(path).await.code == 404).await;
}

/// Removes the values that differ from run to run.
pub fn plain(value: &Tree) -> Tree {
    let volatile = |key: &str| {
        matches!(key, "uid" | "resourceVersion" | "managedFields" | "creationTimestamp") || key.ends_with("Time")
    };
    match value {
        Tree::Map(map) => {
            let mut plain = tree! {};
            for (key, value) in map.iter().filter(|(key, _)| !volatile(key)) {
                plain.set(key, self::plain(value));
            }
            plain
        }
        Tree::List(items) => Tree::List(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

/// Compares with what upstream's controllers write, in YAML.
pub fn assert_like(object: &Tree, want: &str) {
    let got = yaml::encode(&plain(object));
    assert_eq!(String::from_utf8_lossy(&got), want);
}

/// The account that pods run as has to be there first.
pub async fn start() -> Cluster {
    let cluster = Cluster::start_whole().await;
    see(&cluster.client, &format!("{CORE}/serviceaccounts/default"), "an account", |account| account.has("metadata"))
        .await;
    cluster
}

pub async fn make_node(client: &Client, name: &str, ip: &str) {
    make_node_in(client, name, ip, "z1").await;
}

async fn make_node_in(client: &Client, name: &str, ip: &str, zone: &str) {
    let labels = tree! { "topology.kubernetes.io/zone" => zone, "kubernetes.io/hostname" => name };
    let metadata = tree! { "name" => name, "labels" => labels };
    make(client, "/api/v1/nodes", &tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => metadata }).await;
    let status = tree! {
        "allocatable" => tree! { "cpu" => "4" },
        "addresses" => list![tree! { "type" => "InternalIP", "address" => ip }],
        "conditions" => list![tree! { "type" => "Ready", "status" => "True" }],
    };
    merge(client, &format!("/api/v1/nodes/{name}/status"), &tree! { "status" => status }).await;
}

async fn make_pod(client: &Client, name: &str, node: &str, port: i64) {
    let ports = list![tree! { "name" => "http", "containerPort" => port }];
    let container = tree! { "name" => "c", "image" => "app:1", "ports" => ports };
    let metadata = tree! { "name" => name, "labels" => tree! { "app" => "be" } };
    let spec = tree! { "nodeName" => node, "containers" => list![container] };
    let pod = tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => metadata, "spec" => spec };
    make(client, &format!("{CORE}/pods"), &pod).await;
}

async fn set_ready(client: &Client, name: &str, ip: &str, ready: &str) {
    let status = tree! {
        "phase" => "Running",
        "podIP" => ip,
        "podIPs" => list![tree! { "ip" => ip }],
        "conditions" => list![tree! { "type" => "Ready", "status" => ready }],
    };
    merge(client, &format!("{CORE}/pods/{name}/status"), &tree! { "status" => status }).await;
}

fn service(name: &str, spec: Tree) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => "Service", "metadata" => tree! { "name" => name }, "spec" => spec }
}

/// Endpoints of all slices of a list as `address port ready serving terminating`, sorted.
fn endpoints(slices: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for slice in slices.list("items") {
        let port = slice.list("ports").first().and_then(|port| port.int("port")).unwrap_or(0);
        for endpoint in slice.list("endpoints") {
            let condition = |name: &'static str| if endpoint.at("conditions").bool(name) { name } else { "-" };
            let address = endpoint.list("addresses")[0].as_str().unwrap_or("");
            let conditions = ["ready", "serving", "terminating"].map(condition).join(" ");
            found.push(format!("{address} {port} {conditions}"));
        }
    }
    found.sort();
    found
}

const SLICE: &str = "\
addressType: IPv4
endpoints:
- addresses:
  - 10.244.7.1
  conditions:
    ready: true
    serving: true
    terminating: false
  nodeName: node-a
  targetRef:
    kind: Pod
    name: be1
    namespace: default
  zone: z1
metadata:
  generateName: be-
  generation: 1
  labels:
    endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
    kubernetes.io/service-name: be
  namespace: default
  ownerReferences:
  - apiVersion: v1
    blockOwnerDeletion: true
    controller: true
    kind: Service
    name: be
ports:
- name: web
  port: 8080
  protocol: TCP
";

const OLD_ENDPOINTS: &str = "\
apiVersion: v1
kind: Endpoints
metadata:
  labels:
    endpoints.kubernetes.io/managed-by: endpoint-controller
  name: be
  namespace: default
subsets:
- addresses:
  - ip: 10.244.7.1
    nodeName: node-a
    targetRef:
      kind: Pod
      name: be1
      namespace: default
  ports:
  - name: web
    port: 8080
    protocol: TCP
- notReadyAddresses:
  - ip: 10.244.7.2
    nodeName: node-a
    targetRef:
      kind: Pod
      name: be2
      namespace: default
  ports:
  - name: web
    port: 8081
    protocol: TCP
";

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_pods() {
    let mut cluster = start().await;
    let client = &cluster.client;
    make_node(client, "node-a", "192.0.2.1").await;
    make_pod(client, "be1", "node-a", 8080).await;
    set_ready(client, "be1", "10.244.7.1", "True").await;
    make_pod(client, "be2", "node-a", 8081).await;
    set_ready(client, "be2", "10.244.7.2", "False").await;
    let port = tree! { "name" => "web", "port" => 80, "targetPort" => "http" };
    let spec = tree! { "selector" => tree! { "app" => "be" }, "ports" => list![port] };
    make(client, &format!("{CORE}/services"), &service("be", spec)).await;

    let slices = format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Dbe");
    let both = ["10.244.7.1 8080 ready serving -", "10.244.7.2 8081 - - -"];
    let seen = see(client, &slices, "both endpoints", |slices| endpoints(slices) == both).await;
    assert_eq!(seen.list("items").len(), 2, "ports part them");
    let of_pod = |slice: &&Tree| slice.list("endpoints")[0].str("targetRef.name") == "be1";
    let mut slice = seen.list("items").iter().find(of_pod).expect("a slice of each").clone();
    let annotations = slice.at("metadata.annotations").clone();
    assert!(annotations.as_map().is_some_and(|map| map.contains("endpoints.kubernetes.io/last-change-trigger-time")));
    for volatile in ["name", "annotations"] {
        slice.child("metadata").remove(volatile);
    }
    assert_like(&slice, SLICE);
    let old = format!("{CORE}/endpoints/be");
    let is_apart = |endpoints: &Tree| endpoints.list("subsets").len() == 2;
    let mut seen = see(client, &old, "two subsets", is_apart).await;
    seen.child("metadata").remove("annotations");
    assert_like(&seen, OLD_ENDPOINTS);
    assert_eq!(seen.list("subsets")[1].list("notReadyAddresses")[0].str("ip"), "10.244.7.2");

    set_ready(client, "be2", "10.244.7.2", "True").await;
    let both = ["10.244.7.1 8080 ready serving -", "10.244.7.2 8081 ready serving -"];
    see(client, &slices, "both ready", |slices| endpoints(slices) == both).await;
    client.delete(&format!("{CORE}/pods/be1")).await;
    let ending = ["10.244.7.1 8080 - serving terminating", "10.244.7.2 8081 ready serving -"];
    see(client, &slices, "one ends", |slices| endpoints(slices) == ending).await;
    client.delete(&format!("{CORE}/pods/be1?gracePeriodSeconds=0")).await;
    let seen = see(client, &slices, "one is left", |slices| endpoints(slices) == both[1..]).await;
    assert_eq!(seen.list("items").len(), 1, "an empty slice goes");

    // Manual changes are reverted.
    let name = seen.list("items")[0].str("metadata.name").to_string();
    assert_eq!(client.delete(&format!("{SLICES}/{name}")).await.code, 200);
    see(client, &slices, "created again", |slices| endpoints(slices) == both[1..]).await;
    client.delete(&format!("{CORE}/services/be")).await;
    gone(client, &old).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_get_endpoints_by_their_size() {
    let mut cluster = start().await;
    let client = &cluster.client;
    make_node_in(client, "node-a", "192.0.2.1", "z1").await;
    for (name, ip) in [("be1", "10.244.7.1"), ("be2", "10.244.7.2"), ("be3", "10.244.7.3"), ("be4", "10.244.7.4")] {
        make_pod(client, name, "node-a", 8080).await;
        set_ready(client, name, ip, "True").await;
    }
    let spec = tree! { "selector" => tree! { "app" => "be" }, "ports" => list![tree! { "port" => 80 }] };
    let mut be = service("be", spec);
    be.child("metadata").set("annotations", tree! { "service.kubernetes.io/topology-mode" => "Auto" });
    make(client, &format!("{CORE}/services"), &be).await;
    let events = format!("{CORE}/events?fieldSelector=involvedObject.name%3Dbe");
    let told = async |reason: &str, text: &str| {
        let is_it = |event: &Tree| event.str("reason") == reason && event.str("message") == text;
        see(client, &events, text, |events| events.list("items").iter().any(is_it)).await;
    };
    let insufficient = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    told("TopologyAwareHintsDisabled", &format!("{insufficient}, addressType: IPv4")).await;
    // A second zone is enough for the service to be looked at again.
    make_node_in(client, "node-b", "192.0.2.2", "z2").await;
    let slices = format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Dbe");
    let hints = |slices: &Tree| -> Vec<String> {
        let endpoints = slices.list("items").iter().flat_map(|slice| slice.list("endpoints"));
        let mut hints: Vec<String> =
            endpoints.flat_map(|one| one.list("hints.forZones")).map(|zone| zone.str("name").to_string()).collect();
        hints.sort();
        hints
    };
    see(client, &slices, "half for each zone", |slices| hints(slices) == ["z1", "z1", "z2", "z2"]).await;
    told("TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled, addressType: IPv4").await;
    let no_more = tree! { "metadata" => tree! { "annotations" => Tree::Null } };
    merge(client, &format!("{CORE}/services/be"), &no_more).await;
    see(client, &slices, "no hints", |slices| !endpoints(slices).is_empty() && hints(slices).is_empty()).await;
    told("TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled, addressType: IPv4").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_without_pods_or_selectors_have_slices_too() {
    let mut cluster = start().await;
    let client = &cluster.client;
    let headless = tree! { "clusterIP" => "None", "selector" => tree! { "app" => "none" } };
    make(client, &format!("{CORE}/services"), &service("hl", headless)).await;
    let slices = format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Dhl");
    let seen = see(client, &slices, "an empty slice", |slices| slices.list("items").len() == 1).await;
    let slice = &seen.list("items")[0];
    assert!(slice.get("endpoints").is_some_and(Tree::is_null) && slice.get("ports").is_some_and(Tree::is_null));
    assert!(slice.map("metadata.labels").contains("service.kubernetes.io/headless"));

    let plain = tree! { "ports" => list![tree! { "port" => 80 }] };
    make(client, &format!("{CORE}/services"), &service("nosel", plain)).await;
    let subset = tree! {
        "addresses" => list![tree! { "ip" => "192.0.2.77" }],
        "ports" => list![tree! { "port" => 80 }],
    };
    let metadata = tree! { "name" => "nosel" };
    let by_hand =
        tree! { "apiVersion" => "v1", "kind" => "Endpoints", "metadata" => metadata, "subsets" => list![subset] };
    make(client, &format!("{CORE}/endpoints"), &by_hand).await;
    let slices = format!("{SLICES}?labelSelector=kubernetes.io/service-name%3Dnosel");
    let want = ["192.0.2.77 80 ready - -"];
    see(client, &slices, "a mirror", |slices| endpoints(slices) == want).await;
    let skip = tree! { "endpointslice.kubernetes.io/skip-mirror" => "true" };
    let change = tree! { "metadata" => tree! { "labels" => skip } };
    merge(client, &format!("{CORE}/endpoints/nosel"), &change).await;
    see(client, &slices, "no mirror", |slices| slices.list("items").is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_have_the_addresses_of_nodes() {
    let mut cluster = start().await;
    let client = &cluster.client;
    make_node(client, "node-a", "192.0.2.1").await;
    let spec = tree! { "type" => "LoadBalancer", "ports" => list![tree! { "port" => 80 }] };
    make(client, &format!("{CORE}/services"), &service("lb", spec)).await;
    let path = format!("{CORE}/services/lb");
    let ips = |service: &Tree| -> Vec<String> {
        service.list("status.loadBalancer.ingress").iter().map(|entry| entry.str("ip").to_string()).collect()
    };
    let seen = see(client, &path, "an address", |service| ips(service) == ["192.0.2.1"]).await;
    assert_eq!(seen.list("metadata.finalizers"), ["service.kubernetes.io/load-balancer-cleanup".into()]);
    make_node(client, "node-b", "192.0.2.2").await;
    see(client, &path, "two addresses", |service| ips(service) == ["192.0.2.1", "192.0.2.2"]).await;
    let events = format!("{CORE}/events?fieldSelector=involvedObject.name%3Dlb");
    let reasons = |events: &Tree| -> Vec<String> {
        let mut reasons: Vec<String> =
            events.list("items").iter().map(|event| event.str("reason").to_string()).collect();
        reasons.sort();
        reasons
    };
    // The controller may receive the service before the node, and then reports no available nodes at first.
    let is_expected = |reasons: &[String]| match reasons {
        [first, ensuring, updated] if ensuring == "EnsuringLoadBalancer" && updated == "UpdatedLoadBalancer" => {
            first == "EnsuredLoadBalancer"
        }
        [ensuring, unavailable, updated] => {
            ensuring == "EnsuringLoadBalancer"
                && unavailable == "UnAvailableLoadBalancer"
                && updated == "UpdatedLoadBalancer"
        }
        _ => false,
    };
    see(client, &events, "events", |events| is_expected(&reasons(events))).await;
    client.delete(&path).await;
    gone(client, &path).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_stays_while_an_address_needs_it() {
    let mut cluster = start().await;
    let client = &cluster.client;
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let spec = tree! { "cidrs" => list!["10.97.0.0/24"] };
    let metadata = tree! { "name" => "more" };
    let range = tree! {
        "apiVersion" => "networking.k8s.io/v1", "kind" => "ServiceCIDR", "metadata" => metadata, "spec" => spec,
    };
    make(client, ranges, &range).await;
    let path = format!("{ranges}/more");
    let ready = |range: &Tree| range.list("status.conditions").first().map_or("", |one| one.str("status")).to_string();
    let seen = see(client, &path, "ready", |range| ready(range) == "True").await;
    assert_eq!(seen.list("metadata.finalizers"), ["networking.k8s.io/service-cidr-finalizer".into()]);
    let spec = tree! { "clusterIP" => "10.97.0.7", "ports" => list![tree! { "port" => 80 }] };
    make(client, &format!("{CORE}/services"), &service("far", spec)).await;
    client.delete(&path).await;
    let seen = see(client, &path, "not ready", |range| ready(range) == "False").await;
    assert_eq!(seen.list("status.conditions")[0].str("reason"), "Terminating");
    cluster.stop().await;
}
