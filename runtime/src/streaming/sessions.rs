//! What happens in a session: bytes between a client and a process, or a port of a pod.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri::{AttachRequest, ExecRequest, PortForwardRequest};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::Session;
use super::channels::{Channels, In, Out, exit_status, failure};
use crate::error::{Context, Result, refused};
use crate::service::{ExecStreams, Service};
use crate::shim::protocol::{Attached, Call};

const CHUNK: usize = 32 << 10;
/// After a command's end, others that hold its streams are waited for no longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

pub async fn run(service: Service, session: Session, channels: Channels) {
    let to_client = channels.to_client.clone();
    let ended = match session {
        Session::Exec(request) => exec(service, request, channels).await,
        Session::Attach(request) => attach(service, request, channels).await,
        Session::PortForward(request) => forward(service, request, channels).await,
    };
    if let Err(error) = ended {
        let _ = to_client.send(Out::Status(failure(&error.to_string()))).await;
    }
}

/// A descriptor that is read and written without blocking: a pipe's end, or a terminal.
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

/// Carries an output to the client until it ends.
async fn pump(stream: Arc<Stream>, to_client: mpsc::Sender<Out>, wrap: fn(Bytes) -> Out) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        if to_client.send(wrap(Bytes::copy_from_slice(&buffer[..length]))).await.is_err() {
            return;
        }
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).at("making a pipe")
}

