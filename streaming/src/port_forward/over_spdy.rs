//! The port forwarding server over SPDY: each connection is a pair of streams for data and errors with the same
//! request id.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Connection, PortError, port};
use crate::Timeouts;
use crate::idle::IdleTimeout;
use crate::spdy::{Headers, Limits, Role, Session, Stream, header};

/// An incomplete pair.
struct IncompletePair {
    data: Option<Stream>,
    error: Option<Stream>,
    due: Instant,
}

pub(super) async fn serve<IO, F, Fut, E>(io: IO, timeouts: Timeouts, forward: F)
where
    IO: crate::Connection,
    F: Fn(u16, Connection) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let session = Session::new(IdleTimeout::new(io, timeouts.idle), Role::Server, Limits::default(), |headers| {
        Ok(check(headers)?)
    });
    let mut halves = BTreeMap::new();
    let mut connections = JoinSet::new();
    loop {
        let due = halves.values().map(|half: &IncompletePair| half.due).min();
        tokio::select! {
            biased;
            stream = session.accept() => {
                let Some(stream) = stream else { break };
                if let Some((data, error)) = pair(&mut halves, stream, timeouts.creation).await {
                    connections.spawn(carry(data, error, forward.clone()));
                }
            }
            // Finished connections are removed, so that they do not accumulate in a long session.
            Some(_) = connections.join_next() => {}
            () = sleep_until(due) => expire(&mut halves).await,
        }
    }
    // The client has disconnected: connections notice it at their next byte, or when the session is dropped.
    drop(session);
    while connections.join_next().await.is_some() {}
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Why a stream is refused.
#[derive(Debug, Error)]
enum StreamError {
    #[error("{0:?} header is required")]
    Missing(&'static str),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("invalid stream type {0:?}")]
    Type(String),
}

fn check(headers: &Headers) -> Result<(), StreamError> {
    port(header(headers, "port").ok_or(StreamError::Missing("port"))?)?;
    match header(headers, "streamtype") {
        Some("error" | "data") => Ok(()),
        Some(other) => Err(StreamError::Type(other.to_string())),
        None => Err(StreamError::Missing("streamtype")),
    }
}

/// Old clients have no request ids; their pairs are consecutive streams, the error stream first.
fn request_id(stream: &Stream) -> String {
    match stream.header("requestid") {
        Some(id) if !id.is_empty() => id.to_string(),
        _ if stream.header("streamtype") == Some("data") => stream.id().saturating_sub(2).to_string(),
        _ => stream.id().to_string(),
    }
}

/// Adds a stream to its pair; a complete pair is returned.
async fn pair(
    halves: &mut BTreeMap<String, IncompletePair>,
    stream: Stream,
    patience: Duration,
) -> Option<(Stream, Stream)> {
    let id = request_id(&stream);
    let half = halves.entry(id.clone()).or_insert_with(|| IncompletePair {
        data: None,
        error: None,
        due: Instant::now() + patience,
    });
    let is_error = stream.header("streamtype") == Some("error");
    let slot = if is_error { &mut half.error } else { &mut half.data };
    if slot.is_some() {
        let kind = if is_error { "error" } else { "data" };
        let message = format!("error processing stream for request {id}: {kind} stream already assigned");
        if let Some(error) = &mut half.error {
            let _ = error.write_all(message.as_bytes()).await;
        }
        return None;
    }
    *slot = Some(stream);
    if half.data.is_none() || half.error.is_none() {
        return None;
    }
    let half = halves.remove(&id)?;
    half.data.zip(half.error)
}

async fn expire(halves: &mut BTreeMap<String, IncompletePair>) {
    let now = Instant::now();
    let late: Vec<_> = halves.iter().filter(|(_, half)| half.due <= now).map(|(id, _)| id.clone()).collect();
    for id in late {
        if let Some(mut error) = halves.remove(&id).and_then(|half| half.error) {
            let message = format!("(request={id}) timed out waiting for streams");
            let _ = error.write_all(message.as_bytes()).await;
        }
    }
}

async fn carry<F, Fut, E>(data: Stream, mut error: Stream, forward: F)
where
    F: Fn(u16, Connection) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Display,
{
    let port = data.header("port").and_then(|text| port(text).ok()).unwrap_or_default();
    if let Err(failure) = forward(port, Box::new(data)).await {
        let message = failure.to_string();
        tracing::debug!(port, message, "forwarded connection failed");
        let _ = error.write_all(message.as_bytes()).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn client(forward: fn(u16, Connection) -> std::future::Ready<Result<(), String>>) -> Session {
        let (near, far) = tokio::io::duplex(4096);
        tokio::spawn(serve(near, Timeouts::default(), forward));
        Session::new(far, Role::Client, Limits::default(), |_| Ok(()))
    }

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    async fn text(mut stream: Stream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[test]
    fn streams_need_port_and_type() {
        let check = |pairs: &[(&str, &str)], expected: Result<(), &str>| {
            let found = check(&headers(pairs)).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_string));
        };
        check(&[("port", "80"), ("streamtype", "data")], Ok(()));
        check(&[("streamtype", "data")], Err("\"port\" header is required"));
        check(&[("port", "0"), ("streamtype", "data")], Err("port \"0\" must be > 0"));
        check(&[("port", "80")], Err("\"streamtype\" header is required"));
        check(&[("port", "80"), ("streamtype", "stdin")], Err("invalid stream type \"stdin\""));
    }

    #[tokio::test]
    async fn pairs_streams_without_request_ids() {
        let client = client(|port, _| std::future::ready(Err(format!("no {port}"))));
        for port in ["80", "81"] {
            let error = client.open(headers(&[("port", port), ("streamtype", "error")])).await.unwrap();
            let _data = client.open(headers(&[("port", port), ("streamtype", "data")])).await.unwrap();
            assert_eq!(text(error).await, format!("no {port}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_pairs_time_out() {
        let client = client(|_, _| std::future::ready(Ok(())));
        let pairs = [("port", "80"), ("streamtype", "error"), ("requestid", "7")];
        let error = client.open(headers(&pairs)).await.unwrap();
        assert_eq!(text(error).await, "(request=7) timed out waiting for streams");
    }

    #[tokio::test]
    async fn refuses_duplicate_streams() {
        let client = client(|_, _| std::future::ready(Ok(())));
        let pairs = [("port", "80"), ("streamtype", "error"), ("requestid", "7")];
        let mut error = client.open(headers(&pairs)).await.unwrap();
        let _again = client.open(headers(&pairs)).await.unwrap();
        let expected = "error processing stream for request 7: error stream already assigned";
        let mut received = vec![0; expected.len()];
        error.read_exact(&mut received).await.unwrap();
        assert_eq!(String::from_utf8(received).unwrap(), expected);
    }
}
