//! A client of registries, for one repository and one credential.
//!
//! A credential is shown to the registry itself and to whom it names for tokens, and only when it asks; never to a
//! mirror, and never to where it redirects to.

pub mod auth;
mod download;
pub mod hosts;
pub mod http;
pub mod proxy;
pub mod push;
mod tls;
mod token;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ::http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use ::http::{Method, StatusCode};
use rustls::ClientConfig;
use serde::Deserialize;
use stdx::sync::Mutex;

use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::{DOCKER_LIST, DOCKER_MANIFEST, MOST_BYTES, OCI_INDEX, OCI_MANIFEST};
use super::reference::{Reference, Version};
use super::store::check;
use auth::{Credentials, challenge, encode};
use hosts::Host;
use http::{Body, HttpError, Pool, Reply, Target, Timeouts};
use proxy::Proxies;

pub use download::{Download, download};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const MOST_REDIRECTS: usize = 10;

pub struct Client {
    registry: String,
    repository: String,
    hosts: Vec<Endpoint>,
    credentials: Option<Credentials>,
    /// What a client may do with the token that it asks for.
    actions: &'static str,
    pool: Pool,
}

/// What an endpoint speaks: what its address says, plain HTTP, or one of them, plain HTTP to be tried first.
const AS_CONFIGURED: u8 = 0;
const PLAIN: u8 = 1;
const UNKNOWN: u8 = 2;

struct Endpoint {
    host: Host,
    tls: Arc<ClientConfig>,
    /// For where it redirects to: the same authorities, but no certificate of ours is shown.
    other_tls: Arc<ClientConfig>,
    /// What it speaks, where that had to be found out.
    speech: AtomicU8,
    /// The answer to its last challenge.
    authorization: Mutex<Option<HeaderValue>>,
}

impl Endpoint {
    fn new(host: Host) -> Result<Endpoint> {
        let tls = tls::config(&host)?;
        let other_tls = match host.identity {
            Some(_) => tls::config(&Host { identity: None, ..host.clone() })?,
            None => tls.clone(),
        };
        let speech = AtomicU8::new(if host.either { UNKNOWN } else { AS_CONFIGURED });
        Ok(Endpoint { host, tls, other_tls, speech, authorization: Mutex::default() })
    }

    fn target(&self) -> Target {
        match self.speech.load(Ordering::Relaxed) {
            AS_CONFIGURED => self.host.target.clone(),
            _ => self.host.target.plain(),
        }
    }

    fn name(&self) -> String {
        self.target().authority()
    }
}

/// Why somebody without a credential is refused.
const ASKS: &str = "it asks for a name and a password";

/// What is asked of a registry.
struct Ask<'a> {
    method: Method,
    /// What follows the repository's name.
    path: &'a str,
    headers: HeaderMap,
    body: Option<&'a (dyn Fn() -> Body + Send + Sync)>,
}

impl Ask<'_> {
    fn get(path: &str) -> Ask<'_> {
        Ask { method: Method::GET, path, headers: HeaderMap::new(), body: None }
    }
}

