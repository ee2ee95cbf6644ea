//! Which hosts are requested and trusted, and which get credentials.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::images::{Credentials, Error, NoProgress, Proxies};
use rustls::pki_types::PrivateKeyDer;
use stdx::sync::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{self, Content, Request, Response, Server};
use crate::support::{Store, noise, tar};

const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";

fn content() -> Content {
    Content::plain(&[tar(&[("a", &noise(10_000))])])
}

fn user() -> Credentials {
    Credentials::basic("user", "secret")
}

/// Writes the configuration of a registry's hosts.
fn configure(store: &Path, registry: &str, text: &str) {
    let directory = store.join("certs.d").join(registry);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("hosts.toml"), text).unwrap();
}

/// A store whose hosts are configured in its own directory.
fn configured() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let certs = directory.path().join("certs.d");
    (directory, Store::with(|options| options.hosts = vec![certs]))
}

fn authorizations(server: &Server) -> Vec<Option<String>> {
    server.seen().iter().map(|request| request.header("authorization").map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn does_not_send_credentials_to_redirect_targets() {
    let content = content();
    let own = content.clone();
    let elsewhere = Arc::new(Server::start(move |request| own.answer(request)).await);
    let (own, cdn) = (content.clone(), elsewhere.address.clone());
    let registry = Server::start(move |request| {
        if request.header("authorization") != Some(BASIC) {
            return Response::of(401, "").with("WWW-Authenticate", "Basic realm=\"x\"");
        }
        match request.path.contains("/blobs/") {
            true => Response::of(307, "").with("Location", &format!("http://{cdn}{}", request.path)),
            false => own.answer(request),
        }
    })
    .await;
    let store = Store::new();
    assert_eq!(store.images.pull(&registry.name("a:1"), Some(user()), &NoProgress).await.unwrap(), content.id);
    assert!(elsewhere.seen().len() >= 2, "it was asked for blobs");
    assert!(authorizations(&elsewhere).iter().all(Option::is_none));
}

/// A registry with its own token server, which records the token requests.
async fn with_tokens(content: &Content) -> Server {
    let own = content.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let challenge = format!("Bearer realm=\"http://{address}/token?x=1\",service=\"test\",scope=\"repository:a:pull\"");
    Server::listen(listener, None, move |request| {
        if request.path.starts_with("/token") {
            return token(request);
        }
        match request.header("authorization") {
            Some("Bearer good") => own.answer(request),
            _ => Response::of(401, "").with("WWW-Authenticate", &challenge),
        }
    })
}

fn token(request: &Request) -> Response {
    let good = match request.method.as_str() {
        "POST" => request.body.contains("grant_type=refresh_token") && request.body.contains("refresh_token=identity"),
        _ => request.header("authorization") == Some(BASIC),
    };
    let field = if request.method == "POST" { "access_token" } else { "token" };
    if good { Response::of(200, format!("{{\"{field}\":\"good\"}}")) } else { Response::of(401, "") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uses_every_kind_of_token() {
    let content = content();
    let server = with_tokens(&content).await;
    let identity = Credentials { identity_token: "identity".into(), ..Credentials::default() };
    let bare = Credentials { registry_token: "good".into(), ..Credentials::default() };
    let wrong = Credentials { registry_token: "bad".into(), ..Credentials::default() };
    let cases: Vec<(&str, Option<Credentials>, bool)> = vec![
        ("a password", Some(user()), true),
        ("without credentials", None, false),
        ("an identity token", Some(identity), true),
        ("a registry's token", Some(bare), true),
        ("a wrong one", Some(wrong), false),
        ("a wrong password", Some(Credentials::basic("user", "wrong")), false),
    ];
    for (name, auth, expected) in cases {
        let store = Store::new();
        match (store.images.pull(&server.name("a:1"), auth, &NoProgress).await, expected) {
            (Ok(id), true) => assert_eq!(id, content.id, "{name}"),
            (Err(Error::Denied { .. }), false) => {}
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
    let asked: Vec<String> = server.seen().into_iter().map(|request| request.path).collect();
    assert!(asked.iter().any(|path| path == "/token?x=1&service=test&scope=repository%3Aa%3Apull"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_expires_during_the_pull() {
    let content = content();
    let (own, expired) = (content.clone(), AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let challenge = format!("Bearer realm=\"http://{}/token\"", listener.local_addr().unwrap());
    let server = Server::listen(listener, None, move |request| {
        if request.path.starts_with("/token") {
            let token = if expired.load(Ordering::Relaxed) { "second" } else { "first" };
            return Response::of(200, format!("{{\"token\":\"{token}\"}}"));
        }
        if request.path.contains("/blobs/") {
            expired.store(true, Ordering::Relaxed);
        }
        let good = if expired.load(Ordering::Relaxed) { "Bearer second" } else { "Bearer first" };
        match request.header("authorization") == Some(good) {
            true => own.answer(request),
            false => Response::of(401, "").with("WWW-Authenticate", &challenge),
        }
    });
    let id = Store::new().images.pull(&server.name("a:1"), None, &NoProgress).await.unwrap();
    assert_eq!((id, server.count("/token")), (content.id, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_mirrors_first_without_credentials() {
    let content = content();
    let own = content.clone();
    let origin = Server::start(move |request| match request.header("authorization") {
        Some(BASIC) => own.answer(request),
        _ => Response::of(401, "").with("WWW-Authenticate", "Basic"),
    })
    .await;
    let own = content.clone();
    // The mirror has the manifest, but requires a password for the layer.
    let mirror = Server::start(move |request| match request.path.contains(&own.layers[0]) {
        true => Response::of(401, "").with("WWW-Authenticate", "Basic"),
        false => own.answer(request),
    })
    .await;
    let (directory, store) = configured();
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://127.0.0.1:1\"]\n[host.\"http://{}\"]\n\
         [host.\"http://{}\".header]\nx-mirror = \"key\"\n",
        origin.address, mirror.address, mirror.address
    );
    configure(directory.path(), "registry.test", &text);
    let id = store.images.pull("registry.test/a:1", Some(user()), &NoProgress).await.unwrap();
    assert_eq!(id, content.id);
    let seen = mirror.seen();
    assert!(seen.iter().all(|request| request.path.contains("?ns=registry.test")), "{seen:?}");
    assert!(seen.iter().all(|request| request.header("x-mirror") == Some("key")));
    assert!(authorizations(&mirror).iter().all(Option::is_none), "a mirror is not the registry");
    assert!(origin.count(&content.layers[0]) >= 1 && origin.count("/manifests/") == 0);
    assert!(origin.seen().iter().all(|request| request.header("x-mirror").is_none()));
    assert_eq!(store.images.get(&id).unwrap().repo_tags, ["registry.test/a:1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skips_a_mirror_with_wrong_content() {
    let content = content();
    let own = content.clone();
    let origin = Server::start(move |request| own.answer(request)).await;
    let own = content.clone();
    let mirror = Server::start(move |request| match request.path.contains(&own.layers[0]) {
        true => Response::of(200, vec![1; own.blobs[&own.layers[0]].len()]),
        false => own.answer(request),
    })
    .await;
    let (directory, store) = configured();
    let text = format!("server = \"http://{}\"\n[host.\"http://{}\"]\n", origin.address, mirror.address);
    configure(directory.path(), "_default", &text);
    assert_eq!(store.images.pull("registry.test/a:1", None, &NoProgress).await.unwrap(), content.id);
    assert_eq!(mirror.count(&content.layers[0]), 1);
}

/// A certificate for this machine, and the CA that signed it.
fn certificate() -> (TlsAcceptor, String) {
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = parameters.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["127.0.0.1", "localhost", "registry.test"].map(str::to_owned).to_vec();
    let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), ca.pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trusts_only_configured_cas() {
    let content = content();
    let (tls, ca) = certificate();
    let own = content.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::listen(listener, Some(tls), move |request| own.answer(request));
    let (directory, store) = configured();
    let name = server.name("a:1");
    let error = store.images.pull(&name, None, &NoProgress).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(server.seen().is_empty(), "it is not asked in plain HTTP either");

    std::fs::create_dir_all(directory.path().join("certs.d").join(&server.address)).unwrap();
    std::fs::write(directory.path().join("certs.d").join(&server.address).join("ca.crt"), &ca).unwrap();
    assert_eq!(store.images.pull(&name, None, &NoProgress).await.unwrap(), content.id);
    store.images.remove(&content.id).await.unwrap();

    for text in ["ca = \"ca.crt\"\n", "skip_verify = true\n"] {
        configure(directory.path(), &server.address, text);
        assert_eq!(store.images.pull(&name, None, &NoProgress).await.unwrap(), content.id, "{text}");
        store.images.remove(&content.id).await.unwrap();
    }
    configure(directory.path(), &server.address, "ca = \"missing.pem\"\n");
    let error = store.images.pull(&name, None, &NoProgress).await.unwrap_err();
    assert!(error.to_string().contains("missing.pem"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_downgrades_from_tls() {
    let content = content();
    let own = content.clone();
    let plain = Arc::new(Server::start(move |request| own.answer(request)).await);
    let (tls, _) = certificate();
    for redirect in [true, false] {
        let (own, address) = (content.clone(), plain.address.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::listen(listener, Some(tls.clone()), move |request| match redirect {
            true if request.path.contains("/blobs/") => {
                Response::of(307, "").with("Location", &format!("http://{address}{}", request.path))
            }
            true => own.answer(request),
            false => {
                Response::of(401, "").with("WWW-Authenticate", &format!("Bearer realm=\"http://{address}/token\""))
            }
        });
        let (directory, store) = configured();
        configure(directory.path(), &server.address, "skip_verify = true\n");
        let error = store.images.pull(&server.name("a:1"), Some(user()), &NoProgress).await.unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
        assert!(plain.seen().is_empty());
    }
}

fn through(proxy: &str) -> Proxies {
    let url = format!("http://someone:pw@{proxy}");
    Proxies::read(|name| (name != "NO_PROXY").then(|| url.clone())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_through_a_proxy() {
    let content = content();
    let own = content.clone();
    let proxy = Server::start(move |request| own.answer(request)).await;
    let (directory, certs) = (tempfile::tempdir().unwrap(), "certs.d");
    configure(directory.path(), "registry.test", "server = \"http://registry.test:5000\"\n");
    let proxies = through(&proxy.address);
    let store = Store::with(|options| (options.hosts, options.proxies) = (vec![directory.path().join(certs)], proxies));
    assert_eq!(store.images.pull("registry.test/a:1", None, &NoProgress).await.unwrap(), content.id);
    for request in proxy.seen() {
        assert!(request.path.starts_with("http://registry.test:5000/v2/a/"), "{request:?}");
        assert_eq!(request.header("proxy-authorization"), Some("Basic c29tZW9uZTpwdw=="));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_through_a_proxy() {
    let content = content();
    let (tls, ca) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = content.clone();
    let (tunnels, inside) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (asked, log) = (tunnels.clone(), inside.clone());
    // Both the proxy and the registry behind it.
    let proxy = tokio::spawn(async move {
        let own = Arc::new(own);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (tls, own, asked, log) = (tls.clone(), own.clone(), asked.clone(), log.clone());
            tokio::spawn(async move {
                let request = server::read(&mut stream, &mut Vec::new()).await.unwrap();
                asked.lock().push(request);
                stream.write_all(b"HTTP/1.1 200 Go ahead\r\n\r\n").await.unwrap();
                let stream = tls.accept(stream).await.unwrap();
                let answer = move |request: &Request| own.answer(request);
                server::serve(stream, &log, &answer).await;
            });
        }
    });
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), "registry.test", "ca = \"ca.pem\"\n");
    std::fs::write(directory.path().join("certs.d/registry.test/ca.pem"), ca).unwrap();
    let (hosts, proxies) = (vec![directory.path().join("certs.d")], through(&address));
    let store = Store::with(|options| (options.hosts, options.proxies) = (hosts, proxies));
    assert_eq!(store.images.pull("registry.test/a:1", None, &NoProgress).await.unwrap(), content.id);
    let asked = tunnels.lock().clone();
    assert!(!asked.is_empty() && asked.iter().all(|request| request.method == "CONNECT"), "{asked:?}");
    assert!(asked.iter().all(|request| request.path == "registry.test:443"));
    let inside: Vec<Request> = inside.lock().clone();
    assert!(inside.iter().all(|request| request.header("proxy-authorization").is_none()), "that is the proxy's alone");
    proxy.abort();
}
