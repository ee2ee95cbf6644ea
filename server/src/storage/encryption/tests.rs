//! Values in upstream's form, rotation of keys, and staleness.

use super::*;
use plugin::Plugin;

fn file(providers: &str) -> PathBuf {
    let name = format!("enc-{}-{}.yaml", std::process::id(), crate::common::ids::uid());
    let path = std::env::temp_dir().join(name);
    write(&path, providers);
    path
}

fn write(path: &Path, providers: &str) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n{providers}"
    );
    std::fs::write(path, text).expect("a file");
}

fn key(cipher: &str, name: &str, byte: u8) -> String {
    let secret = api::base64::encode(&[byte; 32]);
    format!("  - {cipher}: {{keys: [{{name: {name}, secret: {secret}}}]}}\n")
}

struct NullSink;

impl Sink for NullSink {
    fn publish(&self, _: &[::store::Event]) {}
    fn progress(&self, _: u64) {}
}

fn ready(path: &Path) -> Arc<Encryption> {
    let encryption = Encryption::read(path).expect("a good file");
    encryption.sink(Arc::new(NullSink), "/registry", "");
    encryption
}

fn entry(key: &str, value: &[u8]) -> Arc<Entry> {
    Arc::new(Entry { key: key.into(), value: Bytes::copy_from_slice(value), revision: 42, expires: 0 })
}

const KEY: &str = "/secrets/default/a";
const PLAIN: &[u8] = br#"{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"","name":"a"}}"#;

