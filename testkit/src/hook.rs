//! A webhook server of a test's own, over TLS with an authority of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Tree, json, tree};
use bytes::Bytes;
use cluster::pki::{Pki, Subject, certificates, private_key};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What the server says to a question.
pub enum Said {
    Json(Tree),
    Text(u16, String),
    /// Nothing, for longer than anybody waits.
    Nothing,
}

type Handler = dyn Fn(&str, &Tree) -> Said + Send + Sync;

pub struct Hook {
    pub address: SocketAddr,
    /// The authority, in base64, as `caBundle` has it.
    pub ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Tree)>>>,
    _dir: tempfile::TempDir,
}

impl Hook {
    /// Listens on every address of the machine; the certificate is for 127.0.0.1 and for these names.
    pub async fn start(names: &[&str], handler: impl Fn(&str, &Tree) -> Said + Send + Sync + 'static) -> Hook {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let pki = Pki::open(dir.path().join("pki")).expect("a folder");
        let authority = pki.authority("ca", "hook").expect("an authority");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let addresses = [IpAddr::from([127, 0, 0, 1])];
        let subject =
            Subject { file: "hook", common_name: "hook", organization: "", names: &names, addresses: &addresses };
        let pair = pki.issue(&authority, &subject).expect("a certificate");
        let tls = server::http::tls::server_config(
            certificates(&pair).expect("certificates"),
            private_key(&pair).expect("a key"),
        );
        let mut tls = (*tls.expect("a configuration")).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::new(handler), asked.clone()));
        Hook {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            ca_bundle: api::base64::encode(authority.certificate.as_bytes()),
            asked,
            _dir: dir,
        }
    }

    /// A `clientConfig` that names this server by URL.
    pub fn by_url(&self, path: &str) -> Tree {
        tree! { "url" => format!("https://{}{path}", self.address), "caBundle" => &self.ca_bundle }
    }

    /// The path and the body of every question until now.
    pub fn asked(&self) -> Vec<(String, Tree)> {
        self.asked.lock().expect("the lock").clone()
    }

    /// An answer to a review.
    pub fn reply(review: &Tree, allowed: bool, more: Tree) -> Said {
        let mut response = more;
        response.set("uid", review.str("request.uid"));
        response.set("allowed", allowed);
        Said::Json(tree! {
            "apiVersion" => review.str("apiVersion"), "kind" => "AdmissionReview", "response" => response,
        })
    }

    /// An answer that patches.
    pub fn patch(review: &Tree, patch: &str) -> Said {
        let patch = api::base64::encode(patch.as_bytes());
        Hook::reply(review, true, tree! { "patchType" => "JSONPatch", "patch" => patch })
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, handler: Arc<Handler>, asked: Arc<Mutex<Vec<(String, Tree)>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, handler, asked) = (tls.clone(), handler.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, handler.clone(), asked.clone()));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    handler: Arc<Handler>,
    asked: Arc<Mutex<Vec<(String, Tree)>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_string();
    let body = request.into_body().collect().await?.to_bytes();
    let tree = json::decode(&body).unwrap_or_default();
    let said = handler(&path, &tree);
    asked.lock().expect("the lock").push((path, tree));
    let (code, text) = match said {
        Said::Json(tree) => (200, json::encode(&tree, None)),
        Said::Text(code, text) => (code, text.into_bytes()),
        Said::Nothing => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            (200, Vec::new())
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    Ok(response)
}
