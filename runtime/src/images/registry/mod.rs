//! A registry client for one repository and one credential.
//!
//! Credentials are only sent to the registry itself and to its token server, and only after a challenge: never to a
//! mirror, and never to the target of a redirect.

pub(crate) mod auth;
mod download;
pub(crate) mod hosts;
pub(crate) mod http;
pub(crate) mod proxy;
pub(crate) mod push;
mod tls;
mod token;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ::http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use ::http::{Method, StatusCode};
use rustls::ClientConfig;
use serde::Deserialize;
use stdx::backoff::Backoff;
use stdx::sync::Mutex;

use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::{DOCKER_LIST, DOCKER_MANIFEST, MAX_BYTES, OCI_INDEX, OCI_MANIFEST};
use super::reference::{Reference, Version};
use super::store::check;
use auth::{Credentials, challenge, encode};
use hosts::Host;
use http::{Body, HttpError, Pool, Reply, Target, Timeouts};
use proxy::Proxies;

pub(crate) use download::{Download, download};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const MAX_REDIRECTS: usize = 10;

pub(crate) struct Client {
    registry: String,
    repository: String,
    hosts: Vec<Endpoint>,
    credentials: Option<Credentials>,
    /// The actions of the requested token.
    actions: &'static str,
    pool: Pool,
}

/// The protocol of an endpoint: as configured, plain HTTP, or still unknown, in which case plain HTTP is tried first.
const AS_CONFIGURED: u8 = 0;
const PLAIN: u8 = 1;
const UNKNOWN: u8 = 2;

struct Endpoint {
    host: Host,
    tls: Arc<ClientConfig>,
    /// For redirects: the same CAs, but without the client certificate.
    other_tls: Arc<ClientConfig>,
    /// The protocol, if it had to be detected.
    protocol: AtomicU8,
    /// The response to the last challenge.
    authorization: Mutex<Option<HeaderValue>>,
}

impl Endpoint {
    fn new(host: Host) -> Result<Endpoint> {
        let tls = tls::config(&host)?;
        let other_tls = match host.identity {
            Some(_) => tls::config(&Host { identity: None, ..host.clone() })?,
            None => tls.clone(),
        };
        let protocol = AtomicU8::new(if host.detect_protocol { UNKNOWN } else { AS_CONFIGURED });
        Ok(Endpoint { host, tls, other_tls, protocol, authorization: Mutex::default() })
    }

    fn target(&self) -> Target {
        match self.protocol.load(Ordering::Relaxed) {
            AS_CONFIGURED => self.host.target.clone(),
            _ => self.host.target.plain(),
        }
    }

    fn name(&self) -> String {
        self.target().authority()
    }
}

/// Why a request without credentials is denied.
const CREDENTIALS_REQUIRED: &str = "credentials are required";

/// A request to a registry.
struct RegistryRequest<'a> {
    method: Method,
    /// The path after the repository's name.
    path: &'a str,
    headers: HeaderMap,
    body: Option<&'a (dyn Fn() -> Body + Send + Sync)>,
}

impl RegistryRequest<'_> {
    fn get(path: &str) -> RegistryRequest<'_> {
        RegistryRequest { method: Method::GET, path, headers: HeaderMap::new(), body: None }
    }
}

impl Client {
    pub(crate) fn new(
        reference: &Reference,
        credentials: Option<Credentials>,
        directories: &[PathBuf],
        timeouts: Timeouts,
        proxies: Proxies,
    ) -> Result<Client> {
        let hosts = hosts::hosts(&reference.registry, directories)?;
        let mine = |credentials: &Credentials| !credentials.is_empty() && credentials.is_for(&reference.registry);
        Ok(Client {
            registry: reference.registry.clone(),
            repository: reference.repository.clone(),
            hosts: hosts.into_iter().map(Endpoint::new).collect::<Result<_>>()?,
            credentials: credentials.filter(mine),
            actions: "pull",
            pool: Pool::new(timeouts, proxies),
        })
    }

    /// A manifest or an index, with its digest, from the first host that has it.
    pub(crate) async fn manifest(&self, version: &Version) -> Result<(Digest, Vec<u8>)> {
        let mut failure = None;
        for endpoint in &self.hosts {
            let eligible = match version {
                Version::Tag(_) => endpoint.host.resolve,
                Version::Digest(_) => endpoint.host.pull,
            };
            if !eligible {
                continue;
            }
            match self.manifest_from(endpoint, version).await {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::debug!(host = endpoint.name(), error = error.chain(), "failed to get the manifest");
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| self.no_host()))
    }

    fn no_host(&self) -> Error {
        Error::Registry { host: self.registry.clone(), why: "no host is configured for this request".to_owned() }
    }

