//! Requests to the server: connections directly or through proxies, credentials, impersonation, retries, compression,
//! the request log and warnings.

mod credentials;
mod dial;
mod gzip;
mod log;
mod oidc;
mod plugin;
mod policy;
mod proxy;
mod response;
mod upgrade;
mod warnings;

pub(crate) use log::RequestLog;
pub(crate) use policy::PluginPolicy;
pub(crate) use response::{Response, ResponseBody};
pub(crate) use warnings::Warnings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::query::encode_query;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::Full;
use http_client::SendError;

use crate::error::{Error, Result};
use crate::kubeconfig::Connection;
use credentials::Credentials;
use dial::Dialer;

/// JSON, the encoding of all objects here.
pub(crate) const JSON: &str = "application/json";
/// How often a request is repeated that the server asks to repeat.
const MAX_RETRIES: usize = 10;

/// The prefix of the paths of the past.
pub(crate) const HISTORY_PATH: &str = "/tiphys/v1/history";

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Below the server's URL, with a slash at its start.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) accept: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// Without a limit by `--request-timeout`, such as a watch or a log that is followed.
    pub(crate) is_long: bool,
    /// The path is not below that of the server's URL.
    pub(crate) is_absolute: bool,
}

impl Request {
    /// A request without a body.
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Request {
        Request {
            method,
            path: path.into(),
            query: Vec::new(),
            accept: JSON.to_string(),
            content_type: JSON,
            body: Bytes::new(),
            is_long: false,
            is_absolute: false,
        }
    }

    /// A GET.
    pub(crate) fn get(path: impl Into<String>) -> Request {
        Request::new(Method::GET, path)
    }

    /// The same, as it was at a revision or a time; as it is now if that is empty. Only this project's server has it.
    pub(crate) fn at(self, at: &str) -> Request {
        match at {
            "" => self,
            at => Request { path: format!("{HISTORY_PATH}{}", self.path), ..self }.query("at", at),
        }
    }

    /// With a query parameter; an empty value is left out.
    pub(crate) fn query(mut self, name: &str, value: impl Into<String>) -> Request {
        let value = value.into();
        if !value.is_empty() {
            self.query.push((name.to_string(), value));
        }
        self
    }

    /// With a body of JSON.
    pub(crate) fn json(self, body: &api::Tree) -> Request {
        self.body(JSON, api::json::encode(body, None))
    }

    /// With a body.
    pub(crate) fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Request {
        (self.content_type, self.body) = (content_type, body.into());
        self
    }

    /// Accepting a media type.
    pub(crate) fn accept(mut self, accept: &str) -> Request {
        self.accept = accept.to_string();
        self
    }

    /// Path and query, the parameters sorted by name.
    pub(crate) fn target(&self) -> String {
        let mut pairs = self.query.clone();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let encoded: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={}", encode_query(name), encode_query(value))).collect();
        match (encoded.is_empty(), self.path.contains('?')) {
            (true, _) => self.path.clone(),
            (false, true) => format!("{}&{}", self.path, encoded.join("&")),
            (false, false) => format!("{}?{}", self.path, encoded.join("&")),
        }
    }
}

/// What a client is started with, besides the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) log: RequestLog,
    pub(crate) warnings: Warnings,
    /// None without a limit.
    pub(crate) timeout: Option<Duration>,
    /// `kubectl get`, which the server's audit log can show.
    pub(crate) command: String,
    pub(crate) plugin_policy: PluginPolicy,
    /// The pause between pings of an idle HTTP/2 connection; None for the default.
    pub(crate) keep_alive: Option<Duration>,
    /// Passed-on requests keep their path, instead of one below that of the server's URL.
    pub(crate) forwards_paths: bool,
}

/// The client of one server as one user.
pub(crate) struct Client {
    dialer: Dialer,
    credentials: Credentials,
    connections: http_client::Pool<Full<Bytes>>,
    headers: HeaderMap,
    options: Options,
}

