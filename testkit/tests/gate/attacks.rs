//! Misleading paths and floods of requests over a real connection.

use api::{Tree, list, tree};
use cluster::pki::Subject;
use server::authorization::config::Mode;
use testkit::{Client, Cluster, Hook, HookResponse, Storage};

use crate::until;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn named(api_version: &str, kind: &str, name: &str) -> Tree {
    tree! { "apiVersion" => api_version, "kind" => kind, "metadata" => tree! { "name" => name } }
}

/// A user with a certificate of the cluster.
fn jane(cluster: &Cluster) -> Client {
    let pki = cluster.pki();
    let ca = pki.read("ca").expect("a CA bundle").expect("a CA bundle");
    let subject = Subject {
        file: "jane".to_string(),
        ca: "ca",
        common_name: "jane".to_string(),
        organization: String::new(),
        names: Vec::new(),
        addresses: Vec::new(),
    };
    cluster.client_as(Some(&pki.issue(&ca, &subject).expect("a certificate")))
}

async fn make(client: &Client, path: &str, object: Tree) {
    let reply = client.post(path, &object).await;
    assert_eq!(reply.code, 201, "{path}: {}", reply.tree().str("message"));
}

/// Jane may read config maps of one namespace, and everything below one path.
async fn let_jane_read(client: &Client) {
    let of_maps = tree! { "apiGroups" => list![""], "resources" => list!["configmaps"], "verbs" => list!["*"] };
    let of_paths = tree! { "nonResourceURLs" => list!["/healthz", "/healthz/*"], "verbs" => list!["*"] };
    let subject = tree! { "kind" => "User", "apiGroup" => "rbac.authorization.k8s.io", "name" => "jane" };
    let version = "rbac.authorization.k8s.io/v1";
    for (kind, place, rule) in [
        ("Role", format!("{RBAC}/namespaces/default/role"), of_maps),
        ("ClusterRole", format!("{RBAC}/clusterrole"), of_paths),
    ] {
        let mut role = named(version, kind, "jane");
        role.set("rules", list![rule]);
        make(client, &format!("{place}s"), role).await;
        let mut binding = named(version, &format!("{kind}Binding"), "jane");
        binding.set("subjects", list![subject.clone()]);
        let reference = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => kind, "name" => "jane" };
        binding.set("roleRef", reference);
        make(client, &format!("{place}bindings"), binding).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_the_path_that_was_authorized() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let mut secret = named("v1", "Secret", "s");
    secret.set("stringData", tree! { "k" => "V4lueOfSecret" });
    make(client, "/api/v1/namespaces/default/secrets", secret).await;
    make(client, MAPS, named("v1", "ConfigMap", "m")).await;
    let_jane_read(client).await;
    let jane = jane(&cluster);
    assert_eq!(jane.get(&format!("{MAPS}/m")).await.code, 200);
    assert_eq!(jane.get("/healthz").await.code, 200);

    let secrets = "/api/v1/namespaces/default/secrets/s";
    let tricks = [
        secrets.to_string(),
        format!("{MAPS}/../secrets/s"),
        format!("{MAPS}/m/../../secrets/s"),
        format!("{MAPS}/..%2Fsecrets%2Fs"),
        format!("{MAPS}/%2e%2e/secrets/s"),
        format!("{MAPS}%2F..%2Fsecrets/s"),
        "/api/v1/namespaces/default/configmaps%2F..%2Fsecrets%2Fs".to_string(),
        "/api/v1/namespaces/default%2Fsecrets%2Fs".to_string(),
        "/api/v1/namespaces/default/secrets%2Fs".to_string(),
        "/api/v1/namespaces/default/s%65crets/s".to_string(),
        "/api/v1/namespaces/./default/secrets/s".to_string(),
        "/api/v1/secrets/default%2Fs".to_string(),
        "/api/v1//namespaces/default/secrets/s".to_string(),
        "//api/v1/namespaces/default/secrets/s".to_string(),
        "/api//v1/namespaces/default/secrets/s".to_string(),
        "/api/v1/namespaces/default//secrets/s".to_string(),
        "/api/v1/namespaces//secrets/s".to_string(),
        "/api/v1/namespaces/default/secrets/s/".to_string(),
        "/api/v1/namespaces/default/secrets/s%00".to_string(),
        "/api/v1/namespaces/default/configmaps;/../secrets/s".to_string(),
        "/healthz/../api/v1/namespaces/default/secrets/s".to_string(),
        "/healthz/..%2Fapi/v1/namespaces/default/secrets/s".to_string(),
        "/healthz//api/v1/namespaces/default/secrets/s".to_string(),
        "/%61pi/v1/namespaces/default/secrets/s".to_string(),
        "/api%2Fv1/namespaces/default/secrets/s".to_string(),
        "/API/v1/namespaces/default/secrets/s".to_string(),
        "/api/v1/watch/namespaces/default/secrets/s?timeoutSeconds=1".to_string(),
        "/api/v1/proxy/namespaces/default/secrets/s".to_string(),
    ];
    for path in &tricks {
        for (who, client) in [("jane", &jane), ("anonymous", &cluster.client_as(None))] {
            let reply = client.get(path).await;
            let text = String::from_utf8_lossy(&reply.bytes).into_owned();
            assert!(matches!(reply.code, 400 | 401 | 403 | 404), "{who} {path}: {} {text}", reply.code);
            let leaked =
                ["V4lueOfSecret", &api::base64::encode(b"V4lueOfSecret")].iter().any(|word| text.contains(*word));
            assert!(!leaked, "{who} {path}: {text}");
        }
        // An unusual path gives a cluster admin no more access than the plain one.
        let reply = client.get(path).await;
        let plain = [
            secrets,
            "/api/v1/namespaces/default/secrets/s/",
            "/api/v1/namespaces/default/s%65crets/s",
            "/%61pi/v1/namespaces/default/secrets/s",
        ];
        assert_eq!(reply.code == 200, plain.contains(&path.as_str()) || path.contains("/watch/"), "{path}");
    }
    // A write through an unusual path is stored where it was authorized, or nowhere.
    for path in [format!("{MAPS}/../secrets"), format!("{MAPS}%2F..%2Fsecrets"), format!("{MAPS}//")] {
        let reply = jane.post(&path, &named("v1", "ConfigMap", "n")).await;
        assert!(matches!(reply.code, 400 | 403 | 404 | 405), "{path}: {}", reply.code);
    }
    cluster.stop().await;
}

