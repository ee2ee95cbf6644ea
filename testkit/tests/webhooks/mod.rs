//! Admission webhooks against a webhook server of the test, over TLS.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use api::{Tree, list, tree};
use testkit::{Client, Cluster, Hook, HookResponse, Storage};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn config_map(name: &str) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name } }
}

fn rule(operation: &str, group: &str, version: &str, resource: &str) -> Tree {
    tree! {
        "operations" => list![operation], "apiGroups" => list![group], "apiVersions" => list![version],
        "resources" => list![resource],
    }
}

/// A webhook with a name, for creations of config maps unless `more` overrides it.
fn webhook(name: &str, client_config: Tree, more: Tree) -> Tree {
    let mut webhook = tree! {
        "name" => format!("{name}.example.com"), "sideEffects" => "None", "timeoutSeconds" => 2,
        "admissionReviewVersions" => list!["v1"], "clientConfig" => client_config,
        "rules" => list![rule("CREATE", "", "v1", "configmaps")],
    };
    for (key, value) in more.as_map().into_iter().flat_map(|map| map.iter()) {
        webhook.set(key, value.clone());
    }
    webhook
}

/// `kind` is Mutating or Validating.
async fn configure(client: &Client, kind: &str, name: &str, webhooks: Vec<Tree>) {
    let object = tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => format!("{kind}WebhookConfiguration"),
        "metadata" => tree! { "name" => name }, "webhooks" => Tree::List(webhooks),
    };
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    let reply = client.post(&path, &object).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
}

