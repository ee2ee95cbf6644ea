//! Authentication: valid credentials of every type, and attacks on them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{Tree, base64, list, tree};
use cluster::pki::{CertificateAndKey, Lifetimes, Pki, Subject};
use server::authentication::{Anonymous, PasswordFile, TokenFile};
use testkit::{Client, Cluster, Storage};

use super::jwt::{Signer, claims_of, unsigned};
use crate::until;

const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MASTERS: &str = "system:masters";

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

/// Asks who the caller is: the code, and `name groups`.
async fn whoami(client: &Client, headers: &[(&str, &str)]) -> (u16, String) {
    let review = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "SelfSubjectReview" };
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let reply = client.raw("POST", SELF, &all, api::json::encode(&review, None)).await;
    let user = reply.tree().at("status.userInfo").clone();
    let groups: Vec<&str> = user.list("groups").iter().filter_map(Tree::as_str).collect();
    (reply.code, format!("{} {}", user.str("username"), groups.join(",")))
}

pub(super) async fn known(client: &Client, headers: &[(&str, &str)], want: &str) {
    assert_eq!(whoami(client, headers).await, (201, want.to_string()), "{headers:?}");
}

pub(super) async fn refused(client: &Client, headers: &[(&str, &str)], what: &str) {
    let (code, who) = whoami(client, headers).await;
    assert_eq!(code, 401, "{what}: {who}");
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn subject(file: &str, ca: &'static str, common_name: &str, organization: &str) -> Subject {
    Subject {
        file: file.to_string(),
        ca,
        common_name: common_name.to_string(),
        organization: organization.to_string(),
        names: Vec::new(),
        addresses: Vec::new(),
    }
}

pub(super) fn certificate(pki: &Pki, ca: &'static str, common_name: &str, organization: &str) -> CertificateAndKey {
    let signer = pki.read(ca).expect("a CA bundle").expect("a CA bundle");
    pki.issue(&signer, &subject("test", ca, common_name, organization)).expect("a certificate")
}

/// A token of the account `default/robot`, issued by the API.
pub(super) async fn account_token(client: &Client) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = tree! {
        "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "robot" },
    };
    assert_eq!(client.post(accounts, &account).await.code, 201);
    let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {} };
    let reply = client.post(&format!("{accounts}/robot/token"), &request).await;
    assert_eq!(reply.code, 201);
    reply.tree().str("status.token").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_forged_tokens() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let token = account_token(&cluster.client).await;
    let anonymous = cluster.client_as(None);
    let robot = "system:serviceaccount:default:robot \
        system:serviceaccounts,system:serviceaccounts:default,system:authenticated";
    known(&anonymous, &[("authorization", &bearer(&token))], robot).await;

    let key = Signer::of_file(&cluster.pki().dir().join("sa.key"));
    let changed = |key: &str, value: Tree| {
        let mut claims = claims_of(&token);
        claims.set(key, value);
        claims
    };
    known(&anonymous, &[("authorization", &bearer(&key.token(&claims_of(&token))))], robot).await;
    let cases = [
        ("expired", key.token(&changed("exp", Tree::from(now() - 120)))),
        ("without an end", key.token(&changed("exp", Tree::Null))),
        ("not yet valid", key.token(&changed("nbf", Tree::from(now() + 600)))),
        ("for another audience", key.token(&changed("aud", list!["https://other"]))),
        ("of another issuer", key.token(&changed("iss", Tree::from("https://other")))),
        ("of another key", Signer::new("x").token(&claims_of(&token))),
        ("unsigned", unsigned("ES256", &claims_of(&token))),
        ("alg none", unsigned("none", &claims_of(&token))),
        ("alg None", unsigned("None", &claims_of(&token))),
        ("a wrong algorithm", key.token_as("HS256", &claims_of(&token))),
        ("cut", token[..token.len() - 3].to_string()),
        ("no token", "x".to_string()),
    ];
    for (what, bad) in cases {
        refused(&anonymous, &[("authorization", &bearer(&bad))], what).await;
        // A review of the token has the same result.
        let review = tree! {
            "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview", "spec" => tree! { "token" => bad },
        };
        let reply = cluster.client.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.tree();
        assert!(!reply.at("status").bool("authenticated") && !reply.str("status.error").is_empty(), "{what}");
    }
    assert_eq!(cluster.client.delete("/api/v1/namespaces/default/serviceaccounts/robot").await.code, 200);
    refused(&anonymous, &[("authorization", &bearer(&token))], "of a deleted account").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified_per_request() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let token = account_token(&cluster.client).await;
    let token = bearer(&token);
    let pki = cluster.pki();
    let good = certificate(&pki, "ca", "jane", "devs");
    known(&cluster.client_as(Some(&good)), &[], "jane devs,system:authenticated").await;

    let other_dir = tempfile::tempdir().expect("a directory");
    let other = Pki::open(other_dir.path().join("pki")).expect("a directory");
    other.ensure_ca("ca", "kubernetes").expect("a CA bundle");
    let at = |seconds: i64| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs((now() + seconds) as u64);
        let lifetimes = Lifetimes { leaf: Duration::from_secs(3600), ..Lifetimes::default() };
        Pki::with_clock(pki.dir().to_path_buf(), lifetimes, Arc::new(move || time)).expect("a directory")
    };
    let cases = [
        ("of another CA of the same name", certificate(&other, "ca", "jane", MASTERS)),
        ("expired", certificate(&at(-7200), "ca", "jane", MASTERS)),
        ("not yet valid", certificate(&at(7200), "ca", "jane", MASTERS)),
        ("of the proxies' CA", certificate(&pki, "front-proxy-ca", "jane", MASTERS)),
        ("a server's", pki.read("apiserver").expect("a pair").expect("a pair")),
    ];
    for (what, bad) in &cases {
        let client = cluster.client_as(Some(bad));
        refused(&client, &[], what).await;
        // Beside a good token it does no harm.
        let (code, who) = whoami(&client, &[("authorization", &token)]).await;
        assert!(code == 201 && who.starts_with("system:serviceaccount:default:robot "), "{what}: {who}");
    }
    // The name is used literally; groups only come from the organization. A certificate without a name is rejected.
    let odd = certificate(&pki, "ca", "system:masters,O=system:masters/\"x\"", "");
    known(&cluster.client_as(Some(&odd)), &[], "system:masters,O=system:masters/\"x\" system:authenticated").await;
    refused(&cluster.client_as(Some(&certificate(&pki, "ca", "", MASTERS))), &[], "without a name").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_ca_takes_effect_at_once_and_is_published() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let admin = cluster.pki().read("admin").expect("a pair").expect("a pair");
    let mut open = cluster.client_as(Some(&admin)).connect().await;
    assert_eq!(open.get("/api/v1/nodes").await.code, 200);

    let other_dir = tempfile::tempdir().expect("a directory");
    let other = Pki::open(other_dir.path().to_path_buf()).expect("a directory");
    let ca = other.ensure_ca("ca", "kubernetes").expect("a CA bundle");
    let clients = cluster.server().registry.authentication.config.clients.as_ref().expect("CA bundle");
    clients.replace(&ca.certificate).expect("a CA bundle");
    assert_eq!(open.get("/api/v1/nodes").await.code, 401);
    assert!(clients.replace("nonsense").is_err());

    let admin = cluster.client_as(Some(&certificate(&other, "ca", "root", MASTERS)));
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let is_published = async || admin.get(path).await.tree().at("data").str("client-ca-file") == ca.certificate;
    until("the config map follows", is_published).await;
    let data = admin.get(path).await.tree().at("data").clone();
    assert_eq!(data.str("requestheader-allowed-names"), "[\"front-proxy-client\"]");
    assert_eq!(data.str("requestheader-username-headers"), "[\"X-Remote-User\"]");
    assert!(data.str("requestheader-client-ca-file").contains("BEGIN CERTIFICATE"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ignores_smuggled_headers() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let pki = cluster.pki();
    let token = bearer(&account_token(&cluster.client).await);
    let anonymous = cluster.client_as(None);
    let jane = cluster.client_as(Some(&certificate(&pki, "ca", "jane", "devs")));
    refused(&anonymous, &[("authorization", &token), ("authorization", &token)], "the header twice").await;
    refused(&jane, &[("authorization", "Bearer a"), ("authorization", "Bearer b")], "twice beside a certificate").await;

    let remote = [("x-remote-user", "root"), ("x-remote-group", MASTERS), ("x-remote-extra-a", "b")];
    refused(&anonymous, &remote, "headers of a proxy without a certificate").await;
    known(&jane, &remote, "jane devs,system:authenticated").await;
    let stranger = cluster.client_as(Some(&certificate(&pki, "front-proxy-ca", "stranger", "")));
    refused(&stranger, &remote, "a proxy of another name").await;
    let proxy = cluster.client_as(Some(&pki.read("front-proxy-client").expect("a pair").expect("a pair")));
    known(&proxy, &remote, "root system:masters,system:authenticated").await;
    refused(&proxy, &[], "a proxy that names no user").await;

    let (code, _) = whoami(&jane, &[("impersonate-user", "root"), ("impersonate-group", MASTERS)]).await;
    assert_eq!(code, 403);
    refused(&anonymous, &[("impersonate-user", "root")], "anonymous impersonation").await;
    known(&cluster.client, &[("impersonate-user", "jo"), ("impersonate-group", "a")], "jo a,system:authenticated")
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_bootstrap_tokens_name_users() {
    let mut cluster = Cluster::start_changed(|plan, _| {
        plan.authentication.token_file = TokenFile::read("s3cret,jane,7,\"devs,ops\"").ok();
        plan.authentication.passwords = PasswordFile::read("pass:word,joe,8,ops").ok();
    })
    .await;
    let anonymous = cluster.client_as(None);
    known(&anonymous, &[("authorization", "Bearer s3cret")], "jane devs,ops,system:authenticated").await;
    let basic = |text: &str| format!("Basic {}", base64::encode(text.as_bytes()));
    known(&anonymous, &[("authorization", &basic("joe:pass:word"))], "joe ops,system:authenticated").await;
    for bad in ["joe:pass", "joe", "jane:s3cret", "joe:pass:word:"] {
        refused(&anonymous, &[("authorization", &basic(bad))], bad).await;
    }
    let reply = anonymous.raw("GET", "/api", &[("authorization", "Bearer s3cre")], Vec::new()).await;
    assert_eq!((reply.code, reply.headers.contains_key("www-authenticate")), (401, true));

    let data = tree! {
        "token-id" => base64::encode(b"abcdef"), "token-secret" => base64::encode(b"0123456789abcdef"),
        "usage-bootstrap-authentication" => base64::encode(b"true"),
    };
    let secret = tree! {
        "apiVersion" => "v1", "kind" => "Secret", "type" => "bootstrap.kubernetes.io/token",
        "metadata" => tree! { "name" => "bootstrap-token-abcdef" }, "data" => data,
    };
    let token = "Bearer abcdef.0123456789abcdef";
    refused(&anonymous, &[("authorization", token)], "a token that is not there").await;
    assert_eq!(cluster.client.post("/api/v1/namespaces/kube-system/secrets", &secret).await.code, 201);
    known(&anonymous, &[("authorization", token)], "system:bootstrap:abcdef system:bootstrappers,system:authenticated")
        .await;
    refused(&anonymous, &[("authorization", "Bearer abcdef.0123456789abcdee")], "another secret").await;
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    assert_eq!(cluster.client.delete(path).await.code, 200);
    refused(&anonymous, &[("authorization", token)], "a deleted token").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_clients_see_public_paths() {
    let mut minimal = Cluster::start(Storage::Embedded).await;
    let anonymous = minimal.client_as(None);
    for (path, want) in [("/version", 200), ("/livez", 200), ("/readyz", 200), ("/api", 401), ("/metrics", 401)] {
        assert_eq!(anonymous.get(path).await.code, want, "{path}");
    }
    assert_eq!(anonymous.get_with("/version", "bad").await.code, 401);
    publish_cluster_info(&minimal.client).await;
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    assert_eq!(anonymous.get(&format!("{maps}/cluster-info")).await.code, 200);
    assert_eq!(
        (anonymous.get(maps).await.code, anonymous.get(&format!("{maps}/cluster-info/")).await.code),
        (401, 401)
    );
    minimal.stop().await;
    let mut open = Cluster::start_changed(|plan, _| plan.authentication.anonymous = Anonymous::Anywhere).await;
    let reply = open.client_as(None).get("/api/v1/namespaces/default/pods").await;
    let want = "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" \
        in API group \"\" in the namespace \"default\"";
    assert_eq!((reply.code, reply.tree().str("message")), (403, want));
    open.stop().await;
}

/// Publishes the ConfigMap that a joining machine reads first, and the anonymous access to it.
async fn publish_cluster_info(client: &Client) {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = || tree! { "name" => "cluster-info" };
    let rule = tree! {
        "apiGroups" => list![""], "resources" => list!["configmaps"], "resourceNames" => list!["cluster-info"],
        "verbs" => list!["get"],
    };
    let subject = tree! { "kind" => "User", "apiGroup" => rbac, "name" => "system:anonymous" };
    let objects = [
        ("/api/v1/namespaces/kube-public/configmaps", tree! { "metadata" => metadata() }),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/roles",
            tree! { "metadata" => metadata(), "rules" => list![rule] },
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings",
            tree! {
                "metadata" => metadata(), "subjects" => list![subject],
                "roleRef" => tree! { "apiGroup" => rbac, "kind" => "Role", "name" => "cluster-info" },
            },
        ),
    ];
    for (path, object) in objects {
        let reply = client.post(path, &object).await;
        assert_eq!(reply.code, 201, "{path}: {}", reply.tree().str("message"));
    }
}
