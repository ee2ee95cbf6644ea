//! The remote command client over either transport.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::JoinSet;

use super::over_spdy::expected;
use super::{CommandResult, ERROR, Options, Protocol, RESIZE, STDERR, STDIN, STDOUT, Size};
use crate::channels::{CLOSE, Demux, pipe, pump, send};
use crate::spdy::{Limits, Role as SpdyRole, Session, Stream};
use crate::upgrade::Transport;
use crate::websocket::{CLOSE_NORMAL, Role, split};
use crate::{Connection, Reader, Writer};

/// The protocols to request, in order of preference.
pub const SPDY_PREFERRED: &[&str] = super::SPDY_PROTOCOLS;
/// The maximum size of an error stream.
const MAX_REPORT: u64 = 1024 * 1024;

/// A remote command. Its outputs must be read for it to complete.
pub struct RemoteCommand {
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    pub stderr: Option<Reader>,
    pub resize: Option<Terminal>,
    pub ending: Pin<Box<dyn Future<Output = Result<CommandResult>> + Send>>,
}

/// Sends the terminal size.
pub struct Terminal(Writer);

impl Terminal {
    /// Sends the size of the client's terminal.
    pub async fn resize(&mut self, size: Size) -> Result<()> {
        self.0.write_all(&size.encode()).await
    }
}

/// Starts the negotiated protocol on an upgraded connection.
pub async fn connect<IO: Connection>(
    io: IO,
    transport: Transport,
    protocol: &str,
    options: Options,
) -> Result<RemoteCommand> {
    let protocol = Protocol::named(protocol);
    match transport {
        Transport::Spdy => over_spdy(io, protocol, options).await,
        Transport::WebSocket => Ok(over_websocket(io, protocol, options)),
    }
}

async fn over_spdy<IO: Connection>(io: IO, protocol: Protocol, options: Options) -> Result<RemoteCommand> {
    let session = Session::new(io, SpdyRole::Client, Limits::default(), |_| Err("unexpected".into()));
    let mut streams = std::collections::BTreeMap::new();
    for kind in expected(options, protocol.version) {
        let headers = vec![("streamtype".to_string(), kind.to_string())];
        streams.insert(kind, session.open(headers).await?);
    }
    let missing = || Error::new(ErrorKind::NotConnected, "no error stream");
    let error = streams.remove("error").ok_or_else(missing)?;
    // Streams that are still read keep the session alive: a server may report the ending before the last output.
    let session = Arc::new(session);
    let until_reset = |stream| UntilReset { stream, _session: session.clone() };
    let mut reader = |name| streams.remove(name).map(|stream| Box::new(until_reset(stream)) as Reader);
    let (stdout, stderr) = (reader("stdout"), reader("stderr"));
    let mut writer = |name| streams.remove(name).map(|stream| Box::new(stream) as Writer);
    let (stdin, resize) = (writer("stdin"), writer("resize").map(Terminal));
    let ending = Box::pin(read_ending(until_reset(error), protocol.version));
    Ok(RemoteCommand { stdin, stdout, stderr, resize, ending })
}

/// Some servers end their streams with a reset after all data.
struct UntilReset {
    stream: Stream,
    _session: Arc<Session>,
}

impl AsyncRead for UntilReset {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> std::task::Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, out).map(|result| match result {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            other => other,
        })
    }
}

async fn read_ending(error: impl AsyncRead + Unpin, version: u8) -> Result<CommandResult> {
    let mut report = Vec::new();
    let read = error.take(MAX_REPORT).read_to_end(&mut report).await;
    // Some servers disconnect after the report with the stream still open.
    if report.is_empty() {
        read?;
    }
    if report.is_empty() && version >= 4 {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the connection ended before the command did"));
    }
    Ok(CommandResult::parse(&report, version))
}

fn over_websocket<IO: Connection>(io: IO, protocol: Protocol, options: Options) -> RemoteCommand {
    let (read, write) = tokio::io::split(io);
    let (mut receiver, sender) = split(read, write, Role::Client);
    let mut sinks = vec![None, None, None, None];
    let mut open = |channel: u8| -> DuplexStream {
        let (near, far) = pipe();
        sinks[usize::from(channel)] = Some(far);
        near
    };
    let stdout = options.stdout.then(|| Box::new(open(STDOUT)) as Reader);
    let stderr = options.stderr.then(|| Box::new(open(STDERR)) as Reader);
    let error = open(ERROR);

    let mut tasks = JoinSet::new();
    let mut input = |channel: u8| -> Writer {
        let (near, far) = pipe();
        let sender = sender.clone();
        tasks.spawn(async move {
            let done = pump(far, &sender, protocol.codec, channel).await;
            if done.is_ok() && protocol.version >= 5 && channel == STDIN {
                let _ = send(&sender, protocol.codec, CLOSE, &[channel]).await;
            }
        });
        Box::new(near)
    };
    let stdin = options.stdin.then(|| input(STDIN));
    let resize = options.tty.then(|| Terminal(input(RESIZE)));
    let demux = Demux { codec: protocol.codec, half_close: false, sinks };
    tasks.spawn(async move {
        if let Err(error) = demux.run(&mut receiver).await {
            tracing::debug!(%error, "remote command connection failed");
        }
        let _ = sender.close(CLOSE_NORMAL, "").await;
    });
    let ending = Box::pin(async move {
        let ending = read_ending(error, protocol.version).await;
        drop(tasks);
        ending
    });
    RemoteCommand { stdin, stdout, stderr, resize, ending }
}
