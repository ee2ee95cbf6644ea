//! The generic features of objects, for custom resources: admission, quota, authorization, shapes and watches.

use std::time::Duration;

use api::{list, tree};
use testkit::Hook;

use super::*;

on_engines![
    reads_have_all_shapes,
    dry_runs_leave_nothing,
    webhooks_admit_objects,
    requests_in_flight_keep_their_schema,
    roles_grant_access
];

async fn reads_have_all_shapes(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    for name in ["a", "b"] {
        assert_eq!(client.post(WIDGETS, &widget(name, r#"{"size":"small"}"#)).await.code, 201);
    }
    let accept = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let list = client.raw("GET", WIDGETS, &accept, Vec::new()).await.tree();
    assert_eq!((list.str("kind"), list.list("items").len()), ("PartialObjectMetadataList", 2));
    assert!(list.list("items").iter().all(|item| !item.str("metadata.name").is_empty() && !item.has("spec")));
    let accept = [("accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let metadata = client.raw("GET", &format!("{WIDGETS}/a"), &accept, Vec::new()).await;
    assert_eq!(metadata.code, 200, "metadata has a protobuf form, which informers of metadata request");
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = client.watch(&format!("{WIDGETS}?{query}")).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = watch.next().await.expect("an event");
        let is_end = event.at("object.metadata.annotations").get("k8s.io/initial-events-end").is_some();
        seen.push((event.str("type").to_string(), is_end));
    }
    let want = [("ADDED", false), ("ADDED", false), ("BOOKMARK", true)].map(|(ty, end)| (ty.to_string(), end));
    assert_eq!(seen, want);
    cluster.stop().await;
}

async fn dry_runs_leave_nothing(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let object = widget("a", r#"{"size":"small"}"#);
    let created = client.post(&format!("{WIDGETS}?dryRun=All"), &object).await;
    assert_eq!((created.code, created.tree().int("spec.replicas")), (201, Some(1)));
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await.code, 404);
    assert_eq!(client.post(WIDGETS, &object).await.code, 201);
    let patched = client.patch(&format!("{WIDGETS}/a?dryRun=All"), "merge", r#"{"spec":{"replicas":5}}"#).await;
    assert_eq!(patched.tree().int("spec.replicas"), Some(5));
    assert_eq!(client.delete(&format!("{WIDGETS}/a?dryRun=All")).await.code, 200);
    let found = client.get(&format!("{WIDGETS}/a")).await.tree();
    assert_eq!((found.int("spec.replicas"), found.int("metadata.generation")), (Some(1), Some(1)));
    cluster.stop().await;
}

/// Registers a webhook for new Widgets.
async fn register(client: &Client, kind: &str, config: Tree) {
    let webhook = tree! {
        "name" => "widgets.example.com", "sideEffects" => "None", "admissionReviewVersions" => list!["v1"],
        "clientConfig" => config,
        "rules" => list![tree! {
            "operations" => list!["CREATE"], "apiGroups" => list!["stable.example.com"],
            "apiVersions" => list!["*"], "resources" => list!["widgets"],
        }],
    };
    let object = tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => format!("{kind}WebhookConfiguration"),
        "metadata" => tree! { "name" => "widgets" }, "webhooks" => list![webhook],
    };
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", kind.to_lowercase());
    assert_eq!(client.post(&path, &object).await.code, 201);
}

async fn webhooks_admit_objects(storage: Storage) {
    let hook = Hook::start(&[], |path, review| match path {
        "/mutate" => Hook::patch(review, r#"[{"op":"add","path":"/spec/replicas","value":4}]"#),
        _ if review.str("request.object.spec.size") == "large" => {
            Hook::reply(review, false, tree! { "status" => tree! { "code" => 403, "message" => "too large" } })
        }
        _ => Hook::reply(review, true, tree! {}),
    })
    .await;
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    for (kind, path) in [("Mutating", "/mutate"), ("Validating", "/validate")] {
        register(client, kind, hook.by_url(path)).await;
    }
    let created = client.post(WIDGETS, &widget("a", r#"{"size":"small"}"#)).await;
    assert_eq!(
        (created.code, created.tree().int("spec.replicas")),
        (201, Some(4)),
        "{}",
        created.tree().str("message")
    );
    let refused = client.post(WIDGETS, &widget("b", r#"{"size":"large"}"#)).await;
    assert_eq!(refused.code, 403);
    assert!(refused.tree().str("message").ends_with("too large"), "{}", refused.tree().str("message"));
    let (_, review) = hook.asked().pop().expect("a review");
    assert_eq!(review.str("request.kind.kind"), "Widget");
    assert_eq!(review.str("request.object.metadata.name"), "b");
    cluster.stop().await;
}

/// The definition changes while a webhook holds a request, which is validated afterwards.
async fn requests_in_flight_keep_their_schema(storage: Storage) {
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel();
    let released = stdx::sync::Mutex::new(released);
    let hold = move |_: &str, review: &Tree| {
        let _ = arrived.send(());
        released.lock().recv_timeout(Duration::from_secs(20)).expect("released");
        Hook::reply(review, true, tree! {})
    };
    // The webhook blocks its thread.
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let hook = threads.spawn(async { Hook::start(&[], hold).await }).await.expect("a webhook");
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    register(client, "Mutating", hook.by_url("/hold")).await;
    let small = widget("a", r#"{"size":"small"}"#);
    let change = async {
        arrivals.recv().await.expect("the webhook is called");
        let patch = r#"[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/enum","value":["large"]}]"#;
        let path = format!("{DEFINITIONS}/widgets.stable.example.com");
        assert_eq!(client.patch(&path, "json", patch).await.code, 200);
        release.send(()).expect("the webhook waits");
    };
    let (created, ()) = tokio::join!(client.post(WIDGETS, &small), change);
    assert_eq!(created.code, 201, "{}", created.text());
    release.send(()).expect("the webhook waits");
    assert_eq!(client.post(WIDGETS, &widget("b", r#"{"size":"small"}"#)).await.code, 422, "the new schema");
    cluster.stop().await;
    threads.shutdown_background();
}

async fn roles_grant_access(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let user = [("impersonate-user", "bob")];
    let refused = client.raw("GET", WIDGETS, &user, Vec::new()).await;
    assert_eq!(refused.code, 403, "{}", refused.text());
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = read(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"widgets"},
            "rules":[{"apiGroups":["stable.example.com"],"resources":["widgets"],"verbs":["list"]}]}"#,
    );
    let binding = read(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"widgets"},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"widgets"},
            "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}]}"#,
    );
    assert_eq!(client.post(&format!("{ROLES}/roles"), &role).await.code, 201);
    assert_eq!(client.post(&format!("{ROLES}/rolebindings"), &binding).await.code, 201);
    assert_eq!(client.raw("GET", WIDGETS, &user, Vec::new()).await.code, 200);
    assert_eq!(client.raw("GET", &format!("{WIDGETS}/a"), &user, Vec::new()).await.code, 403);
    cluster.stop().await;
}

/// With all controllers: the quota, the aggregated role, the garbage collector and the namespace controller process a
/// kind that is defined while they run.
#[tokio::test(flavor = "multi_thread")]
async fn controllers_see_new_kinds() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let role = read(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
            "metadata":{"name":"widgets","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},
            "rules":[{"apiGroups":["stable.example.com"],"resources":["widgets"],"verbs":["get","list","watch"]}]}"#,
    );
    assert_eq!(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.code, 201);
    let is_aggregated = |_: u16, role: &Tree| {
        let names = |rule: &Tree| rule.list("resources").iter().any(|name| name.as_str() == Some("widgets"));
        role.list("rules").iter().any(names)
    };
    client.until("/apis/rbac.authorization.k8s.io/v1/clusterroles/view", is_aggregated).await;
    let namespace = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => "w" } };
    assert_eq!(client.post("/api/v1/namespaces", &namespace).await.code, 201);
    define(client, &definition(SPEC)).await;
    let quota = read(
        r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},
            "spec":{"hard":{"count/widgets.stable.example.com":"2"}}}"#,
    );
    assert_eq!(client.post("/api/v1/namespaces/w/resourcequotas", &quota).await.code, 201);
    let is_counted = |used: &'static str| {
        move |_: u16, quota: &Tree| quota.map("status.used").str("count/widgets.stable.example.com") == used
    };
    let path = "/api/v1/namespaces/w/resourcequotas/q";
    let quota = client.until(path, |_, quota: &Tree| quota.at("status").has("hard")).await;
    assert!(quota.map("status.hard").contains("count/widgets.stable.example.com"));
    let widgets = WIDGETS.replace("default", "w");
    let owner = client.post(&widgets, &widget("owner", r#"{"size":"small"}"#)).await.tree();
    let mut owned = widget("owned", r#"{"size":"small"}"#);
    let reference = tree! {
        "apiVersion" => "stable.example.com/v1", "kind" => "Widget", "name" => "owner",
        "uid" => owner.str("metadata.uid"),
    };
    owned.child("metadata").set("ownerReferences", list![reference]);
    assert_eq!(client.post(&widgets, &owned).await.code, 201);
    client.until(path, is_counted("2")).await;
    let refused = client.post(&widgets, &widget("third", r#"{"size":"small"}"#)).await;
    assert_eq!(refused.code, 403, "{}", refused.tree().str("message"));
    assert_eq!(client.delete(&format!("{widgets}/owner")).await.code, 200);
    client.until(&format!("{widgets}/owned"), |code, _| code == 404).await;
    client.until(path, is_counted("0")).await;
    assert_eq!(client.post(&widgets, &widget("last", r#"{"size":"small"}"#)).await.code, 201);
    assert_eq!(client.delete("/api/v1/namespaces/w").await.code, 200);
    client.until("/api/v1/namespaces/w", |code, _| code == 404).await;
    assert_eq!(client.get(&format!("{widgets}/last")).await.code, 404);
    cluster.stop().await;
}
