//! Channels over SPDY/3.1: a stream each, told apart by a header. Clients up to kubectl 1.30, and every upstream
//! kubelet, speak it. Windows are not kept, as their own implementation keeps none.

mod frames;
mod headers;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Session;
use super::channels::{Channels, DEPTH, In, Out, resize};
use crate::service::Service;
use frames::Frame;

/// How long a client may take to open the streams that it announced.
const OPENING: Duration = Duration::from_secs(30);
const CHUNK: usize = 32 << 10;

/// A connection's reading side.
struct Incoming<R> {
    io: R,
    buffer: BytesMut,
    headers: headers::Reader,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    fn new(io: R) -> Incoming<R> {
        Incoming { io, buffer: BytesMut::new(), headers: headers::Reader::default() }
    }

    /// None at the end.
    async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = frames::parse(&mut self.buffer, &mut self.headers) {
                return frame.map(Some);
            }
            if self.io.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Which streams a command has.
fn expected(session: &Session) -> Vec<&'static str> {
    let (stdin, stdout, stderr, tty) = match session {
        Session::Exec(r) => (r.stdin, r.stdout, r.stderr, r.tty),
        Session::Attach(r) => (r.stdin, r.stdout, r.stderr, r.tty),
        Session::PortForward(_) => return Vec::new(),
    };
    let wanted = [(true, "error"), (stdin, "stdin"), (stdout, "stdout"), (stderr && !tty, "stderr"), (tty, "resize")];
    wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect()
}

/// Takes over a connection for a command, once the client has opened its streams.
pub async fn start(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    session: &Session,
) -> io::Result<(Channels, JoinHandle<()>)> {
    let (reader, mut writer) = tokio::io::split(io);
    let mut incoming = Incoming::new(reader);
    let opening = open_streams(&mut incoming, &mut writer, expected(session));
    let (streams, early) = tokio::time::timeout(OPENING, opening).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let (to_session, from_client) = mpsc::channel(DEPTH);
    let (to_client, from_session) = mpsc::channel(DEPTH);
    let (pings, to_pong) = mpsc::channel(1);
    let names = streams.iter().map(|(name, id)| (*id, *name)).collect();
    let task = tokio::spawn(async move {
        let reading = tokio::spawn(listen(incoming, names, early, to_session, pings));
        speak(writer, streams, from_session, to_pong).await;
        reading.abort();
    });
    Ok((Channels { from_client, to_client }, task))
}

type Streams = BTreeMap<&'static str, u32>;

/// Waits for every stream; what comes on them already is kept.
async fn open_streams<R: AsyncRead + Unpin>(
    incoming: &mut Incoming<R>,
    writer: &mut (impl AsyncWrite + Unpin),
    expected: Vec<&'static str>,
) -> io::Result<(Streams, Vec<Frame>)> {
    let (mut streams, mut early) = (Streams::new(), Vec::new());
    let mut replies = headers::Writer::default();
    while streams.len() < expected.len() {
        match incoming.next().await? {
            Some(Frame::Open { stream, headers }) => {
                let kind = headers.get("streamtype").map(String::as_str).unwrap_or_default();
                match expected.iter().find(|name| **name == kind) {
                    Some(name) => {
                        streams.insert(name, stream);
                        writer.write_all(&frames::reply(stream, &mut replies)).await?;
                    }
                    None => writer.write_all(&frames::reset(stream)).await?,
                }
                writer.flush().await?;
            }
            Some(frame @ Frame::Data { .. }) => early.push(frame),
            Some(Frame::Ping(number)) => writer.write_all(&frames::pong(number)).await?,
            Some(Frame::Reset { .. } | Frame::Other) => {}
            Some(Frame::Goodbye) | None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    Ok((streams, early))
}

async fn listen<R: AsyncRead + Unpin>(
    mut incoming: Incoming<R>,
    names: BTreeMap<u32, &'static str>,
    early: Vec<Frame>,
    to_session: mpsc::Sender<In>,
    pings: mpsc::Sender<u32>,
) {
    let mut early = early.into_iter();
    loop {
        let frame = match early.next() {
            Some(frame) => frame,
            None => match incoming.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) | Err(_) => return,
            },
        };
        match frame {
            Frame::Data { stream, data, last } => {
                for input in inputs(names.get(&stream).copied().unwrap_or_default(), data, last) {
                    if to_session.send(input).await.is_err() {
                        return;
                    }
                }
            }
            Frame::Ping(number) => drop(pings.send(number).await),
            Frame::Goodbye => return,
            Frame::Open { .. } | Frame::Reset { .. } | Frame::Other => {}
        }
    }
}

fn inputs(name: &str, data: Bytes, last: bool) -> Vec<In> {
    let mut inputs = Vec::new();
    match name {
        "stdin" => {
            if !data.is_empty() {
                inputs.push(In::Stdin(data));
            }
            if last {
                inputs.push(In::StdinEnd);
            }
        }
        // One message may hold several sizes, a line each.
        "resize" => inputs.extend(data.split(|b| *b == b'\n').filter_map(resize)),
        _ => {}
    }
    inputs
}

