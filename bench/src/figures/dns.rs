//! The cluster DNS: service names by UDP against a bare server that sends the same bytes, lookups beside a flood, and
//! the memory of a large cluster.

use std::net::{IpAddr, SocketAddr, UdpSocket as BlockingSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dns::message::{Message, Name, Question, Type};
use dns::{Cluster, Config, CorefileSource, DnsHandle, HttpEndpoints, Limits, Listen, Server};
use stdx::clock::SystemClock;
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;

use super::{MIB, Plan};
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::large_cluster::{LargeCluster, name_of};
use crate::{Result, process};

/// Clients, each with one query at a time.
const SOCKETS: usize = 64;
pub(super) const SERVICES: usize = 5_000;
const WAIT: Duration = Duration::from_secs(5);
/// How long a client waits for a response beside a flood.
const LOST: Duration = Duration::from_millis(200);
/// Between the lookups of a client that is no flood.
const PAUSE: Duration = Duration::from_millis(1);
const COREFILE: &str = ".:53 {\nerrors\nprometheus\nkubernetes cluster.local in-addr.arpa {\nttl 30\n}\nloadbalance\n}";

/// Measures all figures of the DNS.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let before = process::private_bytes(std::process::id())?;
    let server = DnsServer::start(Limits::default(), &LargeCluster::new(SERVICES))?;
    let used = process::private_bytes(std::process::id())?.saturating_sub(before);
    measure_rate(plan, report, &server)?;
    let value = used as f64 / MIB;
    let goal = Goal::AtMost(1.0);
    report.add(&BenchmarkResult {
        name: "DNS memory, 5,000 services, 50,000 endpoints",
        value,
        unit: "MiB",
        limit: 60.0,
        goal,
    });
    drop(server);
    measure_flood(plan, report)
}

/// Rounds that take turns; the best one of each side is an undisturbed one.
pub(super) fn measure_rate(plan: &Plan, report: &mut Report, server: &DnsServer) -> Result<()> {
    let queries = queries();
    let response = exchange(server.address, &queries[0])?;
    let bare = BareServer::start(response)?;
    let (mut ours, mut theirs) = (Round::default(), Round::default());
    for _ in 0..plan.rounds {
        ours.keep_best(load(server.address, &queries, plan.round)?);
        theirs.keep_best(load(bare.address, &queries, plan.round)?);
    }
    let goal = Goal::AtLeast(0.5);
    report.add(&BenchmarkResult {
        name: "DNS queries, 64 sockets",
        value: ours.rate,
        unit: "1/s",
        limit: theirs.rate,
        goal,
    });
    let (value, limit, goal) = (ours.p99, theirs.p99, Goal::AtMost(2.0));
    report.add(&BenchmarkResult { name: "DNS p99, 64 sockets", value, unit: "us", limit, goal });
    Ok(())
}

/// A lookup of one source while another one sends as much as it can.
fn measure_flood(plan: &Plan, report: &mut Report) -> Result<()> {
    let limits = Limits { exempts_loopback: false, ..Limits::default() };
    let server = DnsServer::start(limits, &LargeCluster::new(SERVICES))?;
    let query = query("svc-1.ns-1.svc.cluster.local");
    let other: IpAddr = [127, 0, 0, 8].into();
    let alone = median(server.address, other, &query, plan.round)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let (stop, query, to) = (stop.clone(), query.clone(), server.address);
        move || -> Result<()> {
            let socket = BlockingSocket::bind("127.0.0.7:0")?;
            while !stop.load(Ordering::Relaxed) {
                // The queue of the server may be full.
                let _ = socket.send_to(&query, to);
            }
            Ok(())
        }
    });
    let flooded = median(server.address, other, &query, plan.round);
    stop.store(true, Ordering::Relaxed);
    flood.join().map_err(|_| "the flood failed")??;
    let goal = Goal::AtMost(3.0);
    report.add(&BenchmarkResult { name: "DNS lookup beside a flood", value: flooded?, unit: "us", limit: alone, goal });
    Ok(())
}

/// The median time of lookups, in microseconds, at a rate that is not limited.
fn median(server: SocketAddr, from: IpAddr, query: &[u8], round: Duration) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = UdpSocket::bind((from, 0)).await?;
        socket.connect(server).await?;
        let (mut times, mut bytes, end) = (Vec::new(), [0; 512], Instant::now() + round * 4);
        while Instant::now() < end {
            let start = Instant::now();
            socket.send(query).await?;
            // A query that is lost in the flood counts as long as its client waits.
            if let Ok(received) = tokio::time::timeout(LOST, socket.recv(&mut bytes)).await {
                received?;
            }
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
            tokio::time::sleep(PAUSE).await;
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    })
}

fn query(name: &str) -> Vec<u8> {
    let name = Name::parse(name).unwrap_or_else(|_| Name::root());
    Message::query(1, Question::new(name, Type::A)).write(512)
}

