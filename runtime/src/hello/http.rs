//! A minimal HTTP/1.1 server: requests with a Content-Length, complete responses, and persistent connections.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::options::Options;

const MAX_HEAD: usize = 16 << 10;
const MAX_BODY: usize = 1 << 20;
/// How long a connection may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Server {
    name: String,
    environment: Vec<(String, String)>,
    files: PathBuf,
    fail: bool,
}

impl Server {
    pub(super) fn new(options: &Options) -> Arc<Server> {
        let environment: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let variable =
            |wanted: &str| environment.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
        let name = variable("POD_NAME").or_else(|| variable("HOSTNAME")).or_else(host).unwrap_or_default();
        let mut environment = environment;
        environment.sort();
        Arc::new(Server { name, environment, files: options.files.clone(), fail: options.fail })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
    }
}

pub(super) struct Response {
    status: Cow<'static, str>,
    kind: &'static str,
    body: Vec<u8>,
    /// The program exits with this code after the response is sent.
    exit: Option<u8>,
}

impl Response {
    fn text(status: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Response {
        Response {
            status: status.into(),
            kind: "text/plain; charset=utf-8",
            body: text.into().into_bytes(),
            exit: None,
        }
    }
}

/// Why a request is rejected; the text is the status of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidRequest {
    #[error("400 Bad Request")]
    Syntax,
    #[error("411 Length Required")]
    NoLength,
    #[error("413 Content Too Large")]
    BodyTooLarge,
    #[error("431 Request Header Fields Too Large")]
    HeadTooLarge,
    #[error("505 HTTP Version Not Supported")]
    Version,
}

/// Serves a connection until one side closes it.
pub(super) async fn connection(mut stream: impl AsyncRead + AsyncWrite + Unpin, server: Arc<Server>) {
    let mut buffer = Vec::new();
    loop {
        let request = match tokio::time::timeout(IDLE_TIMEOUT, receive(&mut stream, &mut buffer)).await {
            Ok(Ok(Some(request))) => request,
            Ok(Err(invalid)) => {
                let _ =
                    send(&mut stream, &Response::text(invalid.to_string(), format!("{invalid}\n")), false, false).await;
                return;
            }
            Ok(Ok(None)) | Err(_) => return,
        };
        let keep_alive = !request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let response = respond(&server, &request);
        let sent = send(&mut stream, &response, keep_alive, request.method == "HEAD").await;
        if let Some(code) = response.exit {
            let _ = stream.shutdown().await;
            end(code);
        }
        if sent.is_err() || !keep_alive {
            return;
        }
    }
}

/// The program has no state to flush, so it may exit at any point.
#[allow(clippy::disallowed_methods)]
fn end(code: u8) -> ! {
    std::process::exit(i32::from(code))
}

/// The next request; None at the end of the connection.
async fn receive(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<Option<Request>, InvalidRequest> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if buffer.len() > MAX_HEAD {
            return Err(InvalidRequest::HeadTooLarge);
        }
        if !more(stream, buffer).await {
            return Ok(None);
        }
    };
    let (mut request, length) = parse(&buffer[..head])?;
    if request.header("expect").is_some() {
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    }
    while buffer.len() < head + length {
        if !more(stream, buffer).await {
            return Ok(None);
        }
    }
    request.body = buffer[head..head + length].to_vec();
    buffer.drain(..head + length);
    Ok(Some(request))
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> bool {
    matches!(stream.read_buf(buffer).await, Ok(1..))
}

/// Parses the head of a request, and returns it with the length of its body.
pub(super) fn parse(head: &[u8]) -> Result<(Request, usize), InvalidRequest> {
    const BAD: InvalidRequest = InvalidRequest::Syntax;
    let text = std::str::from_utf8(head).map_err(|_| BAD)?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (first.next(), first.next(), first.next(), first.next())
    else {
        return Err(BAD);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(InvalidRequest::Version);
    }
    let header = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let headers =
        lines.filter(|line| !line.is_empty()).map(|line| header(line).ok_or(BAD)).collect::<Result<_, _>>()?;
    let request = Request { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new() };
    if request.header("transfer-encoding").is_some() {
        return Err(InvalidRequest::NoLength);
    }
    let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>).map_err(|_| BAD)?;
    if length > MAX_BODY { Err(InvalidRequest::BodyTooLarge) } else { Ok((request, length)) }
}

async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    response: &Response,
    keep_alive: bool,
    head_only: bool,
) -> std::io::Result<()> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
        response.status,
        response.kind,
        response.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if !head_only {
        stream.write_all(&response.body).await?;
    }
    stream.flush().await
}

fn respond(server: &Server, request: &Request) -> Response {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    match (request.method.as_str(), path) {
        ("GET" | "HEAD", "/") => Response::text("200 OK", about(server, request)),
        ("GET" | "HEAD", "/healthz") if server.fail => Response::text("500 Internal Server Error", "unhealthy\n"),
        ("GET" | "HEAD", "/healthz") => Response::text("200 OK", "ok\n"),
        ("POST", "/exit") => exit(query),
        (_, "/echo") => {
            Response { kind: "application/octet-stream", body: request.body.clone(), ..Response::text("200 OK", "") }
        }
        ("GET" | "HEAD", path) => match path.strip_prefix("/files") {
            Some(inner) if inner.is_empty() || inner.starts_with('/') => file(&server.files, inner),
            _ => Response::text("404 Not Found", "not found; try /\n"),
        },
        _ => Response::text("405 Method Not Allowed", "405\n"),
    }
}

fn about(server: &Server, request: &Request) -> String {
    let mut text = format!("Hello from {}\n\n{} {}\n", server.name, request.method, request.target);
    for (name, value) in &request.headers {
        let _ = writeln!(text, "{name}: {value}");
    }
    text.push('\n');
    for (name, value) in &server.environment {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

fn exit(query: &str) -> Response {
    let code = query.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap_or("0");
    match code.parse() {
        Ok(code) => Response { exit: Some(code), ..Response::text("200 OK", format!("exiting with {code}\n")) },
        Err(_) => Response::text("400 Bad Request", "code must be a number from 0 to 255\n"),
    }
}

fn file(root: &Path, inner: &str) -> Response {
    let Some(path) = below(root, &decode(inner)) else { return Response::text("400 Bad Request", "400\n") };
    let read = match path.is_dir() {
        true => names(&path),
        false => std::fs::read(&path).map(|body| ("application/octet-stream", body)),
    };
    match read {
        Ok((kind, body)) => Response { kind, body, ..Response::text("200 OK", "") },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Response::text("404 Not Found", "404\n"),
        Err(error) => Response::text("403 Forbidden", format!("{error}\n")),
    }
}

fn names(directory: &Path) -> std::io::Result<(&'static str, Vec<u8>)> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}\n", entry.file_name().to_string_lossy()));
    }
    names.sort();
    Ok(("text/plain; charset=utf-8", names.concat().into_bytes()))
}

/// A path that keep_alive below its root, except for symlinks, which belong to the container.
pub(super) fn below(root: &Path, inner: &str) -> Option<PathBuf> {
    let mut path = root.to_owned();
    for component in Path::new(inner.trim_start_matches('/')).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
