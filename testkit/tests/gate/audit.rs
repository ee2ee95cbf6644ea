//! Audit events: their objects and webhook annotations, their size, and when they are written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Tree, list, tree};
use server::audit::batch::Batch;
use server::audit::{Delivery, Mode, Settings, Truncate};
use testkit::{Client, Hook, HookResponse};

use super::{audited, audited_with, events, is};
use crate::identity::jwt::{Signer, claims_of};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, text: &str) -> Tree {
    tree! {
        "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name },
        "data" => tree! { "text" => text },
    }
}

/// A kubeconfig that names a server of the test's own.
fn kubeconfig(dir: &Path, hook: &Hook) -> PathBuf {
    let path = dir.join("webhook.yaml");
    let cluster =
        format!("{{server: 'https://{}/audit', certificate-authority-data: {}}}", hook.address, hook.ca_bundle);
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster: {cluster}\ncontexts:\n- name: a\n  context: {{cluster: a}}\ncurrent-context: a\n"
    );
    std::fs::write(&path, text).expect("a file");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn events_name_the_object_as_its_body_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = audited(dir.path()).await;
    let client = &cluster.client;
    let made = client.post(MAPS, &map("a", "1")).await.tree();
    let (uid, version) = (made.str("metadata.uid").to_string(), made.str("metadata.resourceVersion").to_string());
    assert_eq!(client.put(&format!("{MAPS}/a"), &made).await.code, 200);
    let yaml = [("content-type", "application/yaml")];
    let text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: by-yaml}\n".to_vec();
    assert_eq!(client.raw("POST", MAPS, &yaml, text).await.code, 201);
    let replicas = tree! { "spec" => tree! { "replicas" => 1 } };
    client.put("/apis/apps/v1/namespaces/default/deployments/d/scale", &replicas).await;
    assert_eq!(client.delete(&format!("{MAPS}/a")).await.code, 200);

    let all = events(dir.path(), |event| is(event, "ResponseComplete", "delete", "configmaps")).await;
    let find = |stage: &str, verb: &str, name: &str| {
        let found = all.iter().find(|event| {
            event.str("stage") == stage && event.str("verb") == verb && event.str("objectRef.name") == name
        });
        found.unwrap_or_else(|| panic!("{stage} {verb} {name}")).at("objectRef")
    };
    let updated = find("ResponseComplete", "update", "a");
    assert_eq!((updated.str("uid"), updated.str("resourceVersion")), (uid.as_str(), version.as_str()));
    assert_eq!((updated.str("apiVersion"), updated.str("namespace")), ("v1", "default"));
    assert!(!find("RequestReceived", "update", "a").has("uid"), "the body is not read yet");
    find("ResponseComplete", "create", "by-yaml");
    assert!(!find("ResponseComplete", "delete", "a").has("uid"), "its options are no object");
    let scale = find("ResponseComplete", "update", "d");
    assert_eq!((scale.str("subresource"), scale.str("apiGroup")), ("scale", "apps"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncates_large_audit_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let truncate = Truncate { enabled: true, max_event: 4000, max_batch: 100_000 };
    let settings = Settings {
        log_path: Some(dir.path().join("audit.log")),
        log: Delivery { truncate, ..Delivery::for_log() },
        ..Settings::default()
    };
    let mut cluster = audited_with(dir.path(), settings).await;
    let client = &cluster.client;
    assert_eq!(client.post(MAPS, &map("small", "x")).await.code, 201);
    assert_eq!(client.post(MAPS, &map("large", &"x".repeat(5000))).await.code, 201);
    let endless = format!("{MAPS}?labelSelector={}", "x".repeat(6000));
    client.get(&endless).await;
    assert_eq!(client.get(&format!("{MAPS}/last")).await.code, 404);
    let all = events(dir.path(), |event| event.str("objectRef.name") == "last").await;
    let find = |name: &str| {
        let done = |event: &&Tree| is(event, "ResponseComplete", "create", "configmaps");
        all.iter().filter(done).find(|event| event.str("objectRef.name") == name).expect("the event")
    };
    assert!(find("small").has("requestObject") && !find("small").map("annotations").contains(TRUNCATED));
    assert!(!find("large").has("requestObject") && !find("large").has("responseObject"));
    assert_eq!(find("large").map("annotations").str(TRUNCATED), "true");
    assert!(!all.iter().any(|event| event.str("requestURI").contains("xxxx")));
    let metrics = String::from_utf8_lossy(&client.get("/metrics").await.bytes).into_owned();
    assert!(metrics.contains("apiserver_audit_error_total{plugin=\"truncate\"} 2"), "both of its stages");
    cluster.stop().await;
}

const TRUNCATED: &str = "audit.k8s.io/truncated";

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_written_when_it_is_full_or_the_server_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let batch = Batch { max_size: 100_000, max_wait: Duration::from_secs(3600), ..Batch::for_log() };
    let settings = Settings {
        log_path: Some(dir.path().join("audit.log")),
        log: Delivery { mode: Mode::Batch, batch, ..Delivery::for_log() },
        ..Settings::default()
    };
    let mut cluster = audited_with(dir.path(), settings).await;
    for _ in 0..20 {
        assert_eq!(cluster.client.get(MAPS).await.code, 200);
    }
    let written = || std::fs::read_to_string(dir.path().join("audit.log")).unwrap_or_default();
    assert_eq!(written(), "", "an hour is not over");
    cluster.stop().await;
    let lists = written().lines().filter(|line| line.contains("\"verb\":\"list\"")).count();
    assert!(lists >= 40, "what waited is written at the end: {lists}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_have_the_credential_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = audited(dir.path()).await;
    let client = &cluster.client;
    let core = "/api/v1/namespaces/default";
    let account = tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "robot" } };
    let made = client.post(&format!("{core}/serviceaccounts"), &account).await.tree();
    let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {} };
    let token = client.post(&format!("{core}/serviceaccounts/robot/token"), &request).await.tree();
    let mut claims = claims_of(token.str("status.token"));
    let id = format!("JTI={}", claims.str("jti"));
    let key = Signer::of_file(&cluster.pki().dir().join("sa.key"));
    let mut private = claims.get("kubernetes.io").cloned().expect("what is ours");
    private.set("warnafter", claims.int("iat").expect("a time") - 100);
    claims.set("kubernetes.io", private);
    let stale = key.token(&claims);
    let uid = made.str("metadata.uid");
    let legacy = key.token(&tree! {
        "iss" => "kubernetes/serviceaccount", "sub" => ROBOT, "kubernetes.io/serviceaccount/namespace" => "default",
        "kubernetes.io/serviceaccount/secret.name" => "old", "kubernetes.io/serviceaccount/service-account.name" => "robot",
        "kubernetes.io/serviceaccount/service-account.uid" => uid,
    });
    let owner = tree! { "kubernetes.io/service-account.name" => "robot", "kubernetes.io/service-account.uid" => uid };
    let secret = tree! {
        "apiVersion" => "v1", "kind" => "Secret", "type" => "kubernetes.io/service-account-token",
        "metadata" => tree! { "name" => "old", "annotations" => owner },
        "data" => tree! { "token" => api::base64::encode(legacy.as_bytes()) },
    };
    assert_eq!(client.post(&format!("{core}/secrets"), &secret).await.code, 201);
    let anonymous = cluster.client_as(None);
    for (path, token) in [("stale", &stale), ("legacy", &legacy)] {
        assert_eq!(anonymous.get_with(&format!("{MAPS}/{path}"), token).await.code, 403);
    }
    client.raw("GET", &format!("{MAPS}/acted"), &[("impersonate-user", "jane")], Vec::new()).await;
    client.get(&format!("{core}/endpoints")).await;

    let all = events(dir.path(), |event| is(event, "ResponseComplete", "list", "endpoints")).await;
    let find = |name: &str| {
        let done = |event: &&Tree| event.str("stage") == "ResponseComplete" && event.str("objectRef.name") == name;
        all.iter().find(done).unwrap_or_else(|| panic!("{name}"))
    };
    let note = |event: &Tree, key: &str| event.map("annotations").str(key).to_string();
    let issued = all.iter().find(|event| event.str("objectRef.subresource") == "token" && event.has("responseStatus"));
    assert_eq!(note(issued.expect("an event"), "authentication.kubernetes.io/issued-credential-id"), id);
    let said = note(find("stale"), "authentication.k8s.io/stale-token");
    assert!(said.starts_with(&format!("subject: {ROBOT}, seconds after warning threshold: 1")), "{said}");
    assert_eq!(note(find("legacy"), "authentication.k8s.io/legacy-token"), ROBOT);
    assert_eq!(note(find("legacy"), "authentication.k8s.io/legacy-token-manual-secret"), "old");
    let acted = find("acted");
    assert_eq!(acted.str("impersonatedUser.username"), "jane");
    assert_eq!(acted.str("authenticationMetadata.impersonationConstraint"), "impersonate:user-info");
    assert!(!find("stale").has("authenticationMetadata"));
    let old = all.iter().find(|event| is(event, "ResponseComplete", "list", "endpoints")).expect("an event");
    assert_eq!(note(old, "k8s.io/deprecated"), "true");
    let metrics = String::from_utf8_lossy(&client.get("/metrics").await.bytes).into_owned();
    for line in ["serviceaccount_stale_tokens_total 1", "serviceaccount_legacy_tokens_total 1"] {
        assert!(metrics.contains(line), "{line}");
    }
    cluster.stop().await;
}

