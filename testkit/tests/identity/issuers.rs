//! Several issuers and keys of service account tokens, by flags.

use std::path::Path;

use api::{Tree, list, tree};
use testkit::{Client, FlaggedServer};

use super::jwt::{Signer, claims_of};
use super::remote::{now, user_of};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn account(client: &Client) -> (String, String) {
    let account = tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "robot" } };
    let created = client.post(ACCOUNTS, &account).await.tree();
    let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {} };
    let reply = client.post(&format!("{ACCOUNTS}/robot/token"), &request).await.tree();
    (reply.str("status.token").to_string(), created.str("metadata.uid").to_string())
}

fn key(dir: &Path, name: &str) -> String {
    let pki = cluster::pki::Pki::open(dir.join(name)).expect("a directory");
    pki.tokens().expect("a key");
    dir.join(name).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_issuer_signs_and_all_are_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (new, old, older) = (key(dir.path(), "new"), key(dir.path(), "old"), key(dir.path(), "older"));
    let flags = [
        "--service-account-issuer=https://new.example".to_string(),
        "--service-account-issuer=https://old.example".to_string(),
        format!("--service-account-signing-key-file={new}/sa.key"),
        format!("--service-account-key-file={new}/sa.pub"),
        // A private key is accepted in place of its public key.
        format!("--service-account-key-file={old}/sa.pub,{older}/sa.key"),
        "--authorization-mode=AlwaysAllow".to_string(),
    ];
    let server = FlaggedServer::start(dir.path(), &flags).await.expect("a server");
    let (anonymous, admin) = (server.anonymous(), server.admin());
    let (token, uid) = account(&admin).await;
    let claims = claims_of(&token);
    assert_eq!(claims.str("iss"), "https://new.example");
    let both = list!["https://new.example", "https://old.example"];
    assert_eq!(claims.at("aud"), &both, "it is for all of them");

    let robot = "system:serviceaccount:default:robot";
    let claims = |issuer: &str| {
        let own = tree! {
            "namespace" => "default", "serviceaccount" => tree! { "name" => "robot", "uid" => &uid },
        };
        tree! {
            "iss" => issuer, "aud" => list!["https://old.example"], "sub" => robot, "exp" => now() + 600,
            "iat" => now(), "nbf" => now(), "kubernetes.io" => own,
        }
    };
    let signer = |place: &str| Signer::of_file(&Path::new(place).join("sa.key"));
    let stranger = Signer::new("x");
    let cases = [
        ("ours", token.clone(), 201),
        ("of the old issuer and key", signer(&old).token(&claims("https://old.example")), 201),
        ("of the old issuer, with the new key", signer(&new).token(&claims("https://old.example")), 201),
        ("of a key given as private", signer(&older).token(&claims("https://new.example")), 201),
        ("of an issuer that is not named", signer(&old).token(&claims("https://other.example")), 401),
        ("of a key that is not named", stranger.token(&claims("https://old.example")), 401),
    ];
    for (what, token, code) in cases {
        let got = user_of(&anonymous, &token).await;
        assert_eq!(got.0, code, "{what}");
        assert!(code != 201 || got.1.starts_with(robot), "{what}: {}", got.1);
    }
    let configuration = admin.get("/.well-known/openid-configuration").await.tree();
    assert_eq!(configuration.str("issuer"), "https://new.example");
    let keys = admin.get("/openid/v1/jwks").await.tree();
    let mut ids: Vec<&str> = keys.list("keys").iter().map(|key| key.str("kid")).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each key once: {keys:?}");
    assert!(keys.list("keys").iter().all(|key: &Tree| !key.has("d")), "public parts alone");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_unusable_issuers_and_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let new = key(dir.path(), "new");
    std::fs::write(dir.path().join("empty.pem"), "no key\n").expect("a file");
    let signing = format!("--service-account-signing-key-file={new}/sa.key");
    let cases = [
        (
            vec!["--service-account-issuer=a".to_string(), "--service-account-issuer=a".to_string()],
            "\"a\" is named twice",
        ),
        (vec![signing, format!("--service-account-key-file={}", dir.path().join("empty.pem").display())], "empty.pem"),
        (vec![format!("--service-account-key-file={new}/sa.pub")], "needs --service-account-signing-key-file"),
    ];
    for (flags, want) in cases {
        let error =
            FlaggedServer::start(dir.path(), &flags).await.err().map(|error| error.describe()).unwrap_or_default();
        assert!(error.contains(want), "{flags:?}: {error}");
    }
}
