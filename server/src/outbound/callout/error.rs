//! The errors of a call, in the words of Go's HTTP client, which operators recognise from upstream. They contain
//! neither credentials nor bodies.

use std::fmt;
use std::io;

use http::Method;
use http_client::ConnectError;
use http_client::body::BodyError;
use rustls::CertificateError;

use crate::outbound::endpoints::ServiceError;

/// Why a request to a remote server failed.
#[derive(Debug)]
pub struct Error {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) failure: Failure,
}

#[derive(Debug)]
pub(crate) enum Failure {
    Deadline,
    Connect(ConnectError),
    Http(hyper::Error),
    Body(BodyError<hyper::Error>),
    Header,
    TokenFile(String, io::Error),
    /// A service without a ready endpoint.
    Service(ServiceError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = if self.method == Method::GET { "Get" } else { "Post" };
        write!(f, "{method} {:?}: {}", self.url, self.failure)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.failure {
            Failure::Connect(source) => Some(source),
            Failure::TokenFile(_, source) => Some(source),
            Failure::Http(source) | Failure::Body(BodyError::Connection(source)) => Some(source),
            _ => None,
        }
    }
}

impl Failure {
    /// True if the connection closed before the response began.
    pub(crate) fn is_lost_connection(&self) -> bool {
        match self {
            Failure::Http(error) | Failure::Body(BodyError::Connection(error)) => {
                error.is_canceled() || error.is_closed() || error.is_incomplete_message()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadline => f.write_str("context deadline exceeded"),
            Failure::Connect(error) => f.write_str(&connect_text(error)),
            Failure::Http(error) | Failure::Body(BodyError::Connection(error)) => http_text(error, f),
            Failure::Body(error) => write!(f, "{error}"),
            Failure::Header => f.write_str("the URL or the credentials cannot be sent in a header"),
            Failure::TokenFile(path, error) => write!(f, "the token file {path} cannot be read: {error}"),
            Failure::Service(error) => write!(f, "{error}"),
        }
    }
}

fn http_text(error: &hyper::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if error.is_incomplete_message() { f.write_str("EOF") } else { write!(f, "{error}") }
}

fn connect_text(error: &ConnectError) -> String {
    match error {
        ConnectError::Dial { address, source } => format!("dial tcp {address}: connect: {}", io_text(source)),
        ConnectError::Lookup { host: name, .. } | ConnectError::Name { name } => {
            format!("dial tcp: lookup {name}: no such host")
        }
        ConnectError::Tls(error) => tls_text(error),
    }
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_string(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_string(),
        io::ErrorKind::HostUnreachable => "no route to host".to_string(),
        _ => error.to_string(),
    }
}

fn tls_text(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = inner else {
        return format!("tls: {error}");
    };
    let why = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_string(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_string()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_string()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("certificate is valid for {}, not {}", presented.join(", "), expected.to_str())
        }
        other => format!("{other:?}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}
