//! Port forwarding: any number of connections to ports of one target, over one client connection.

mod client;
mod over_spdy;
mod over_websocket;

use std::fmt::Display;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

pub use client::{ForwardError, ForwardedConnection, Forwarder, SPDY_PREFERRED, TUNNEL_PREFERRED};

use crate::websocket::{Role, byte_stream};
use crate::{Timeouts, UpgradeRejection, upgrade};

const SPDY_PROTOCOLS: &[&str] = &["portforward.k8s.io"];
/// SPDY tunneled in WebSocket messages.
pub(crate) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const TUNNEL_PROTOCOLS: &[&str] = &[TUNNEL];
const WEBSOCKET_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", "v4.base64.channel.k8s.io"];
/// Each takes two of the 255 channels.
const MAX_PORTS: usize = 127;

/// A client's connection to a port.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
/// A client's connection to a port.
pub type Connection = Box<dyn Duplex>;

/// Serves a port forwarding request. `forward` is called in its own task for each connection to a port and copies its
/// bytes until both ends are done; an error is sent to the client's error stream.
pub fn port_forward<B, F, Fut, E>(mut request: Request<B>, timeouts: Timeouts, forward: F) -> Response<Full<Bytes>>
where
    F: Fn(u16, Connection) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let via = match PortTransport::of(&request) {
        Ok(via) => via,
        Err(refusal) => return refusal.response(),
    };
    let upgrade = match &via {
        PortTransport::Spdy => upgrade::spdy(&mut request, SPDY_PROTOCOLS),
        PortTransport::Tunnel => upgrade::websocket(&mut request, TUNNEL_PROTOCOLS),
        PortTransport::Channels(_) => upgrade::websocket(&mut request, WEBSOCKET_PROTOCOLS),
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refusal.response(),
    };
    let (connection, protocol) = (upgrade.connection, upgrade.protocol);
    tokio::spawn(async move {
        let io = match connection.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::debug!(%error, "failed to upgrade connection"),
        };
        match via {
            PortTransport::Spdy => over_spdy::serve(io, timeouts, forward).await,
            PortTransport::Tunnel => over_spdy::serve(byte_stream(io, Role::Server), timeouts, forward).await,
            PortTransport::Channels(ports) => over_websocket::serve(io, protocol, ports, timeouts, forward).await,
        }
    });
    upgrade.response
}

/// The three transports.
#[derive(Debug, PartialEq, Eq)]
enum PortTransport {
    Spdy,
    Tunnel,
    /// All connections are known in advance, one per port.
    Channels(Vec<u16>),
}

impl PortTransport {
    fn of<B>(request: &Request<B>) -> Result<Self, UpgradeRejection> {
        if !upgrade::is_websocket(request.headers()) {
            return Ok(Self::Spdy);
        }
        if upgrade::websocket_protocols(request.headers()).iter().any(|protocol| protocol == TUNNEL) {
            return Ok(Self::Tunnel);
        }
        ports(request.uri().query().unwrap_or_default())
            .map(Self::Channels)
            .map_err(|error| UpgradeRejection::bad_request(error.to_string()))
    }
}

/// Why a port is not forwarded.
#[derive(Debug, Error)]
enum PortError {
    #[error("query parameter \"port\" is required")]
    Missing,
    #[error("query parameter \"port\" cannot be empty")]
    Empty,
    #[error("query parameter \"port\" names more than {MAX_PORTS} ports")]
    TooMany,
    #[error("port {0:?} must be > 0")]
    Zero(String),
    #[error("unable to parse {text:?} as a port: {source}")]
    Number { text: String, source: std::num::ParseIntError },
}

/// The ports in a query, `port=80&port=443` or `port=80,443`.
fn ports(query: &str) -> Result<Vec<u16>, PortError> {
    let values = query.split('&').filter_map(|pair| pair.strip_prefix("port="));
    let values: Vec<String> = values.map(|value| value.replace("%2C", ",").replace("%2c", ",")).collect();
    if values.is_empty() {
        return Err(PortError::Missing);
    }
    if values.iter().any(String::is_empty) {
        return Err(PortError::Empty);
    }
    let ports = values.iter().flat_map(|value| value.split(',')).map(port).collect::<Result<Vec<_>, _>>()?;
    if ports.len() > MAX_PORTS {
        return Err(PortError::TooMany);
    }
    Ok(ports)
}

fn port(text: &str) -> Result<u16, PortError> {
    match text.parse::<u16>() {
        Ok(0) => Err(PortError::Zero(text.to_string())),
        Ok(port) => Ok(port),
        Err(source) => Err(PortError::Number { text: text.to_string(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ports_from_the_query() {
        let check = |query: &str, expected: Result<&[u16], &str>| {
            let found = ports(query).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(<[u16]>::to_vec).map_err(str::to_string), "{query}");
        };
        check("port=80", Ok(&[80]));
        check("port=80&port=443", Ok(&[80, 443]));
        check("port=80%2C443,8080", Ok(&[80, 443, 8080]));
        check("", Err("query parameter \"port\" is required"));
        check("port=", Err("query parameter \"port\" cannot be empty"));
        check("port=0", Err("port \"0\" must be > 0"));
        check("port=70000", Err("unable to parse \"70000\" as a port: number too large to fit in target type"));
        let many = vec!["port=1"; 128].join("&");
        check(&many, Err("query parameter \"port\" names more than 127 ports"));
    }
}
