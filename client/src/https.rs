//! The server behind HTTPS: a connection a request, which a watch keeps for as long as it lasts.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Body, Error, Result, Sending, Transport};

pub struct Https {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<HeaderValue>,
}

impl Https {
    /// `tls` says whom to trust and who we are.
    pub fn new(host: &str, port: u16, tls: Arc<ClientConfig>) -> Result<Https> {
        let name = ServerName::try_from(host.to_string()).map_err(|error| Error::Transport(error.to_string()))?;
        Ok(Https { host: host.to_string(), port, name, tls: TlsConnector::from(tls), token: None })
    }

    pub fn with_token(mut self, token: &str) -> Result<Https> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| Error::Transport("the token cannot stand in a header".to_string()))?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    async fn exchange(&self, mut request: Request<Bytes>) -> Result<http::Response<Body>> {
        let failed = |error: &dyn std::fmt::Display| Error::Transport(error.to_string());
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| failed(&error))?;
        let stream = self.tls.connect(self.name.clone(), stream).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let host = HeaderValue::try_from(format!("{}:{}", self.host, self.port)).map_err(|error| failed(&error))?;
        request.headers_mut().insert(header::HOST, host);
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let response = sender.send_request(request.map(Full::new)).await.map_err(|error| failed(&error))?;
        Ok(response.map(Body::new))
    }
}

impl Transport for Https {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        Box::pin(self.exchange(request))
    }
}
