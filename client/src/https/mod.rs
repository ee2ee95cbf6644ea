//! The HTTPS transport with persistent connections.

mod pool;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use rustls::ClientConfig;

use crate::{Body, Error, ResponseFuture, Result, Transport};
use pool::Pool;

/// Sends requests to one server as one user. Connections can be shared by several users.
#[derive(Clone)]
pub struct Https {
    pool: Arc<Pool>,
    credentials: Option<Arc<dyn Credentials>>,
}

/// A value for the Authorization header in progress.
pub type Credential<'a> = Pin<Box<dyn Future<Output = Result<HeaderValue>> + Send + 'a>>;

/// The Authorization header; a token may have to be fetched, and refreshed before it expires.
pub trait Credentials: Send + Sync {
    /// The credential of the next request.
    fn credential(&self) -> Credential<'_>;
    /// The server rejected the credential.
    fn refused(&self) {}
}

impl Https {
    /// `tls` has the CA bundle and client certificate; `name` is the server name in the certificate if it differs
    /// from the host.
    pub fn new(host: &str, port: u16, name: Option<&str>, tls: Arc<ClientConfig>) -> Result<Https> {
        Ok(Https { pool: Arc::new(Pool::new(host, port, name.unwrap_or(host), tls)?), credentials: None })
    }

    /// The same connections with other credentials.
    pub fn with_credentials(&self, credentials: Arc<dyn Credentials>) -> Https {
        Https { pool: self.pool.clone(), credentials: Some(credentials) }
    }

    /// Replaces the TLS configuration for all users of these connections.
    pub fn exchange_tls(&self, tls: &ClientConfig) {
        self.pool.exchange_tls(tls);
    }

    /// The same connections with a bearer token.
    pub fn with_token(&self, token: &str) -> Result<Https> {
        Ok(self.with_credentials(Arc::new(StaticCredential(bearer(token)?))))
    }

    async fn exchange(&self, mut request: Request<Bytes>) -> Result<http::Response<Body>> {
        // HTTP/1.1 connections imply the server; HTTP/2 needs it in the URI.
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme("https").authority(self.pool.authority()).path_and_query(path).build();
        *request.uri_mut() = uri.map_err(|error| Error::Transport(error.to_string()))?;
        if let Some(credentials) = &self.credentials {
            request.headers_mut().insert(header::AUTHORIZATION, credentials.credential().await?);
        }
        let response = self.pool.send(request).await?;
        if let Some(credentials) = self.credentials.as_ref().filter(|_| response.status().as_u16() == 401) {
            credentials.refused();
        }
        Ok(response)
    }
}

impl Transport for Https {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.exchange(request))
    }
}

/// A bearer token header that is not logged.
pub fn bearer(token: &str) -> Result<HeaderValue> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        Error::Transport("the bearer token contains characters that are not allowed in a header".to_string())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

struct StaticCredential(HeaderValue);

impl Credentials for StaticCredential {
    fn credential(&self) -> Credential<'_> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let roots = rustls::RootCertStore::empty();
        Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth())
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = taken.local_addr().expect("an address");
        drop(taken);
        let https = Https::new("127.0.0.1", address.port(), None, tls()).expect("a transport");
        let error = https.send(Request::new(Bytes::new())).await.err().expect("nothing listens").to_string();
        assert!(error.contains(&format!("https://{address}: ")) && error.contains("Connection refused"), "{error}");
    }
}