async fn remove(client: &Client, kind: &str, name: &str) {
    let path = format!("{GROUP}/{kind}webhookconfigurations/{name}");
    assert_eq!(client.delete(&path).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_mutate_and_reject_in_order() {
    let hook = Hook::start(&[], |path, review| match path {
        "/first" => Hook::patch(review, r#"[{"op":"add","path":"/data","value":{"a":"1"}}]"#),
        "/second" if review.str("request.object.data.b") == "2" => Hook::reply(review, true, tree! {}),
        "/second" => Hook::patch(review, r#"[{"op":"add","path":"/data/b","value":"2"}]"#),
        _ if review.str("request.name") == "bad" => {
            let status = tree! { "code" => 418, "message" => "no teapots", "reason" => "Odd" };
            Hook::reply(review, false, tree! { "status" => status })
        }
        _ => Hook::reply(review, true, tree! { "warnings" => list!["mind the gap"] }),
    })
    .await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let again = tree! { "reinvocationPolicy" => "IfNeeded" };
    configure(client, "Mutating", "a", vec![webhook("first", hook.by_url("/first"), again)]).await;
    configure(client, "Mutating", "b", vec![webhook("second", hook.by_url("/second"), tree! {})]).await;
    configure(client, "Validating", "c", vec![webhook("last", hook.by_url("/last"), tree! {})]).await;

    let made = client.post(CONFIG_MAPS, &config_map("good")).await;
    assert_eq!(made.code, 201, "{}", made.tree().str("message"));
    assert_eq!((made.tree().str("data.a"), made.tree().str("data.b")), ("1", ""), "the first runs again, and wins");
    assert_eq!(made.headers.get("warning").and_then(|v| v.to_str().ok()), Some("299 - \"mind the gap\""));
    let asked = hook.asked();
    let paths: Vec<&str> = asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/first", "/second", "/first", "/last"]);
    let request = asked[0].1.at("request");
    assert_eq!(request.str("operation"), "CREATE");
    assert_eq!(request.str("userInfo.username"), "kubernetes-admin");
    assert_eq!(request.str("options.kind"), "CreateOptions");
    assert_eq!(request.str("object.kind"), "ConfigMap");
    assert!(request.get("oldObject").is_some_and(Tree::is_null));

    let refused = client.post(CONFIG_MAPS, &config_map("bad")).await;
    let status = refused.tree();
    assert_eq!((refused.code, status.str("reason")), (418, "Odd"));
    assert_eq!(status.str("message"), "admission webhook \"last.example.com\" denied the request: no teapots");

    let dry = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("dry")).await;
    assert_eq!(dry.code, 201);
    assert!(hook.asked().last().is_some_and(|(_, review)| review.bool("request.dryRun")));
    let other = tree! { "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => "s" } };
    let before = hook.asked().len();
    assert_eq!(client.post("/api/v1/namespaces/default/secrets", &other).await.code, 201);
    assert_eq!(hook.asked().len(), before, "no rule is about secrets");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_webhooks_follow_their_failure_policy() {
    let hook = Hook::start(&[], |path, review| match path {
        "/garbage" => HookResponse::Text(200, "garbage".to_string()),
        "/error" => HookResponse::Text(500, "on fire".to_string()),
        "/redirect" => HookResponse::Text(302, String::new()),
        "/hang" => HookResponse::Nothing,
        "/uid" => {
            let HookResponse::Json(mut reply) = Hook::reply(review, true, tree! {}) else {
                return HookResponse::Nothing;
            };
            reply.child("response").set("uid", "other");
            HookResponse::Json(reply)
        }
        "/patch" => Hook::patch(review, r#"[{"op":"remove","path":"/no/such"}]"#),
        "/nonsense" => Hook::patch(review, r#"[{"op":"add","path":"/data","value":[1]}]"#),
        "/kind" => Hook::patch(review, r#"[{"op":"replace","path":"/kind","value":"Secret"}]"#),
        "/name" => Hook::patch(review, r#"[{"op":"replace","path":"/metadata/name","value":"NO!"}]"#),
        _ => Hook::reply(review, true, tree! {}),
    })
    .await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let calling = |why: &str| format!("Internal error occurred: failed calling webhook \"w.example.com\": {why}");
    let cases = [
        ("/garbage", 500, calling("failed to call webhook: couldn't get version/kind; json parse error: ")),
        ("/error", 500, calling("failed to call webhook: an error on the server (\"on fire\") has prevented")),
        ("/redirect", 500, calling("failed to call webhook: the server responded with the status code 302")),
        (
            "/hang",
            500,
            calling(&format!(
                "failed to call webhook: Post \"https://{}/hang?timeout=1s\": context deadline exceeded",
                hook.address
            )),
        ),
        ("/uid", 500, calling("expected response.uid=")),
        ("/patch", 500, "Internal error occurred: ".to_string()),
        ("/nonsense", 500, "Internal error occurred: ".to_string()),
        ("/kind", 500, "Internal error occurred: admission webhook \"w.example.com\" changed kind".to_string()),
        ("/name", 422, "ConfigMap \"".to_string()),
    ];
    for (path, code, want) in &cases {
        let more = tree! { "timeoutSeconds" => 1 };
        configure(client, "Mutating", "w", vec![webhook("w", hook.by_url(path), more)]).await;
        let reply = client.post(CONFIG_MAPS, &config_map("x")).await;
        let message = reply.tree().str("message").to_string();
        assert_eq!(reply.code, *code, "{path}: {message}");
        assert!(message.starts_with(want.as_str()), "{path}: {message}");
        remove(client, "mutating", "w").await;
    }
    let ignored = tree! { "failurePolicy" => "Ignore" };
    let strange = tree! { "url" => format!("https://{}/", hook.address) };
    let mut webhooks = vec![webhook("strange", strange, ignored.clone())];
    webhooks.push(webhook("garbage", hook.by_url("/garbage"), ignored));
    configure(client, "Validating", "w", webhooks).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("x")).await.code, 201);
    remove(client, "validating", "w").await;
    let strange = tree! { "url" => format!("https://{}/", hook.address) };
    configure(client, "Validating", "w", vec![webhook("strange", strange, tree! {})]).await;
    let message = client.post(CONFIG_MAPS, &config_map("y")).await.tree().str("message").to_string();
    assert!(message.ends_with("x509: certificate signed by unknown authority"), "{message}");
    cluster.stop().await;
}

/// An address of this machine that an EndpointSlice may hold.
pub(crate) fn own_address() -> IpAddr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).expect("a way out");
    socket.local_addr().expect("an address").ip()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_deletions_connections_and_other_versions_are_reached() {
    let hook = Hook::start(&["gate.default.svc"], |_, review| {
        let refused = review.str("request.name").starts_with("kept");
        Hook::reply(review, !refused, tree! { "status" => tree! { "code" => 403, "message" => "kept" } })
    })
    .await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let service = tree! {
        "apiVersion" => "v1", "kind" => "Service", "metadata" => tree! { "name" => "gate" },
        "spec" => tree! { "ports" => list![tree! { "name" => "https", "port" => 443 }] },
    };
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).await.code, 201);
    let by_service = tree! {
        "service" => tree! { "namespace" => "default", "name" => "gate", "path" => "/ask" },
        "caBundle" => &hook.ca_bundle,
    };
    let rules = list![
        rule("DELETE", "", "v1", "configmaps"),
        rule("CONNECT", "", "v1", "pods/*"),
        rule("CREATE", "autoscaling", "v2", "horizontalpodautoscalers"),
        rule("UPDATE", "apps", "v1", "deployments/scale"),
    ];
    configure(client, "Validating", "v", vec![webhook("v", by_service, tree! { "rules" => rules })]).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("kept")).await.code, 201);
    let kept = format!("{CONFIG_MAPS}/kept");
    let message = client.delete(&kept).await.tree().str("message").to_string();
    assert!(
        message.ends_with(
            "Post \"https://gate.default.svc:443/ask?timeout=2s\": no endpoints available for service \"gate\""
        ),
        "{message}"
    );

    let slice = tree! {
        "apiVersion" => "discovery.k8s.io/v1", "kind" => "EndpointSlice", "addressType" => "IPv4",
        "metadata" => tree! { "name" => "gate", "labels" => tree! { "kubernetes.io/service-name" => "gate" } },
        "endpoints" => list![tree! { "addresses" => list![own_address().to_string()] }],
        "ports" => list![tree! { "name" => "https", "port" => i64::from(hook.address.port()) }],
    };
    let reply = client.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    let reply = client.delete(&kept).await;
    assert_eq!(reply.code, 403, "{}", reply.tree().str("message"));
    let asked = hook.asked();
    let request = asked[0].1.at("request");
    assert_eq!((asked[0].0.as_str(), request.str("oldObject.metadata.name")), ("/ask", "kept"));
    assert_eq!(request.str("options.kind"), "DeleteOptions");

    let exec = "/api/v1/namespaces/default/pods/kept-pod/exec?command=ls&stdout=true";
    let reply = client.post(exec, &tree! {}).await;
    assert_eq!(reply.code, 403, "{}", reply.tree().str("message"));
    let request = hook.asked().pop().expect("a question").1.at("request").clone();
    assert_eq!((request.str("kind.kind"), request.str("subResource")), ("PodExecOptions", "exec"));
    assert_eq!(request.at("object.command"), &list!["ls"]);

    let autoscaler = tree! {
        "apiVersion" => "autoscaling/v1", "kind" => "HorizontalPodAutoscaler", "metadata" => tree! { "name" => "kept" },
        "spec" => tree! {
            "maxReplicas" => 3, "targetCPUUtilizationPercentage" => 50,
            "scaleTargetRef" => tree! { "apiVersion" => "apps/v1", "kind" => "Deployment", "name" => "d" },
        },
    };
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    assert_eq!(client.post(path, &autoscaler).await.code, 403);
    let request = hook.asked().pop().expect("a question").1.at("request").clone();
    assert_eq!((request.str("kind.version"), request.str("requestKind.version")), ("v2", "v1"));
    assert_eq!(request.list("object.spec.metrics").len(), 1, "in the version that the rule names");

    let template = tree! {
        "metadata" => tree! { "labels" => tree! { "a" => "b" } },
        "spec" => tree! { "containers" => list![tree! { "name" => "c", "image" => "i:1" }] },
    };
    let deployment = tree! {
        "apiVersion" => "apps/v1", "kind" => "Deployment", "metadata" => tree! { "name" => "kept" },
        "spec" => tree! { "selector" => tree! { "matchLabels" => tree! { "a" => "b" } }, "template" => template },
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(client.post(path, &deployment).await.code, 201);
    let reply = client.patch(&format!("{path}/kept/scale"), "merge", r#"{"spec":{"replicas":4}}"#).await;
    assert_eq!(reply.code, 403, "{}", reply.tree().str("message"));
    let request = hook.asked().pop().expect("a question").1.at("request").clone();
    assert_eq!((request.str("object.kind"), request.int("object.spec.replicas")), ("Scale", Some(4)));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_and_conditions_are_honoured_or_refused() {
    let hook = Hook::start(&[], |_, review| Hook::reply(review, false, tree! {})).await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let labelled = |value: &str| tree! { "matchLabels" => tree! { "gate" => value } };
    let more = tree! { "objectSelector" => labelled("shut"), "namespaceSelector" => tree! {
        "matchLabels" => tree! { "kubernetes.io/metadata.name" => "default" },
    } };
    configure(client, "Validating", "v", vec![webhook("v", hook.by_url("/"), more)]).await;
    let mut object = config_map("x");
    assert_eq!(client.post(CONFIG_MAPS, &object).await.code, 201);
    object.child("metadata").set("labels", tree! { "gate" => "shut" });
    assert_eq!(client.post("/api/v1/namespaces/kube-public/configmaps", &object).await.code, 201);
    object.child("metadata").set("name", "y");
    assert_eq!(client.post(CONFIG_MAPS, &object).await.code, 400);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn match_conditions_decide_whether_a_webhook_is_called() {
    let hook = Hook::start(&[], |_, review| Hook::reply(review, false, tree! {})).await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let with = |expression: &str, policy: &str| {
        let condition = tree! { "name" => "c", "expression" => expression };
        tree! { "matchConditions" => list![condition], "failurePolicy" => policy }
    };
    let cases = [
        ("object.metadata.name == 'called'", "Fail", "called", 400),
        ("object.metadata.name == 'called'", "Fail", "other", 201),
        ("object.data.k == 'x'", "Fail", "missing", 403),
        ("object.data.k == 'x'", "Ignore", "ignored", 201),
        ("!authorizer.requestResource.check('bypass').allowed()", "Fail", "master", 201),
        (
            "authorizer.serviceAccount('default', 'x').group('').resource('pods').check('get').allowed()",
            "Fail",
            "sa",
            201,
        ),
        ("request.userInfo.username == 'kubernetes-admin' && oldObject == null", "Fail", "me", 400),
        ("namespaceObject.metadata.name == 'default'", "Fail", "namespace", 400),
        ("lists.range(3000).all(i, lists.range(3000).all(j, true))", "Fail", "expensive", 403),
    ];
    for (expression, policy, name, want) in cases {
        configure(client, "Validating", "v", vec![webhook("v", hook.by_url("/"), with(expression, policy))]).await;
        let reply = client.post(CONFIG_MAPS, &config_map(name)).await;
        assert_eq!(reply.code, want, "{expression}: {}", reply.text());
        remove(client, "validating", "v").await;
    }
    configure(client, "Validating", "v", vec![webhook("v", hook.by_url("/"), with("object.data.k == 'x'", "Fail"))])
        .await;
    let reply = client.post(CONFIG_MAPS, &config_map("a")).await.tree();
    let want = "configmaps \"a\" is forbidden: expression 'object.data.k == 'x'' resulted in error: no such key: data";
    assert_eq!(reply.str("message"), want);
    let invalid = tree! {
        "apiVersion" => "admissionregistration.k8s.io/v1", "kind" => "ValidatingWebhookConfiguration",
        "metadata" => tree! { "name" => "c" }, "webhooks" => list![webhook("c", hook.by_url("/"), with("1", "Fail"))],
    };
    let reply = client.post(&format!("{GROUP}/validatingwebhookconfigurations"), &invalid).await.tree();
    let want = "webhooks[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int";
    assert!(reply.str("message").ends_with(want), "{reply:?}");
    cluster.stop().await;
}

/// A server whose webhooks are called with the credentials of a kubeconfig.
async fn with_logins(dir: &std::path::Path, users: &str) -> Cluster {
    let kubeconfig = dir.join("users.yaml");
    std::fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\nusers:\n{users}")).expect("a file");
    let configuration = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: {}}}",
        kubeconfig.display()
    );
    let file = dir.join("admission.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- {{name: MutatingAdmissionWebhook, configuration: {configuration}}}\n"
    );
    std::fs::write(&file, text).expect("a file");
    let admission = Arc::new(server::registry::admission::Setup::new(&[], &[], Some(&file)).expect("a good file"));
    let config = server::Config { admission, ..server::Config::default() };
    Cluster::start_with(Storage::Embedded, config, async |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_shown_the_credentials_for_their_host() {
    let hook = Hook::start(&[], |_, review| Hook::reply(review, true, tree! {})).await;
    let dir = tempfile::tempdir().expect("a directory");
    let users = format!(
        "- {{name: '{}', user: {{token: secret-of-this-host}}}}\n- {{name: '*', user: {{username: u, password: p}}}}\n",
        hook.address
    );
    let mut cluster = with_logins(dir.path(), &users).await;
    let client = &cluster.client;
    configure(client, "Mutating", "m", vec![webhook("m", hook.by_url("/"), tree! {})]).await;
    configure(client, "Validating", "v", vec![webhook("v", hook.by_url("/"), tree! {})]).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("x")).await.code, 201);
    // The other plugin sends no credentials.
    assert_eq!(hook.authorizations(), ["Bearer secret-of-this-host", ""]);
    cluster.stop().await;
    let users = "- {name: '*', user: {username: u, password: p}}\n";
    let mut cluster = with_logins(dir.path(), users).await;
    configure(&cluster.client, "Mutating", "m", vec![webhook("m", hook.by_url("/"), tree! {})]).await;
    assert_eq!(cluster.client.post(CONFIG_MAPS, &config_map("x")).await.code, 201);
    assert_eq!(hook.authorizations().last().map(String::as_str), Some("Basic dTpw"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_is_measured() {
    let hook = Hook::start(&[], |path, review| match path {
        "/no" => Hook::reply(review, false, tree! { "status" => tree! { "code" => 418 } }),
        "/broken" => HookResponse::Text(500, "on fire".to_string()),
        "/nonsense" => Hook::patch(review, r#"[{"op":"remove","path":"/no/such"}]"#),
        _ => Hook::reply(review, true, tree! {}),
    })
    .await;
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let passed = tree! { "failurePolicy" => "Ignore" };
    configure(client, "Mutating", "a", vec![webhook("fine", hook.by_url("/"), tree! {})]).await;
    configure(client, "Mutating", "b", vec![webhook("open", hook.by_url("/broken"), passed)]).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("x")).await.code, 201);
    configure(client, "Validating", "c", vec![webhook("no", hook.by_url("/no"), tree! {})]).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("y")).await.code, 418);
    configure(client, "Mutating", "d", vec![webhook("odd", hook.by_url("/nonsense"), tree! {})]).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("z")).await.code, 500);
    let text = String::from_utf8_lossy(&client.get("/metrics").await.bytes).into_owned();
    let has = |line: &str| assert!(text.contains(&format!("apiserver_admission_{line}")), "{line} is not in\n{text}");
    has(
        "webhook_request_total{code=\"200\",name=\"fine.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 3",
    );
    has("webhook_fail_open_count{name=\"open.example.com\",type=\"admit\"} 3");
    has(
        "webhook_request_total{code=\"500\",name=\"open.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 3",
    );
    has(
        "webhook_rejection_count{error_type=\"no_error\",name=\"no.example.com\",operation=\"CREATE\",rejection_code=\"418\",type=\"validating\"} 1",
    );
    has(
        "webhook_rejection_count{error_type=\"apiserver_internal_error\",name=\"odd.example.com\",operation=\"CREATE\",rejection_code=\"0\",type=\"admit\"} 1",
    );
    has(
        "webhook_admission_duration_seconds_count{name=\"fine.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 3",
    );
    has(
        "controller_admission_duration_seconds_count{name=\"MutatingAdmissionWebhook\",operation=\"CREATE\",rejected=\"true\",type=\"admit\"} 1",
    );
    has("step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 1");
    cluster.stop().await;
}
