//! The behaviour of the API is the same on both engines: every check runs on the embedded store and on a real etcd.

// The limit is for production code: the steps of a test stay in one function.
#![allow(clippy::too_many_lines)]

#[macro_use]
mod absent;

mod aggregation;
mod answers;
mod authorization;
mod batch;
mod concurrency;
mod custom_resources;
mod dns;
mod fake_nodes;
mod gate;
mod golden;
mod identity;
mod kubelet;
mod kubelet_server;
mod lifecycle;
mod machinery;
mod network;
mod network_policy;
mod node;
mod plugins;
mod policies;
mod proxied;
mod scheduling;
mod simulation;
mod webhooks;
mod workloads;

use api::{Tree, list, tree};
use concurrency::{deletions_race_and_one_wins, writers_race_and_one_wins};
use testkit::{Client, Cluster, Storage};

/// Runs each check on both engines, each on a server of its own.
macro_rules! on_both_engines {
    ($($check:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                super::run(testkit::Storage::Embedded, super::$check).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                super::run(testkit::Storage::Etcd, super::$check).await;
            })*
        }
    };
}

on_both_engines![
    objects_live_and_die,
    versions_guard_updates,
    names_are_generated_and_dry_runs_leave_nothing,
    the_four_patches,
    appliers_conflict,
    finalizers_hold_an_object,
    pods_die_gracefully,
    pages_show_one_revision,
    watches_resume_and_follow_selectors,
    a_watch_can_begin_with_a_list,
    bad_input_is_named,
    media_types_agree,
    namespaces_close,
    services_get_addresses,
    events_have_two_views,
    status_is_apart,
    restarts_lose_nothing,
    writers_race_and_one_wins,
    deletions_race_and_one_wins,
    pods_with_claims_are_accepted,
];

/// Waits until something is true, and fails where it is not in time.
async fn until(what: &str, is_true: impl AsyncFn() -> bool) {
    stdx::wait::until_await(what, testkit::client::DEADLINE, is_true).await;
}

async fn run<F>(kept: Storage, check: F)
where
    F: AsyncFnOnce(&mut Cluster),
{
    let mut cluster = Cluster::start(kept).await;
    check(&mut cluster).await;
    cluster.stop().await;
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name } }
}

fn labelled(name: &str, app: &str) -> Tree {
    let mut object = config_map(name);
    object.child("metadata").set("labels", tree! { "app" => app });
    object
}

fn pod(name: &str) -> Tree {
    tree! {
        "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "name" => name },
        "spec" => tree! {
            "automountServiceAccountToken" => false,
            "containers" => list![tree! { "name" => "c", "image" => "app:1" }],
        },
    }
}

/// The default account, which a controller creates in a whole cluster.
async fn service_account(client: &Client) {
    let account =
        tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "default" } };
    let reply = client.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    assert!(matches!(reply.code, 201 | 409), "{}", reply.code);
}

async fn objects_live_and_die(cluster: &mut Cluster) {
    let client = &cluster.client;
    let created = client.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(created.code, 201);
    let object = created.tree();
    assert_eq!(object.str("metadata.namespace"), "default");
    assert_eq!(object.str("metadata.uid").len(), 36);
    let again = client.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((again.code, again.tree().str("reason")), (409, "AlreadyExists"));
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.tree(), object);
    let listed = client.get(CONFIG_MAPS).await.tree();
    let item = &listed.list("items")[0];
    assert!(item.at("kind").is_null() && item.at("apiVersion").is_null(), "items of a list carry no kind");
    let gone = client.delete(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!((gone.code, gone.tree().str("status")), (200, "Success"));
    let missing = client.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!((missing.code, missing.tree().str("message")), (404, "configmaps \"a\" not found"));
}

