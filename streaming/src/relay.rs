//! Relays a client's connection to the server with the streams: unchanged, or translated to SPDY if the server does
//! not support its protocol.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::port_forward::{self, TUNNEL, TUNNEL_PREFERRED};
use crate::remote_command::{self, CommandResult, Options, RemoteCommand, Streams, Verb, remote_command};
use crate::websocket::{Role, byte_stream};
use crate::{Connection, Timeouts, Transport, UpgradeError, agreed, request_upgrade, tunnel, upgrade};

/// The client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRequest {
    Command(Verb, Options),
    Forward,
}

/// How the connection is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayMode {
    /// Both ends use the same protocol.
    Through,
    /// WebSocket channels are translated to SPDY streams.
    Translated(Verb, Options),
    /// SPDY is unwrapped from the WebSocket that tunnels it.
    Unwrapped,
}

impl RelayMode {
    /// For a server that supports SPDY and the older WebSocket protocols.
    pub fn of(headers: &HeaderMap, request_kind: StreamRequest) -> RelayMode {
        if !upgrade::is_websocket(headers) {
            return RelayMode::Through;
        }
        let names = |wanted: &str| upgrade::websocket_protocols(headers).iter().any(|name| name == wanted);
        match request_kind {
            StreamRequest::Command(verb, options) if names("v5.channel.k8s.io") => RelayMode::Translated(verb, options),
            StreamRequest::Forward if names(TUNNEL) => RelayMode::Unwrapped,
            _ => RelayMode::Through,
        }
    }
}

/// Whether a request is an upgrade request.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    upgrade::has_token(headers, http::header::CONNECTION.as_str(), "upgrade")
        && headers.contains_key(http::header::UPGRADE)
}

/// Why a connection is not relayed.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The request was not sent to the backend.
    #[error(transparent)]
    Send(Box<dyn std::error::Error + Send + Sync>),
    /// The backend refused the upgrade.
    #[error("unable to upgrade connection: {0}")]
    Refused(String),
    /// The backend did not upgrade as requested.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// The connection to the backend failed during the upgrade.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The streams were not created.
    #[error(transparent)]
    Streams(#[from] std::io::Error),
}

/// The response to the client.
#[derive(Debug)]
pub enum RelayResponse {
    /// From this relay, which forwards the connection afterwards.
    Here(Response<Full<Bytes>>),
    /// From the backend, which did not upgrade.
    Behind(Response<Incoming>),
}

/// The forwarded headers: those of the upgrade. Authentication is handled by the relay.
const PASSED: &[&str] = &["connection", "upgrade", "x-stream-protocol-version", "origin", "user-agent"];
const PASSED_PREFIX: &str = "sec-websocket-";
/// The maximum size of an error text.
const MAX_REFUSAL: usize = 64 << 10;

/// Relays a request to `place` of the backend. `send` sends a request there.
pub async fn relay<B, F, Fut, E>(
    mut request: Request<B>,
    mode: RelayMode,
    place: PathAndQuery,
    timeouts: Timeouts,
    send: F,
) -> Result<RelayResponse, RelayError>
where
    F: FnOnce(Request<Full<Bytes>>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Response<Incoming>, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    match mode {
        RelayMode::Through => {
            let client = hyper::upgrade::on(&mut request);
            let mut onward = onward(request.method().clone(), place);
            *onward.headers_mut() = passed(request.headers());
            let response = send(onward).await.map_err(failed_to_send)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Ok(RelayResponse::Behind(response));
            }
            Ok(RelayResponse::Here(join(client, response, timeouts)))
        }
        RelayMode::Translated(verb, options) => {
            let run = move |streams| async move {
                let behind = command(place, options, send).await;
                match behind {
                    Ok(remote) => carry(streams, remote).await,
                    Err(error) => CommandResult::Internal(error.to_string()),
                }
            };
            Ok(RelayResponse::Here(remote_command(request, verb, options, timeouts, run)))
        }
        RelayMode::Unwrapped => {
            let upgrading = match upgrade::websocket(&mut request, TUNNEL_PREFERRED) {
                Ok(upgrading) => upgrading,
                Err(refusal) => return Ok(RelayResponse::Here(refusal.response())),
            };
            let mut onward = onward(Method::POST, place);
            request_upgrade(&mut onward, Transport::Spdy, port_forward::SPDY_PREFERRED);
            let request_kind = onward.headers().clone();
            let mut response = send(onward).await.map_err(failed_to_send)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Ok(RelayResponse::Behind(response));
            }
            agreed(&request_kind, &response, Transport::Spdy)?;
            let behind = hyper::upgrade::on(&mut response);
            tokio::spawn(pass(upgrading.connection, behind, timeouts, |io| byte_stream(io, Role::Server)));
            Ok(RelayResponse::Here(upgrading.response))
        }
    }
}

