//! A webhook server for tests, over TLS with its own CA.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::{Tree, json, tree};
use cluster::pki::{Pki, Subject};
use stdx::sync::Mutex;

use crate::https::Https;

/// The response of the webhook to a request.
pub enum HookResponse {
    Json(Tree),
    Text(u16, String),
    /// No response, for longer than any client waits.
    Nothing,
}

/// A webhook server.
pub struct Hook {
    pub address: SocketAddr,
    /// The CA, in base64, as `caBundle` has it.
    pub ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Tree)>>>,
    authorizations: Arc<Mutex<Vec<String>>>,
    _https: Https,
    _dir: tempfile::TempDir,
}

impl Hook {
    /// Listens on every address of the machine; the certificate is for 127.0.0.1 and for these names.
    pub async fn start(names: &[&str], handler: impl Fn(&str, &Tree) -> HookResponse + Send + Sync + 'static) -> Hook {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let pki = Pki::open(dir.path().join("pki")).expect("a directory");
        let ca = pki.ensure_ca("ca", "hook").expect("a CA bundle");
        let subject = Subject {
            file: "hook".to_string(),
            ca: "ca",
            common_name: "hook".to_string(),
            organization: String::new(),
            names: names.iter().map(ToString::to_string).collect(),
            addresses: vec![IpAddr::from([127, 0, 0, 1])],
        };
        let pair = pki.issue(&ca, &subject).expect("a certificate");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let questions = asked.clone();
        let authorizations = Arc::new(Mutex::new(Vec::new()));
        let shown = authorizations.clone();
        let https = Https::serve_some(&pair, move |parts, body| {
            let path = parts.uri.path();
            let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            shown.lock().push(authorization.unwrap_or("").to_string());
            let tree = json::decode(body).unwrap_or_default();
            let said = handler(path, &tree);
            questions.lock().push((path.to_string(), tree));
            match said {
                HookResponse::Json(tree) => Some((200, json::encode(&tree, None))),
                HookResponse::Text(code, text) => Some((code, text.into_bytes())),
                HookResponse::Nothing => None,
            }
        });
        let https = https.await;
        let ca_bundle = api::base64::encode(ca.certificate.as_bytes());
        Hook { address: https.address, ca_bundle, asked, authorizations, _https: https, _dir: dir }
    }

    /// A `clientConfig` that names this server by URL.
    pub fn by_url(&self, path: &str) -> Tree {
        tree! { "url" => format!("https://{}{path}", self.address), "caBundle" => &self.ca_bundle }
    }

    /// The path and the body of every question until now.
    pub fn asked(&self) -> Vec<(String, Tree)> {
        self.asked.lock().clone()
    }

    /// The Authorization header of every question until now, "" where there was none.
    pub fn authorizations(&self) -> Vec<String> {
        self.authorizations.lock().clone()
    }

    /// A response to a review.
    pub fn reply(review: &Tree, allowed: bool, more: Tree) -> HookResponse {
        let mut response = more;
        response.set("uid", review.str("request.uid"));
        response.set("allowed", allowed);
        HookResponse::Json(tree! {
            "apiVersion" => review.str("apiVersion"), "kind" => "AdmissionReview", "response" => response,
        })
    }

    /// A response with a patch.
    pub fn patch(review: &Tree, patch: &str) -> HookResponse {
        let patch = api::base64::encode(patch.as_bytes());
        Hook::reply(review, true, tree! { "patchType" => "JSONPatch", "patch" => patch })
    }
}
