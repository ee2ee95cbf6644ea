//! A bucket of an S3-compatible service. Objects are addressed by path, which all services support; large files are
//! uploaded in parts. What was uploaded is read back and compared.

mod credentials;
mod signature;
mod xml;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::query::percent_encode;
use api::time::Timestamp;
use aws_lc_rs::digest::{Context, SHA256, digest};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use http_client::{Address, Trust};
use rustls::ClientConfig;

use super::{Settings, retention};
use crate::error::{Error, Result};
use credentials::Credentials;
use signature::{SignedRequest, encode_key};

const REGION: &str = "us-east-1";
/// Smaller files are uploaded by one request. A part must have at least 5 MiB.
const PART: usize = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(300);
/// The size of responses other than objects.
const MAX_RESPONSE: usize = 4 << 20;
/// Each has up to 1000 names.
const MAX_PAGES: usize = 100;

/// Why a request to the service failed. Credentials are in no text.
#[derive(Debug, thiserror::Error)]
pub(super) enum S3Error {
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialsError),
    #[error("cannot connect to {0}")]
    Connect(String, #[source] http_client::ConnectError),
    #[error("request to {0} failed")]
    Request(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{what}: {url} responded with {code}: {message}")]
    Response { what: &'static str, url: String, code: u16, message: String },
    #[error("cannot read {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    #[error("the object {0} differs from what was uploaded, and was removed")]
    Differs(String),
    #[error("request to {url} took longer than {} s", TIMEOUT.as_secs())]
    Timeout { url: String },
}

/// Where snapshots are uploaded.
pub(super) struct Bucket {
    address: Address,
    /// The Host header.
    host: String,
    bucket: String,
    /// Empty, or ends with a slash.
    prefix: String,
    region: String,
    credentials_file: Option<PathBuf>,
    tls: Arc<ClientConfig>,
}

/// A request without its signature.
struct Call<'a> {
    what: &'static str,
    method: Method,
    key: &'a str,
    query: Vec<(&'a str, String)>,
    body: Bytes,
}

impl Bucket {
    /// `path` is `BUCKET/PREFIX`.
    pub(super) fn new(path: &str, settings: &Settings) -> Result<Bucket> {
        let refuse = |why: String| Error::Flags(vec![why]);
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if bucket.len() < 3 || !bucket.bytes().all(is_valid) {
            return Err(refuse(format!("--snapshot-dir: {bucket:?} is no name of a bucket")));
        }
        let region = settings.s3_region.clone().unwrap_or_else(|| REGION.to_string());
        let usual = format!("https://s3.{region}.amazonaws.com");
        let endpoint = settings.s3_endpoint.as_deref().unwrap_or(&usual);
        let wrong = || refuse(format!("--snapshot-s3-endpoint: {endpoint:?} must be http(s)://HOST[:PORT]"));
        let url: http::Uri = endpoint.parse().map_err(|_| wrong())?;
        let is_tls = url.scheme_str() == Some("https");
        let host = url.host().filter(|_| url.scheme().is_some() && url.path().len() <= 1).ok_or_else(wrong)?;
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let trust = match &settings.s3_ca_file {
            None => Trust::System,
            Some(path) => {
                let pem = std::fs::read(path).map_err(Error::file(path))?;
                Trust::pem(&pem).map_err(|source| Error::Pem { path: path.clone(), source: source.into() })?
            }
        };
        let prefix = prefix.trim_matches('/');
        Ok(Bucket {
            address: Address::new(is_tls, host.trim_matches(['[', ']']), port),
            host: url.authority().map(ToString::to_string).unwrap_or_default(),
            bucket: bucket.to_string(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            region,
            credentials_file: settings.s3_credentials_file.clone(),
            tls: Arc::new(http_client::tls::config(&trust, None, &[http_client::tls::HTTP1])?),
        })
    }

    /// Uploads a file, reads it back, and removes it if it differs.
    pub(super) async fn upload(&self, name: &str, path: &Path) -> std::result::Result<(), S3Error> {
        let key = format!("{}{name}", self.prefix);
        let mut file = Parts::open(path)?;
        if file.size <= PART as u64 {
            let body = file.next()?.unwrap_or_default();
            self.send(Call { what: "upload", method: Method::PUT, key: &key, query: Vec::new(), body }).await?;
        } else {
            self.upload_parts(&key, &mut file).await?;
        }
        if self.hash(&key).await? != file.hash.finish().as_ref() {
            self.delete(&key).await?;
            return Err(S3Error::Differs(key));
        }
        Ok(())
    }

    async fn upload_parts(&self, key: &str, file: &mut Parts) -> std::result::Result<(), S3Error> {
        let query = vec![("uploads", String::new())];
        let create = Call { what: "create upload", method: Method::POST, key, query, body: Bytes::new() };
        let (_, created) = self.send(create).await?;
        let id = xml::values(&created, "UploadId").into_iter().next().unwrap_or_default();
        let done = self.upload_all(key, &id, file).await;
        if done.is_err() {
            // Incomplete uploads cost space; the error is that of the upload.
            let query = vec![("uploadId", id)];
            let abort = Call { what: "abort upload", method: Method::DELETE, key, query, body: Bytes::new() };
            let _ = self.send(abort).await;
        }
        done
    }

    async fn upload_all(&self, key: &str, id: &str, file: &mut Parts) -> std::result::Result<(), S3Error> {
        let (mut number, mut parts) = (0, String::new());
        while let Some(body) = file.next()? {
            number += 1;
            let query = vec![("partNumber", number.to_string()), ("uploadId", id.to_string())];
            let call = Call { what: "upload part", method: Method::PUT, key, query, body };
            let (head, _) = self.send(call).await?;
            let tag = head.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default();
            parts.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", xml::escape(tag)));
        }
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").into();
        let query = vec![("uploadId", id.to_string())];
        let what = "complete upload";
        let (_, completed) = self.send(Call { what, method: Method::POST, key, query, body }).await?;
        // This response may be 200 and have an error.
        match xml::values(&completed, "Code").into_iter().next() {
            None => Ok(()),
            Some(message) => Err(S3Error::Response { what, url: self.url(key), code: 200, message }),
        }
    }

    /// Removes all but the newest snapshots below the prefix.
    pub(super) async fn remove_oldest(&self, retention: usize) -> std::result::Result<(), S3Error> {
        let keys = self.list().await?;
        let names: Vec<String> =
            keys.iter().filter_map(|key| key.strip_prefix(&self.prefix)).map(str::to_string).collect();
        for name in retention::expired(&names, retention) {
            self.delete(&format!("{}{name}", self.prefix)).await?;
        }
        Ok(())
    }

    async fn list(&self) -> std::result::Result<Vec<String>, S3Error> {
        let (mut keys, mut token) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let mut query = vec![("list-type", "2".to_string()), ("prefix", self.prefix.clone())];
            query.extend(token.take().map(|token| ("continuation-token", token)));
            query.sort();
            let call = Call { what: "list", method: Method::GET, key: "", query, body: Bytes::new() };
            let (_, page) = self.send(call).await?;
            keys.extend(xml::values(&page, "Key"));
            token = xml::values(&page, "NextContinuationToken").into_iter().next();
            if token.is_none() {
                break;
            }
        }
        Ok(keys)
    }

    async fn delete(&self, key: &str) -> std::result::Result<(), S3Error> {
        let call = Call { what: "delete", method: Method::DELETE, key, query: Vec::new(), body: Bytes::new() };
        self.send(call).await.map(|_| ())
    }

    /// The SHA-256 of an object as the service has it.
    async fn hash(&self, key: &str) -> std::result::Result<Vec<u8>, S3Error> {
        let call = Call { what: "read back", method: Method::GET, key, query: Vec::new(), body: Bytes::new() };
        let read = async {
            let mut response = self.respond(call).await?;
            let mut hash = Context::new(&SHA256);
            while let Some(frame) = response.body_mut().frame().await {
                let frame = frame.map_err(|error| S3Error::Request(self.url(key), error.into()))?;
                frame.data_ref().into_iter().for_each(|data| hash.update(data));
            }
            Ok(hash.finish().as_ref().to_vec())
        };
        tokio::time::timeout(TIMEOUT, read).await.map_err(|_| S3Error::Timeout { url: self.url(key) })?
    }

    async fn send(&self, call: Call<'_>) -> std::result::Result<(Response<()>, String), S3Error> {
        let url = self.url(call.key);
        let send = async {
            let (head, body) = self.respond(call).await?.into_parts();
            let read = http_client::body::read(body, MAX_RESPONSE).await;
            let body = read.map_err(|error| S3Error::Request(url.clone(), error.into()))?;
            Ok((Response::from_parts(head, ()), String::from_utf8_lossy(&body).into_owned()))
        };
        tokio::time::timeout(TIMEOUT, send).await.map_err(|_| S3Error::Timeout { url: url.clone() })?
    }

    /// A successful response.
    async fn respond(&self, call: Call<'_>) -> std::result::Result<Response<hyper::body::Incoming>, S3Error> {
        let (url, what) = (self.url(call.key), call.what);
        let credentials = Credentials::read(self.credentials_file.as_deref())?;
        let request = self.signed(call, &credentials);
        let stream = http_client::connect(&self.address, &self.tls).await;
        let stream = stream.map_err(|error| S3Error::Connect(self.host.clone(), error))?;
        let response = http_client::send_once(stream, request).await;
        let response = response.map_err(|error| S3Error::Request(url.clone(), error.into()))?;
        let code = response.status();
        let is_done = code.is_success() || (code == StatusCode::NOT_FOUND && what == "delete");
        if is_done {
            return Ok(response);
        }
        let body = http_client::body::read_start(response.into_body(), 4096).await;
        let text = String::from_utf8_lossy(&body);
        let message = ["Code", "Message"].iter().flat_map(|tag| xml::values(&text, tag)).collect::<Vec<_>>().join(": ");
        Err(S3Error::Response { what, url, code: code.as_u16(), message })
    }

    fn signed(&self, call: Call<'_>, credentials: &Credentials) -> Request<Full<Bytes>> {
        let (path, method) = (self.path(call.key), call.method.clone());
        let query: Vec<String> =
            call.query.iter().map(|(name, text)| format!("{name}={}", percent_encode(text))).collect();
        let query = query.join("&");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let body_hash = signature::hex(digest(&SHA256, &call.body).as_ref());
        let signed = SignedRequest {
            method: method.as_str(),
            host: &self.host,
            path: &path,
            query: &query,
            body_hash: &body_hash,
            region: &self.region,
            now: Timestamp { seconds: i64::try_from(now).unwrap_or_default(), nanos: 0 },
        };
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        // The path is percent-encoded: it always parses.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        for (name, value) in signed.headers(credentials) {
            let mut value = http::HeaderValue::from_str(&value).unwrap_or_else(|_| http::HeaderValue::from_static(""));
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        request
    }

    fn path(&self, key: &str) -> String {
        format!("/{}/{}", self.bucket, encode_key(key)).trim_end_matches('/').to_string()
    }

    fn url(&self, key: &str) -> String {
        format!("{}://{}{}", if self.address.tls { "https" } else { "http" }, self.host, self.path(key))
    }
}

/// A file that is read in parts.
struct Parts {
    path: PathBuf,
    file: File,
    size: u64,
    hash: Context,
}

impl Parts {
    fn open(path: &Path) -> std::result::Result<Parts, S3Error> {
        let failed = |error| S3Error::File(path.to_path_buf(), error);
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Ok(Parts { path: path.to_path_buf(), file, size, hash: Context::new(&SHA256) })
    }

    fn next(&mut self) -> std::result::Result<Option<Bytes>, S3Error> {
        let mut part = Vec::new();
        let read = (&mut self.file).take(PART as u64).read_to_end(&mut part);
        read.map_err(|error| S3Error::File(self.path.clone(), error))?;
        self.hash.update(&part);
        Ok((!part.is_empty()).then(|| part.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_endpoints_are_checked() {
        let bucket = |path: &str, endpoint: &str| {
            let settings = Settings { s3_endpoint: Some(endpoint.to_string()), ..Settings::default() };
            Bucket::new(path, &settings).map(|bucket| bucket.url("a b")).map_err(|error| error.describe())
        };
        assert_eq!(bucket("backups", "http://127.0.0.1:5000"), Ok("http://127.0.0.1:5000/backups/a%20b".to_string()));
        assert_eq!(
            bucket("backups/x", "https://s3.example.com/"),
            Ok("https://s3.example.com/backups/a%20b".to_string())
        );
        for (path, endpoint) in [("", "http://a"), ("No", "http://a"), ("abc", "a"), ("abc", "http://a/b"), ("abc", "")]
        {
            assert!(bucket(path, endpoint).is_err(), "{path} {endpoint}");
        }
    }
}