async fn exec(service: Service, request: ExecRequest, channels: Channels) -> Result<()> {
    let container = service.container_by_id(&request.container_id)?;
    let Channels { from_client, to_client } = channels;
    let mut pumps = tokio::task::JoinSet::new();
    let mut running;
    let input;
    if request.tty {
        running = service.execute(&container, request.cmd, None).await?;
        let Some(terminal) = running.terminal.take() else { return refused("the command has no terminal") };
        let terminal = Stream::new(terminal)?;
        pumps.spawn(pump(terminal.clone(), to_client.clone(), Out::Stdout));
        input = tokio::spawn(type_in(terminal, from_client));
    } else {
        let ((stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr)) = (pair()?, pair()?, pair()?);
        running = service.execute(&container, request.cmd, Some(ExecStreams { stdin, stdout, stderr })).await?;
        if request.stdout {
            pumps.spawn(pump(Stream::new(from_stdout)?, to_client.clone(), Out::Stdout));
        }
        if request.stderr {
            pumps.spawn(pump(Stream::new(from_stderr)?, to_client.clone(), Out::Stderr));
        }
        let to_stdin = if request.stdin { Some(Stream::new(to_stdin)?) } else { None };
        input = tokio::spawn(feed(to_stdin, from_client));
    }
    let code = tokio::select! {
        biased;
        code = &mut running.exit => code,
        // The client is gone: nobody is left to run it for.
        () = to_client.closed() => {
            running.kill().await;
            input.abort();
            return Ok(());
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, async { while pumps.join_next().await.is_some() {} }).await;
    pumps.abort_all();
    input.abort();
    let status = code.map_or_else(|_| failure("the container's shim ended before the command"), exit_status);
    let _ = to_client.send(Out::Status(status)).await;
    Ok(())
}

/// Input without a terminal: its end is the process's end of file.
async fn feed(mut stdin: Option<Arc<Stream>>, mut from_client: mpsc::Receiver<In>) {
    while let Some(input) = from_client.recv().await {
        match (input, &stdin) {
            (In::Stdin(data), Some(stream)) if stream.write_all(&data).await.is_err() => stdin = None,
            (In::StdinEnd, _) => stdin = None,
            _ => {}
        }
    }
}

/// Input of a terminal, and its size.
async fn type_in(terminal: Arc<Stream>, mut from_client: mpsc::Receiver<In>) {
    while let Some(input) = from_client.recv().await {
        match input {
            In::Stdin(data) => {
                if terminal.write_all(&data).await.is_err() {
                    return;
                }
            }
            In::Resize { width, height } => {
                let size = rustix::termios::Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
                let _ = rustix::termios::tcsetwinsize(terminal.0.get_ref(), size);
            }
            // The end of input, as a terminal says it.
            In::StdinEnd => drop(terminal.write_all(&[4]).await),
            In::Port(..) | In::PortEnd(_) => {}
        }
    }
}

async fn attach(service: Service, request: AttachRequest, channels: Channels) -> Result<()> {
    let container = service.container_by_id(&request.container_id)?;
    let shim = service.running_shim(&container)?;
    let Channels { mut from_client, to_client } = channels;
    let (mut streams, mut theirs) = (Vec::new(), Vec::new());
    let mut stdin = None;
    let mut pumps = tokio::task::JoinSet::new();
    if request.stdin {
        let (read, write) = pair()?;
        streams.push(Attached::Stdin);
        theirs.push(read);
        stdin = Some(Stream::new(write)?);
    }
    for (wanted, stream, wrap) in [
        (request.stdout || request.tty, Attached::Stdout, Out::Stdout as fn(Bytes) -> Out),
        (request.stderr && !request.tty, Attached::Stderr, Out::Stderr),
    ] {
        if wanted {
            let (read, write) = pair()?;
            streams.push(stream);
            theirs.push(write);
            pumps.spawn(pump(Stream::new(read)?, to_client.clone(), wrap));
        }
    }
    let files: Vec<_> = theirs.iter().map(|fd| fd.as_fd()).collect();
    shim.call(Call::Attach { container: container.id.clone(), streams }, &files).await?;
    drop(files);
    drop(theirs);
    let id = container.id.clone();
    let input = tokio::spawn(async move {
        while let Some(input) = from_client.recv().await {
            match (input, &stdin) {
                (In::Stdin(data), Some(stream)) if stream.write_all(&data).await.is_err() => stdin = None,
                (In::StdinEnd, _) => stdin = None,
                (In::Resize { width, height }, _) => {
                    let _ = shim.call(Call::Resize { container: id.clone(), width, height }, &[]).await;
                }
                _ => {}
            }
        }
    });
    tokio::select! {
        biased;
        () = async { while pumps.join_next().await.is_some() {} } => {}
        () = to_client.closed() => {}
    }
    input.abort();
    let _ = to_client.send(Out::Status(exit_status(0))).await;
    Ok(())
}

async fn forward(service: Service, request: PortForwardRequest, channels: Channels) -> Result<()> {
    let Channels { mut from_client, to_client } = channels;
    let mut writers = Vec::new();
    let mut pumps = tokio::task::JoinSet::new();
    for (index, port) in request.port.iter().enumerate() {
        match service.connect_to_pod(&request.pod_sandbox_id, *port).await {
            Ok(stream) => {
                let (mut reader, writer) = stream.into_split();
                writers.push(Some(writer));
                let to_client = to_client.clone();
                pumps.spawn(async move {
                    let mut buffer = vec![0; CHUNK];
                    while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                        let data = Bytes::copy_from_slice(&buffer[..length]);
                        if to_client.send(Out::Port(index, data)).await.is_err() {
                            return;
                        }
                    }
                    let _ = to_client.send(Out::PortEnd(index)).await;
                });
            }
            Err(error) => {
                writers.push(None);
                let _ = to_client.send(Out::PortError(index, Bytes::from(error.to_string()))).await;
            }
        }
    }
    let input = tokio::spawn(async move {
        while let Some(input) = from_client.recv().await {
            match input {
                In::Port(index, data) => {
                    if let Some(Some(writer)) = writers.get_mut(index) {
                        let _ = writer.write_all(&data).await;
                    }
                }
                In::PortEnd(index) => {
                    if let Some(place) = writers.get_mut(index) {
                        *place = None;
                    }
                }
                _ => {}
            }
        }
    });
    tokio::select! {
        biased;
        () = async { while pumps.join_next().await.is_some() {} } => {}
        () = to_client.closed() => {}
    }
    input.abort();
    Ok(())
}

/// Makes a socket of the pod's network a stream to one of its ports.
pub async fn connect(socket: OwnedFd, port: u16, ipv6: bool) -> io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
    let loopback: std::net::IpAddr =
        if ipv6 { std::net::Ipv6Addr::LOCALHOST.into() } else { std::net::Ipv4Addr::LOCALHOST.into() };
    socket.connect((loopback, port).into()).await
}
