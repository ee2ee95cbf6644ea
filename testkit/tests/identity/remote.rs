//! Tokens that are verified by an OpenID Connect provider or by a webhook, over TLS.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use api::{Tree, json, list, tree};
use cluster::pki::{CertificateAndKey, Pki, Subject};
use server::authentication::oidc::{Claim, Issuer, Issuers, Rules};
use server::authentication::webhook::Webhook;
use server::authorization::config::{Mode, Setting};
use server::authorization::{Decision, webhook};
use server::outbound::callout::{Client as Caller, Trust, kubeconfig};
use stdx::sync::Mutex;
use testkit::{Client, Cluster, FlaggedServer, Https};

use super::jwt::{Signer, unsigned};
use crate::until;

pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

/// A CA and a server's certificate of it.
pub fn pair(dir: &std::path::Path) -> (CertificateAndKey, CertificateAndKey) {
    let pki = Pki::open(dir.to_path_buf()).expect("a directory");
    let ca = pki.ensure_ca("ca", "provider").expect("a CA bundle");
    let subject = Subject {
        file: "provider".to_string(),
        ca: "ca",
        common_name: "provider".to_string(),
        organization: String::new(),
        names: Vec::new(),
        addresses: vec![IpAddr::from([127, 0, 0, 1])],
    };
    (ca.clone(), pki.leaf(&ca, &subject).expect("a certificate"))
}

pub async fn user_of(client: &Client, token: &str) -> (u16, String) {
    let review = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "SelfSubjectReview" };
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", &bearer)];
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = client.raw("POST", path, &headers, json::encode(&review, None)).await;
    let user = reply.tree().at("status.userInfo").clone();
    let groups: Vec<&str> = user.list("groups").iter().filter_map(Tree::as_str).collect();
    (reply.code, format!("{} {}", user.str("username"), groups.join(",")))
}

/// The documents of a provider: its signing key, and the number of requests for its keys.
#[derive(Default)]
pub struct Provider {
    pub url: Mutex<String>,
    pub keys: Mutex<Vec<Tree>>,
    pub asked: AtomicUsize,
}

impl Provider {
    pub fn answer(&self, path: &str) -> (u16, Vec<u8>) {
        let url = self.url.lock().clone();
        let document = match path {
            "/.well-known/openid-configuration" => tree! { "issuer" => &url, "jwks_uri" => format!("{url}/keys") },
            "/keys" => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                tree! { "keys" => self.keys.lock().clone() }
            }
            _ => return (404, Vec::new()),
        };
        (200, json::encode(&document, None))
    }
}

fn one(issuer: Issuer) -> Issuers {
    Issuers::from_pointee(vec![Arc::new(issuer)])
}