#[tokio::test]
async fn keys_rotate_and_old_values_are_stale() {
    let path = file(&key("aescbc", "old", 1));
    let encryption = ready(&path);
    let sealed = encryption.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert!(sealed.starts_with(b"k8s:enc:aescbc:v1:old:"));
    let opened = encryption.open(entry(KEY, &sealed)).expect("opened");
    assert!(String::from_utf8_lossy(&opened.value).contains(r#""resourceVersion":"42""#));
    assert!(!encryption.is_stale(KEY));

    write(&path, &(key("secretbox", "new", 2) + &key("aescbc", "old", 1)));
    encryption.reload().expect("another good file");
    assert!(encryption.is_stale(KEY));
    encryption.open(entry(KEY, &sealed)).expect("old keys read");
    let sealed = encryption.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert!(sealed.starts_with(b"k8s:enc:secretbox:v1:new:"));
    encryption.open(entry(KEY, &sealed)).expect("opened");
    assert!(!encryption.is_stale(KEY));

    write(&path, &key("aesgcm", "third", 3));
    encryption.reload().expect("another good file");
    let problem = encryption.open(entry(KEY, &sealed)).expect_err("its key is removed").to_string();
    assert!(problem.contains(KEY) && problem.contains("no provider"), "{problem}");
    std::fs::write(&path, "kind: Nonsense").expect("a file");
    assert!(encryption.reload().is_err());
    assert!(encryption.seal(KEY, PLAIN).await.expect("sealed").expect("still covered").starts_with(b"k8s:enc:aesgcm"));
    std::fs::remove_file(&path).expect("the file");
}

/// The file is replaced atomically, like files of mounted volumes.
#[test]
fn reloads_a_changed_file() {
    let directory = std::env::temp_dir().join(format!("enc-reload-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (path, next) = (directory.join("a.yaml"), directory.join("next.yaml"));
    write(&path, &key("aesgcm", "old", 1));
    let encryption = ready(&path);
    encryption.reload_on_change().expect("a watch");
    let registry = prometheus::Registry::new();
    encryption.measure(&registry, &Default::default());
    write(&next, &key("aesgcm", "new", 2));
    std::fs::rename(&next, &path).expect("exchanged");
    let writes = || encryption.providers(KEY).and_then(|all| all.first().map(Provider::mark)).unwrap_or_default();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !writes().contains(":new:") {
        assert!(std::time::Instant::now() < until, "{} still writes", writes());
        std::thread::yield_now();
    }
    std::fs::write(&path, "kind: [").expect("a file");
    let metrics = || prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
    let counted = |status: &str| {
        let is = |line: &str| {
            line.contains("encryption_config_controller_automatic_reloads_total{") && line.contains(status)
        };
        metrics().lines().find(|line| is(line)).and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    while counted("failure").is_none() {
        assert!(std::time::Instant::now() < until, "{}", metrics());
        std::thread::yield_now();
    }
    // The directory has had more changes than the file.
    assert_eq!(counted("success"), Some(1), "{}", metrics());
    assert!(writes().contains(":new:"), "a wrong file leaves all as it was");
    std::fs::remove_dir_all(&directory).expect("the directory");
}

#[tokio::test]
async fn reads_plain_values_only_with_the_identity_provider() {
    let path = file(&key("aesgcm", "a", 1));
    let encryption = ready(&path);
    assert!(encryption.open(entry(KEY, PLAIN)).is_err());
    write(&path, &(key("aesgcm", "a", 1) + "  - identity: {}\n"));
    encryption.reload().expect("a good file");
    assert_eq!(encryption.open(entry(KEY, PLAIN)).expect("read").value, PLAIN);
    assert!(encryption.is_stale(KEY));
    let other = entry("/configmaps/default/a", PLAIN);
    assert_eq!(encryption.open(other).expect("not covered").value, PLAIN);
    assert_eq!(encryption.seal("/configmaps/default/a", PLAIN).await, Ok(None));
    assert!(encryption.open(entry("/configmaps/default/a", b"k8s:enc:aesgcm:v1:a:x")).is_err());
    std::fs::remove_file(&path).expect("the file");
}

#[tokio::test]
async fn value_decrypts_only_under_its_own_key() {
    let path = file(&key("aesgcm", "a", 1));
    let encryption = ready(&path);
    let sealed = encryption.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert!(encryption.open(entry("/secrets/default/b", &sealed)).is_err());
    // The whole key of the store is authenticated, its prefix included.
    let inner =
        key::open(Cipher::AesGcm, &[1; 32], &sealed["k8s:enc:aesgcm:v1:a:".len()..], b"/registry/secrets/default/a");
    assert_eq!(inner.as_deref(), Ok(PLAIN));
    std::fs::remove_file(&path).expect("the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_keeps_the_seeds_and_changes_its_key() {
    let socket = std::env::temp_dir().join(format!("kms-{}.sock", std::process::id()));
    let plugin = Plugin::start(&socket, "key-1");
    let path = file(&format!("  - kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}'}}\n", socket.display()));
    let first = ready(&path);
    let sealed = first.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert!(sealed.starts_with(b"k8s:enc:kms:v2:vault:") && !sealed.windows(6).any(|part| part == b"Secret"));
    first.open(entry(KEY, &sealed)).expect("opened");
    assert!(!first.is_stale(KEY));
    let again = first.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert_ne!(sealed, again);
    assert_eq!(plugin.calls(), ["Status", "Encrypt"], "a seed serves many values");

    // Another server requests the seed from the plugin; then the plugin changes its key.
    plugin.use_key("key-2");
    let second = ready(&path);
    let opened = second.open(entry(KEY, &sealed)).expect("opened");
    assert!(String::from_utf8_lossy(&opened.value).contains("Secret"));
    let sealed = second.seal(KEY, PLAIN).await.expect("sealed").expect("secrets are covered");
    assert!(second.is_stale(KEY), "what the old key wrote");
    second.open(entry(KEY, &sealed)).expect("opened");
    assert!(!second.is_stale(KEY));
    assert_eq!(plugin.calls(), ["Status", "Encrypt", "Decrypt", "Status", "Encrypt"]);

    // Without its plugin nothing is written, certainly not in plain text.
    plugin.stop();
    let third = ready(&path);
    let problem = third.seal(KEY, PLAIN).await.expect_err("no plugin").to_string();
    assert!(problem.contains("kms-") && third.open(entry(KEY, &sealed)).is_err(), "{problem}");
    std::fs::remove_file(&path).expect("the file");
}

#[test]
fn patterns_mean_resources() {
    let has = |pattern: &str, path: &str| paths(pattern).any(|known| known == path);
    assert!(has("secrets", "secrets") && has("*.*", "secrets") && has("*.", "secrets") && has("*.apps", "deployments"));
    assert!(!has("*.apps", "secrets") && !has("secrets.apps", "secrets"));
    assert!(!matches_resources("*") && !matches_resources("secretz"));
}

mod plugin {
    //! A KMS plugin for tests: it replaces seeds by the name of its key.

    use std::convert::Infallible;
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{HeaderMap, Request, Response};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use prost::Message;
    use stdx::sync::Mutex;

    use super::kms::*;

    pub(super) struct Plugin {
        state: Arc<Mutex<State>>,
        task: tokio::task::JoinHandle<()>,
        socket: std::path::PathBuf,
    }

    struct State {
        key_id: String,
        calls: Vec<String>,
    }

    impl Plugin {
        pub(super) fn start(socket: &Path, key_id: &str) -> Plugin {
            let _ = std::fs::remove_file(socket);
            let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
            let state = Arc::new(Mutex::new(State { key_id: key_id.to_string(), calls: Vec::new() }));
            let shared = state.clone();
            let task = tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = shared.clone();
                    let service = service_fn(move |request| respond(shared.clone(), request));
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(async move { server.serve_connection(TokioIo::new(stream), service).await });
                }
            });
            Plugin { state, task, socket: socket.to_path_buf() }
        }

        pub(super) fn calls(&self) -> Vec<String> {
            self.state.lock().calls.clone()
        }

        pub(crate) fn use_key(&self, key_id: &str) {
            self.state.lock().key_id = key_id.to_string();
        }

        pub(super) fn stop(self) {
            self.task.abort();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    type HttpResponse = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

    async fn respond(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<HttpResponse, Infallible> {
        let method = request.uri().path().rsplit('/').next().unwrap_or("").to_string();
        let body = request.into_body().collect().await.expect("a whole request").to_bytes();
        let message = {
            let mut state = state.lock();
            state.calls.push(method.clone());
            reply(&method, body.slice(5..), &state.key_id)
        };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        let body = Full::new(framed(&message)).with_trailers(async move { Some(Ok(trailers)) });
        Ok(Response::new(body.boxed()))
    }

    fn reply(method: &str, body: Bytes, key_id: &str) -> Vec<u8> {
        let flip = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>();
        match method {
            "Status" => {
                let (version, healthz) = ("v2".to_string(), "ok".to_string());
                StatusResponse { version, healthz, key_id: key_id.to_string() }.encode_to_vec()
            }
            "Encrypt" => {
                let request = EncryptRequest::decode(body).expect("a request");
                let ciphertext = flip(&request.plaintext);
                EncryptResponse { ciphertext, key_id: key_id.to_string(), ..Default::default() }.encode_to_vec()
            }
            _ => {
                let request = DecryptRequest::decode(body).expect("a request");
                DecryptResponse { plaintext: flip(&request.ciphertext) }.encode_to_vec()
            }
        }
    }
}