    async fn manifest_from(&self, endpoint: &Endpoint, version: &Version) -> Result<(Digest, Vec<u8>)> {
        let version_text = match version {
            Version::Tag(tag) => tag.as_str(),
            Version::Digest(digest) => digest.as_str(),
        };
        let path = format!("manifests/{version_text}");
        let mut request = RegistryRequest::get(&path);
        for accepted in [OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST] {
            request.headers.append(ACCEPT, HeaderValue::from_static(accepted));
        }
        let reply = self.request_with_retries(endpoint, &request).await?;
        let mark = if matches!(version, Version::Tag(_)) { ':' } else { '@' };
        let what = format!("{}/{}{mark}{version_text}", self.registry, self.repository);
        let reply = successful(endpoint, &what, reply).await?;
        let stated = reply.header(&CONTENT_DIGEST).and_then(|text| Digest::parse(text).ok());
        let bytes = reply.bytes(MAX_BYTES).await.map_err(|error| unreachable(endpoint, &error))?;
        let bytes =
            bytes.ok_or_else(|| registry_error(endpoint, format!("the manifest is larger than {MAX_BYTES} bytes")))?;
        let expected = match version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => stated.as_ref(),
        };
        let mut hasher = expected.map_or_else(super::digest::Hasher::sha256, Digest::hasher);
        hasher.update(&bytes);
        let found = hasher.finish();
        if let Some(expected) = expected {
            check(&format!("the manifest of {what}"), expected, found.clone())?;
        }
        Ok((found, bytes))
    }

    /// Sends a request with a few retries.
    async fn request_with_retries(&self, endpoint: &Endpoint, request: &RegistryRequest<'_>) -> Result<Reply> {
        let mut backoff = Backoff::new(self.pool.timeouts().retry, Duration::MAX);
        for _ in 0..3 {
            match self.request(endpoint, request).await {
                Ok(reply) if !is_overloaded(reply.status) => return Ok(reply),
                Ok(reply) => reply.discard().await,
                Err(Error::Unreachable { .. }) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
        self.request(endpoint, request).await
    }

    /// Sends a request, authenticates after a challenge, and follows redirects.
    async fn request(&self, endpoint: &Endpoint, request: &RegistryRequest<'_>) -> Result<Reply> {
        // A mirror of several registries needs to know the registry.
        let namespace = if endpoint.host.origin { String::new() } else { format!("?ns={}", encode(&self.registry)) };
        let path = format!("{}/{}/{}{namespace}", endpoint.host.path, self.repository, request.path);
        let reply = self.send(endpoint, request, &path).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return self.follow(endpoint, request, &path, reply).await;
        }
        let values = reply.headers.get_all(WWW_AUTHENTICATE);
        let wanted = challenge(values.iter().filter_map(|value| value.to_str().ok()));
        reply.discard().await;
        let header = self.authorize(endpoint, wanted).await?;
        *endpoint.authorization.lock() = Some(header);
        let reply = self.send(endpoint, request, &path).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            let why =
                if self.credentials.is_some() { "invalid user name, password or token" } else { CREDENTIALS_REQUIRED };
            return Err(denied(endpoint, &self.repository, &format!("{why} ({})", error_message(reply).await)));
        }
        self.follow(endpoint, request, &path, reply).await
    }

    /// Sends a request to the endpoint itself, with its headers and authorization.
    async fn send(&self, endpoint: &Endpoint, request: &RegistryRequest<'_>, path: &str) -> Result<Reply> {
        let mut headers = request.headers.clone();
        for (name, value) in &endpoint.host.headers {
            let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            let (Ok(name), Ok(value)) = pair else {
                return Err(registry_error(endpoint, format!("the configured header {name:?} is invalid")));
            };
            headers.append(name, value);
        }
        let known = endpoint.authorization.lock().clone();
        if let Some(authorization) = known {
            headers.insert(AUTHORIZATION, authorization);
        }
        let send = || async {
            let body = request.body.map(|body| body());
            self.pool.send(&endpoint.target(), &endpoint.tls, request.method.clone(), path, &headers, body).await
        };
        let sent = send().await;
        let sent = match endpoint.protocol.load(Ordering::Relaxed) {
            UNKNOWN if !is_plain(&sent) => {
                endpoint.protocol.store(AS_CONFIGURED, Ordering::Relaxed);
                match send().await {
                    Err(HttpError::NotTls) => {
                        endpoint.protocol.store(PLAIN, Ordering::Relaxed);
                        sent
                    }
                    other => other,
                }
            }
            UNKNOWN => {
                endpoint.protocol.store(PLAIN, Ordering::Relaxed);
                sent
            }
            _ => sent,
        };
        sent.map_err(|error| unreachable(endpoint, &error))
    }

    /// Follows redirects without credentials: many registries keep their blobs elsewhere.
    async fn follow(
        &self,
        endpoint: &Endpoint,
        request: &RegistryRequest<'_>,
        path: &str,
        mut reply: Reply,
    ) -> Result<Reply> {
        let (own, mut path) = (endpoint.target(), path.to_owned());
        let mut target = own.clone();
        for _ in 0..MAX_REDIRECTS {
            let Some(location) = redirect(&reply).filter(|_| request.method == Method::GET) else { return Ok(reply) };
            let next =
                resolve(&target, &path, &location).map_err(|error| registry_error(endpoint, error.to_string()))?;
            if target.tls && !next.0.tls {
                return Err(registry_error(endpoint, format!("redirected from TLS to {}", next.0)));
            }
            reply.discard().await;
            (target, path) = next;
            reply = if target == own {
                self.send(endpoint, request, &path).await?
            } else {
                let sent =
                    self.pool.send(&target, &endpoint.other_tls, Method::GET, &path, &request.headers, None).await;
                sent.map_err(|error| Error::Unreachable { host: target.authority(), why: error.to_string() })?
            };
        }
        Err(registry_error(endpoint, format!("redirected more than {MAX_REDIRECTS} times")))
    }
}

