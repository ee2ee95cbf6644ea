//! Streaming sessions: copy data between a client and a process, or a port of a pod.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ::streaming::port_forward::{Connection, port_forward};
use ::streaming::remote_command::{CommandResult, Options, Resize, Size, Streams, Verb, remote_command};
use ::streaming::{Reader, Timeouts, Writer};
use bytes::Bytes;
use cri::{AttachRequest, ExecRequest, PortForwardRequest};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Session;
use crate::error::{Context, Result, refused};
use crate::service::{ExecStreams, Service};
use crate::shim::protocol::{AttachedStream, Call};

const CHUNK: usize = 32 << 10;
/// How long to wait for output after a command has exited, since other processes may hold its streams open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Upgrades the connection, and runs the session on it.
pub(super) fn start(request: Request<Incoming>, session: Session, service: Service) -> Response<Full<Bytes>> {
    let timeouts = Timeouts::default();
    match session {
        Session::Exec(requested) => {
            let options = options(requested.stdin, requested.stdout, requested.stderr, requested.tty);
            let run = move |streams| async move { ending(exec(&service, requested, streams).await) };
            remote_command(request, Verb::Exec, options, timeouts, run)
        }
        Session::Attach(requested) => {
            let options = options(requested.stdin, requested.stdout, requested.stderr, requested.tty);
            let run = move |streams| async move { ending(attach(&service, requested, streams).await) };
            remote_command(request, Verb::Attach, options, timeouts, run)
        }
        Session::PortForward(requested) => {
            let request = with_ports(request, &requested);
            let sandbox: Arc<str> = requested.pod_sandbox_id.into();
            port_forward(request, timeouts, move |port, connection| {
                forward(service.clone(), sandbox.clone(), port, connection)
            })
        }
    }
}

/// A terminal has only one output stream.
fn options(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Options {
    Options { stdin, stdout, stderr: stderr && !tty, tty }
}

fn ending(result: Result<CommandResult>) -> CommandResult {
    result.unwrap_or_else(|error| CommandResult::Failed(error.to_string()))
}

/// The client passed the ports in the CRI request. The port-forward protocol over WebSocket expects them in the URL.
fn with_ports(mut request: Request<Incoming>, requested: &PortForwardRequest) -> Request<Incoming> {
    let ports: Vec<String> = requested.port.iter().map(|port| format!("port={port}")).collect();
    if request.uri().query().is_none()
        && !ports.is_empty()
        && let Ok(uri) = format!("{}?{}", request.uri().path(), ports.join("&")).parse::<Uri>()
    {
        *request.uri_mut() = uri;
    }
    request
}

/// A descriptor for asynchronous reads and writes: an end of a pipe, or a terminal.
struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    fn new(fd: OwnedFd) -> Result<Arc<Stream>> {
        rustix::io::ioctl_fionbio(&fd, true).at("opening a stream")?;
        // SAFETY: an owned descriptor is the same one until it is dropped.
        let registered = unsafe { AsyncFd::register(fd) };
        Ok(Arc::new(Stream(registered.at("opening a stream")?)))
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(result) = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?)) {
                return result;
            }
        }
    }

    async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.0.writable().await?;
            if let Ok(result) = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), data)?)) {
                data = &data[result?..];
            }
        }
        Ok(())
    }
}

/// Copies output to the client until it ends.
async fn copy_output(from: Arc<Stream>, mut to: Writer) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Copies input to a process until the client ends it. The process then reads end of file, or, from a terminal, the
/// end-of-file character.
async fn copy_input(from: Option<Reader>, to: Option<Arc<Stream>>, is_terminal: bool) {
    let (Some(mut from), Some(to)) = (from, to) else { return };
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    if is_terminal {
        let _ = to.write_all(&[4]).await;
    }
}

async fn resize(terminal: Arc<Stream>, mut sizes: Resize) {
    while let Some(Size { width, height }) = sizes.next().await {
        let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(terminal.0.get_ref(), size);
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).at("creating a pipe")
}