/// A query for each socket.
fn queries() -> Vec<Vec<u8>> {
    (0..SOCKETS).map(|n| query(&name_of(n * 71 % SERVICES))).collect()
}

fn exchange(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>> {
    let socket = BlockingSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.send_to(query, server)?;
    let mut bytes = vec![0; 512];
    let length = socket.recv(&mut bytes)?;
    bytes.truncate(length);
    let response = Message::read(&bytes)?;
    if response.answers.is_empty() {
        return Err(format!("no answer: {response:?}").into());
    }
    Ok(bytes)
}

/// The measurements of a round.
#[derive(Default)]
struct Round {
    rate: f64,
    p99: f64,
}

impl Round {
    fn keep_best(&mut self, other: Round) {
        self.p99 = if self.rate == 0.0 { other.p99 } else { self.p99.min(other.p99) };
        self.rate = self.rate.max(other.rate);
    }
}

/// All sockets in one thread, each sending its next query when it has the response to the last one.
fn load(server: SocketAddr, queries: &[Vec<u8>], round: Duration) -> Result<Round> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let start = Instant::now();
    let clients: Vec<_> =
        queries.iter().map(|query| local.spawn_local(load_socket(server, query.clone(), start + round))).collect();
    let mut times = local.block_on(&runtime, async {
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await??);
        }
        Result::Ok(all)
    })?;
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Round { rate, p99: times[times.len() * 99 / 100].as_nanos() as f64 / 1000.0 })
}

async fn load_socket(server: SocketAddr, query: Vec<u8>, end: Instant) -> Result<Vec<Duration>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(server).await?;
    let (mut times, mut bytes) = (Vec::new(), [0; 512]);
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(times);
        }
        socket.send(&query).await?;
        tokio::time::timeout(WAIT, socket.recv(&mut bytes)).await.map_err(|_| "a response was lost")??;
        times.push(start.elapsed());
    }
}

/// The threads of a server. The client has a core of its own: beside more busy threads than cores, each would wait for its
/// next time slice, of milliseconds.
fn worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

fn workers() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(worker_count()).enable_all().build()?)
}

/// The DNS with a large cluster, in threads of its own.
pub(super) struct DnsServer {
    address: SocketAddr,
    running: Option<DnsHandle>,
    runtime: Option<Runtime>,
}

impl DnsServer {
    pub(super) fn start(limits: Limits, cluster: &Arc<LargeCluster>) -> Result<DnsServer> {
        let runtime = workers()?;
        let running = runtime.block_on(async {
            let config = Config {
                corefile: CorefileSource::Text(COREFILE.to_string()),
                default_port: 53,
                listen: Listen::At(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
                http: HttpEndpoints::Disabled,
                node_name: None,
                resolv_conf: "/nonexistent".into(),
                limits,
                clock: Arc::new(SystemClock),
            };
            let running = Server::start(config, Some(Cluster { client: cluster.client() })).await?;
            let deadline = Instant::now() + Duration::from_secs(60);
            while !running.is_ready() {
                if Instant::now() > deadline {
                    return Err("the DNS did not become ready".into());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Result::Ok(running)
        })?;
        Ok(DnsServer { address: running.addresses()[0], running: Some(running), runtime: Some(runtime) })
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        if let (Some(runtime), Some(running)) = (self.runtime.take(), self.running.take()) {
            runtime.block_on(running.stop());
            runtime.shutdown_background();
        }
    }
}

/// Sends the same response to every packet, with its ID.
struct BareServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl BareServer {
    fn start(response: Vec<u8>) -> Result<BareServer> {
        let runtime = workers()?;
        let address = runtime.block_on(async {
            let first = bind_shared(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            let address = first.local_addr()?;
            let mut sockets = vec![first];
            for _ in 1..worker_count() {
                sockets.push(bind_shared(address)?);
            }
            for socket in sockets {
                tokio::spawn(answer_all(socket, response.clone()));
            }
            Result::Ok(address)
        })?;
        Ok(BareServer { address, runtime: Some(runtime) })
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn bind_shared(address: SocketAddr) -> Result<UdpSocket> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(UdpSocket::from_std(BlockingSocket::from(socket))?)
}

async fn answer_all(socket: UdpSocket, mut response: Vec<u8>) {
    let mut bytes = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
        if length >= 2 {
            response[..2].copy_from_slice(&bytes[..2]);
            let _ = socket.send_to(&response, from).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures themselves need an optimized build.
    #[test]
    fn the_server_answers_for_the_large_cluster() {
        let server = DnsServer::start(Limits::default(), &LargeCluster::new(SERVICES)).expect("a server");
        for query in queries() {
            exchange(server.address, &query).expect("an answer");
        }
        let round = load(server.address, &queries(), Duration::from_millis(100)).expect("a round");
        assert!(round.rate > 0.0 && round.p99 > 0.0);
    }
}