async fn versions_guard_updates(cluster: &mut Cluster) {
    let client = &cluster.client;
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = client.post(CONFIG_MAPS, &config_map("a")).await.tree();
    let first = object.str("metadata.resourceVersion").to_string();
    object.set("data", tree! { "k" => "1" });
    let second = client.put(&path, &object).await;
    assert_eq!(second.code, 200);
    let newer = second.tree().str("metadata.resourceVersion").to_string();
    assert!(newer.parse::<u64>().expect("a number") > first.parse::<u64>().expect("a number"));
    let stale = client.put(&path, &object).await;
    assert_eq!((stale.code, stale.tree().str("reason")), (409, "Conflict"));
    let same = client.put(&path, &second.tree()).await;
    assert_eq!(same.tree().str("metadata.resourceVersion"), newer, "a write of equal bytes makes no revision");
    let renamed = client.put(&path, &config_map("b")).await;
    assert_eq!(renamed.code, 400);
}

async fn names_are_generated_and_dry_runs_leave_nothing(cluster: &mut Cluster) {
    let client = &cluster.client;
    let mut object = config_map("");
    object.child("metadata").remove("name");
    object.child("metadata").set("generateName", "gen-");
    let created = client.post(CONFIG_MAPS, &object).await.tree();
    assert!(created.str("metadata.name").starts_with("gen-") && created.str("metadata.name").len() == 9);
    let dry = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("dry")).await;
    assert_eq!(dry.code, 201);
    assert!(dry.tree().str("metadata.resourceVersion").is_empty());
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/dry")).await.code, 404);
    let bad = client.post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("dry")).await;
    assert_eq!(bad.code, 422);
}