/// Whether the first response came over plain HTTP: a TLS server closes the connection, or responds 400.
fn is_plain(sent: &Result<Reply, HttpError>) -> bool {
    match sent {
        Ok(reply) => reply.status != StatusCode::BAD_REQUEST,
        Err(HttpError::Broken(_)) => false,
        Err(_) => true,
    }
}

fn redirect(reply: &Reply) -> Option<String> {
    let redirects = matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    redirects.then(|| reply.header(&LOCATION).map(str::to_owned)).flatten()
}

/// A redirect that cannot be followed.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the redirect to {location:?} {why}")]
struct RedirectError {
    location: String,
    why: String,
}

/// Resolves a location, which may be absolute or relative.
fn resolve(from: &Target, path: &str, location: &str) -> Result<(Target, String), RedirectError> {
    let whole = if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", if from.tls { "https" } else { "http" })
    } else if location.starts_with('/') {
        format!("{from}{location}")
    } else {
        let directory =
            path.split('?').next().unwrap_or_default().rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{from}{directory}/{location}")
    };
    Target::with_path(&whole).map_err(|why| RedirectError { location: location.to_owned(), why: why.to_string() })
}

fn is_overloaded(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

async fn successful(endpoint: &Endpoint, what: &str, reply: Reply) -> Result<Reply> {
    let status = reply.status;
    if status.is_success() {
        return Ok(reply);
    }
    let message = error_message(reply).await;
    Err(match status {
        StatusCode::NOT_FOUND => Error::Missing { host: endpoint.name(), what: what.to_owned() },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => denied(endpoint, what, &message),
        _ if is_overloaded(status) => Error::Unreachable { host: endpoint.name(), why: message },
        _ => registry_error(endpoint, message),
    })
}

/// The message of an error response: the status, and the first error of the body.
async fn error_message(reply: Reply) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<RegistryError>,
    }
    #[derive(Deserialize)]
    struct RegistryError {
        #[serde(default)]
        message: String,
    }
    let status = reply.status;
    let bytes = reply.bytes(64 << 10).await.ok().flatten().unwrap_or_default();
    let first = serde_json::from_slice::<Errors>(&bytes).ok().and_then(|all| all.errors.into_iter().next());
    match first.filter(|one| !one.message.is_empty()) {
        Some(one) => {
            format!("{status}: {}", one.message.chars().take(300).flat_map(char::escape_debug).collect::<String>())
        }
        None => status.to_string(),
    }
}

fn denied(endpoint: &Endpoint, what: &str, why: &str) -> Error {
    Error::Denied { host: endpoint.name(), what: what.to_owned(), why: why.to_owned() }
}

fn registry_error(endpoint: &Endpoint, why: String) -> Error {
    Error::Registry { host: endpoint.name(), why }
}

fn unreachable(endpoint: &Endpoint, error: &HttpError) -> Error {
    match error.is_transient() {
        true => Error::Unreachable { host: endpoint.name(), why: error.to_string() },
        false => registry_error(endpoint, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_locations() {
        let from = Target::parse("https://r.example:5000").unwrap();
        let cases = [
            ("https://cdn.example/x?sig=1", Ok("https://cdn.example/x?sig=1")),
            ("//cdn.example/x", Ok("https://cdn.example/x")),
            ("/v2/other", Ok("https://r.example:5000/v2/other")),
            ("other", Ok("https://r.example:5000/v2/a/blobs/other")),
            ("ftp://x/y", Err(())),
            ("http://user@x/", Err(())),
        ];
        for (location, expected) in cases {
            let found = resolve(&from, "/v2/a/blobs/b?ns=x", location).map(|(target, path)| format!("{target}{path}"));
            assert_eq!(found.as_deref().map_err(|_| ()), expected, "{location}");
        }
    }
}
