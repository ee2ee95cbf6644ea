//! A small API: one pod, discovery, and its exec, attach and portforward. A command is a real process; a forwarded
//! port is a local one.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stdx::sync::Mutex;
use streaming::remote_command::{CommandResult, Options, RemoteCommand, Streams, Verb, connect, remote_command};
use streaming::{Timeouts, Transport, agreed, request_upgrade};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

pub const DEADLINE: Duration = Duration::from_secs(60);

/// The maximum duration of anything in these tests.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("done in time")
}

/// The number of clients that disconnected from a waiting command.
pub static LEFT: AtomicUsize = AtomicUsize::new(0);

/// The requests: last path element and protocol.
pub type RequestLog = Arc<Mutex<BTreeSet<String>>>;

/// Starts the API on a free port and returns it.
pub async fn start() -> u16 {
    start_noting(RequestLog::default()).await
}

pub async fn start_noting(seen: RequestLog) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request| {
                note(&seen, &request);
                async { Ok::<_, std::convert::Infallible>(answer(request)) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    port
}

fn note(seen: &RequestLog, request: &Request<Incoming>) {
    let verb = request.uri().path().rsplit('/').next().unwrap_or_default();
    for name in ["sec-websocket-protocol", "x-stream-protocol-version"] {
        let values = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        if let Some(protocol) = values.flat_map(|value| value.split(',')).next() {
            let upgrade = request.headers()["upgrade"].to_str().unwrap_or_default();
            seen.lock().insert(format!("{verb} {upgrade} {protocol}"));
        }
    }
}

fn answer(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_string();
    let query = request.uri().query().unwrap_or_default().to_string();
    let timeouts = Timeouts { creation: Duration::from_secs(10), ..Timeouts::default() };
    match path.rsplit('/').next().unwrap_or_default() {
        "exec" | "attach" => {
            let verb = if path.ends_with("exec") { Verb::Exec } else { Verb::Attach };
            let options = match Options::from_query(&query) {
                Ok(options) => options,
                Err(error) => return json(400, &error.to_string()),
            };
            let command = if verb == Verb::Exec { arguments(&query) } else { words("sh -c 'cat; echo attached'") };
            remote_command(request, verb, options, timeouts, move |streams| run(command, streams))
        }
        "portforward" => streaming::port_forward::port_forward(request, timeouts, |port, mut connection| async move {
            let target = TcpStream::connect(("127.0.0.1", port)).await;
            let mut target = target.map_err(|error| format!("error forwarding port {port} to pod: {error}"))?;
            let copied = tokio::io::copy_bidirectional(&mut connection, &mut target).await;
            copied.map(drop).map_err(|error| error.to_string())
        }),
        _ => discovery(&path),
    }
}

fn discovery(path: &str) -> Response<Full<Bytes>> {
    match path {
        "/version" => json(200, r#"{"major":"1","minor":"37","gitVersion":"v1.37.0"}"#),
        "/api" => json(200, r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#),
        "/apis" => json(200, r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#),
        "/api/v1" => json(
            200,
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"],"shortNames":["po"]}]}"#,
        ),
        "/api/v1/namespaces/default/pods/web" => json(
            200,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"main","image":"x","stdin":true,"stdinOnce":true}]},"status":{"phase":"Running"}}"#,
        ),
        _ => json(404, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#),
    }
}

fn json(status: u16, body: &str) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(body.to_string())).unwrap()
}

fn arguments(query: &str) -> Vec<String> {
    query.split('&').filter_map(|pair| pair.strip_prefix("command=")).map(decode).collect()
}

fn words(text: &str) -> Vec<String> {
    text.splitn(3, ' ').map(|word| word.trim_matches('\'').to_string()).collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&rest[..2]).unwrap(), 16).unwrap());
                rest = &rest[2..];
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

async fn run(command: Vec<String>, mut streams: Streams) -> CommandResult {
    if command == ["size"] {
        return say_size(streams).await;
    }
    if command == ["wait"] {
        streams.gone.wait().await;
        LEFT.fetch_add(1, Ordering::Relaxed);
        return CommandResult::Success;
    }
    let child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            // A client that sends input has created its streams, so the error cannot overtake them.
            if let Some(mut input) = streams.stdin.take() {
                let _ = tokio::io::copy(&mut input, &mut tokio::io::sink()).await;
            }
            return CommandResult::Failed(error.to_string());
        }
    };
    let (mut stdin, stdout, stderr) = (child.stdin.take().unwrap(), child.stdout.take(), child.stderr.take());
    // A process that ends early leaves its input unread.
    let feeding = tokio::spawn(async move {
        if let Some(mut input) = streams.stdin.take() {
            let _ = tokio::io::copy(&mut input, &mut stdin).await;
        }
    });
    tokio::join!(copy(stdout, streams.stdout), copy(stderr, streams.stderr));
    let code = child.wait().await.unwrap().code().unwrap_or(-1);
    feeding.abort();
    match code {
        0 => CommandResult::Success,
        code => CommandResult::ExitCode { code, message: format!("exit status {code}") },
    }
}

async fn copy<R: tokio::io::AsyncRead + Unpin>(from: Option<R>, to: Option<streaming::Writer>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        let _ = tokio::io::copy(&mut from, &mut to).await;
    }
}

/// Prints the terminal's size when it is known.
async fn say_size(mut streams: Streams) -> CommandResult {
    let Some(size) = streams.resize.next().await else { return CommandResult::Failed("no size".to_string()) };
    let text = format!("{}x{}\r\n", size.width, size.height);
    streams.stdout.unwrap().write_all(text.as_bytes()).await.unwrap();
    CommandResult::Success
}

/// Requests an upgrade with the crate's own client.
pub async fn upgrade(
    port: u16,
    transport: Transport,
    path: &str,
    protocols: &[&str],
) -> (String, TokioIo<hyper::upgrade::Upgraded>) {
    let socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let method = if transport == Transport::Spdy { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(path).header("host", "test");
    let mut request = request.body(Empty::<Bytes>::new()).unwrap();
    request_upgrade(&mut request, transport, protocols);
    let request_headers = request.headers().clone();
    let response = http_client::send_once(socket, request).await.unwrap();
    let protocol = agreed(&request_headers, &response, transport).unwrap();
    (protocol, TokioIo::new(hyper::upgrade::on(response).await.unwrap()))
}

pub async fn exec(port: u16, transport: Transport, protocol: &str, query: &str) -> RemoteCommand {
    let path = format!("/api/v1/namespaces/default/pods/web/exec?{query}");
    let (agreed, io) = upgrade(port, transport, &path, &[protocol]).await;
    assert_eq!(agreed, protocol);
    connect(io, transport, &agreed, Options::from_query(query).unwrap()).await.unwrap()
}
