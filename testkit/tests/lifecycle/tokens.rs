//! Tokens in Secrets, and the objects for machines that join.

use api::{Tree, base64, tree};
use testkit::Cluster;

use super::until_gone;
use crate::until;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_holds_a_token_while_its_account_lives() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let account = tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "robot" } };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(client.post(accounts, &account).await.code, 201);
    let secret = |name: &str| {
        let annotations = tree! { "kubernetes.io/service-account.name" => "robot" };
        tree! {
            "apiVersion" => "v1",
            "kind" => "Secret",
            "type" => "kubernetes.io/service-account-token",
            "metadata" => tree! { "name" => name, "annotations" => annotations },
        }
    };
    let token = async |name: &str| {
        let secret = client.get(&format!("{SECRETS}/{name}")).await.tree();
        String::from_utf8(base64::decode(secret.map("data").str("token")).expect("base64")).expect("text")
    };
    for name in ["one", "two"] {
        assert_eq!(client.post(SECRETS, &secret(name)).await.code, 201);
        until("there is a token", async || !token(name).await.is_empty()).await;
    }
    let filled = client.get(&format!("{SECRETS}/one")).await.tree();
    assert_eq!(filled.map("data").str("namespace"), base64::encode(b"default"));
    assert!(!filled.map("data").str("ca.crt").is_empty());

    let review = async |token: &str| {
        let spec = tree! { "token" => token };
        let body = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview", "spec" => spec };
        client.post("/apis/authentication.k8s.io/v1/tokenreviews", &body).await.tree()
    };
    let (one, two) = (token("one").await, token("two").await);
    let known = review(&one).await;
    assert_eq!(known.str("status.user.username"), "system:serviceaccount:default:robot", "{known:?}");
    assert_eq!(cluster.client_as(None).get_with("/version", &one).await.code, 200);
    let is_noted = async || {
        let secret = client.get(&format!("{SECRETS}/one")).await.tree();
        secret.map("metadata.labels").str("kubernetes.io/legacy-token-last-used").len() == "2026-01-01".len()
    };
    until("its use is noted", is_noted).await;
    assert_eq!(client.delete(&format!("{SECRETS}/one")).await.code, 200);
    until("it is known no more", async || !review(&one).await.bool("status.authenticated")).await;
    assert!(review(&two).await.bool("status.authenticated"));
    assert_eq!(client.delete(&format!("{accounts}/robot")).await.code, 200);
    until_gone(client, &format!("{SECRETS}/two")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_info_is_signed_for_tokens() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    let data = tree! { "kubeconfig" => "clusters: []" };
    let info = tree! {
        "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => "cluster-info" }, "data" => data,
    };
    assert_eq!(client.post(maps, &info).await.code, 201);
    let soon = api::time::format_seconds(now() + 3);
    let token = |id: &str, end: &str| {
        let mut data = tree! {
            "token-id" => id, "token-secret" => "0123456789abcdef", "usage-bootstrap-signing" => "true",
        };
        if !end.is_empty() {
            data.set("expiration", end);
        }
        tree! {
            "apiVersion" => "v1",
            "kind" => "Secret",
            "type" => "bootstrap.kubernetes.io/token",
            "metadata" => tree! { "name" => format!("bootstrap-token-{id}") },
            "stringData" => data,
        }
    };
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    for (id, end) in [("abcdef", ""), ("ending", soon.as_str())] {
        let created = client.post(secrets, &token(id, end)).await;
        assert_eq!(created.code, 201, "{:?}", created.tree());
    }
    let signed = async || {
        let info = client.get(&format!("{maps}/cluster-info")).await.tree();
        info.map("data").keys().filter(|key| key.starts_with("jws-")).map(str::to_string).collect::<Vec<_>>()
    };
    until("both sign", async || signed().await.len() == 2).await;
    until_gone(client, &format!("{secrets}/bootstrap-token-ending")).await;
    until("one signs", async || signed().await == ["jws-kubeconfig-abcdef"]).await;

    let bundles = "/apis/certificates.k8s.io/v1/clustertrustbundles";
    let is_ours = |bundle: &Tree| bundle.str("spec.signerName") == "kubernetes.io/kube-apiserver-serving";
    until("there is a bundle", async || client.get(bundles).await.tree().list("items").iter().any(is_ours)).await;
    cluster.stop().await;
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}
