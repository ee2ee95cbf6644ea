//! The actions of hooks and probes: exec, HTTP, TCP, gRPC and sleep.

mod grpc;
mod http_target;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use bytes::Bytes;
use http_body_util::Empty;
use http_client::{ConnectError, Stream, Trust, body, connect::secure, dial, tls};
use tokio::net::TcpStream;

use crate::runtime::Runtime;
use http_target::HttpTarget;

/// The limit of a response's body, and of output in events.
const MOST: usize = 10 << 10;
const MOST_REDIRECTS: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// A success with a warning event.
    Warning(String),
    Failure(String),
    /// The action could not be tried: neither a success nor a failure.
    Unknown(String),
}

/// An HTTP request that has no response.
#[derive(Debug, thiserror::Error)]
enum ActionError {
    #[error("invalid port number: {0}")]
    Port(String),
    #[error("unsupported protocol scheme {0:?}")]
    Scheme(String),
    #[error("invalid port in {0:?}")]
    Authority(String),
    #[error("dial tcp {address}: {}", refused(.source))]
    Connect { address: String, source: std::io::Error },
    #[error(transparent)]
    TlsConfig(#[from] tls::Error),
    #[error(transparent)]
    Tls(ConnectError),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// The container of an action, and the address at which it is reached.
pub(crate) struct Target<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) container_id: &'a str,
    /// The pod's address, unless the action names a host.
    pub(crate) address: &'a str,
    pub(crate) container: &'a Tree,
}

/// Runs the action of a probe within its timeout, or of a hook.
pub(crate) async fn run(action: &Tree, target: &Target<'_>, timeout: Duration, agent: &str) -> Outcome {
    let work = async {
        if let Some(exec) = action.get("exec") {
            return run_command(exec, target, timeout).await;
        }
        if let Some(get) = action.get("httpGet") {
            return probe_http(get, target, agent).await;
        }
        if let Some(tcp) = action.get("tcpSocket") {
            return connect(tcp, target).await;
        }
        if let Some(grpc) = action.get("grpc") {
            return grpc::check_health(grpc, target.address).await;
        }
        if let Some(seconds) = action.at("sleep").int("seconds") {
            tokio::time::sleep(Duration::from_secs(seconds.unsigned_abs())).await;
            return Outcome::Success;
        }
        Outcome::Unknown("missing probe handler".to_string())
    };
    // The runtime enforces the timeout of a command.
    let limit = if action.has("exec") { timeout + Duration::from_secs(5) } else { timeout };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| late(action, target, timeout))
}

fn late(action: &Tree, target: &Target<'_>, timeout: Duration) -> Outcome {
    let text = match action.get("httpGet").map(|get| url(get, target)) {
        Some(Ok(place)) => {
            let url = place.url();
            format!("Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
        }
        _ if action.has("tcpSocket") => format!("dial tcp {}: i/o timeout", place(action.at("tcpSocket"), target)),
        _ if action.has("grpc") => {
            let port = action.at("grpc").int("port").unwrap_or(0);
            format!("timeout: failed to connect service \"{}:{port}\" within {timeout:?}", target.address)
        }
        _ => format!("command timed out after {timeout:?}"),
    };
    Outcome::Failure(text)
}

async fn run_command(exec: &Tree, target: &Target<'_>, timeout: Duration) -> Outcome {
    let cmd = exec.list("command").iter().filter_map(Tree::as_str).map(str::to_string).collect();
    let timeout_seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    let container_id = target.container_id.to_string();
    let answer = target.runtime.exec(cri::ExecSyncRequest { container_id, cmd, timeout: timeout_seconds }).await;
    match answer {
        Ok(answer) if answer.exit_code == 0 => Outcome::Success,
        Ok(answer) => {
            let output: Vec<u8> = answer.stdout.into_iter().chain(answer.stderr).take(MOST).collect();
            Outcome::Failure(String::from_utf8_lossy(&output).into_owned())
        }
        Err(status) if status.code() == cri::Code::DeadlineExceeded => {
            Outcome::Failure(format!("command timed out: {}", status.message()))
        }
        Err(status) => Outcome::Unknown(format!("rpc error: {}", status.message())),
    }
}

/// A port by number, or by its name in the container.
fn port(value: &Tree, container: &Tree) -> Result<u16, ActionError> {
    let number = match (value.as_int(), value.as_str()) {
        (Some(number), _) => Some(number),
        (_, Some(name)) => {
            let named = container.list("ports").iter().find(|port| port.str("name") == name);
            named.and_then(|port| port.int("containerPort")).or_else(|| name.parse().ok())
        }
        _ => None,
    };
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| ActionError::Port(value.as_str().unwrap_or_default().to_string()))
}