fn rules(url: &str) -> Rules {
    Rules {
        url: url.to_string(),
        audiences: vec!["cluster".to_string()],
        algorithms: vec!["RS256".to_string(), "ES256".to_string()],
        username: Claim { name: "sub".to_string(), prefix: "idp:".to_string() },
        groups: Some(Claim { name: "roles".to_string(), prefix: String::new() }),
        ..Rules::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_provider_are_verified_with_its_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ca, serving) = pair(dir.path());
    let provider = Arc::new(Provider::default());
    let answers = provider.clone();
    let https = Https::serve(&serving, move |path, _| answers.answer(path)).await;
    *provider.url.lock() = https.url();
    let first = Signer::new("first");
    *provider.keys.lock() = vec![first.jwk()];

    let trust = Trust::pem(ca.certificate.as_bytes()).expect("a CA bundle");
    let caller = Caller::new(&trust, None).expect("a client");
    let issuer = Issuer::new(rules(&https.url()), caller).expect("an issuer");
    let mut cluster = Cluster::start_changed(|plan, _| plan.authentication.issuers = one(issuer)).await;
    let anonymous = cluster.client_as(None);
    let claims = tree! {
        "iss" => https.url(), "aud" => list!["cluster"], "sub" => "jane", "roles" => list!["devs"],
        "exp" => now() + 600,
    };
    let jane = (201, "idp:jane devs,system:authenticated".to_string());
    assert_eq!(user_of(&anonymous, &first.token(&claims)).await, jane);
    assert_eq!(user_of(&anonymous, &first.token(&claims)).await, jane);
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1, "the keys are kept");

    let changed = |key: &str, value: Tree| {
        let mut claims = claims.clone();
        claims.set(key, value);
        claims
    };
    let cases = [
        ("expired", first.token(&changed("exp", Tree::from(now() - 1)))),
        ("not yet valid", first.token(&changed("nbf", Tree::from(now() + 900)))),
        ("for another audience", first.token(&changed("aud", list!["other"]))),
        ("of another issuer", first.token(&changed("iss", Tree::from("https://other")))),
        ("of another key", Signer::new("first").token(&claims)),
        ("unsigned", unsigned("ES256", &claims)),
        ("alg none", unsigned("none", &claims)),
        ("an algorithm that is not allowed", first.token_as("ES384", &claims)),
        ("an algorithm of secrets", first.token_as("HS256", &claims)),
    ];
    for (what, token) in cases {
        assert_eq!(user_of(&anonymous, &token).await.0, 401, "{what}");
    }

    // The provider changes its key: the first token of the new key triggers a fetch.
    let second = Signer::new("second");
    *provider.keys.lock() = vec![second.jwk()];
    until("the new key is known", async || user_of(&anonymous, &second.token(&claims)).await == jane).await;
    assert_eq!(user_of(&anonymous, &first.token(&claims)).await.0, 401, "the old key is removed");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_providers_with_unknown_ca() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, serving) = pair(dir.path());
    let (other, _) = pair(tempfile::tempdir().expect("a directory").path());
    let key = Signer::new("k");
    let provider = Arc::new(Provider { keys: Mutex::new(vec![key.jwk()]), ..Provider::default() });
    let answers = provider.clone();
    let https = Https::serve(&serving, move |path, _| answers.answer(path)).await;
    *provider.url.lock() = https.url();
    let trust = Trust::pem(other.certificate.as_bytes()).expect("a CA bundle");
    let issuer = Issuer::new(rules(&https.url()), Caller::new(&trust, None).expect("a client")).expect("an issuer");
    let mut cluster = Cluster::start_changed(|plan, _| plan.authentication.issuers = one(issuer)).await;
    let claims = tree! { "iss" => https.url(), "aud" => "cluster", "sub" => "jane", "exp" => now() + 600 };
    assert_eq!(user_of(&cluster.client_as(None), &key.token(&claims)).await.0, 401);
    assert_eq!(provider.asked.load(Ordering::SeqCst), 0);
    cluster.stop().await;
}

/// Accepts one token, and responds to another with an invalid review.
fn review(body: &[u8]) -> (u16, Vec<u8>) {
    let asked = json::decode(body).unwrap_or_default();
    let status = match asked.str("spec.token") {
        "good" => {
            tree! { "authenticated" => true, "user" => tree! { "username" => "jane", "groups" => list!["devs"] } }
        }
        "garbage" => return (200, b"<html>".to_vec()),
        "broken" => return (500, Vec::new()),
        _ => tree! { "authenticated" => false },
    };
    (200, json::encode(&tree! { "apiVersion" => asked.at("apiVersion").clone(), "status" => status }, None))
}

