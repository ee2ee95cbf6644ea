//! TCP from pod to pod: through a cluster IP among 5,000 Services, and to the pod's address, in turns.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use proxy::config::Mode;

use super::pods::{self, Pod};
use super::update::RuleMonitor;
use super::{Plan, Proxy, TABLE};
use crate::Result;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::figures::dns::SERVICES;
use crate::large_cluster::{LargeCluster, cluster_ip_of};
use crate::traffic::{self, GIGABIT};

/// The ports of the pod, behind a Service and without one: a connection through the cluster IP must not meet the tracked
/// ones of the other side.
#[derive(Clone, Copy)]
struct Ports {
    /// The Service whose endpoint is the pod.
    service: usize,
    proxied: u16,
    direct: u16,
}

const STREAMS: Ports = Ports { service: 1, proxied: 8080, direct: 9090 };
const CONNECTIONS: Ports = Ports { service: 2, proxied: 8081, direct: 9091 };

/// Measures throughput and connections.
pub(super) fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    report.progress("sending from pod to pod");
    pods::create_bridge()?;
    let (server, client) = (Pod::create(10)?, Pod::create(11)?);
    let cluster = LargeCluster::new(SERVICES);
    let proxy = Proxy::start(&cluster, Mode::Nftables)?;
    let bytes = Arc::new(AtomicU64::new(0));
    serve_streams(&server, &bytes)?;
    serve_connections(&server)?;
    // No connection is attempted before: the kernel would remember where it led, for all with the same ports.
    let mut rules = RuleMonitor::open(TABLE)?;
    for ports in [STREAMS, CONNECTIONS] {
        cluster.set_endpoints(ports.service, std::slice::from_ref(&server.address), ports.proxied);
        rules.wait()?;
    }
    let send = |to: SocketAddr| traffic::throughput(&client.netns, to, plan.round, &bytes);
    let [ours, theirs] = in_turns(plan, &server, STREAMS, send)?;
    let (value, limit, goal) = (ours / GIGABIT, theirs / GIGABIT, Goal::AtLeast(0.95));
    report.add(&BenchmarkResult { name: "TCP through a cluster IP", value, unit: "Gbit/s", limit, goal });
    let connect = |to: SocketAddr| traffic::connections(&client.netns, to, plan.round);
    let [value, limit] = in_turns(plan, &server, CONNECTIONS, connect)?;
    let goal = Goal::AtLeast(0.85);
    report.add(&BenchmarkResult { name: "new connections through a cluster IP", value, unit: "1/s", limit, goal });
    drop(proxy);
    Ok(())
}

/// The best round through the cluster IP, and the best one without it.
fn in_turns(plan: &Plan, server: &Pod, ports: Ports, measure: impl Fn(SocketAddr) -> Result<f64>) -> Result<[f64; 2]> {
    let proxied = SocketAddr::new(cluster_ip_of(ports.service).parse()?, 80);
    let direct = SocketAddr::new(server.address.parse()?, ports.direct);
    let mut best = [0.0_f64; 2];
    for _ in 0..plan.rounds {
        for (best, target) in best.iter_mut().zip([proxied, direct]) {
            *best = best.max(measure(target).map_err(|error| format!("{target}: {error}"))?);
        }
    }
    Ok(best)
}

fn listen(server: &Pod, port: u16) -> Result<TcpListener> {
    let address = SocketAddr::new(server.address.parse()?, port);
    Ok(server.netns.run(|| TcpListener::bind(address))?)
}

/// Reads and counts what clients send.
fn serve_streams(server: &Pod, bytes: &Arc<AtomicU64>) -> Result<()> {
    for port in [STREAMS.proxied, STREAMS.direct] {
        traffic::serve_streams(listen(server, port)?, bytes.clone());
    }
    Ok(())
}

/// Accepts and closes.
fn serve_connections(server: &Pod) -> Result<()> {
    for port in [CONNECTIONS.proxied, CONNECTIONS.direct] {
        traffic::serve_connections(listen(server, port)?);
    }
    Ok(())
}