async fn the_four_patches(cluster: &mut Cluster) {
    let client = &cluster.client;
    service_account(client).await;
    client.post("/api/v1/namespaces/default/pods", &pod("p")).await;
    let path = "/api/v1/namespaces/default/pods/p";
    let strategic = r#"{"metadata":{"labels":{"x":"y"}},"spec":{"containers":[{"name":"c","image":"app:2"}]}}"#;
    let patched = client.patch(path, "strategic-merge", strategic).await;
    assert_eq!(patched.code, 200, "{:?}", patched.tree());
    assert_eq!(patched.tree().list("spec.containers")[0].str("image"), "app:2");
    let merged = client.patch(path, "merge", r#"{"metadata":{"labels":{"x":null,"z":"1"}}}"#).await.tree();
    assert_eq!(merged.at("metadata.labels"), &tree! { "z" => "1" });
    let json = client
        .patch(
            path,
            "json",
            r#"[{"op":"test","path":"/metadata/labels/z","value":"1"},{"op":"remove","path":"/metadata/labels/z"}]"#,
        )
        .await;
    assert_eq!(json.code, 200);
    let failed = client.patch(path, "json", r#"[{"op":"test","path":"/spec/nodeName","value":"no"}]"#).await;
    assert_eq!(failed.code, 422);
    let forbidden = client.patch(path, "merge", r#"{"spec":{"restartPolicy":"Never"}}"#).await;
    assert_eq!((forbidden.code, forbidden.tree().str("reason")), (422, "Invalid"));
    let unknown = client.patch(path, "merge", "{").await;
    assert_eq!(unknown.code, 400);
}

async fn appliers_conflict(cluster: &mut Cluster) {
    let client = &cluster.client;
    let path = |manager: &str| format!("{CONFIG_MAPS}/ssa?fieldManager={manager}");
    let body =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ssa}}\ndata: {{a: {value}}}\n");
    assert_eq!(client.patch(&path("one"), "apply", &body("x")).await.code, 201);
    let conflict = client.patch(&path("two"), "apply", &body("z")).await;
    assert_eq!(conflict.code, 409);
    assert_eq!(conflict.tree().str("message"), "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    assert_eq!(client.patch(&path("two"), "apply", &body("x")).await.code, 200, "the same value is shared");
    let forced = client.patch(&format!("{}&force=true", path("two")), "apply", &body("z")).await;
    assert_eq!(forced.tree().str("data.a"), "z");
    let empty = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ssa}\n";
    let pruned = client.patch(&path("two"), "apply", empty).await.tree();
    assert!(pruned.at("data").is_null(), "fields without an owner are removed");
}

async fn finalizers_hold_an_object(cluster: &mut Cluster) {
    let client = &cluster.client;
    let path = format!("{CONFIG_MAPS}/held");
    let mut object = config_map("held");
    object.child("metadata").set("finalizers", list!["example.com/hold"]);
    client.post(CONFIG_MAPS, &object).await;
    let marked = client.delete(&path).await.tree();
    assert!(marked.at("metadata").has("deletionTimestamp"));
    assert_eq!(client.get(&path).await.code, 200);
    let again = client.post(CONFIG_MAPS, &config_map("held")).await.tree();
    assert_eq!(again.str("message"), "object is being deleted: configmaps \"held\" already exists");
    client.patch(&path, "merge", r#"{"metadata":{"finalizers":null}}"#).await;
    assert_eq!(client.get(&path).await.code, 404);
}

async fn pods_die_gracefully(cluster: &mut Cluster) {
    let client = &cluster.client;
    service_account(client).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut bound = pod("p");
    bound.child("spec").set("nodeName", "n");
    let created = client.post(pods, &bound).await;
    assert_eq!(created.code, 201, "{:?}", created.tree());
    let version = created.tree().str("metadata.resourceVersion").to_string();
    let mut watch = client.watch(&format!("{pods}?watch=1&resourceVersion={version}")).await;
    let going = client.delete(&format!("{pods}/p")).await.tree();
    assert_eq!(going.int("metadata.deletionGracePeriodSeconds"), Some(30));
    assert_eq!(going.int("metadata.generation"), Some(2));
    let gone = client.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await;
    assert_eq!(gone.code, 200);
    assert_eq!(watch.names(3).await, ["MODIFIED p", "MODIFIED p", "DELETED p"]);
}

async fn pages_show_one_revision(cluster: &mut Cluster) {
    let client = &cluster.client;
    for n in 0..5 {
        client.post(CONFIG_MAPS, &config_map(&format!("c{n}"))).await;
    }
    let first = client.get(&format!("{CONFIG_MAPS}?limit=2")).await.tree();
    let token = first.str("metadata.continue").to_string();
    assert_eq!(first.int("metadata.remainingItemCount"), Some(3));
    client.delete(&format!("{CONFIG_MAPS}/c3")).await;
    client.post(CONFIG_MAPS, &config_map("c2a")).await;
    let second = client.get(&format!("{CONFIG_MAPS}?limit=9&continue={token}")).await.tree();
    let names: Vec<&str> = second.list("items").iter().map(|item| item.str("metadata.name")).collect();
    assert_eq!(names, ["c2", "c3", "c4"], "the second page is as old as the first");
    assert_eq!(second.str("metadata.resourceVersion"), first.str("metadata.resourceVersion"));
    let bad = client.get(&format!("{CONFIG_MAPS}?continue=bogus")).await;
    assert_eq!(bad.code, 400);
    let future = client.get(&format!("{CONFIG_MAPS}?resourceVersion=900000000000")).await;
    assert_eq!((future.code, future.tree().list("details.causes")[0].str("reason")), (504, "ResourceVersionTooLarge"));
}

async fn watches_resume_and_follow_selectors(cluster: &mut Cluster) {
    let client = &cluster.client;
    let start = client.get(CONFIG_MAPS).await.tree().str("metadata.resourceVersion").to_string();
    client.post(CONFIG_MAPS, &labelled("w", "web")).await;
    client.patch(&format!("{CONFIG_MAPS}/w"), "merge", r#"{"data":{"a":"1"}}"#).await;
    client.patch(&format!("{CONFIG_MAPS}/w"), "merge", r#"{"metadata":{"labels":{"app":"other"}}}"#).await;
    client.delete(&format!("{CONFIG_MAPS}/w")).await;
    let mut all = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    let everything = ["ADDED w", "MODIFIED w", "MODIFIED w", "DELETED w"];
    assert_eq!(all.names(4).await, everything);
    let mut again = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}")).await;
    assert_eq!(again.names(4).await, everything, "all watchers see one order");
    let mut web = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&labelSelector=app%3Dweb")).await;
    assert_eq!(web.names(3).await, ["ADDED w", "MODIFIED w", "DELETED w"], "leaving the selection is a deletion");
    let mut old = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1")).await;
    let first = old.next().await.expect("an event");
    assert!(first.str("type") == "ADDED" || first.int("object.code") == Some(410));
}

async fn a_watch_can_begin_with_a_list(cluster: &mut Cluster) {
    let client = &cluster.client;
    client.post(CONFIG_MAPS, &config_map("a")).await;
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.names(1).await, ["ADDED a"]);
    let end = watch.next().await.expect("a bookmark");
    assert_eq!(end.str("type"), "BOOKMARK");
    assert_eq!(end.map("object.metadata.annotations").str("k8s.io/initial-events-end"), "true");
    client.post(CONFIG_MAPS, &config_map("b")).await;
    assert_eq!(watch.names(1).await, ["ADDED b"]);
}

async fn bad_input_is_named(cluster: &mut Cluster) {
    let client = &cluster.client;
    let json = [("content-type", "application/json")];
    let deep = format!("{}{}", "{\"a\":".repeat(20_000), "1");
    let cases: [(&str, Vec<u8>, u16); 8] = [
        ("truncated", b"{\"apiVersion\":\"v1\",".to_vec(), 400),
        ("no JSON", b"hello".to_vec(), 400),
        ("deeply nested", deep.into_bytes(), 400),
        ("invalid UTF-8", b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec(), 400),
        ("wrong type", b"{\"metadata\":[]}".to_vec(), 400),
        ("huge", vec![b' '; (3 << 20) + 1], 413),
        ("wrong kind", b"{\"apiVersion\":\"v1\",\"kind\":\"Secret\"}".to_vec(), 400),
        ("empty", Vec::new(), 400),
    ];
    for (what, body, code) in cases {
        let reply = client.raw("POST", CONFIG_MAPS, &json, body).await;
        assert_eq!((reply.code, reply.tree().str("kind")), (code, "Status"), "{what}");
    }
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    let refused =
        client.raw("POST", CONFIG_MAPS, &protobuf, b"{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\"}".to_vec());
    let message = "expected prefix [107 56 115 0] ({\"apiVersion\": \"v1\", \"kind\": \" ...)";
    assert!(refused.await.tree().str("message").ends_with(message));
    let unknown = client.raw("POST", CONFIG_MAPS, &[("content-type", "text/csv")], b"a".to_vec()).await;
    assert_eq!(unknown.code, 415);
    assert_eq!(client.raw("GET", CONFIG_MAPS, &[("accept", "image/png")], Vec::new()).await.code, 406);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?limit=abc")).await.code, 400);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?limit=9223372036854775807")).await.code, 200);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?labelSelector=%3D%3D")).await.code, 400);
    assert_eq!(client.get("/api/v1/nothing").await.code, 404);
    let mut strict = config_map("strict");
    strict.set("nope", 1);
    let refused = client.post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &strict).await;
    assert!(refused.tree().str("message").contains("unknown field \"nope\""));
    assert_eq!(client.get(CONFIG_MAPS).await.tree().list("items").len(), 0, "nothing was kept");
}

