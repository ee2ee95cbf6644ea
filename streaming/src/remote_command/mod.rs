//! Remote commands and attach: standard streams, terminal size and exit status over one connection.

mod client;
mod over_spdy;
mod over_websocket;
mod resize;
mod status;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::sync::watch;

pub use client::{RemoteCommand, SPDY_PREFERRED, connect};
pub use resize::{Resize, Size};
pub use status::{CommandResult, Verb};

use crate::channels::Codec;
use crate::{Reader, Timeouts, UpgradeRejection, Writer, upgrade};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

const WEBSOCKET_PROTOCOLS: &[&str] =
    &["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];
const SPDY_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/// The features of a protocol, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Protocol {
    version: u8,
    codec: Codec,
}

impl Protocol {
    fn named(name: &str) -> Self {
        let version = name.strip_prefix('v').and_then(|rest| rest.split('.').next()?.parse().ok()).unwrap_or(1);
        let codec = if name.contains("base64.") { Codec::Base64 } else { Codec::Raw };
        Self { version, codec }
    }
}

/// A request for no stream at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("you must specify at least 1 of stdin, stdout, stderr")]
pub struct NoStreams;

/// The requested streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

impl Options {
    /// Parses a query with the API's parameters (stdin, stdout, stderr, tty) or the kubelet's (input, output, error,
    /// tty). A terminal has no separate standard error.
    pub fn from_query(query: &str) -> Result<Self, NoStreams> {
        let requested = |names: [&str; 2]| {
            let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let value = pairs.find(|(name, _)| names.contains(name)).map(|(_, value)| value);
            value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
        };
        let tty = requested(["tty", "tty"]);
        let options = Self {
            stdin: requested(["stdin", "input"]),
            stdout: requested(["stdout", "output"]),
            stderr: requested(["stderr", "error"]) && !tty,
            tty,
        };
        options.check()?;
        Ok(options)
    }

    fn check(self) -> Result<(), NoStreams> {
        if self.stdin || self.stdout || self.stderr {
            return Ok(());
        }
        Err(NoStreams)
    }
}

/// The streams of a command. Streams that were not requested are None.
pub struct Streams {
    pub stdin: Option<Reader>,
    pub stdout: Option<Writer>,
    pub stderr: Option<Writer>,
    pub resize: Resize,
    /// Whether the client has disconnected, for commands that neither read nor write.
    pub gone: DisconnectSignal,
}

/// Notifies when the client's connection has ended.
#[derive(Clone)]
pub struct DisconnectSignal(watch::Receiver<bool>);

impl DisconnectSignal {
    /// Resolves when the client has disconnected.
    pub async fn wait(&mut self) {
        // An error means that the connection's task has ended.
        let _ = self.0.wait_for(|gone| *gone).await;
    }
}

/// Serves a request to run a command or to attach. After the upgrade `run` is called in its own task once the streams
/// exist; its result is reported when it has dropped all streams, and the connection is closed.
pub fn remote_command<B, F, Fut>(
    mut request: Request<B>,
    verb: Verb,
    options: Options,
    timeouts: Timeouts,
    run: F,
) -> Response<Full<Bytes>>
where
    F: FnOnce(Streams) -> Fut + Send + 'static,
    Fut: Future<Output = CommandResult> + Send + 'static,
{
    if let Err(error) = options.check() {
        return UpgradeRejection::bad_request(error.to_string()).response();
    }
    let websocket = upgrade::is_websocket(request.headers());
    let upgrade = if websocket {
        upgrade::websocket(&mut request, WEBSOCKET_PROTOCOLS)
    } else {
        upgrade::spdy(&mut request, SPDY_PROTOCOLS)
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(refusal) => return refusal.response(),
    };
    let serving = ConnectionParameters { protocol: Protocol::named(upgrade.protocol), verb, options, timeouts };
    let connection = upgrade.connection;
    tokio::spawn(async move {
        let io = match connection.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::debug!(%error, "failed to upgrade connection"),
        };
        if websocket {
            over_websocket::serve(io, serving, run).await;
        } else {
            over_spdy::serve(io, serving, run).await;
        }
    });
    upgrade.response
}

/// The negotiated parameters of a connection.
#[derive(Clone, Copy)]
struct ConnectionParameters {
    protocol: Protocol,
    verb: Verb,
    options: Options,
    timeouts: Timeouts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_both_query_forms() {
        let check = |query: &str, expected: &str| {
            let options = Options::from_query(query).map(|options| {
                let flags = [(options.stdin, 'i'), (options.stdout, 'o'), (options.stderr, 'e'), (options.tty, 't')];
                flags.into_iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect::<String>()
            });
            assert_eq!(options.unwrap_or_else(|error| error.to_string()), expected, "{query}");
        };
        check("command=ls&stdin=true&stdout=true&stderr=true", "ioe");
        check("input=1&output=1&error=1&command=ls", "ioe");
        check("stdin=true&stdout=true&stderr=true&tty=true", "iot");
        check("stdout=1&stderr=false", "o");
        check("tty=true", "you must specify at least 1 of stdin, stdout, stderr");
        check("", "you must specify at least 1 of stdin, stdout, stderr");
    }

    #[test]
    fn protocols_are_identified_by_name() {
        let check = |name, version, codec| assert_eq!(Protocol::named(name), Protocol { version, codec });
        check("", 1, Codec::Raw);
        check("channel.k8s.io", 1, Codec::Raw);
        check("base64.channel.k8s.io", 1, Codec::Base64);
        check("v4.base64.channel.k8s.io", 4, Codec::Base64);
        check("v5.channel.k8s.io", 5, Codec::Raw);
        check("v2.channel.k8s.io", 2, Codec::Raw);
    }
}
