//! A new connection: name resolution, TCP, TLS.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The destination of a connection, and the server name that its certificate must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether TLS is used.
    pub tls: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
    /// The name in the server's certificate.
    pub name: String,
}

impl Address {
    /// A host whose certificate has its own name.
    pub fn new(tls: bool, host: &str, port: u16) -> Address {
        Address { tls, host: host.to_string(), port, name: host.to_string() }
    }
}

/// Why there is no connection. Its text is that of the cause; callers add the address in their own words.
#[derive(Debug)]
pub enum ConnectError {
    /// The host's name does not resolve.
    Lookup { host: String, source: io::Error },
    /// No address of the host accepts a connection; this was the last one.
    Dial { address: SocketAddr, source: io::Error },
    /// A certificate cannot have this name.
    Name { name: String },
    /// The TLS handshake failed; [`ConnectError::rustls`] has the reason.
    Tls(io::Error),
}

impl ConnectError {
    fn cause(&self) -> Option<&io::Error> {
        match self {
            ConnectError::Lookup { source, .. } | ConnectError::Dial { source, .. } | ConnectError::Tls(source) => {
                Some(source)
            }
            ConnectError::Name { .. } => None,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Name { name } => write!(f, "invalid server name {name:?}"),
            ConnectError::Lookup { source, .. } | ConnectError::Dial { source, .. } | ConnectError::Tls(source) => {
                source.fmt(f)
            }
        }
    }
}

impl std::error::Error for ConnectError {
    /// The cause after the text, which is that of the first cause.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.cause()?)
    }
}

impl ConnectError {
    /// The error of the TLS library, unless the connection broke.
    pub fn rustls(&self) -> Option<&rustls::Error> {
        match self {
            ConnectError::Tls(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
            _ => None,
        }
    }
}

/// Connects, with TLS if the address requires it. The caller sets the timeout.
pub async fn connect(address: &Address, tls: &Arc<ClientConfig>) -> Result<Stream, ConnectError> {
    let stream = dial(&address.host, address.port).await?;
    if address.tls { secure(stream, &address.name, tls).await } else { Ok(Stream::Tcp(stream)) }
}

/// Tries each address of the host, and reports the last failure.
pub async fn dial(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let lookup = |source| ConnectError::Lookup { host: host.to_string(), source };
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(lookup)?;
    let mut failure = lookup(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A request is one write, and keys of a terminal are sent one by one: neither may wait for more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(source) => failure = ConnectError::Dial { address, source },
        }
    }
    Err(failure)
}

/// TLS over a connection, which may be a tunnel through a proxy.
pub async fn secure(stream: TcpStream, name: &str, tls: &Arc<ClientConfig>) -> Result<Stream, ConnectError> {
    let bad_name = |_| ConnectError::Name { name: name.to_string() };
    let name = ServerName::try_from(name.to_string()).map_err(bad_name)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(ConnectError::Tls)?;
    Ok(Stream::Tls(Box::new(stream)))
}

/// TLS over a connection that was opened otherwise.
pub async fn secure_other(
    stream: Box<dyn OtherStream>,
    name: &str,
    tls: &Arc<ClientConfig>,
) -> Result<Stream, ConnectError> {
    let bad_name = |_| ConnectError::Name { name: name.to_string() };
    let name = ServerName::try_from(name.to_string()).map_err(bad_name)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(ConnectError::Tls)?;
    Ok(Stream::OtherTls(Box::new(stream)))
}

/// A connection that is not one of TCP, such as a stream of a tunnel.
pub trait OtherStream: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug + 'static> OtherStream for S {}

/// A connection with or without TLS.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Other(Box<dyn OtherStream>),
    OtherTls(Box<TlsStream<Box<dyn OtherStream>>>),
}

impl Stream {
    /// Whether both sides agreed on HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.session().is_some_and(|session| session.alpn_protocol() == Some(crate::tls::HTTP2))
    }

    fn session(&self) -> Option<&rustls::ClientConnection> {
        match self {
            Stream::Tcp(_) | Stream::Other(_) => None,
            Stream::Tls(stream) => Some(stream.get_ref().1),
            Stream::OtherTls(stream) => Some(stream.get_ref().1),
        }
    }

    /// The certificate of the server; None without TLS.
    pub fn server_certificate(&self) -> Option<&[u8]> {
        let chain = self.session()?.peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }
}

macro_rules! delegate {
    ($self:ident, $method:ident $(, $argument:expr)*) => {
        match $self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Other(stream) => Pin::new(stream).$method($($argument),*),
            Stream::OtherTls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_read, cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write_vectored, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Other(stream) => stream.is_write_vectored(),
            Stream::OtherTls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown, cx)
    }
}