async fn exec(service: &Service, request: ExecRequest, streams: Streams) -> Result<CommandResult> {
    let container = service.container_by_id(&request.container_id)?;
    let Streams { stdin, stdout, stderr, resize: sizes, mut gone } = streams;
    // The session waits for the outputs at the end, but not for the inputs.
    let (mut outputs, mut inputs) = (JoinSet::new(), JoinSet::new());
    let mut running;
    if request.tty {
        running = service.execute(&container, request.cmd, None).await?;
        let Some(terminal) = running.terminal.take() else { return refused("the command has no terminal") };
        let terminal = Stream::new(terminal)?;
        inputs.spawn(copy_input(stdin, Some(terminal.clone()), true));
        inputs.spawn(resize(terminal.clone(), sizes));
        stdout.map(|stdout| outputs.spawn(copy_output(terminal, stdout)));
    } else {
        let ((input, to_stdin), (from_stdout, output), (from_stderr, error)) = (pair()?, pair()?, pair()?);
        let exec_streams = ExecStreams { stdin: input, stdout: output, stderr: error };
        running = service.execute(&container, request.cmd, Some(exec_streams)).await?;
        let to_stdin = if stdin.is_some() { Some(Stream::new(to_stdin)?) } else { None };
        inputs.spawn(copy_input(stdin, to_stdin, false));
        for (from, to) in [(from_stdout, stdout), (from_stderr, stderr)] {
            if let Some(to) = to {
                outputs.spawn(copy_output(Stream::new(from)?, to));
            }
        }
    }
    let code = tokio::select! {
        biased;
        code = &mut running.exit => code,
        // The client has disconnected.
        () = gone.wait() => {
            running.kill().await;
            return refused("the client has disconnected");
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, async { while outputs.join_next().await.is_some() {} }).await;
    match code {
        Ok(0) => Ok(CommandResult::Success),
        Ok(code) => Ok(CommandResult::ExitCode { code, message: format!("command terminated with exit code {code}") }),
        Err(_) => refused("the pod's shim exited before the command"),
    }
}

async fn attach(service: &Service, request: AttachRequest, streams: Streams) -> Result<CommandResult> {
    let container = service.container_by_id(&request.container_id)?;
    let shim = service.running_shim(&container)?;
    let Streams { stdin, stdout, stderr, resize: mut sizes, mut gone } = streams;
    let (mut requested, mut theirs) = (Vec::new(), Vec::new());
    let (mut outputs, mut inputs) = (JoinSet::new(), JoinSet::new());
    if stdin.is_some() {
        let (read, write) = pair()?;
        requested.push(AttachedStream::Stdin);
        theirs.push(read);
        inputs.spawn(copy_input(stdin, Some(Stream::new(write)?), false));
    }
    for (stream, to) in [(AttachedStream::Stdout, stdout), (AttachedStream::Stderr, stderr)] {
        if let Some(to) = to {
            let (read, write) = pair()?;
            requested.push(stream);
            theirs.push(write);
            outputs.spawn(copy_output(Stream::new(read)?, to));
        }
    }
    let files: Vec<_> = theirs.iter().map(|fd| fd.as_fd()).collect();
    shim.call(Call::Attach { container: container.id.clone(), streams: requested }, &files).await?;
    drop(files);
    drop(theirs);
    let id = container.id.clone();
    inputs.spawn(async move {
        while let Some(Size { width, height }) = sizes.next().await {
            let _ = shim.call(Call::Resize { container: id.clone(), width, height }, &[]).await;
        }
    });
    tokio::select! {
        biased;
        () = async { while outputs.join_next().await.is_some() {} } => {}
        () = gone.wait() => {}
    }
    Ok(CommandResult::Success)
}

/// How long a client may still send to a program that has closed its end.
const LINGER: Duration = Duration::from_secs(1);

/// Why a connection to a port of a pod failed.
#[derive(Debug, thiserror::Error)]
#[error("error forwarding port {port} to pod {sandbox}: {source}")]
struct ForwardError {
    port: u16,
    sandbox: Arc<str>,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Forwards one connection until the program in the pod closes it: clients wait for that before they close theirs.
async fn forward(
    service: Service,
    sandbox: Arc<str>,
    port: u16,
    connection: Connection,
) -> std::result::Result<(), ForwardError> {
    let failed = |source| ForwardError { port, sandbox: sandbox.clone(), source };
    let stream = service.connect_to_pod(&sandbox, i32::from(port)).await;
    let mut stream = stream.map_err(|error| failed(error.into()))?;
    copy_both(connection, &mut stream).await.map_err(|error| failed(error.into()))
}

async fn copy_both(connection: Connection, stream: &mut TcpStream) -> io::Result<()> {
    let (mut from_pod, mut to_pod) = stream.split();
    let (mut from_client, mut to_client) = tokio::io::split(connection);
    let mut up = std::pin::pin!(async {
        tokio::io::copy(&mut from_client, &mut to_pod).await?;
        to_pod.shutdown().await
    });
    let mut down = std::pin::pin!(async {
        tokio::io::copy(&mut from_pod, &mut to_client).await?;
        to_client.shutdown().await
    });
    tokio::select! {
        biased;
        done = &mut down => {
            let _ = tokio::time::timeout(LINGER, up).await;
            done
        }
        // The client has sent everything, but still waits for the response.
        done = &mut up => done.and(down.await),
    }
}

/// Connects a socket of the pod's network namespace to one of the pod's ports.
pub(crate) async fn connect(socket: OwnedFd, port: u16, ipv6: bool) -> io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
    let loopback: std::net::IpAddr =
        if ipv6 { std::net::Ipv6Addr::LOCALHOST.into() } else { std::net::Ipv4Addr::LOCALHOST.into() };
    socket.connect((loopback, port).into()).await
}