impl Client {
    /// A client; it connects with its first request.
    pub(crate) async fn new(connection: &Connection, options: Options) -> Result<Arc<Client>> {
        let credentials = Credentials::new(connection, &options.plugin_policy).await?;
        let dialer = Dialer::new(connection, credentials.identity()?)?;
        let headers = headers(connection, &options)?;
        Ok(Arc::new(Client { dialer, credentials, connections: http_client::Pool::new(16), headers, options }))
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> String {
        self.dialer.server().url()
    }

    /// Sends a request; a response with an error code is an error.
    pub(crate) async fn send(&self, request: &Request) -> Result<Response> {
        let response = self.send_any(request).await?;
        if response.code < 400 { Ok(response) } else { Err(response.into_error(&request.method).await) }
    }

    /// Sends a request and reads the response as an object.
    pub(crate) async fn tree(&self, request: &Request) -> Result<api::Tree> {
        let response = self.send(request).await?;
        response.tree().await
    }

    /// Sends a request and reads the response.
    pub(crate) async fn bytes(&self, request: &Request) -> Result<Bytes> {
        self.send(request).await?.bytes().await
    }

    /// Sends a request, and again if the server asks for it.
    pub(crate) async fn send_any(&self, request: &Request) -> Result<Response> {
        let mut refused = false;
        for attempt in 0.. {
            let limit = self.options.timeout.filter(|_| !request.is_long);
            let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
            let response = self.within(limit, self.exchange(request)).await?.until(deadline);
            if response.code == 401 && !refused && self.credentials.refresh().await? {
                refused = true;
                self.dialer.replace_identity(self.credentials.identity()?)?;
                self.connections.clear();
                continue;
            }
            match response.retry_after() {
                Some(pause) if attempt < MAX_RETRIES => tokio::time::sleep(pause).await,
                _ => return Ok(response),
            }
        }
        Err(Error::new("the request was repeated too often"))
    }

    /// Passes a request of another program on, as this user unless it has credentials of its own. The response is passed
    /// on too, so the server's wish to repeat the request is not followed here.
    pub(crate) async fn forward(&self, head: &http::request::Parts, target: &str, body: Bytes) -> Result<Response> {
        let mut message = self.forwarded(head, target, body).await?;
        if !head.headers.contains_key(header::ACCEPT_ENCODING) {
            message.headers_mut().remove(header::ACCEPT_ENCODING);
        }
        let response = self.dispatch(message.clone()).await?;
        if response.status() != http::StatusCode::UNAUTHORIZED || !self.credentials.refresh().await? {
            return Ok(Response::new(response, self.options.log.clone()));
        }
        self.dialer.replace_identity(self.credentials.identity()?)?;
        self.connections.clear();
        if let Some(authorization) = self.credentials.authorization().await? {
            message.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        Ok(Response::new(self.dispatch(message).await?, self.options.log.clone()))
    }

    /// A request of another program with the headers of this user.
    async fn forwarded(
        &self,
        head: &http::request::Parts,
        target: &str,
        body: Bytes,
    ) -> Result<http::Request<Full<Bytes>>> {
        let is_absolute = self.options.forwards_paths;
        let request = Request { body, is_absolute, ..Request::new(head.method.clone(), target) };
        let mut message = self.message(&request).await?;
        let headers = message.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        headers.remove(header::ACCEPT);
        for name in head.headers.keys().filter(|name| !is_of_connection(name)) {
            headers.remove(name);
            for value in head.headers.get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Ok(message)
    }

    async fn within<T>(&self, limit: Option<Duration>, work: impl Future<Output = Result<T>>) -> Result<T> {
        match limit {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(result) => result,
                Err(_) => Err(self
                    .dialer
                    .failure("net/http: request canceled (Client.Timeout exceeded while awaiting headers)")),
            },
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Response> {
        let message = self.message(request).await?;
        let started = Instant::now();
        self.options.log.request(&self.url(), request, message.headers());
        let response = self.dispatch(message).await?;
        self.options.warnings.print(response.headers());
        self.options.log.response(&self.url(), request, &response, started.elapsed());
        Ok(Response::new(response, self.options.log.clone()))
    }

    /// The request with all of its headers, with an absolute URI.
    async fn message(&self, request: &Request) -> Result<http::Request<Full<Bytes>>> {
        let base = if request.is_absolute { "" } else { &self.dialer.server().path };
        let target = format!("{base}{}", request.target());
        let mut message = http::Request::new(Full::new(request.body.clone()));
        *message.method_mut() = request.method.clone();
        let uri = http::Uri::builder()
            .scheme(if self.dialer.server().is_tls { "https" } else { "http" })
            .authority(self.dialer.server().authority())
            .path_and_query(target);
        *message.uri_mut() = uri.build().map_err(|error| Error::new(format!("invalid request path: {error}")))?;
        let headers = message.headers_mut();
        *headers = self.headers.clone();
        headers.insert(header::ACCEPT, value(&request.accept)?);
        if !request.body.is_empty() || matches!(request.method, Method::PATCH | Method::PUT | Method::POST) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(request.content_type));
        }
        if let Some(authorization) = self.credentials.authorization().await? {
            headers.insert(header::AUTHORIZATION, authorization);
        }
        Ok(message)
    }

    async fn dispatch(&self, message: http::Request<Full<Bytes>>) -> Result<http::Response<client::Body>> {
        let address = self.dialer.address();
        for _ in 0..4 {
            let Some(lease) = self.connections.take(address) else { break };
            let message = self.dialer.prepare(message.clone(), lease.is_http2());
            match lease.send(message).await {
                Ok(response) => return Ok(response.map(client::Body::new)),
                Err(SendError::NotSent(_)) => {}
                Err(SendError::Sent(error)) => return Err(self.dialer.failure(&stdx::error::chain(&error))),
            }
        }
        let stream = self.dialer.connect().await?;
        let failed = |error: &hyper::Error| self.dialer.failure(&stdx::error::chain(error));
        let lease = if stream.is_http2() {
            let sender = http_client::handshake_http2(stream, dial::http2_options(self.options.keep_alive))
                .await
                .map_err(|e| failed(&e))?;
            self.connections.add_http2(address, sender)
        } else {
            let sender = http_client::handshake_http1(stream).await.map_err(|error| failed(&error))?;
            self.connections.add_http1(address, sender)
        };
        let is_http2 = lease.is_http2();
        let sent = lease.send(self.dialer.prepare(message, is_http2)).await;
        sent.map(|response| response.map(client::Body::new)).map_err(|error| failed(&error.into_inner()))
    }
}

/// Headers that are about one connection, and those that the next one gets of its own.
fn is_of_connection(name: &HeaderName) -> bool {
    const NAMES: &[&str] = &[
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.contains(&name.as_str())
}

fn value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| Error::new(format!("{text:?} is not a valid header value")))
}

/// Headers of all requests.
fn headers(connection: &Connection, options: &Options) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let agent = concat!("kubectl/v1.37.0 (", "linux/amd64", ") tiphys/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    if !options.command.is_empty() {
        headers.insert("kubectl-command", value(&options.command)?);
    }
    if connection.compression && !is_local(&connection.server.host) {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let acting = &connection.impersonation;
    let has_rest = !acting.groups.is_empty() || !acting.uid.is_empty() || !acting.extra.is_empty();
    if acting.user.is_empty() && has_rest {
        let user = &connection.user;
        return Err(Error::new(format!(
            "requesting uid, groups or user-extra for {user} without impersonating a user"
        )));
    }
    if !acting.user.is_empty() {
        headers.insert("impersonate-user", value(&acting.user)?);
    }
    if !acting.uid.is_empty() {
        headers.insert("impersonate-uid", value(&acting.uid)?);
    }
    for group in &acting.groups {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, text) in &acting.extra {
        let name = format!("impersonate-extra-{}", encode_query(key).to_lowercase());
        let name = HeaderName::try_from(name).map_err(|_| Error::new(format!("invalid user-extra key {key:?}")))?;
        headers.append(name, value(text)?);
    }
    Ok(headers)
}

/// Compression costs more time than the copy over the loopback interface.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
