//! Configuration files that change while the server runs: a valid file is applied, an invalid one is not.

use std::path::Path;
use std::sync::Arc;

use api::{Tree, list, tree};
use stdx::sync::Mutex;
use testkit::{Client, FlaggedServer, Https};

use super::jwt::Signer;
use super::remote::{Provider, now, pair, user_of};
use crate::until;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn authorizers(list: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {list}\n")
}

/// A file is replaced as a whole, as careful people do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(&new, path).expect("a file");
}

/// The value of a metric, by the text before it.
async fn metric(client: &Client, start: &str, labels: &str) -> String {
    let text = String::from_utf8_lossy(&client.get("/metrics").await.bytes).into_owned();
    let found = text.lines().find(|line| line.starts_with(start) && line.contains(labels));
    found.and_then(|line| line.rsplit(' ').next()).unwrap_or("").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn authorizers_change_with_their_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("authorization.yaml");
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&file, authorizers("[{type: RBAC, name: rbac}]")).expect("a file");
    std::fs::write(&tokens, "ada-s-token,ada,1\n").expect("a file");
    let flags =
        [format!("--authorization-config={}", file.display()), format!("--token-auth-file={}", tokens.display())];
    let server = FlaggedServer::start(dir.path(), &flags).await.expect("a server");
    let (anonymous, admin) = (server.anonymous(), server.admin());
    let code = async || anonymous.get_with(PODS, "ada-s-token").await.code;
    let reloads = "apiserver_authorization_config_controller_automatic_reloads_total{";
    let info = "apiserver_authorization_config_controller_last_config_info{";
    assert_eq!(code().await, 403);
    let hash = async || {
        let text = String::from_utf8_lossy(&admin.get("/metrics").await.bytes).into_owned();
        text.lines().filter(|line| line.starts_with(info)).map(str::to_string).collect::<Vec<_>>()
    };
    until("the first is shown", async || hash().await.len() == 1).await;
    let first = hash().await;

    replace(&file, &authorizers("[{type: AlwaysAllow, name: all}]"));
    until("everything is allowed", async || code().await == 200).await;
    until("it is counted", async || metric(&admin, reloads, "status=\"success\"").await == "1").await;
    assert!(hash().await.len() == 1 && hash().await != first, "only the new one is in force");

    // Written in place, and invalid in three different forms.
    let bad = ["kind: [", &authorizers("[]"), &authorizers("[{type: Magic, name: m}]")];
    for (at, text) in bad.into_iter().enumerate() {
        std::fs::write(&file, text).expect("a file");
        let count = (at + 1).to_string();
        until("the failure is counted", async || metric(&admin, reloads, "status=\"failure\"").await == count).await;
        assert_eq!(code().await, 200, "the last good one is in force");
    }
    std::fs::remove_file(&file).expect("the file goes");
    until("its absence is counted", async || metric(&admin, reloads, "status=\"failure\"").await == "4").await;
    replace(&file, &authorizers("[{type: Node, name: node}, {type: RBAC, name: rbac}]"));
    until("roles decide again", async || code().await == 403).await;
    let last = "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds{";
    assert!(metric(&admin, last, "success").await.parse::<i64>().is_ok_and(|time| (now() - time).abs() < 60));
    server.stop().await;
}

fn providers(url: &str, ca: &str, anonymous: bool) -> String {
    let pem: String = ca.lines().map(|line| format!("      {line}\n")).collect();
    let jwt = format!(
        "- issuer:\n    url: {url}\n    audiences: [cluster]\n    certificateAuthority: |\n{pem}  claimMappings: {{username: {{claim: sub, prefix: 'idp:'}}}}\n"
    );
    let jwt = if url.is_empty() { " []\n".to_string() } else { format!("\n{jwt}") };
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {{enabled: {anonymous}}}\njwt:{jwt}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn issuers_change_with_their_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ca, serving) = pair(&dir.path().join("provider"));
    let key = Signer::new("k");
    let provider = Arc::new(Provider { keys: Mutex::new(vec![key.jwk()]), ..Provider::default() });
    let answers = provider.clone();
    let https = Https::serve(&serving, move |path, _| answers.answer(path)).await;
    *provider.url.lock() = https.url();
    let claims: Tree = tree! { "iss" => https.url(), "aud" => list!["cluster"], "sub" => "jane", "exp" => now() + 600 };
    let token = key.token(&claims);

    let file = dir.path().join("authentication.yaml");
    std::fs::write(&file, providers("", "", false)).expect("a file");
    let flags = [format!("--authentication-config={}", file.display()), "--authorization-mode=AlwaysAllow".to_string()];
    let server = FlaggedServer::start(dir.path(), &flags).await.expect("a server");
    let (anonymous, admin) = (server.anonymous(), server.admin());
    let reloads = "apiserver_authentication_config_controller_automatic_reloads_total{";
    let failures = async |count: &str| {
        until(count, async || metric(&admin, reloads, "status=\"failure\"").await == count).await;
    };
    let jane = (201, "idp:jane system:authenticated".to_string());
    assert_eq!(user_of(&anonymous, &token).await.0, 401);
    replace(&file, &providers(&https.url(), &ca.certificate, false));
    until("the provider is believed", async || user_of(&anonymous, &token).await == jane).await;

    replace(&file, "apiVersion: v9\n");
    failures("1").await;
    replace(&file, &providers(&https.url(), &ca.certificate, true));
    failures("2").await;
    assert_eq!(anonymous.get(PODS).await.code, 401, "who may come without a name is decided at the start");
    assert_eq!(user_of(&anonymous, &token).await, jane, "the last good one is in force");
    replace(&file, &providers("", "", false));
    until("the provider is removed", async || user_of(&anonymous, &token).await.0 == 401).await;
    server.stop().await;
}