#[tokio::test(flavor = "multi_thread")]
async fn token_reviews_of_webhooks_are_cached() {
    let dir = tempfile::tempdir().expect("a directory");
    let (https, asked) = webhook_server(dir.path(), review).await;
    let remote = remote(dir.path(), &https);
    let webhook = Webhook::new(remote, "v1", Duration::from_secs(600)).expect("a webhook");
    let mut cluster = Cluster::start_changed(|plan, _| plan.authentication.webhook = Some(webhook)).await;
    let anonymous = cluster.client_as(None);
    let jane = (201, "jane devs,system:authenticated".to_string());
    for token in ["good", "bad"] {
        let before = asked.load(Ordering::SeqCst);
        for _ in 0..3 {
            let got = user_of(&anonymous, token).await;
            assert!(if token == "good" { got == jane } else { got.0 == 401 }, "{token}: {got:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{token}");
    }
    for token in ["garbage", "broken"] {
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(user_of(&anonymous, token).await.0, 401);
        assert_eq!(user_of(&anonymous, token).await.0, 401);
        assert_eq!(asked.load(Ordering::SeqCst), before + 2, "failures are not kept: {token}");
    }
    drop(https);
    assert_eq!(user_of(&anonymous, "good").await, jane);
    assert_eq!(user_of(&anonymous, "other").await.0, 401);
    cluster.stop().await;
}

/// A webhook with a certificate of the CA in a directory, and the number of its requests.
async fn webhook_server(dir: &std::path::Path, answer: fn(&[u8]) -> (u16, Vec<u8>)) -> (Https, Arc<AtomicUsize>) {
    let (_, serving) = pair(&dir.join("pki"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let https = Https::serve(&serving, move |_, body| {
        count.fetch_add(1, Ordering::SeqCst);
        answer(body)
    })
    .await;
    (https, asked)
}

/// The webhook of a kubeconfig file in a directory that has its CA too.
fn remote(dir: &std::path::Path, https: &Https) -> kubeconfig::Remote {
    let file = dir.join("webhook.yaml");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{}/review', certificate-authority: pki/ca.crt}}}}]\n",
        https.url()
    );
    std::fs::write(&file, text).expect("a file");
    kubeconfig::read(&file).unwrap_or_else(|error| panic!("{error}"))
}

/// Allows reads of ConfigMaps, denies Secrets, and has no opinion on anything else.
fn judge(body: &[u8]) -> (u16, Vec<u8>) {
    let review = json::decode(body).expect("a review");
    let asked = review.at("spec.resourceAttributes");
    let status = match asked.str("resource") {
        "configmaps" if asked.str("verb") == "get" => tree! { "allowed" => true },
        "secrets" => tree! { "allowed" => false, "denied" => true, "reason" => "never" },
        _ => tree! { "allowed" => false },
    };
    let answer = tree! {
        "apiVersion" => "authorization.k8s.io/v1", "kind" => "SubjectAccessReview", "status" => status,
    };
    (200, json::encode(&answer, None))
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_of_webhooks_are_cached() {
    let dir = tempfile::tempdir().expect("a directory");
    let (https, asked) = webhook_server(dir.path(), judge).await;
    let settings = webhook::Settings {
        remote: Arc::new(remote(dir.path(), &https)),
        authorized_ttl: Duration::from_secs(600),
        unauthorized_ttl: Duration::from_secs(600),
        timeout: Duration::from_secs(10),
        on_failure: Decision::NoOpinion,
        version: webhook::Version::V1,
        conditions: Default::default(),
    };
    let mut cluster = Cluster::start_changed(|plan, _| {
        let mode = Mode::Webhook(settings);
        plan.config.authorization.insert(0, Setting { name: "judge".to_string(), mode });
    })
    .await;
    let read = async |path: &str| cluster.client.raw("GET", path, &[("impersonate-user", "jane")], Vec::new()).await;
    let maps = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    for (path, code) in [(maps, 200), ("/api/v1/namespaces/kube-system/secrets", 403), ("/api/v1/pods", 403)] {
        let before = asked.load(Ordering::SeqCst);
        for _ in 0..3 {
            let reply = read(path).await;
            assert_eq!(reply.code, code, "{path}: {}", reply.tree().str("message"));
        }
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{path}: one question, whatever the answer");
    }
    assert!(read("/api/v1/namespaces/kube-system/secrets").await.tree().str("message").contains("never"));
    cluster.stop().await;
}

/// An issuer whose claims are mapped and checked by expressions.
fn expressions(url: &str, ca: &str) -> String {
    let pem: String = ca.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {url}
    audiences: [cluster]
    certificateAuthority: |
{pem}  claimMappings:
    username: {{expression: \"'idp:' + claims.email\"}}
    groups: {{expression: 'claims.roles.filter(role, role != \"admin\")'}}
    uid: {{expression: claims.ids.oid}}
    extra:
    - {{key: example.com/tenant, valueExpression: claims.example__dot__com}}
    - {{key: example.com/none, valueExpression: '\"\"'}}
  claimValidationRules:
  - {{expression: claims.email_verified == true, message: the address must be verified}}
  userValidationRules:
  - {{expression: '!user.username.startsWith(\"idp:system:\")', message: the name is reserved}}
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_map_and_check_claims() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ca, serving) = pair(&dir.path().join("provider"));
    let key = Signer::new("k");
    let provider = Arc::new(Provider { keys: Mutex::new(vec![key.jwk()]), ..Provider::default() });
    let answers = provider.clone();
    let https = Https::serve(&serving, move |path, _| answers.answer(path)).await;
    *provider.url.lock() = https.url();
    let file = dir.path().join("authentication.yaml");
    std::fs::write(&file, expressions(&https.url(), &ca.certificate)).expect("a file");
    let flags = [format!("--authentication-config={}", file.display()), "--authorization-mode=AlwaysAllow".to_string()];
    let server = FlaggedServer::start(dir.path(), &flags).await.expect("a server");

    let claims = tree! {
        "iss" => https.url(), "aud" => list!["cluster"], "exp" => now() + 600, "email" => "jane@x", "jti" => "t1",
        "email_verified" => true, "roles" => list!["devs", "admin", ""], "ids" => tree! { "oid" => "7" },
        "example.com" => list!["a", "b"],
    };
    let anonymous = server.anonymous();
    assert_eq!(
        user_of(&anonymous, &key.token(&claims)).await,
        (201, "idp:jane@x devs,system:authenticated".to_string())
    );
    let review = tree! {
        "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview",
        "spec" => tree! { "token" => key.token(&claims) },
    };
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let user = server.admin().post(reviews, &review).await.tree().at("status.user").clone();
    let extra = tree! {
        "authentication.kubernetes.io/credential-id" => list!["JTI=t1"], "example.com/tenant" => list!["a", "b"],
    };
    assert_eq!((user.str("uid"), user.at("extra")), ("7", &extra));

    let refused = [
        ("email_verified", Tree::from(false), "'claims.email_verified == true' failed: the address must be verified"),
        ("email", Tree::from("system:admin"), "failed: the name is reserved"),
        ("email", Tree::from(7), "error evaluating username claim expression: expression "),
        ("ids", tree! {}, "error evaluating uid claim expression: expression 'claims.ids.oid' resulted in error"),
        ("roles", list![1], "error evaluating group claim expression: expression must return a string or a list"),
    ];
    for (claim, value, want) in refused {
        let mut claims = claims.clone();
        claims.set(claim, value);
        let token = key.token(&claims);
        assert_eq!(user_of(&anonymous, &token).await.0, 401, "{claim}");
        let mut review = review.clone();
        review.set("spec", tree! { "token" => token });
        let status = server.admin().post(reviews, &review).await.tree().at("status").clone();
        assert!(!status.bool("authenticated") && status.str("error").contains(want), "{claim}: {status:?}");
    }

    // Another rule applies without a restart, and a file that does not compile changes nothing.
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replace("claims.email_verified == true", "claims.email_verified ==")).expect("a file");
    let failures = "apiserver_authentication_config_controller_automatic_reloads_total{";
    until("the failure is counted", async || {
        let text = String::from_utf8_lossy(&server.admin().get("/metrics").await.bytes).into_owned();
        text.lines().any(|line| line.starts_with(failures) && line.contains("failure") && line.ends_with(" 1"))
    })
    .await;
    assert_eq!(user_of(&anonymous, &key.token(&claims)).await.0, 201, "the last good one is in force");
    std::fs::write(&file, text.replace("claims.email_verified == true", "claims.email_verified == false"))
        .expect("a file");
    until("the new rule applies", async || user_of(&anonymous, &key.token(&claims)).await.0 == 401).await;
    server.stop().await;
}