async fn media_types_agree(cluster: &mut Cluster) {
    let client = &cluster.client;
    let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: media}\ndata: {a: \"yes\"}\n".to_vec();
    let created = client.raw("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!(created.code, 201);
    let path = format!("{CONFIG_MAPS}/media");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let reply = client.raw("GET", &path, &[("accept", protobuf)], Vec::new()).await;
    assert!(reply.bytes.starts_with(b"k8s\0"));
    let ty = api::schema::type_of("", "v1", "ConfigMap");
    let decoded = api::protobuf::decode(&reply.bytes, ty).expect("protobuf");
    assert_eq!(decoded, client.get(&path).await.tree());
    let put = client.raw("PUT", &path, &[("content-type", protobuf), ("accept", protobuf)], reply.bytes.to_vec()).await;
    assert_eq!(put.code, 200);
    let text = client.raw("GET", &path, &[("accept", "application/yaml")], Vec::new()).await;
    assert!(String::from_utf8_lossy(&text.bytes).contains("a: \"yes\""));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = client.raw("GET", CONFIG_MAPS, &[("accept", table)], Vec::new()).await.tree();
    assert_eq!(table.list("rows")[0].list("cells")[..2], [Tree::from("media"), Tree::from(1)]);
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let partial = client.raw("GET", CONFIG_MAPS, &[("accept", partial)], Vec::new()).await.tree();
    assert_eq!(partial.str("kind"), "PartialObjectMetadataList");
}

async fn namespaces_close(cluster: &mut Cluster) {
    let client = &cluster.client;
    let namespace = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => "n" } };
    assert_eq!(client.post("/api/v1/namespaces", &namespace).await.code, 201);
    assert_eq!(client.post("/api/v1/namespaces/missing/configmaps", &config_map("a")).await.code, 404);
    assert_eq!(client.delete("/api/v1/namespaces/kube-system").await.code, 403);
    let going = client.delete("/api/v1/namespaces/n").await.tree();
    assert_eq!(going.str("status.phase"), "Terminating");
    let late = client.post("/api/v1/namespaces/n/configmaps", &config_map("a")).await;
    assert_eq!(late.code, 403);
    let mut last = client.get("/api/v1/namespaces/n").await.tree();
    last.child("spec").remove("finalizers");
    assert_eq!(client.put("/api/v1/namespaces/n/finalize", &last).await.code, 200);
    assert_eq!(client.get("/api/v1/namespaces/n").await.code, 404);
}

