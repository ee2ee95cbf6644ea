//! A fresh connection: name, TCP, TLS, HTTP/1.1.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::Failure;

/// The address of a connection, and the server name that it must verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// The name in the other side's certificate.
    pub name: String,
}

pub(super) async fn connect(
    address: &Address,
    config: &Arc<ClientConfig>,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = dial(address).await?;
    if !address.tls {
        return handshake(stream).await;
    }
    let bad_name = |_| Failure::Lookup { host: address.name.clone() };
    let name = ServerName::try_from(address.name.clone()).map_err(bad_name)?;
    handshake(TlsConnector::from(config.clone()).connect(name, stream).await.map_err(Failure::Tls)?).await
}

/// Tries each address of the name, and reports the last failure.
async fn dial(address: &Address) -> Result<TcpStream, Failure> {
    let unknown = || Failure::Lookup { host: address.host.clone() };
    let places = tokio::net::lookup_host((address.host.as_str(), address.port)).await.map_err(|_| unknown())?;
    let mut failure = unknown();
    for place in places {
        match TcpStream::connect(place).await {
            Ok(stream) => {
                // A request is one write; it must not wait for more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(source) => failure = Failure::Dial { address: place.to_string(), source },
        }
    }
    Err(failure)
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::Http)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "outbound connection ended");
        }
    });
    Ok(sender)
}
