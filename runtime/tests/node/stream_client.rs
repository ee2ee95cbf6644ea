//! A client of the URLs that Exec, Attach and PortForward return.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use streaming::remote_command::{CommandResult, Options, RemoteCommand, connect};
use streaming::{Transport, agreed, request_upgrade};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const DEADLINE: Duration = Duration::from_secs(30);

pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// Connects to a URL and upgrades the protocol. Returns the status and the reason if that is refused.
pub async fn upgrade(url: &str, carrier: Transport, protocols: &[&str]) -> Result<(String, Upgraded), String> {
    let rest = url.strip_prefix("http://").ok_or(format!("{url:?} is not an IP address"))?;
    let (host, path) = rest.split_once('/').ok_or(format!("{url:?} has no path"))?;
    let socket = TcpStream::connect(host).await.map_err(|error| format!("{host}: {error}"))?;
    let failed = |error: hyper::Error| error.to_string();
    let method = if carrier == Transport::Spdy { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(format!("/{path}")).header("host", host);
    let mut request = request.body(Empty::<Bytes>::new()).unwrap();
    request_upgrade(&mut request, carrier, protocols);
    let request_headers = request.headers().clone();
    let response = http_client::send_once(socket, request).await.map_err(failed)?;
    let status = response.status().as_u16();
    let protocol = agreed(&request_headers, &response, carrier).map_err(|why| format!("{status}: {why}"))?;
    Ok((protocol, TokioIo::new(hyper::upgrade::on(response).await.map_err(failed)?)))
}

pub async fn command(url: &str, carrier: Transport, protocol: &str, options: Options) -> RemoteCommand {
    let (agreed, io) = upgrade(url, carrier, &[protocol]).await.unwrap();
    connect(io, carrier, &agreed, options).await.unwrap()
}

/// Sends input and closes it, and returns output, error output and the result.
pub async fn talk(remote: RemoteCommand, input: &[u8]) -> (String, String, Result<CommandResult, io::ErrorKind>) {
    let RemoteCommand { stdin, stdout, stderr, resize, ending } = remote;
    let feed = async {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let all = async { tokio::join!(feed, drain(stdout), drain(stderr), ending) };
    let ((), out, err, ending) = tokio::time::timeout(DEADLINE, all).await.expect("a command's end");
    drop(resize);
    (out, err, ending.map_err(|error| error.kind()))
}

pub async fn drain(stream: Option<streaming::Reader>) -> String {
    let mut data = Vec::new();
    if let Some(mut stream) = stream {
        let _ = stream.read_to_end(&mut data).await;
    }
    String::from_utf8_lossy(&data).into_owned()
}

/// Reads until a text appears.
pub async fn read_until(stream: &mut streaming::Reader, text: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while !seen.contains(text) {
            let length = stream.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "the end came before {text:?}: {seen:?}");
            seen += &String::from_utf8_lossy(&buffer[..length]);
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.unwrap_or_else(|_| panic!("waited for {text:?}"));
    seen
}