fn host<'a>(action: &'a Tree, target: &Target<'a>) -> &'a str {
    match action.str("host") {
        "" => target.address,
        host => host,
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

fn place(action: &Tree, target: &Target<'_>) -> String {
    let port = port(action.at("port"), target.container).unwrap_or(0);
    format!("{}:{port}", bracketed(host(action, target)))
}

async fn connect(action: &Tree, target: &Target<'_>) -> Outcome {
    let port = match port(action.at("port"), target.container) {
        Ok(port) => port,
        Err(error) => return Outcome::Unknown(error.to_string()),
    };
    match TcpStream::connect((host(action, target), port)).await {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(format!("dial tcp {}: {}", place(action, target), refused(&error))),
    }
}

fn refused(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_string(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_string(),
        _ => error.to_string(),
    }
}

fn url(get: &Tree, target: &Target<'_>) -> Result<HttpTarget, ActionError> {
    let port = port(get.at("port"), target.container)?;
    let scheme = get.str("scheme").to_ascii_lowercase();
    let scheme = if scheme.is_empty() { "http" } else { &scheme };
    Ok(HttpTarget::new(scheme, format!("{}:{port}", bracketed(host(get, target))), get.str("path")))
}

async fn probe_http(get: &Tree, target: &Target<'_>, agent: &str) -> Outcome {
    match answered(get, target, agent).await {
        Ok(answer) if answer.status < 200 || answer.status >= 400 => {
            Outcome::Failure(format!("HTTP probe failed with statuscode: {}", answer.status))
        }
        Ok(answer) if answer.status >= 300 => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
        }
        Ok(_) => Outcome::Success,
        Err(outcome) => outcome,
    }
}

/// The response after redirects. A redirect to another host is not followed.
pub(crate) async fn answered(get: &Tree, target: &Target<'_>, agent: &str) -> Result<HttpResponse, Outcome> {
    let mut place = url(get, target).map_err(|error| Outcome::Unknown(error.to_string()))?;
    let host = place.host().to_string();
    let mut name = header(get, "host").filter(|name| !name.is_empty());
    for _ in 0..MOST_REDIRECTS {
        let failed = |why: ActionError| Outcome::Failure(format!("Get \"{}\": {why}", place.url()));
        let answer = fetch(&place, get, name, agent).await.map_err(failed)?;
        let Some(location) = answer.location.as_deref().filter(|_| is_redirect(answer.status)) else {
            return Ok(answer);
        };
        let next = place.follow(location);
        if next.host() != host {
            return Ok(answer);
        }
        // A redirect with a full URL uses the host of that URL.
        name = name.filter(|_| !http_target::is_full(location));
        place = next;
    }
    Err(Outcome::Failure(format!("Get \"{}\": stopped after {MOST_REDIRECTS} redirects", place.url())))
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The first header of this name in an action.
fn header<'a>(get: &'a Tree, name: &str) -> Option<&'a str> {
    let mut headers = get.list("httpHeaders").iter();
    headers.find(|header| header.str("name").eq_ignore_ascii_case(name)).map(|header| header.str("value"))
}

pub(crate) struct HttpResponse {
    status: u16,
    location: Option<String>,
    body: String,
}

async fn fetch(place: &HttpTarget, get: &Tree, name: Option<&str>, agent: &str) -> Result<HttpResponse, ActionError> {
    if !matches!(place.scheme.as_str(), "http" | "https") {
        return Err(ActionError::Scheme(place.scheme.clone()));
    }
    let host = place.host().to_string();
    let port = place.port().ok_or_else(|| ActionError::Authority(place.authority.clone()))?;
    let failed = |error: ConnectError| match error {
        ConnectError::Lookup { source, .. } | ConnectError::Dial { source, .. } => {
            ActionError::Connect { address: format!("{}:{port}", bracketed(&host)), source }
        }
        error => ActionError::Tls(error),
    };
    let stream = dial(&host, port).await.map_err(failed)?;
    let request = request(place, get, name, agent)?;
    if place.scheme == "http" {
        return exchange(Stream::Tcp(stream), request).await;
    }
    // A probe checks whether the container responds, not its certificate.
    let tls = tls::config(&Trust::InsecureSkipVerify, None, &[])?;
    exchange(secure(stream, &host, &Arc::new(tls)).await.map_err(failed)?, request).await
}

/// The kubelet sends its own User-Agent and accepts every content type, unless the action overrides the headers. An
/// empty value removes the header.
fn request(
    place: &HttpTarget,
    get: &Tree,
    name: Option<&str>,
    agent: &str,
) -> Result<http::Request<Empty<Bytes>>, ActionError> {
    let mut request = http::Request::get(&place.path);
    request = request.header(http::header::HOST, name.unwrap_or(&place.authority));
    let named = header(get, "user-agent").unwrap_or(agent);
    if !named.is_empty() {
        request = request.header(http::header::USER_AGENT, named);
    }
    let accepts = header(get, "accept");
    if accepts.is_none() {
        request = request.header(http::header::ACCEPT, "*/*");
    }
    let is_said = |name: &str| match name.to_ascii_lowercase().as_str() {
        "host" | "user-agent" => true,
        "accept" => accepts == Some(""),
        _ => false,
    };
    for header in get.list("httpHeaders").iter().filter(|header| !is_said(header.str("name"))) {
        request = request.header(header.str("name"), header.str("value"));
    }
    let request = request.header(http::header::CONNECTION, "close");
    Ok(request.body(Empty::new())?)
}

async fn exchange(stream: Stream, request: http::Request<Empty<Bytes>>) -> Result<HttpResponse, ActionError> {
    let answer = http_client::send_once(stream, request).await?;
    let status = answer.status().as_u16();
    let location = answer.headers().get(http::header::LOCATION);
    let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    // The body is read, so that the server can complete its response; a longer one is cut.
    let body = body::read_start(answer.into_body(), MOST).await;
    Ok(HttpResponse { status, location, body: String::from_utf8_lossy(&body).into_owned() })
}