async fn speak(
    mut writer: impl AsyncWrite + Unpin,
    streams: Streams,
    mut from_session: mpsc::Receiver<Out>,
    mut pings: mpsc::Receiver<u32>,
) {
    let frame = |name: &str, data: &[u8]| streams.get(name).map(|id| frames::data(*id, data, false));
    loop {
        let bytes = tokio::select! {
            biased;
            Some(number) = pings.recv() => Some(frames::pong(number)),
            out = from_session.recv() => match out {
                Some(Out::Stdout(data)) => frame("stdout", &data),
                Some(Out::Stderr(data)) => frame("stderr", &data),
                Some(Out::Status(data)) => frame("error", &data),
                Some(_) => None,
                None => break,
            },
        };
        if let Some(bytes) = bytes
            && (writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err())
        {
            return;
        }
    }
    for name in ["stdout", "stderr", "error"] {
        if let Some(id) = streams.get(name) {
            let _ = writer.write_all(&frames::data(*id, &[], true)).await;
        }
    }
    let _ = writer.write_all(&frames::goodbye(streams.values().copied().max().unwrap_or(0))).await;
    let _ = writer.shutdown().await;
}

/// One connection through a pod's port: two streams of one request.
#[derive(Default)]
struct Pair {
    error: Option<u32>,
    data: Option<u32>,
    port: i32,
}

/// Forwards ports until the client goes. Each pair of streams is a connection of its own.
pub async fn forward(io: impl AsyncRead + AsyncWrite + Send + 'static, service: Service, sandbox: String) {
    let (reader, mut writer) = tokio::io::split(io);
    let mut incoming: Incoming<ReadHalf<_>> = Incoming::new(reader);
    let (frames_out, mut to_write) = mpsc::channel::<Vec<u8>>(DEPTH);
    let writing = tokio::spawn(async move {
        while let Some(bytes) = to_write.recv().await {
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    let mut replies = headers::Writer::default();
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, mpsc::Sender<Bytes>> = BTreeMap::new();
    while let Ok(Some(frame)) = incoming.next().await {
        let answer = match frame {
            Frame::Open { stream, headers } => {
                let of = |name: &str| headers.get(name).cloned().unwrap_or_default();
                let request = if of("requestid").is_empty() { of("port") } else { of("requestid") };
                let pair = pairs.entry(request.clone()).or_default();
                pair.port = of("port").parse().unwrap_or(-1);
                match of("streamtype").as_str() {
                    "error" => pair.error = Some(stream),
                    "data" => pair.data = Some(stream),
                    _ => {
                        let _ = frames_out.send(frames::reset(stream)).await;
                        continue;
                    }
                }
                let answered = frames_out.send(frames::reply(stream, &mut replies)).await;
                if let Pair { error: Some(error), data: Some(data), port } = *pair {
                    let (input, from_client) = mpsc::channel(DEPTH);
                    inputs.insert(data, input);
                    pairs.remove(&request);
                    let (service, sandbox, out) = (service.clone(), sandbox.clone(), frames_out.clone());
                    tokio::spawn(connect(service, sandbox, port, (data, error), from_client, out));
                }
                answered
            }
            Frame::Data { stream, data, last } => {
                if let Some(input) = inputs.get(&stream).filter(|_| !data.is_empty()) {
                    let _ = input.send(data).await;
                }
                if last {
                    inputs.remove(&stream);
                }
                Ok(())
            }
            Frame::Reset { stream } => {
                inputs.remove(&stream);
                Ok(())
            }
            Frame::Ping(number) => frames_out.send(frames::pong(number)).await,
            Frame::Goodbye => break,
            Frame::Other => Ok(()),
        };
        if answer.is_err() {
            break;
        }
    }
    drop((inputs, frames_out));
    let _ = writing.await;
}

async fn connect(
    service: Service,
    sandbox: String,
    port: i32,
    (data, error): (u32, u32),
    mut from_client: mpsc::Receiver<Bytes>,
    out: mpsc::Sender<Vec<u8>>,
) {
    match service.connect_to_pod(&sandbox, port).await {
        Err(reason) => drop(out.send(frames::data(error, reason.to_string().as_bytes(), true)).await),
        Ok(stream) => {
            let (mut reader, mut writer) = stream.into_split();
            let sending = async {
                while let Some(bytes) = from_client.recv().await {
                    if writer.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                let _ = writer.shutdown().await;
            };
            let receiving = async {
                let mut buffer = vec![0; CHUNK];
                while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                    if out.send(frames::data(data, &buffer[..length], false)).await.is_err() {
                        return;
                    }
                }
            };
            tokio::join!(sending, receiving);
            let _ = out.send(frames::data(error, &[], true)).await;
        }
    }
    let _ = out.send(frames::data(data, &[], true)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_over_spdy() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let request = cri::ExecRequest { stdin: true, stdout: true, ..Default::default() };
        let mut writer = headers::Writer::default();
        for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
            client.write_all(&frames::open(stream, &[("streamtype", kind)], &mut writer)).await.unwrap();
        }
        client.write_all(&frames::data(3, b"typed", true)).await.unwrap();
        let (mut channels, task) = start(server, &Session::Exec(request)).await.unwrap();
        assert_eq!(channels.from_client.recv().await, Some(In::Stdin(Bytes::from_static(b"typed"))));
        assert_eq!(channels.from_client.recv().await, Some(In::StdinEnd));
        channels.to_client.send(Out::Stdout(Bytes::from_static(b"out"))).await.unwrap();
        channels.to_client.send(Out::Status(Bytes::from_static(b"done"))).await.unwrap();
        drop(channels);
        task.await.unwrap();
        let mut incoming = Incoming::new(client);
        let mut found = Vec::new();
        while let Some(frame) = incoming.next().await.unwrap() {
            found.push(frame);
        }
        let data = |stream, text: &'static [u8], last| Frame::Data { stream, data: Bytes::from_static(text), last };
        let expected = [
            Frame::Other,
            Frame::Other,
            Frame::Other,
            data(5, b"out", false),
            data(1, b"done", false),
            data(5, b"", true),
            data(1, b"", true),
            Frame::Goodbye,
        ];
        assert_eq!(found, expected);
    }
}
