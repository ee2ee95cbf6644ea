//! Several nodes of one machine: how soon they are ready, what one costs, and TCP between them.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use network::ns::Netns;

use super::{MIB, Plan, node_pods};
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::inside::CGROUP;
use crate::traffic::{self, GIGABIT};
use crate::{Result, process};

pub(super) const NODE: &str = "node";
/// What a start leaves over is done by then.
const SETTLE: Duration = Duration::from_secs(15);
/// What a node has to be ready within, and ten of them.
const AGENT_MS: f64 = 1500.0;
const TEN_MS: f64 = 5000.0;
const NODE_MIB: f64 = 40.0;
const TEN: u32 = 10;

/// The figures that may be measured alone.
pub(crate) const PARTS: [&str; 2] = ["nodes", "servers"];

pub(crate) async fn run(quick: bool, plan: &Plan, parts: &[String], report: &mut Report) -> Result<()> {
    let is_chosen = |part: &str| parts.is_empty() || parts.iter().any(|chosen| chosen == part);
    if is_chosen(PARTS[0]) {
        measure_nodes(quick, plan, report).await?;
    }
    if is_chosen(PARTS[1]) {
        super::servers::run(quick, plan, report).await?;
    }
    Ok(())
}

async fn measure_nodes(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let rounds = if quick { 1 } else { 5 };
    report.progress("starting one node and two, in turns");
    let mut best = [f64::INFINITY; 2];
    for round in 0..rounds {
        for (best, nodes) in best.iter_mut().zip([1, 2]) {
            let (took, server, _) = start(plan, nodes, round).await?;
            *best = best.min(took);
            server.stop().await?;
        }
    }
    let mut add = |name, value, unit, limit, goal| report.add(&BenchmarkResult { name, value, unit, limit, goal });
    let [one, two] = best;
    add("agent started to node Ready", two - one, "ms", AGENT_MS, Goal::AtMost(1.0));
    let (took, server, dir) = start(plan, TEN, 0).await?;
    add("up --nodes 10 to all Ready", took, "ms", TEN_MS, Goal::AtMost(1.0));
    report.progress("waiting until ten nodes are idle");
    tokio::time::sleep(SETTLE).await;
    let mib = memory_of_nodes(&dir)?;
    let goal = Goal::AtMost(1.0);
    report.add(&BenchmarkResult {
        name: "memory of one more idle node",
        value: mib,
        unit: "MiB",
        limit: NODE_MIB,
        goal,
    });
    measure_traffic(plan, (&server, &dir), report).await?;
    server.stop().await
}

/// A cluster in a directory of its own, and how long it took until all of its nodes were ready: the kubeconfig is
/// written then.
async fn start(plan: &Plan, nodes: u32, round: usize) -> Result<(f64, Server, PathBuf)> {
    let dir = plan.data(&format!("nodes-{nodes}-{round}"));
    let (cgroup, count) = (format!("{CGROUP}/nodes"), nodes.to_string());
    let flags = ["--node-name", NODE, "--cgroup-root", &cgroup, "--log-level", "error", "--nodes", &count];
    let started = Instant::now();
    let server = Server::up(&dir, &flags).await?;
    Ok((started.elapsed().as_secs_f64() * 1000.0, server, dir))
}

/// The processes of a node: they have its directory among their arguments.
pub(super) fn processes_of(dir: &Path, node: &str) -> Result<Vec<u32>> {
    let part = format!("{}/", dir.join("nodes").join(node).display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&arguments).contains(&part) {
            found.push(pid);
        }
    }
    if found.is_empty() { Err(format!("no process of {node}").into()) } else { Ok(found) }
}

/// The mean of all simulated hosts, with the processes that keep them.
fn memory_of_nodes(dir: &Path) -> Result<f64> {
    let mut bytes = 0;
    for number in 2..=TEN {
        for pid in processes_of(dir, &format!("{NODE}-{number}"))? {
            bytes += process::private_bytes(pid)?;
        }
    }
    Ok(bytes as f64 / f64::from(TEN - 1) / MIB)
}

/// TCP from a simulated host to the first node: from pod to pod, and from host to host over the bare link.
async fn measure_traffic(plan: &Plan, (server, dir): (&Server, &Path), report: &mut Report) -> Result<()> {
    report.progress("sending from pod to pod of two nodes");
    let second = format!("{NODE}-2");
    let pods = node_pods::create(&server.client()?, &[NODE, &second]).await?;
    let [receiver, sender] = &pods[..] else { return Err("two pods were created".into()) };
    let agent = processes_of(dir, &second)?.into_iter().max().ok_or("no agent")?;
    let host = Netns::open(Path::new(&format!("/proc/{agent}/ns/net")))?;
    let bytes = Arc::new(AtomicU64::new(0));
    let link = address_of("tiphys0-nodes")?;
    let overlay = receiver.netns.run(|| Listeners::bind(receiver.address))?.serve(&bytes)?;
    let bare = Listeners::bind(link)?.serve(&bytes)?;
    let mut best = [[0.0_f64; 2]; 2];
    for _ in 0..plan.rounds {
        for (best, (client, (stream, short))) in best.iter_mut().zip([(&sender.netns, overlay), (&host, bare)]) {
            best[0] = best[0].max(traffic::throughput(client, stream, plan.round, &bytes)?);
            best[1] = best[1].max(traffic::connections(client, short, plan.round)?);
        }
    }
    let [[overlay, opened], [bare, bare_opened]] = best;
    let (value, limit, goal) = (overlay / GIGABIT, bare / GIGABIT, Goal::AtLeast(0.7));
    report.add(&BenchmarkResult { name: "TCP over VXLAN, pod to pod", value, unit: "Gbit/s", limit, goal });
    let goal = Goal::AtLeast(0.8);
    report.add(&BenchmarkResult {
        name: "new connections over VXLAN, pod to pod",
        value: opened,
        unit: "1/s",
        limit: bare_opened,
        goal,
    });
    Ok(())
}

/// For bytes, and for connections.
struct Listeners([TcpListener; 2]);

impl Listeners {
    fn bind(address: IpAddr) -> std::io::Result<Listeners> {
        Ok(Listeners([TcpListener::bind((address, 0))?, TcpListener::bind((address, 0))?]))
    }

    /// Serves them until the process ends; returns their addresses.
    fn serve(self, bytes: &Arc<AtomicU64>) -> Result<(SocketAddr, SocketAddr)> {
        let [stream, short] = self.0;
        let addresses = (stream.local_addr()?, short.local_addr()?);
        traffic::serve_streams(stream, bytes.clone());
        traffic::serve_connections(short);
        Ok(addresses)
    }
}

fn address_of(device: &str) -> Result<IpAddr> {
    let mut rtnl = network::netlink::Rtnl::open()?;
    let link = rtnl.link(device)?.ok_or_else(|| format!("there is no device {device}"))?;
    let addresses = rtnl.addresses(link.index)?;
    let address = addresses.iter().find(|address| address.net.is_ipv4()).ok_or("the device has no address")?;
    Ok(address.net.address)
}
