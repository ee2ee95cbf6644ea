//! KMS v2: a plugin behind a Unix socket encrypts the seeds from which the keys of values are derived. A seed is
//! requested once, not for each value; writes check the plugin's key.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use http_client::protocol::Http2Options;
use prost::Message;
use stdx::sync::{Mutex, RwLock};
use tokio::net::UnixStream;

use super::key::{self, CipherError};

/// How long the plugin is believed to use the same key.
const KEY_AGE: Duration = Duration::from_secs(60);
/// The maximum number of cached seeds of other writers.
const MAX_SEEDS: usize = 1000;
/// Upstream's limits on the parts of a response.
const MAX_PART_BYTES: usize = 32 << 10;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub healthz: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// The stored value after the prefix.
#[derive(Clone, PartialEq, Message)]
struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    encrypted_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    source_type: i32,
}

/// The source is a key itself, as the first releases of v2 wrote it, or a seed.
const SOURCE_KEY: i32 = 0;
const SOURCE_SEED: i32 = 1;

pub(crate) struct Kms {
    socket: PathBuf,
    timeout: Duration,
    writing: RwLock<Option<Arc<Seed>>>,
    /// Decrypted seeds, by their encrypted form.
    seeds: Mutex<HashMap<Vec<u8>, Arc<Vec<u8>>>>,
}

struct Seed {
    plain: Arc<Vec<u8>>,
    encrypted: Vec<u8>,
    key_id: String,
    annotations: BTreeMap<String, Vec<u8>>,
    checked: Instant,
}

impl Kms {
    pub(crate) fn new(socket: &Path, timeout: Duration) -> Kms {
        Kms { socket: socket.to_path_buf(), timeout, writing: RwLock::default(), seeds: Mutex::default() }
    }

    /// The plugin's key that values are written with at present.
    pub(crate) fn key_id(&self) -> String {
        self.current().map(|seed| seed.key_id.clone()).unwrap_or_default()
    }

    pub(crate) async fn seal(&self, plain: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, CipherError> {
        let seed = self.fresh_seed().await?;
        let object = EncryptedObject {
            encrypted_data: key::seal_derived(&seed.plain, plain, authenticated)?,
            key_id: seed.key_id.clone(),
            encrypted_source: seed.encrypted.clone(),
            annotations: seed.annotations.clone(),
            source_type: SOURCE_SEED,
        };
        Ok(object.encode_to_vec())
    }

    /// The value, and the plugin's key that it was written with.
    pub(crate) fn open(&self, sealed: &[u8], authenticated: &[u8]) -> Result<(Vec<u8>, String), CipherError> {
        let object =
            EncryptedObject::decode(sealed).map_err(|_| CipherError("the value is not an encrypted object".into()))?;
        let source = self.source(&object)?;
        let plain = match object.source_type {
            SOURCE_SEED => key::open_derived(&source, &object.encrypted_data, authenticated)?,
            SOURCE_KEY => key::open(key::Cipher::AesGcm, &source, &object.encrypted_data, authenticated)?,
            other => return Err(CipherError(format!("the value's key has an unknown type: {other}"))),
        };
        Ok((plain, object.key_id))
    }

    fn current(&self) -> Option<Arc<Seed>> {
        self.writing.read().clone()
    }

    /// The current seed, unless the plugin has another key by now.
    async fn fresh_seed(&self) -> Result<Arc<Seed>, CipherError> {
        let current = self.current();
        if let Some(seed) = current.as_ref().filter(|seed| seed.checked.elapsed() < KEY_AGE) {
            return Ok(seed.clone());
        }
        let status: StatusResponse = self.call("Status", StatusRequest {}).await?;
        if status.healthz != "ok" || status.key_id.is_empty() {
            return Err(CipherError("the KMS plugin is not healthy".to_string()));
        }
        let seed = match current.filter(|seed| seed.key_id == status.key_id) {
            Some(same) => Seed {
                plain: same.plain.clone(),
                encrypted: same.encrypted.clone(),
                key_id: same.key_id.clone(),
                annotations: same.annotations.clone(),
                checked: Instant::now(),
            },
            None => self.new_seed(status.key_id).await?,
        };
        let seed = Arc::new(seed);
        *self.writing.write() = Some(seed.clone());
        Ok(seed)
    }

    async fn new_seed(&self, key_id: String) -> Result<Seed, CipherError> {
        let plain = key::random::<32>()?.to_vec();
        let request = EncryptRequest { plaintext: plain.clone(), uid: crate::common::ids::uid().to_string() };
        let response: EncryptResponse = self.call("Encrypt", request).await?;
        let fits = |bytes: &[u8]| !bytes.is_empty() && bytes.len() <= MAX_PART_BYTES;
        if response.key_id != key_id || !fits(&response.ciphertext) {
            return Err(CipherError("the KMS plugin answered with another key, or with nothing".to_string()));
        }
        let plain = Arc::new(plain);
        self.keep(response.ciphertext.clone(), plain.clone());
        let (encrypted, annotations) = (response.ciphertext, response.annotations);
        Ok(Seed { plain, encrypted, key_id, annotations, checked: Instant::now() })
    }

    fn keep(&self, encrypted: Vec<u8>, plain: Arc<Vec<u8>>) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= MAX_SEEDS {
            seeds.clear();
        }
        seeds.insert(encrypted, plain);
    }

