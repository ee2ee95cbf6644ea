//! The program of the demo image: a small server that reports its pod, serves files and echoes, or sleeps, or exits.
//!
//! It is part of a large program and starts in every container of the image, so it uses one thread and a handwritten
//! HTTP server.

mod http;
mod options;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use options::{Mode, Options};

/// The number of concurrent connections; others wait.
const MAX_CONNECTIONS: usize = 256;
const LARGEST_DATAGRAM: usize = 65_536;

/// Runs the program; `args` are those after `hello`.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.into_iter().collect();
    let mode = match options::read(&args) {
        Ok(mode) => mode,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "error: {why}\n\nFor what it takes, try `hello --help`.");
            return ExitCode::from(2);
        }
    };
    if let Mode::Help = mode {
        let _ = writeln!(std::io::stdout(), "{}", options::HELP);
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(run(mode)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error),
    }
}

fn failed(error: &std::io::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

async fn run(mode: Mode) -> std::io::Result<u8> {
    // PID 1 of a container only gets the signals that it has handlers for.
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let work = async {
        match mode {
            Mode::Exit(code) => Ok(code),
            Mode::Sleep(seconds) => {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                Ok(0)
            }
            Mode::Serve(options) => serve(options).await,
            Mode::Help => Ok(0),
        }
    };
    tokio::select! {
        biased;
        _ = end.recv() => Ok(0),
        _ = interrupt.recv() => Ok(130),
        done = work => done,
    }
}

async fn serve(options: Options) -> std::io::Result<u8> {
    let server = http::Server::new(&options);
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(port) = options.port {
        let listener = listen(port).await?;
        announce(&format!("listening on port {}", listener.local_addr()?.port()));
        tasks.spawn(accept(listener, move |stream| http::connection(stream, server.clone())));
    }
    for port in options.tcp_echo {
        tasks.spawn(accept(listen(port).await?, echo_stream));
    }
    for port in options.udp_echo {
        tasks.spawn(echo_datagrams(bind_udp(port).await?));
    }
    match tasks.join_next().await {
        Some(Ok(ended)) => ended.map(|()| 0),
        Some(Err(error)) => Err(std::io::Error::other(error)),
        None => Ok(0),
    }
}

fn announce(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Listens on IPv4 and IPv6 if the machine has both.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await,
    }
}

async fn bind_udp(port: u16) -> std::io::Result<UdpSocket> {
    match UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(socket) => Ok(socket),
        Err(_) => UdpSocket::bind(SocketAddr::from((IpAddr::from([0, 0, 0, 0]), port))).await,
    }
}

async fn accept<F, W>(listener: TcpListener, handle: F) -> std::io::Result<()>
where
    F: Fn(TcpStream) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let work = handle(stream);
                tokio::spawn(async move {
                    work.await;
                    drop(permit);
                });
            }
            // Out of descriptors, or the client has disconnected: accept the next one.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn echo_stream(mut stream: TcpStream) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn echo_datagrams(socket: UdpSocket) -> std::io::Result<()> {
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    loop {
        // The error is about an earlier reply that was not delivered.
        if let Ok((read, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..read], from).await;
        }
    }
}