async fn services_get_addresses(cluster: &mut Cluster) {
    let client = &cluster.client;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str| {
        let ports = list![tree! { "port" => 80 }];
        let spec = tree! { "type" => kind, "ports" => ports };
        tree! { "apiVersion" => "v1", "kind" => "Service", "metadata" => tree! { "name" => name }, "spec" => spec }
    };
    let created = client.post(services, &service("a", "NodePort")).await.tree();
    let address = created.str("spec.clusterIP").to_string();
    assert!(address.starts_with("10.96."), "{address}");
    let port = created.list("spec.ports")[0].int("nodePort").expect("a node port");
    assert!((30000..=32767).contains(&port));
    assert_eq!(client.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")).await.code, 200);
    let mut taken = service("b", "ClusterIP");
    taken.child("spec").set("clusterIP", &*address);
    assert_eq!(client.post(services, &taken).await.code, 422);
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let version = client.get(services).await.tree().str("metadata.resourceVersion").to_string();
    client.delete(&format!("{services}/a")).await;
    assert_eq!(client.get(&format!("{addresses}/{address}")).await.code, 404);
    // The service first: the repair loop must not find a service without its address.
    let mut revisions = Vec::new();
    for resource in [services, addresses] {
        let mut watch = client.watch(&format!("{resource}?watch=1&resourceVersion={version}")).await;
        let event = watch.next().await.expect("an event");
        assert_eq!(event.str("type"), "DELETED");
        revisions.push(event.str("object.metadata.resourceVersion").parse::<u64>().expect("a number"));
    }
    assert!(revisions[0] <= revisions[1], "{revisions:?}");
    assert_eq!(client.post(services, &taken).await.code, 201, "a freed address can be taken");
}

async fn events_have_two_views(cluster: &mut Cluster) {
    let client = &cluster.client;
    let event = tree! {
        "apiVersion" => "v1", "kind" => "Event", "metadata" => tree! { "name" => "e" },
        "involvedObject" => tree! { "kind" => "Pod", "name" => "p", "namespace" => "default" },
        "reason" => "Because", "message" => "so it is", "type" => "Normal",
    };
    assert_eq!(client.post("/api/v1/namespaces/default/events", &event).await.code, 201);
    let newer = client.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await.tree();
    assert_eq!((newer.str("regarding.name"), newer.str("note")), ("p", "so it is"));
    let selected = client.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dp").await.tree();
    assert_eq!(selected.list("items").len(), 1);
    let other = client.get("/api/v1/events?fieldSelector=involvedObject.name%3Dq").await.tree();
    assert_eq!(other.list("items").len(), 0);
}

async fn status_is_apart(cluster: &mut Cluster) {
    let client = &cluster.client;
    let labels = tree! { "a" => "b" };
    let template = tree! { "metadata" => tree! { "labels" => labels.clone() }, "spec" => pod("x").at("spec").clone() };
    let deployment = tree! {
        "apiVersion" => "apps/v1", "kind" => "Deployment", "metadata" => tree! { "name" => "d" },
        "spec" => tree! { "selector" => tree! { "matchLabels" => labels }, "template" => template },
        "status" => tree! { "replicas" => 7 },
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let created = client.post(path, &deployment).await.tree();
    assert_eq!((created.int("metadata.generation"), created.int("status.replicas")), (Some(1), None));
    let body = r#"{"spec":{"replicas":5},"status":{"replicas":2}}"#;
    let patched = client.patch(&format!("{path}/d/status"), "merge", body).await.tree();
    assert_eq!((patched.int("spec.replicas"), patched.int("status.replicas")), (Some(1), Some(2)));
    assert_eq!(patched.int("metadata.generation"), Some(1));
    let spec = client.patch(&format!("{path}/d"), "merge", body).await.tree();
    assert_eq!((spec.int("spec.replicas"), spec.int("status.replicas")), (Some(5), Some(2)));
    assert_eq!(spec.int("metadata.generation"), Some(2));
    let scale = client.get(&format!("{path}/d/scale")).await.tree();
    assert_eq!((scale.str("kind"), scale.int("spec.replicas")), ("Scale", Some(5)));
}

async fn restarts_lose_nothing(cluster: &mut Cluster) {
    let mut kept = Vec::new();
    for n in 0..20 {
        kept.push(cluster.client.post(CONFIG_MAPS, &config_map(&format!("c{n:02}"))).await.tree());
    }
    cluster.client.delete(&format!("{CONFIG_MAPS}/c00")).await;
    cluster.restart().await;
    for object in &kept[1..] {
        let path = format!("{CONFIG_MAPS}/{}", object.str("metadata.name"));
        assert_eq!(&cluster.client.get(&path).await.tree(), object);
    }
    assert_eq!(cluster.client.get(&format!("{CONFIG_MAPS}/c00")).await.code, 404);
    let next = cluster.client.post(CONFIG_MAPS, &config_map("after")).await.tree();
    let revision = |object: &Tree| object.str("metadata.resourceVersion").parse::<u64>().expect("a number");
    assert!(revision(&next) > revision(&kept[19]), "revisions never go back");
}

async fn pods_with_claims_are_accepted(cluster: &mut Cluster) {
    let client = &cluster.client;
    let mut claiming = pod("claiming");
    claiming.child("spec").set("resourceClaims", list![tree! { "name" => "gpu", "resourceClaimName" => "c" }]);
    claiming.child("spec").set("nodeName", "n");
    service_account(client).await;
    let created = client.post("/api/v1/namespaces/default/pods", &claiming).await;
    assert_eq!(created.code, 201, "{:?}", created.tree());
}