fn failed_to_send(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RelayError {
    RelayError::Send(error.into())
}

fn onward(method: Method, place: PathAndQuery) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(place);
    request
}

fn passed(headers: &HeaderMap) -> HeaderMap {
    let goes_on = |name: &str| PASSED.contains(&name) || name.starts_with(PASSED_PREFIX);
    let all = headers.iter().filter(|(name, _)| goes_on(name.as_str()));
    let mut passed = HeaderMap::new();
    for (name, value) in all {
        passed.append(name.clone(), value.clone());
    }
    passed
}

/// Both sides have agreed on a protocol: bytes are copied unchanged.
fn join(client: OnUpgrade, mut response: Response<Incoming>, timeouts: Timeouts) -> Response<Full<Bytes>> {
    let behind = hyper::upgrade::on(&mut response);
    tokio::spawn(pass(client, behind, timeouts, |io| io));
    response.map(|_| Full::default())
}

async fn pass<IO: Connection>(
    client: OnUpgrade,
    behind: OnUpgrade,
    timeouts: Timeouts,
    as_bytes: impl FnOnce(TokioIo<hyper::upgrade::Upgraded>) -> IO,
) {
    let (client, behind) = match tokio::try_join!(client, behind) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "failed to upgrade connection"),
    };
    if let Err(error) = tunnel(as_bytes(TokioIo::new(client)), TokioIo::new(behind), timeouts.idle).await {
        tracing::debug!(%error, "upgraded connection failed");
    }
}

/// Starts the command on the backend over SPDY.
async fn command<F, Fut, E>(place: PathAndQuery, options: Options, send: F) -> Result<RemoteCommand, RelayError>
where
    F: FnOnce(Request<Full<Bytes>>) -> Fut,
    Fut: Future<Output = Result<Response<Incoming>, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut onward = onward(Method::POST, place);
    request_upgrade(&mut onward, Transport::Spdy, remote_command::SPDY_PREFERRED);
    let request_kind = onward.headers().clone();
    let mut response = send(onward).await.map_err(failed_to_send)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(RelayError::Refused(refusal(response).await));
    }
    let protocol = agreed(&request_kind, &response, Transport::Spdy)?;
    let upgraded = hyper::upgrade::on(&mut response).await?;
    Ok(remote_command::connect(TokioIo::new(upgraded), Transport::Spdy, &protocol, options).await?)
}