impl Client {
    pub fn new(
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

    /// A manifest or a list, with its digest; from the first place that has it.
    pub async fn manifest(&self, version: &Version) -> Result<(Digest, Vec<u8>)> {
        let mut failure = None;
        for endpoint in &self.hosts {
            let able = match version {
                Version::Tag(_) => endpoint.host.resolve,
                Version::Digest(_) => endpoint.host.pull,
            };
            if !able {
                continue;
            }
            match self.manifest_from(endpoint, version).await {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::debug!(host = endpoint.name(), error = error.chain(), "has no manifest for us");
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| self.nobody()))
    }

    fn nobody(&self) -> Error {
        Error::Registry { host: self.registry.clone(), why: "no host is configured to be asked for this".to_owned() }
    }

    async fn manifest_from(&self, endpoint: &Endpoint, version: &Version) -> Result<(Digest, Vec<u8>)> {
        let version_text = match version {
            Version::Tag(tag) => tag.as_str(),
            Version::Digest(digest) => digest.as_str(),
        };
        let path = format!("manifests/{version_text}");
        let mut ask = Ask::get(&path);
        for accepted in [OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST] {
            ask.headers.append(ACCEPT, HeaderValue::from_static(accepted));
        }
        let reply = self.ask_patiently(endpoint, &ask).await?;
        let mark = if matches!(version, Version::Tag(_)) { ':' } else { '@' };
        let what = format!("{}/{}{mark}{version_text}", self.registry, self.repository);
        let reply = successful(endpoint, &what, reply).await?;
        let stated = reply.header(&CONTENT_DIGEST).and_then(|text| Digest::parse(text).ok());
        let bytes = reply.bytes(MOST_BYTES).await.map_err(|error| unreachable(endpoint, &error))?;
        let bytes = bytes.ok_or_else(|| wrong(endpoint, format!("its manifest is longer than {MOST_BYTES} bytes")))?;
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

    /// Asks again a few times where it may help.
    async fn ask_patiently(&self, endpoint: &Endpoint, ask: &Ask<'_>) -> Result<Reply> {
        let mut pause = self.pool.timeouts().retry;
        for _ in 0..3 {
            match self.ask(endpoint, ask).await {
                Ok(reply) if !is_overloaded(reply.status) => return Ok(reply),
                Ok(reply) => reply.discard().await,
                Err(Error::Unreachable { .. }) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.ask(endpoint, ask).await
    }

    /// One question, with the credential if it is asked for, and over redirects.
    async fn ask(&self, endpoint: &Endpoint, ask: &Ask<'_>) -> Result<Reply> {
        // A mirror of many registries has to know which one is meant.
        let namespace = if endpoint.host.origin { String::new() } else { format!("?ns={}", encode(&self.registry)) };
        let path = format!("{}/{}/{}{namespace}", endpoint.host.path, self.repository, ask.path);
        let reply = self.send(endpoint, ask, &path).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return self.follow(endpoint, ask, &path, reply).await;
        }
        let values = reply.headers.get_all(WWW_AUTHENTICATE);
        let wanted = challenge(values.iter().filter_map(|value| value.to_str().ok()));
        reply.discard().await;
        let answer = self.answer(endpoint, wanted).await?;
        *endpoint.authorization.lock() = Some(answer);
        let reply = self.send(endpoint, ask, &path).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            let why = if self.credentials.is_some() { "the name, password or token is wrong" } else { ASKS };
            return Err(denied(endpoint, &self.repository, &format!("{why} ({})", said(reply).await)));
        }
        self.follow(endpoint, ask, &path, reply).await
    }

    /// Sends to the endpoint itself, with what it may see.
    async fn send(&self, endpoint: &Endpoint, ask: &Ask<'_>, path: &str) -> Result<Reply> {
        let mut headers = ask.headers.clone();
        for (name, value) in &endpoint.host.headers {
            let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            let (Ok(name), Ok(value)) = pair else {
                return Err(wrong(endpoint, format!("the configured header {name:?} is no header")));
            };
            headers.append(name, value);
        }
        let known = endpoint.authorization.lock().clone();
        if let Some(authorization) = known {
            headers.insert(AUTHORIZATION, authorization);
        }
        let send = || async {
            let body = ask.body.map(|body| body());
            self.pool.send(&endpoint.target(), &endpoint.tls, ask.method.clone(), path, &headers, body).await
        };
        let sent = send().await;
        let sent = match endpoint.speech.load(Ordering::Relaxed) {
            UNKNOWN if !is_plain(&sent) => {
                endpoint.speech.store(AS_CONFIGURED, Ordering::Relaxed);
                match send().await {
                    Err(HttpError::NotTls) => {
                        endpoint.speech.store(PLAIN, Ordering::Relaxed);
                        sent
                    }
                    other => other,
                }
            }
            UNKNOWN => {
                endpoint.speech.store(PLAIN, Ordering::Relaxed);
                sent
            }
            _ => sent,
        };
        sent.map_err(|error| unreachable(endpoint, &error))
    }

    /// Goes where a registry points to, as a stranger: most keep their blobs at somebody else's.
    async fn follow(&self, endpoint: &Endpoint, ask: &Ask<'_>, path: &str, mut reply: Reply) -> Result<Reply> {
        let (own, mut path) = (endpoint.target(), path.to_owned());
        let mut target = own.clone();
        for _ in 0..MOST_REDIRECTS {
            let Some(location) = redirect(&reply).filter(|_| ask.method == Method::GET) else { return Ok(reply) };
            let next = resolve(&target, &path, &location).map_err(|why| wrong(endpoint, why))?;
            if target.tls && !next.0.tls {
                return Err(wrong(endpoint, format!("redirects from TLS to {}", next.0)));
            }
            reply.discard().await;
            (target, path) = next;
            reply = if target == own {
                self.send(endpoint, ask, &path).await?
            } else {
                let sent = self.pool.send(&target, &endpoint.other_tls, Method::GET, &path, &ask.headers, None).await;
                sent.map_err(|error| Error::Unreachable { host: target.authority(), why: error.to_string() })?
            };
        }
        Err(wrong(endpoint, format!("redirects more than {MOST_REDIRECTS} times")))
    }
}

/// Whether a first answer is one of plain HTTP: a server that wants TLS breaks off, or says that it is a bad request.
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

/// A location may be a whole address, or relative to where it was found.
fn resolve(from: &Target, path: &str, location: &str) -> Result<(Target, String), String> {
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
    Target::with_path(&whole).map_err(|why| format!("its redirect {location:?} {why}"))
}

fn is_overloaded(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

async fn successful(endpoint: &Endpoint, what: &str, reply: Reply) -> Result<Reply> {
    let status = reply.status;
    if status.is_success() {
        return Ok(reply);
    }
    let said = said(reply).await;
    Err(match status {
        StatusCode::NOT_FOUND => Error::Missing { host: endpoint.name(), what: what.to_owned() },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => denied(endpoint, what, &said),
        _ if is_overloaded(status) => Error::Unreachable { host: endpoint.name(), why: said },
        _ => wrong(endpoint, said),
    })
}

/// What a registry says of its refusal: the status, and the first message of its errors.
async fn said(reply: Reply) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
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

fn wrong(endpoint: &Endpoint, why: String) -> Error {
    Error::Registry { host: endpoint.name(), why }
}

fn unreachable(endpoint: &Endpoint, error: &HttpError) -> Error {
    match error.is_passing() {
        true => Error::Unreachable { host: endpoint.name(), why: error.to_string() },
        false => wrong(endpoint, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved() {
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