    /// Requests an unknown seed, which is necessary only for values of other servers.
    fn source(&self, object: &EncryptedObject) -> Result<Arc<Vec<u8>>, CipherError> {
        let known = self.seeds.lock().get(&object.encrypted_source).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let request = DecryptRequest {
            ciphertext: object.encrypted_source.clone(),
            uid: crate::common::ids::uid().to_string(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let response: DecryptResponse = self.call_and_block("Decrypt", request)?;
        if response.plaintext.len() < 32 {
            return Err(CipherError("the KMS plugin's response is too short for a key".to_string()));
        }
        let plain = Arc::new(response.plaintext);
        self.keep(object.encrypted_source.clone(), plain.clone());
        Ok(plain)
    }

    /// Readers of the store are synchronous: a separate thread sends the request.
    fn call_and_block<Q, A>(&self, method: &str, request: Q) -> Result<A, CipherError>
    where
        Q: Message,
        A: Message + Default,
    {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| CipherError(format!("the KMS plugin cannot be called: {error}")))?;
            runtime.block_on(self.call(method, request))
        };
        let joined = std::thread::scope(|scope| scope.spawn(run).join());
        joined.unwrap_or_else(|_| Err(CipherError("the call to the KMS plugin panicked".to_string())))
    }

    async fn call<Q: Message, A: Message + Default>(&self, method: &str, request: Q) -> Result<A, CipherError> {
        let call = unary(&self.socket, method, request.encode_to_vec());
        let response = match tokio::time::timeout(self.timeout, call).await {
            Ok(response) => response,
            Err(_) => Err(CallError::Timeout),
        };
        let decoded = response.and_then(|bytes| Ok(A::decode(bytes)?));
        decoded.map_err(|why| CipherError(format!("the KMS plugin at {}: {method}: {why}", self.socket.display())))
    }
}

/// Why a call of the plugin failed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the KMS plugin timed out")]
    Timeout,
    #[error(transparent)]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
    #[error("the response has no status")]
    NoStatus,
    #[error("code {code}: {message}")]
    Status { code: String, message: String },
    #[error("the response is not a valid message")]
    Frame,
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
}

/// One gRPC call: a framed message in each direction, and a status after the response.
async fn unary(socket: &Path, method: &str, message: Vec<u8>) -> Result<Bytes, CallError> {
    let stream = UnixStream::connect(socket).await?;
    let mut sender = http_client::handshake_http2(stream, Http2Options::default()).await?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/v2.KeyManagementService/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(framed(&message)))?;
    let response = sender.send_request(request).await?;
    let head = response.headers().clone();
    let body = http_body_util::Limited::new(response.into_body(), 8 * MAX_PART_BYTES).collect();
    let body = body.await?;
    check_status(body.trailers().unwrap_or(&head))?;
    let bytes = body.to_bytes();
    let length = bytes.get(1..5).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes).unwrap_or(0);
    if bytes.len() != length as usize + 5 || bytes[0] != 0 {
        return Err(CallError::Frame);
    }
    Ok(bytes.slice(5..))
}

pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(message);
    frame.freeze()
}

fn check_status(headers: &http::HeaderMap) -> Result<(), CallError> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    match value("grpc-status") {
        "0" => Ok(()),
        "" => Err(CallError::NoStatus),
        code => Err(CallError::Status { code: code.to_string(), message: value("grpc-message").to_string() }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn statuses_are_read() {
        let mut headers = http::HeaderMap::new();
        assert!(check_status(&headers).is_err());
        headers.insert("grpc-status", "0".parse().expect("a value"));
        assert!(check_status(&headers).is_ok());
        headers.insert("grpc-status", "14".parse().expect("a value"));
        assert!(check_status(&headers).is_err_and(|why| matches!(why, CallError::Status { code, .. } if code == "14")));
    }
}
