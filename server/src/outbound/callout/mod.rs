//! HTTPS calls of the server: webhooks of every sort, and the discovery documents of token issuers. A [`Client`] has
//! its trusted CAs and its credentials; it keeps connections for reuse. It follows no redirects, and it limits the size
//! of a response.

mod error;
pub mod kubeconfig;
mod logins;
mod service;
mod url;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::Full;
use http_client::pool::{Lease, Pool};
use http_client::{Address, body, tls};
pub use http_client::{Identity, Trust};
use rustls::ClientConfig;

pub use error::Error;
use error::Failure;
pub(crate) use logins::{Login, Logins};
pub(crate) use service::{Target, TargetError};
pub use url::{Url, UrlError};

use super::tunnels::Dialer;

/// The maximum size of a response.
const MAX_ANSWER_BYTES: usize = 3 << 20;
/// The maximum number of idle connections; more are closed.
const MAX_IDLE: usize = 8;

/// The credentials of a client besides its certificate.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    Bearer(String),
    /// Read again for each call, since token files are rotated.
    BearerFile(PathBuf),
    Basic {
        username: String,
        password: String,
    },
}

/// An HTTP client of one webhook or other remote server.
pub struct Client {
    tls: Arc<ClientConfig>,
    credentials: Credentials,
    /// The expected name in the certificate, if it is not the host of the URL.
    server_name: Option<String>,
    pool: Pool<Full<Bytes>>,
    /// Opens connections to pods; None for a client of other servers.
    dialer: Option<Arc<Dialer>>,
}

/// A response with any code.
#[derive(Debug)]
pub struct CalloutResponse {
    pub code: u16,
    pub body: Bytes,
}

impl CalloutResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Client {
    /// A client without credentials besides its certificate.
    pub fn new(trust: &Trust, identity: Option<&Identity>) -> Result<Client, rustls::Error> {
        let tls = Arc::new(tls::config(trust, identity, &[tls::HTTP1])?);
        Ok(Client { tls, credentials: Credentials::None, server_name: None, pool: Pool::new(MAX_IDLE), dialer: None })
    }

    /// The same client with these credentials.
    pub fn with_credentials(self, credentials: Credentials) -> Client {
        Client { credentials, ..self }
    }

    /// The trusted CAs and the client certificate.
    pub fn tls(&self) -> &Arc<ClientConfig> {
        &self.tls
    }

    /// The credentials of requests.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The name that the server's certificate must have, if it is not the host of the URL.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The same client, which verifies this name in the server's certificate.
    pub fn with_server_name(self, server_name: Option<String>) -> Client {
        Client { server_name, ..self }
    }

    /// The same client for a server in pods, which may be reached through a tunnel.
    pub(crate) fn with_dialer(self, dialer: Arc<Dialer>) -> Client {
        Client { dialer: Some(dialer), ..self }
    }

    /// Sends a GET request.
    pub async fn get(&self, url: &Url, timeout: Duration) -> Result<CalloutResponse, Error> {
        self.call(Method::GET, url, None, &[], Bytes::new(), timeout).await
    }

    /// Sends a request with further headers.
    pub async fn send_request(
        &self,
        method: Method,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<CalloutResponse, Error> {
        self.call(method, url, None, headers, body.into(), timeout).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post_json(&self, url: &Url, body: Vec<u8>, timeout: Duration) -> Result<CalloutResponse, Error> {
        self.call(Method::POST, url, None, &[], body.into(), timeout).await
    }

    /// Sends the request to an endpoint that was not found by resolving the host of the URL.
    pub(crate) async fn post_json_at(
        &self,
        url: &Url,
        (at, dialer): ((String, u16), &Dialer),
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<CalloutResponse, Error> {
        self.call(Method::POST, url, Some((at, dialer)), &[], body.into(), timeout).await
    }

    async fn call(
        &self,
        method: Method,
        url: &Url,
        at: Option<((String, u16), &Dialer)>,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        timeout: Duration,
    ) -> Result<CalloutResponse, Error> {
        let dialer = at.as_ref().map(|(_, dialer)| *dialer).or(self.dialer.as_deref());
        let (host, port) = at.map_or_else(|| (url.host.clone(), url.port), |(at, _)| at);
        let name = self.server_name.as_ref().unwrap_or(&url.host).clone();
        let address = Address { tls: url.tls, host, port, name };
        let exchange = self.exchange(&method, url, (address, dialer), (headers, body));
        let result = tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(Failure::Deadline));
        result.map_err(|failure| Error { method, url: url.to_string(), failure })
    }

    async fn exchange(
        &self,
        method: &Method,
        url: &Url,
        (address, dialer): (Address, Option<&Dialer>),
        (headers, body): (&[(HeaderName, HeaderValue)], Bytes),
    ) -> Result<CalloutResponse, Failure> {
        // An idle connection may have been closed meanwhile: a failed request is then retried on a new connection.
        if let Some(connection) = self.pool.take(&address) {
            let request = self.request(method, url, headers, body.clone())?;
            match send(connection, request).await {
                Err(failure) if failure.is_lost_connection() => {}
                other => return other,
            }
        }
        let request = self.request(method, url, headers, body)?;
        let stream = match dialer {
            Some(dialer) => dialer.connect(&address, address.tls.then_some(&self.tls)).await,
            None => http_client::connect(&address, &self.tls).await,
        };
        let stream = stream.map_err(Failure::Connect)?;
        let sender = http_client::handshake_http1(stream).await.map_err(Failure::Http)?;
        send(self.pool.add_http1(&address, sender), request).await
    }

    fn request(
        &self,
        method: &Method,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let value = |text: String| HeaderValue::try_from(text).map_err(|_| Failure::Header);
        let mut builder = Request::builder()
            .method(method)
            .uri(&url.path)
            .header(header::HOST, value(url.authority())?)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission");
        if *method == Method::POST {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(credentials) = self.authorization()? {
            let mut credentials = value(credentials)?;
            credentials.set_sensitive(true);
            builder = builder.header(header::AUTHORIZATION, credentials);
        }
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        builder.body(Full::new(body)).map_err(|_| Failure::Header)
    }

    fn authorization(&self) -> Result<Option<String>, Failure> {
        Ok(match &self.credentials {
            Credentials::None => None,
            Credentials::Bearer(token) => Some(format!("Bearer {token}")),
            Credentials::BearerFile(path) => {
                let token = std::fs::read_to_string(path)
                    .map_err(|error| Failure::TokenFile(path.display().to_string(), error))?;
                Some(format!("Bearer {}", token.trim()))
            }
            Credentials::Basic { username, password } => {
                Some(format!("Basic {}", api::base64::encode(format!("{username}:{password}").as_bytes())))
            }
        })
    }
}

async fn send(connection: Lease<Full<Bytes>>, request: Request<Full<Bytes>>) -> Result<CalloutResponse, Failure> {
    let response = connection.send(request).await.map_err(|error| Failure::Http(error.into_inner()))?;
    let code = response.status().as_u16();
    let body = body::read(response.into_body(), MAX_ANSWER_BYTES).await;
    Ok(CalloutResponse { code, body: body.map_err(Failure::Body)? })
}

#[cfg(test)]
mod tests;
