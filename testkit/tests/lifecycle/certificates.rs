//! CertificateSigningRequests, from the request to the certificate.

use api::{Tree, base64, list, tree};
use testkit::{Client, Cluster};

use crate::until;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Of `system:node:a` in `system:nodes`.
const NODE: &str = include_str!("node.csr");
/// A request of `jane` in `one` and `two`.
const JANE: &str = include_str!("jane.csr");

fn request(name: &str, signer: &str, text: &str, usages: Tree) -> Tree {
    let spec = tree! {
        "request" => base64::encode(text.as_bytes()),
        "signerName" => format!("kubernetes.io/{signer}"),
        "usages" => usages,
        "expirationSeconds" => 3600,
    };
    tree! {
        "apiVersion" => "certificates.k8s.io/v1",
        "kind" => "CertificateSigningRequest",
        "metadata" => tree! { "name" => name },
        "spec" => spec,
    }
}

fn has(request: &Tree, kind: &str, reason: &str) -> bool {
    let is = |one: &Tree| one.str("type") == kind && one.str("reason") == reason;
    request.list("status.conditions").iter().any(is)
}

async fn approve(client: &Client, name: &str) {
    let mut request = client.get(&format!("{REQUESTS}/{name}")).await.tree();
    let condition = tree! { "type" => "Approved", "status" => "True", "reason" => "Test", "message" => "yes" };
    request.child("status").set("conditions", list![condition]);
    assert_eq!(client.put(&format!("{REQUESTS}/{name}/approval"), &request).await.code, 200);
}

async fn certificate(client: &Client, name: &str) -> String {
    let path = format!("{REQUESTS}/{name}");
    let get = async || client.get(&path).await.tree().str("status.certificate").to_string();
    until("there is a certificate", async || !get().await.is_empty()).await;
    String::from_utf8(base64::decode(&get().await).expect("base64")).expect("PEM")
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_requests_are_signed() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let jane = request("jane", "kube-apiserver-client", JANE, list!["client auth"]);
    let created = client.post(REQUESTS, &jane).await;
    assert_eq!(created.code, 201, "{:?}", created.tree());
    approve(client, "jane").await;
    let pem = certificate(client, "jane").await;
    let user = cluster::pki::CertificateAndKey {
        certificate: pem,
        key: include_str!("jane.key").to_string(),
        ..Default::default()
    };
    let review = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "SelfSubjectReview" };
    let as_jane = cluster.client_as(Some(&user));
    let answer = as_jane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.tree();
    assert_eq!(answer.str("status.userInfo.username"), "jane");
    let groups: Vec<&str> = answer.list("status.userInfo.groups").iter().filter_map(Tree::as_str).collect();
    assert_eq!(groups, ["one", "two", "system:authenticated"]);

    // A signer rejects a certificate that it does not issue, with a reason.
    let server = request("wrong", "kube-apiserver-client", JANE, list!["server auth"]);
    assert_eq!(client.post(REQUESTS, &server).await.code, 201);
    approve(client, "wrong").await;
    let path = format!("{REQUESTS}/wrong");
    until("it has failed", async || has(&client.get(&path).await.tree(), "Failed", "SignerValidationFailure")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_its_own_certificate() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
    let subject = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => "Group", "name" => "system:nodes" };
    let reference = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => "ClusterRole", "name" => role };
    let binding = tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1",
        "kind" => "ClusterRoleBinding",
        "metadata" => tree! { "name" => "auto-approve" },
        "subjects" => list![subject],
        "roleRef" => reference,
    };
    let bound = client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(bound.code, 201, "{:?}", bound.tree());
    let usages = list!["client auth", "digital signature"];
    let body = request("node", "kube-apiserver-client-kubelet", NODE, usages);
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "system:node:a"),
        ("impersonate-group", "system:nodes"),
    ];
    let created = client.raw("POST", REQUESTS, &headers, api::json::encode(&body, None)).await;
    assert_eq!(created.code, 201, "{:?}", created.tree());
    certificate(client, "node").await;
    let approved = client.get(&format!("{REQUESTS}/node")).await.tree();
    assert!(has(&approved, "Approved", "AutoApproved"), "{approved:?}");
    cluster.stop().await;
}