/// Creations of config maps named `slow` wait for a webhook that does not respond.
async fn hang(client: &Client) -> Hook {
    let hook = Hook::start(&[], |_, review| match review.str("request.name") {
        "slow" => HookResponse::Nothing,
        _ => Hook::reply(review, true, tree! {}),
    })
    .await;
    let rule = tree! {
        "operations" => list!["CREATE"], "apiGroups" => list![""], "apiVersions" => list!["v1"],
        "resources" => list!["configmaps"],
    };
    let mut object = named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hang");
    let webhook = tree! {
        "name" => "hang.example.com", "sideEffects" => "None", "timeoutSeconds" => 30,
        "admissionReviewVersions" => list!["v1"], "clientConfig" => hook.by_url("/"), "rules" => list![rule],
    };
    object.set("webhooks", list![webhook]);
    make(client, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", object).await;
    hook
}

/// One seat for jane, and no queue.
async fn narrow(client: &Client) {
    let flowcontrol = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let version = "flowcontrol.apiserver.k8s.io/v1";
    let mut level = named(version, "PriorityLevelConfiguration", "narrow");
    let limited = tree! {
        "nominalConcurrencyShares" => 1, "lendablePercent" => 0, "borrowingLimitPercent" => 0,
        "limitResponse" => tree! { "type" => "Reject" },
    };
    level.set("spec", tree! { "type" => "Limited", "limited" => limited });
    make(client, &format!("{flowcontrol}/prioritylevelconfigurations"), level).await;
    let everything = tree! {
        "verbs" => list!["create"], "apiGroups" => list!["*"], "resources" => list!["*"], "namespaces" => list!["*"],
    };
    let subject = tree! { "kind" => "User", "user" => tree! { "name" => "jane" } };
    let mut schema = named(version, "FlowSchema", "narrow");
    schema.set(
        "spec",
        tree! {
            "priorityLevelConfiguration" => tree! { "name" => "narrow" }, "matchingPrecedence" => 50,
            "rules" => list![tree! { "subjects" => list![subject], "resourceRules" => list![everything] }],
        },
    );
    make(client, &format!("{flowcontrol}/flowschemas"), schema).await;
}

async fn flood(fairness: bool) {
    let mut config = server::Config { authorization: vec![Mode::AlwaysAllow.into()], ..server::Config::default() };
    config.limits.fairness = fairness;
    config.limits.max_requests_inflight = 1;
    config.limits.max_mutating_requests_inflight = 1;
    let mut cluster = Cluster::start_with(Storage::Embedded, config, async |_| {}).await;
    if fairness {
        narrow(&cluster.client).await;
    }
    let hook = hang(&cluster.client).await;
    let jane = jane(&cluster);
    let slow = jane.clone();
    let began = std::time::Instant::now();
    let held =
        tokio::spawn(async move { slow.post(&format!("{MAPS}?timeout=3s"), &named("v1", "ConfigMap", "slow")).await });
    until("the first is under way", async || !hook.asked().is_empty()).await;
    let reply = jane.post(MAPS, &named("v1", "ConfigMap", "next")).await;
    let text = String::from_utf8_lossy(&reply.bytes).into_owned();
    assert_eq!((reply.code, text.as_str()), (429, "Too many requests, please try again later.\n"));
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!(reply.headers.contains_key("x-kubernetes-pf-flowschema-uid"), fairness);
    // The administrator is not in the same queue.
    assert_eq!(cluster.client.post(MAPS, &named("v1", "ConfigMap", "other")).await.code, 201);

    let reply = held.await.expect("an answer");
    assert_eq!((reply.code, reply.tree().str("reason")), (504, "Timeout"), "its time is over");
    assert!(began.elapsed().as_secs() >= 3);
    assert_eq!(jane.post(MAPS, &named("v1", "ConfigMap", "next")).await.code, 201, "the seat is back");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overloaded_flows_get_retry_after() {
    flood(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_fairness_requests_in_flight_are_counted() {
    flood(false).await;
}

/// A node's status names any address: on other ports than the kubelet's, the server must not be led to itself.
#[tokio::test(flavor = "multi_thread")]
async fn node_address_on_another_port_is_checked() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let secret = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    secret.set_nonblocking(true).expect("a socket");
    let port = secret.local_addr().expect("an address").port();
    for (name, address) in [("a", "127.0.0.1"), ("b", "localhost"), ("c", "::ffff:127.0.0.1")] {
        let node = named("v1", "Node", name);
        assert_eq!(client.post("/api/v1/nodes", &node).await.code, 201);
        let status = format!(
            r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"{address}"}}],
                "daemonEndpoints":{{"kubeletEndpoint":{{"Port":1}}}}}}}}"#
        );
        let reply = client.patch(&format!("/api/v1/nodes/{name}/status"), "merge", &status).await;
        assert_eq!(reply.code, 200, "{}", reply.tree().str("message"));
        for id in [format!("{name}:{port}"), format!("http:{name}:{port}"), format!("https:{name}:{port}")] {
            let reply = client.get(&format!("/api/v1/nodes/{id}/proxy/")).await;
            assert_eq!((reply.code, reply.tree().str("message")), (400, "address not allowed"), "{id} at {address}");
        }
    }
    assert!(secret.accept().is_err(), "no connection was made");
    cluster.stop().await;
}
