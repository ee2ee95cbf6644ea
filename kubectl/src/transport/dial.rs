//! Connections to the server, directly or through a proxy.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use http_client::protocol::{Http2Options, KeepAlive};
use http_client::{Address, ConnectError, Identity, Stream, Trust, tls};
use rustls::{CertificateError, ClientConfig};
use stdx::sync::RwLock;

use super::proxy::Proxy;
use crate::error::{Error, Result, io_text};
use crate::kubeconfig::{Connection, ServerUrl};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn http2_options(interval: Option<Duration>) -> Http2Options {
    let interval = interval.unwrap_or(Duration::from_secs(30));
    let keep_alive = KeepAlive { interval, timeout: Duration::from_secs(15) };
    Http2Options { keep_alive: Some(keep_alive), stream_window: Some(4 << 20), connection_window: Some(8 << 20) }
}

/// Opens connections to one server.
pub(super) struct Dialer {
    server: ServerUrl,
    address: Address,
    trust: Trust,
    tls: RwLock<Arc<ClientConfig>>,
    proxy: Option<Proxy>,
}

impl Dialer {
    pub(super) fn new(connection: &Connection, identity: Option<Identity>) -> Result<Dialer> {
        let server = connection.server.clone();
        let name = if connection.tls_server_name.is_empty() { &server.host } else { &connection.tls_server_name };
        let address = Address { tls: server.is_tls, host: server.host.clone(), port: server.port, name: name.clone() };
        let trust = match &connection.certificate_authority {
            _ if connection.insecure => Trust::InsecureSkipVerify,
            Some(pem) => {
                Trust::pem(pem).map_err(|error| Error::new(format!("unable to load root certificates: {error}")))?
            }
            None => Trust::System,
        };
        let proxy = Proxy::for_server(&connection.proxy, &server)?;
        let config = config(&trust, identity.as_ref(), uses_tls(&server, proxy.as_ref()))?;
        Ok(Dialer { server, address, trust, tls: RwLock::new(config), proxy })
    }

    pub(super) fn server(&self) -> &ServerUrl {
        &self.server
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// For the next connections: a credential plugin may return another certificate.
    pub(super) fn replace_identity(&self, identity: Option<Identity>) -> Result<()> {
        *self.tls.write() = config(&self.trust, identity.as_ref(), uses_tls(&self.server, self.proxy.as_ref()))?;
        Ok(())
    }

    /// A connection for requests.
    pub(super) async fn connect(&self) -> Result<Stream> {
        let tls = self.tls.read().clone();
        self.connect_with(&tls).await
    }

    /// A connection for one request that upgrades it.
    pub(super) async fn connect_http1(&self) -> Result<Stream> {
        let tls = Arc::new(tls::with_alpn(&self.tls.read().clone(), &[tls::HTTP1]));
        self.connect_with(&tls).await
    }

    async fn connect_with(&self, tls: &Arc<ClientConfig>) -> Result<Stream> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.dial(tls)).await {
            Ok(result) => result,
            Err(_) => Err(self.failure(&format!("dial tcp {}:{}: i/o timeout", self.address.host, self.address.port))),
        }
    }

    async fn dial(&self, tls: &Arc<ClientConfig>) -> Result<Stream> {
        let failed = |error: ConnectError| self.connect_failure(&error);
        match &self.proxy {
            None => http_client::connect(&self.address, tls).await.map_err(failed),
            Some(proxy) => {
                let stream =
                    proxy.connect(&self.server, tls).await.map_err(|error| self.failure(&error.to_string()))?;
                match stream {
                    stream if !self.server.is_tls => Ok(stream),
                    Stream::Tcp(stream) => {
                        http_client::connect::secure(stream, &self.address.name, tls).await.map_err(failed)
                    }
                    stream => http_client::connect::secure_other(Box::new(stream), &self.address.name, tls)
                        .await
                        .map_err(failed),
                }
            }
        }
    }

    /// The message as the connection needs it: HTTP/1.1 has the host in a header, and only a path in the first line,
    /// except on the way through an HTTP proxy.
    pub(super) fn prepare<B>(&self, mut message: Request<B>, is_http2: bool) -> Request<B> {
        if is_http2 {
            return message;
        }
        if let Ok(host) = HeaderValue::from_str(&self.server.authority()) {
            message.headers_mut().insert(header::HOST, host);
        }
        if self.proxy.as_ref().is_some_and(|proxy| !self.server.is_tls && proxy.needs_absolute_uri()) {
            return message;
        }
        let path = message.uri().path_and_query().cloned();
        *message.uri_mut() = path.map(http::Uri::from).unwrap_or_default();
        message
    }

    pub(super) fn failure(&self, reason: &str) -> Error {
        Error::Connect { host: self.server.authority(), reason: reason.to_string(), is_refused: false }
    }

    fn connect_failure(&self, error: &ConnectError) -> Error {
        let is_refused = matches!(error, ConnectError::Dial { source, .. }
            if source.kind() == std::io::ErrorKind::ConnectionRefused);
        let reason = match error {
            ConnectError::Lookup { host, .. } => format!("dial tcp: lookup {host}: no such host"),
            ConnectError::Dial { address, source } => format!("dial tcp {address}: connect: {}", io_text(source)),
            _ => match error.rustls() {
                Some(error) => tls_text(error, &self.address.name),
                None => stdx::error::chain(error),
            },
        };
        Error::Connect { host: self.server.authority(), reason, is_refused }
    }
}

fn uses_tls(server: &ServerUrl, proxy: Option<&Proxy>) -> bool {
    server.is_tls || proxy.is_some_and(Proxy::is_tls)
}

fn config(trust: &Trust, identity: Option<&Identity>, is_tls: bool) -> Result<Arc<ClientConfig>> {
    // Reading the system's certificates takes long, and plain HTTP needs none.
    let trust = if is_tls { trust } else { &Trust::InsecureSkipVerify };
    let config = tls::config(trust, identity, &[tls::HTTP2, tls::HTTP1]);
    config.map(Arc::new).map_err(|error| Error::new(format!("tls: {error}")))
}

/// The errors of certificates in Go's words, which users search for.
pub(super) fn tls_text(error: &rustls::Error, name: &str) -> String {
    let reason = match error {
        rustls::Error::InvalidCertificate(reason) => reason,
        rustls::Error::InvalidMessage(_) => return "http: server gave HTTP response to HTTPS client".to_string(),
        rustls::Error::AlertReceived(alert) => return format!("remote error: tls: {alert:?}"),
        other => return format!("tls: {other}"),
    };
    let text = match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_string()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "x509: certificate has expired or is not yet valid: the server's certificate has expired".to_string()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "x509: certificate has expired or is not yet valid: the server's certificate is not yet valid".to_string()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("x509: certificate is not valid for {name}")
        }
        other => format!("x509: {other:?}"),
    };
    format!("tls: failed to verify certificate: {text}")
}
