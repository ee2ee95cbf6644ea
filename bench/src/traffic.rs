//! TCP between network namespaces: bytes and connections a second.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use network::ns::Netns;

use crate::Result;

const CHUNK: usize = 256 * 1024;
/// Clients that connect concurrently.
const CLIENTS: usize = 4;
const WAIT: Duration = Duration::from_secs(20);
/// In bytes.
pub(crate) const GIGABIT: f64 = 1e9 / 8.0;

/// Reads and counts what clients send, in a thread that ends with the process.
pub(crate) fn serve_streams(listener: TcpListener, bytes: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok((mut stream, _)) = listener.accept() {
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    });
}

/// Accepts and closes, in threads that end with the process.
pub(crate) fn serve_connections(listener: TcpListener) {
    let listener = Arc::new(listener);
    for _ in 0..2 {
        let listener = listener.clone();
        std::thread::spawn(move || while listener.accept().is_ok() {});
    }
}

/// Bytes a second of one connection.
pub(crate) fn throughput(client: &Netns, to: SocketAddr, round: Duration, bytes: &AtomicU64) -> Result<f64> {
    let (before, started) = (bytes.load(Ordering::Relaxed), Instant::now());
    client.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, WAIT)?;
        let chunk = vec![0; CHUNK];
        while started.elapsed() < round {
            stream.write_all(&chunk)?;
        }
        Ok(())
    })?;
    let received = bytes.load(Ordering::Relaxed) - before;
    Ok(received as f64 / started.elapsed().as_secs_f64())
}

/// Connections a second of some clients, each of which waits until the server closes.
pub(crate) fn connections(client: &Netns, to: SocketAddr, round: Duration) -> Result<f64> {
    let started = Instant::now();
    let connect = || -> io::Result<u64> {
        let mut count = 0;
        while started.elapsed() < round {
            let mut stream = TcpStream::connect_timeout(&to, WAIT)?;
            stream.set_read_timeout(Some(WAIT))?;
            // The server sends nothing.
            count += u64::from(stream.read(&mut [0])? == 0);
        }
        Ok(count)
    };
    let count = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client.run(connect))).collect();
        let mut count = 0;
        for client in clients {
            count += client.join().map_err(|_| "a client panicked")??;
        }
        Result::Ok(count)
    })?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