/// The message of an error response: from its Status, or the text.
async fn refusal(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let status = serde_json::from_slice::<serde_json::Value>(&body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    message.map_or_else(|| String::from_utf8_lossy(&body).trim_end().to_string(), str::to_string)
}

/// Copies the streams of a command until it has ended or the client disconnects.
async fn carry(streams: Streams, remote: RemoteCommand) -> CommandResult {
    let Streams { stdin, stdout, stderr, resize: mut sizes, mut gone } = streams;
    // Aborted with this function: no one waits for input.
    let mut inputs = JoinSet::new();
    if let (Some(mut from), Some(mut to)) = (stdin, remote.stdin) {
        inputs.spawn(async move {
            if tokio::io::copy(&mut from, &mut to).await.is_ok() {
                let _ = to.shutdown().await;
            }
            // Dropping a stream resets it, and the command may not have read everything.
            std::future::pending::<()>().await;
        });
    }
    if let Some(mut terminal) = remote.resize {
        inputs.spawn(async move {
            while let Some(size) = sizes.next().await {
                if terminal.resize(size).await.is_err() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        });
    }
    let mut outputs = JoinSet::new();
    for (from, to) in [(remote.stdout, stdout), (remote.stderr, stderr)] {
        if let (Some(mut from), Some(mut to)) = (from, to) {
            outputs.spawn(async move {
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    }
    let ended = async {
        let ending = remote.ending.await;
        while outputs.join_next().await.is_some() {}
        ending
    };
    tokio::select! {
        biased;
        ending = ended => relayed(ending),
        () = gone.wait() => CommandResult::Internal("the client is gone".to_string()),
    }
}

/// An ending with its original message.
fn relayed(ending: std::io::Result<CommandResult>) -> CommandResult {
    match ending {
        Ok(CommandResult::ExitCode { code, message }) => {
            let words = message.strip_prefix("command terminated with non-zero exit code: ");
            let message = words.map(str::to_string).unwrap_or(message);
            CommandResult::ExitCode { code, message }
        }
        Ok(CommandResult::Failed(message)) => {
            let words = message.strip_prefix("Internal error occurred: ");
            CommandResult::Internal(words.map(str::to_string).unwrap_or(message))
        }
        Ok(ending) => ending,
        Err(error) => CommandResult::Internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn translates_only_unsupported_protocols() {
        let options = Options { stdout: true, ..Options::default() };
        let command = StreamRequest::Command(Verb::Exec, options);
        let websocket = |protocol| {
            headers(&[("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", protocol)])
        };
        let spdy = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        let cases = [
            (websocket("v5.channel.k8s.io"), command, RelayMode::Translated(Verb::Exec, options)),
            (websocket("v4.channel.k8s.io, v5.channel.k8s.io"), command, RelayMode::Translated(Verb::Exec, options)),
            (websocket("v4.channel.k8s.io"), command, RelayMode::Through),
            (websocket("v5.channel.k8s.io"), StreamRequest::Forward, RelayMode::Through),
            (websocket(TUNNEL), StreamRequest::Forward, RelayMode::Unwrapped),
            (websocket("v4.channel.k8s.io"), StreamRequest::Forward, RelayMode::Through),
            (spdy.clone(), command, RelayMode::Through),
            (spdy, StreamRequest::Forward, RelayMode::Through),
        ];
        for (headers, request_kind, want) in cases {
            assert_eq!(RelayMode::of(&headers, request_kind), want, "{headers:?} {request_kind:?}");
        }
    }

    #[test]
    fn does_not_forward_credentials() {
        let all = headers(&[
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("impersonate-user", "root"),
            ("content-length", "0"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
        ]);
        let passed = passed(&all);
        let mut names: Vec<&str> = passed.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "sec-websocket-key", "sec-websocket-version", "upgrade"]);
    }

    #[test]
    fn endings_keep_their_message() {
        let exit = |message: &str| CommandResult::ExitCode { code: 3, message: message.to_string() };
        let cases = [
            (CommandResult::Success, CommandResult::Success),
            (exit("command terminated with non-zero exit code: exit status 3"), exit("exit status 3")),
            (
                CommandResult::Failed("Internal error occurred: no".to_string()),
                CommandResult::Internal("no".to_string()),
            ),
            (CommandResult::Failed("no".to_string()), CommandResult::Internal("no".to_string())),
        ];
        for (ending, want) in cases {
            assert_eq!(relayed(Ok(ending)), want);
        }
    }
}