const ROBOT: &str = "system:serviceaccount:default:robot";

#[tokio::test(flavor = "multi_thread")]
async fn blocking_webhooks_get_events_before_the_response() {
    let dir = tempfile::tempdir().expect("a directory");
    let hook = Hook::start(&[], |_, _| HookResponse::Text(200, String::new())).await;
    let settings = Settings {
        webhook_config_file: Some(kubeconfig(dir.path(), &hook)),
        webhook: Delivery { mode: Mode::Blocking, ..Delivery::for_webhook() },
        ..Settings::default()
    };
    let mut cluster = audited_with(dir.path(), settings).await;
    for at in 0..5 {
        let path = format!("{MAPS}/m{at}");
        assert_eq!(cluster.client.get(&path).await.code, 404);
        let asked = hook.asked();
        let all = asked.iter().flat_map(|(_, body)| body.list("items"));
        let stages: Vec<&str> =
            all.filter(|event| event.str("requestURI") == path).map(|event| event.str("stage")).collect();
        assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_webhooks_that_fail_reject_requests() {
    let dir = tempfile::tempdir().expect("a directory");
    let hook = Hook::start(&[], |_, _| HookResponse::Text(400, String::new())).await;
    for (mode, code) in [(Mode::BlockingStrict, 500), (Mode::Blocking, 200)] {
        let settings = Settings {
            webhook_config_file: Some(kubeconfig(dir.path(), &hook)),
            webhook: Delivery { mode, ..Delivery::for_webhook() },
            ..Settings::default()
        };
        let mut cluster = audited_with(dir.path(), settings).await;
        assert_eq!(cluster.client.get(MAPS).await.code, code, "{mode:?}");
        cluster.stop().await;
    }
}

async fn configure(client: &Client, kind: &str, webhooks: Vec<Tree>) {
    let object = tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => format!("{kind}WebhookConfiguration"),
        "metadata" => tree! { "name" => "conf" }, "webhooks" => Tree::List(webhooks),
    };
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", kind.to_lowercase());
    let reply = client.post(&path, &object).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
}

fn webhook(name: &str, client_config: Tree, resource: &str) -> Tree {
    let rule = tree! {
        "operations" => list!["CREATE"], "apiGroups" => list![""], "apiVersions" => list!["v1"],
        "resources" => list![resource],
    };
    tree! {
        "name" => format!("{name}.example.com"), "sideEffects" => "None", "failurePolicy" => "Ignore",
        "admissionReviewVersions" => list!["v1"], "clientConfig" => client_config, "rules" => list![rule],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_have_webhook_annotations() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = dir.path().join("own.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n- level: Request\n";
    std::fs::write(&policy, text).expect("a policy");
    let settings =
        Settings { policy_file: Some(policy), log_path: Some(dir.path().join("audit.log")), ..Settings::default() };
    let mut cluster = audited_with(dir.path(), settings).await;
    let client = &cluster.client;
    let hook = Hook::start(&[], |path, review| match path {
        "/patch" => Hook::patch(review, r#"[{"value":{"a":"b"},"op":"add","path":"/metadata/labels"}]"#),
        "/garbage" => HookResponse::Text(200, "garbage".to_string()),
        _ => Hook::reply(review, true, tree! { "auditAnnotations" => tree! { "mood" => "good" } }),
    })
    .await;
    let all = "*";
    let mutating = vec![
        webhook("other", hook.by_url("/patch"), "pods"),
        webhook("patch", hook.by_url("/patch"), all),
        webhook("same", hook.by_url("/same"), all),
        webhook("broken", hook.by_url("/garbage"), all),
    ];
    configure(client, "Mutating", mutating).await;
    let validating =
        vec![webhook("pods", hook.by_url("/garbage"), "pods"), webhook("late", hook.by_url("/garbage"), all)];
    configure(client, "Validating", validating).await;
    assert_eq!(client.post(MAPS, &map("a", "1")).await.code, 201);
    let secret = tree! { "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => "s" } };
    assert_eq!(client.post("/api/v1/namespaces/default/secrets", &secret).await.code, 201);

    let events = events(dir.path(), |event| is(event, "ResponseComplete", "create", "secrets")).await;
    let notes = |resource: &str| {
        let event = events.iter().find(|event| is(event, "ResponseComplete", "create", resource)).expect("an event");
        event.map("annotations").clone()
    };
    let of_map = notes("configmaps");
    let mutation = |name: &str, mutated: bool| {
        format!(r#"{{"configuration":"conf","webhook":"{name}.example.com","mutated":{mutated}}}"#)
    };
    for (index, name, mutated) in [(1, "patch", true), (2, "same", false), (3, "broken", false)] {
        let key = format!("mutation.webhook.admission.k8s.io/round_0_index_{index}");
        assert_eq!(of_map.str(&key), mutation(name, mutated), "{of_map:?}");
    }
    let patch = r#"{"configuration":"conf","webhook":"patch.example.com","patch":[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}],"patchType":"JSONPatch"}"#;
    assert_eq!(of_map.str("patch.webhook.admission.k8s.io/round_0_index_1"), patch);
    assert_eq!(of_map.str("failed-open.mutation.webhook.admission.k8s.io/round_0_index_3"), "broken.example.com");
    assert_eq!(of_map.str("failed-open.validating.webhook.admission.k8s.io/round_0_index_0"), "late.example.com");
    assert_eq!(of_map.str("same.example.com/mood"), "good");
    let of_secret = notes("secrets");
    assert!(of_secret.contains("mutation.webhook.admission.k8s.io/round_0_index_1"));
    assert!(!of_secret.keys().any(|key| key.starts_with("patch.")), "no part of a body below Request");
    cluster.stop().await;
}

/// A policy with two annotations and two failing validations, in two bindings.
async fn audit_by_policy(client: &Client) {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = tree! {
        "operations" => list!["CREATE"], "apiGroups" => list![""], "apiVersions" => list!["v1"],
        "resources" => list!["configmaps"],
    };
    let validation = |expression: &str, message: &str| tree! { "expression" => expression, "message" => message };
    let note = |key: &str, value: &str| tree! { "key" => key, "valueExpression" => value };
    let policy = tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => "ValidatingAdmissionPolicy",
        "metadata" => tree! { "name" => "audits" },
        "spec" => tree! {
            "failurePolicy" => "Fail",
            "matchConstraints" => tree! { "resourceRules" => list![rule] },
            "validations" => list![
                validation("true", "unused"),
                validation("object.data.text != 'bad'", "says \"bad\""),
                validation("object.data.text.size() > 3", "short"),
            ],
            "auditAnnotations" => list![
                note("text", "'it says ' + object.data.text"),
                note("sometimes", "object.data.text == 'bad' ? 'yes' : ''"),
            ],
        },
    };
    let reply = client.post(&format!("{group}/validatingadmissionpolicies"), &policy).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    for (name, actions) in [("one", list!["Audit"]), ("two", list!["Warn", "Audit"])] {
        let binding = tree! {
            "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => "ValidatingAdmissionPolicyBinding",
            "metadata" => tree! { "name" => name },
            "spec" => tree! { "policyName" => "audits", "validationActions" => actions },
        };
        let reply = client.post(&format!("{group}/validatingadmissionpolicybindings"), &binding).await;
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_events_have_annotations_of_policies() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = audited(dir.path()).await;
    let client = &cluster.client;
    audit_by_policy(client).await;
    assert_eq!(client.post(MAPS, &map("fine", "good")).await.code, 201);
    let reply = client.post(MAPS, &map("wrong", "bad")).await;
    assert_eq!(reply.code, 201, "an audited failure denies nothing: {}", reply.text());
    let warnings: Vec<&str> = reply.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).collect();
    assert_eq!(warnings.len(), 2, "of the binding that warns: {warnings:?}");

    let all =
        events(dir.path(), |event| event.str("stage") == "ResponseComplete" && event.str("objectRef.name") == "wrong")
            .await;
    let notes = |name: &str| {
        let done = |event: &&Tree| event.str("stage") == "ResponseComplete" && event.str("objectRef.name") == name;
        all.iter().find(done).expect("an event").map("annotations").clone()
    };
    let fine = notes("fine");
    assert_eq!((fine.str("audits/text"), fine.contains("audits/sometimes")), ("it says good", false));
    assert!(!fine.contains("validation.policy.admission.k8s.io/validation_failure"), "{fine:?}");
    let wrong = notes("wrong");
    assert_eq!(
        (wrong.str("audits/text"), wrong.str("audits/sometimes")),
        ("it says bad", "yes"),
        "once for both bindings"
    );
    let failures = wrong.str("validation.policy.admission.k8s.io/validation_failure");
    let failure = |message: &str, binding: &str, index: usize, actions: &str| {
        format!(
            r#"{{"message":"{message}","policy":"audits","binding":"{binding}","expressionIndex":{index},"validationActions":[{actions}]}}"#
        )
    };
    let (audit, both) = (r#""Audit""#, r#""Warn","Audit""#);
    let want = [
        failure(r#"says \"bad\""#, "one", 1, audit),
        failure("short", "one", 2, audit),
        failure(r#"says \"bad\""#, "two", 1, both),
        failure("short", "two", 2, both),
    ];
    assert_eq!(failures, format!("[{}]", want.join(",")));
    cluster.stop().await;
}

const CUSTOM_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: RequestResponse, resources: [{group: audited.example.com, resources: [widgets]}]}
- {level: Metadata, resources: [{group: audited.example.com}]}
- {level: None}
";

fn audited_definition() -> Tree {
    let schema = tree! { "type" => "object", "x-kubernetes-preserve-unknown-fields" => true };
    let version = tree! {
        "name" => "v1", "served" => true, "storage" => true, "schema" => tree! { "openAPIV3Schema" => schema },
        "subresources" => tree! { "status" => tree! {} },
    };
    tree! {
        "apiVersion" => "apiextensions.k8s.io/v1", "kind" => "CustomResourceDefinition",
        "metadata" => tree! { "name" => "widgets.audited.example.com" },
        "spec" => tree! {
            "group" => "audited.example.com", "scope" => "Namespaced",
            "names" => tree! { "plural" => "widgets", "kind" => "Widget" }, "versions" => list![version],
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_select_custom_resources() {
    const WIDGETS: &str = "/apis/audited.example.com/v1/namespaces/default/widgets";
    let dir = tempfile::tempdir().expect("a directory");
    let policy = dir.path().join("custom.yaml");
    std::fs::write(&policy, CUSTOM_POLICY).expect("a policy");
    let settings =
        Settings { log_path: Some(dir.path().join("audit.log")), policy_file: Some(policy), ..Settings::default() };
    let mut cluster = audited_with(dir.path(), settings).await;
    let client = &cluster.client;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.post(definitions, &audited_definition()).await.code, 201);
    client.until(WIDGETS, |code, _| code == 200).await;
    let widget = tree! {
        "apiVersion" => "audited.example.com/v1", "kind" => "Widget", "metadata" => tree! { "name" => "a" },
        "spec" => tree! { "size" => 7 },
    };
    assert_eq!(client.post(WIDGETS, &widget).await.code, 201);
    assert_eq!(client.patch(&format!("{WIDGETS}/a/status"), "merge", r#"{"status":{"ready":true}}"#).await.code, 200);
    assert_eq!(client.delete(&format!("{WIDGETS}/a")).await.code, 200);

    let all = events(dir.path(), |event| event.str("verb") == "delete").await;
    let done = |verb: &str| all.iter().find(|event| is(event, "ResponseComplete", verb, "widgets")).expect("an event");
    let created = done("create");
    assert_eq!((created.str("level"), created.str("objectRef.apiGroup")), ("RequestResponse", "audited.example.com"));
    assert_eq!(created.at("requestObject").at("spec"), widget.at("spec"));
    assert_eq!(created.at("responseObject").str("metadata.name"), "a");
    assert!(!created.at("responseObject").str("metadata.uid").is_empty());
    let patched = done("patch");
    assert_eq!((patched.str("level"), patched.str("objectRef.subresource")), ("Metadata", "status"));
    assert!(!patched.has("requestObject") && !patched.has("responseObject"), "the rule names no subresource");
    assert_eq!(done("delete").str("level"), "RequestResponse");
    assert!(
        all.iter().all(|event| event.str("objectRef.apiGroup") == "audited.example.com"),
        "other groups are left out"
    );
    cluster.stop().await;
}
