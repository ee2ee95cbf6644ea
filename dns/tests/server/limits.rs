//! A flood from one source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dns::message::Type;
use dns::{Config, CorefileSource, Limits};
use stdx::wait::until_async;
use tokio::net::UdpSocket;

use crate::support::{WAIT, ask_from, config, query, start_with};

const COREFILE: &str = ". {\nhosts /nonexistent {\n10.0.0.1 a.org\n}\n}";

fn limited(per_second: f64, burst: f64) -> Config {
    let limits = Limits { per_second, burst, exempts_loopback: false, ..Limits::default() };
    Config { limits, ..config(CorefileSource::Text(COREFILE.to_string())) }
}

#[tokio::test]
async fn a_source_above_its_rate_is_not_answered() {
    let (running, server) = start_with(limited(20.0, 20.0), None).await;
    let socket = UdpSocket::bind("127.0.0.7:0").await.expect("a socket");
    let bytes = query("a.org", Type::A).write(512);
    for _ in 0..200 {
        socket.send_to(&bytes, server).await.expect("sent");
    }
    let refused = || running.metrics().contains("tiphys_dns_rate_limited_total{proto=\"udp\"}");
    until_async("queries are refused", WAIT, refused).await;
    let other = UdpSocket::bind("127.0.0.8:0").await.expect("a socket");
    ask_from(&other, server, &query("a.org", Type::A)).await;
    let (mut answered, mut buffer) = (0, [0; 512]);
    while socket.try_recv(&mut buffer).is_ok() {
        answered += 1;
    }
    assert!((20..150).contains(&answered), "{answered} answers");
}

/// The median latency of lookups, in microseconds.
async fn median(socket: &UdpSocket, server: std::net::SocketAddr) -> u128 {
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        ask_from(socket, server, &query("a.org", Type::A)).await;
        times.push(start.elapsed().as_micros());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// The bound is wide: flood, server and client share the machine with other tests. `tiphys bench` measures it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_does_not_block_other_sources() {
    let (_running, server) = start_with(limited(1000.0, 500.0), None).await;
    let other = UdpSocket::bind("127.0.0.8:0").await.expect("a socket");
    let alone = median(&other, server).await;
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let socket = std::net::UdpSocket::bind("127.0.0.7:0").expect("a socket");
            let bytes = query("a.org", Type::A).write(512);
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send_to(&bytes, server);
            }
        }
    });
    let flooded = median(&other, server).await;
    stop.store(true, Ordering::Relaxed);
    flood.join().expect("the flood ends");
    assert!(flooded < 20 * alone.max(200), "{flooded} µs beside a flood, {alone} µs without");
}
