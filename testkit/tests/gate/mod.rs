//! The filters around requests: audit, deadlines, and the headers of priority and fairness.

mod attacks;
mod audit;
mod encryption;
mod hostile;
mod limits;
mod panics;
mod startup;
mod webhook;

use std::path::Path;
use std::sync::Arc;

use api::{Tree, json, tree};
use server::audit::{Audit, Settings};
use stdx::wait::until_ok_await;
use testkit::{Cluster, Storage};

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n";

/// A server with an audit log in a directory; a policy of one line records all requests.
async fn audited(dir: &Path) -> Cluster {
    audited_with(dir, Settings { log_path: Some(dir.join("audit.log")), ..Settings::default() }).await
}

/// A server with other settings; the policy of one line is the default.
async fn audited_with(dir: &Path, mut settings: Settings) -> Cluster {
    settings.policy_file.get_or_insert_with(|| {
        std::fs::write(dir.join("policy.yaml"), POLICY).expect("a policy");
        dir.join("policy.yaml")
    });
    let audit = Audit::open(&settings).expect("good settings").map(Arc::new);
    let config = server::Config { audit, ..server::Config::default() };
    Cluster::start_with(Storage::Embedded, config, async |_| {}).await
}

/// The events of the log, once one of them satisfies `wanted`.
async fn events(dir: &Path, wanted: impl Fn(&Tree) -> bool) -> Vec<Tree> {
    let look = async || {
        let text = std::fs::read_to_string(dir.join("audit.log")).unwrap_or_default();
        let events: Vec<Tree> = text.lines().filter_map(|line| json::decode(line.as_bytes()).ok()).collect();
        if events.iter().any(&wanted) { Ok(events) } else { Err(text) }
    };
    until_ok_await("an event", testkit::client::DEADLINE, look).await
}

fn is(event: &Tree, stage: &str, verb: &str, resource: &str) -> bool {
    event.str("stage") == stage && event.str("verb") == verb && event.str("objectRef.resource") == resource
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_users_and_objects_without_secrets() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = audited(dir.path()).await;
    let client = &cluster.client;
    let secret = tree! {
        "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => "quiet" },
        "stringData" => tree! { "password" => "hunter2-in-the-clear" },
    };
    assert_eq!(client.post("/api/v1/namespaces/default/secrets", &secret).await.code, 201);
    assert_eq!(client.get("/api/v1/namespaces/default/secrets").await.code, 200);
    let account = tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "robot" } };
    client.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {} };
    let reply = client.post("/api/v1/namespaces/default/serviceaccounts/robot/token", &request).await;
    let token = reply.tree().str("status.token").to_string();
    assert!(token.len() > 100, "{}", reply.code);
    let review = tree! {
        "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview", "spec" => tree! { "token" => &token },
    };
    client.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    let map = tree! {
        "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => "loud" },
        "data" => tree! { "a" => "b" },
    };
    let headers = [("content-type", "application/json"), ("audit-id", "my-own-id")];
    let path = "/api/v1/namespaces/default/configmaps";
    let reply = client.raw("POST", path, &headers, json::encode(&map, None)).await;
    assert_eq!(reply.headers["audit-id"], "my-own-id");
    client.get("/api/v1/namespaces/default/configmaps/none").await;

    let missing = |event: &Tree| is(event, "ResponseComplete", "get", "configmaps");
    let all = events(dir.path(), missing).await;
    let find = |stage: &str, verb: &str, resource: &str| {
        all.iter().find(|event| is(event, stage, verb, resource)).unwrap_or_else(|| panic!("{stage} {verb} {resource}"))
    };
    let created = find("ResponseComplete", "create", "configmaps");
    assert_eq!(created.str("auditID"), "my-own-id");
    assert_eq!(created.str("user.username"), "kubernetes-admin");
    assert_eq!(created.str("objectRef.name"), "loud");
    assert_eq!(created.int("responseStatus.code"), Some(201));
    assert_eq!((created.str("requestObject.data.a"), created.str("responseObject.data.a")), ("b", "b"));
    assert!(all.iter().any(|event| is(event, "RequestReceived", "create", "configmaps")));
    let refused = all.iter().find(|event| missing(event)).expect("the refused one");
    assert_eq!((refused.int("responseStatus.code"), refused.str("responseStatus.reason")), (Some(404), "NotFound"));
    let secret = find("ResponseComplete", "create", "secrets");
    assert_eq!((secret.str("level"), secret.str("objectRef.name")), ("Metadata", "quiet"));
    assert!(!secret.has("requestObject") && !secret.has("responseObject"));

    let metrics = String::from_utf8_lossy(&client.get("/metrics").await.bytes).into_owned();
    let log = std::fs::read_to_string(dir.path().join("audit.log")).expect("the log");
    for secret in ["hunter2-in-the-clear", &api::base64::encode(b"hunter2-in-the-clear"), &token] {
        assert!(!log.contains(secret) && !metrics.contains(secret), "{secret} is told");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_audited_at_start_and_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = audited(dir.path()).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    let watch = cluster.client.watch(path).await;
    let all = events(dir.path(), |event| is(event, "ResponseStarted", "watch", "configmaps")).await;
    assert!(!all.iter().any(|event| is(event, "ResponseComplete", "watch", "configmaps")));
    drop(watch);
    events(dir.path(), |event| is(event, "ResponseComplete", "watch", "configmaps")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_name_flow_schema_and_priority_level() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let schema = cluster.client.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt").await.tree();
    let reply = cluster.client.get("/api/v1/namespaces/default").await;
    assert_eq!(reply.headers["x-kubernetes-pf-flowschema-uid"], schema.str("metadata.uid"));
    let reply = cluster.client.get("/api/v1/namespaces/default?timeout=soon").await;
    assert_eq!(reply.code, 400);
    let why = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!(reply.tree().str("message"), why);
    cluster.stop().await;
}
