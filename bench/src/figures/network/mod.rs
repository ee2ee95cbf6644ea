//! The service proxy and the DNS with 5,000 Services: updates, traffic through a cluster IP beside traffic without it,
//! a restart, memory and CPU. It runs in a network namespace of its own, in which it creates those of two pods.

mod pods;
mod traffic;
mod update;

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Metrics;
use dns::Limits;
use proxy::config::{Configuration, LocalMode, Mode};
use proxy::runner::{Environment, ProxyHandle};
use stdx::clock::SystemClock;
use tokio::runtime::Handle;

use super::dns::{DnsServer, SERVICES, measure_rate};
use super::{MIB, Plan};
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::large_cluster::{LargeCluster, endpoints_of};
use crate::{Result, process};

const TABLE: &str = "tiphys-bench";
/// Memory that both may take for the large cluster.
const MOST_MIB: f64 = 60.0;
/// CPU of an idle process, in percent of a core: less is what the kernel's own timers take.
const IDLE_PERCENT: f64 = 0.1;
/// Unused memory is released within this time.
const SETTLE: Duration = Duration::from_secs(2);
/// Changes of endpoints before memory is measured.
const CHANGES: usize = 500;

/// The figures that may be measured alone.
pub(crate) const PARTS: [&str; 4] = ["cluster", "dns", "update", "traffic"];

/// Measures some figures, or all.
pub(crate) fn run(quick: bool, plan: &Plan, parts: &[String], report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    for part in PARTS.into_iter().filter(|part| parts.is_empty() || parts.iter().any(|chosen| chosen == part)) {
        match part {
            "cluster" => measure_cluster(quick, plan, report),
            "dns" => measure_dns(plan, report),
            "update" => update::measure(quick, report),
            _ => traffic::measure(plan, report),
        }
        .map_err(|error| format!("{part}: {error}"))?;
    }
    Ok(())
}

fn measure_cluster(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let cluster = LargeCluster::new(SERVICES);
    let before = process::private_bytes(std::process::id())?;
    report.progress("starting the proxy and the DNS with 5,000 services");
    let proxy = Proxy::start(&cluster, Mode::Nftables)?;
    let dns = DnsServer::start(Limits::default(), &cluster)?;
    change_endpoints(&cluster);
    measure_memory(report, before)?;
    measure_idle(plan, report)?;
    drop(dns);
    measure_restart(quick, report, &cluster, proxy)
}

fn measure_dns(plan: &Plan, report: &mut Report) -> Result<()> {
    report.progress("sending DNS queries");
    let dns = DnsServer::start(Limits::default(), &LargeCluster::new(SERVICES))?;
    measure_rate(plan, report, &dns)
}

/// An allocator gives back memory when it is used. In a cluster, something always changes.
fn change_endpoints(cluster: &LargeCluster) {
    for service in (0..CHANGES * 2).map(|number| number / 2) {
        cluster.set_endpoints(service, &endpoints_of(service)[service % 2..], 8080);
        pause(Duration::from_millis(5));
    }
}

fn measure_memory(report: &mut Report, before: u64) -> Result<()> {
    pause(SETTLE);
    let value = process::private_bytes(std::process::id())?.saturating_sub(before) as f64 / MIB;
    let (name, goal) = ("proxy and DNS memory, 5,000 services", Goal::AtMost(1.0));
    report.add(&BenchmarkResult { name, value, unit: "MiB", limit: MOST_MIB, goal });
    Ok(())
}

fn measure_idle(plan: &Plan, report: &mut Report) -> Result<()> {
    report.progress(&format!("watching both for {} s while nothing changes", plan.idle.as_secs()));
    let before = process::cpu_nanos(std::process::id())?;
    pause(plan.idle);
    let spent = process::cpu_nanos(std::process::id())?.saturating_sub(before);
    let value = spent.as_secs_f64() / plan.idle.as_secs_f64() * 100.0;
    let (name, goal) = ("proxy and DNS CPU, idle", Goal::AtMost(1.0));
    report.add(&BenchmarkResult { name, value, unit: "%", limit: IDLE_PERCENT, goal });
    Ok(())
}

/// From the start of a proxy to its first complete sync, with the rules of the one before in the kernel.
fn measure_restart(quick: bool, report: &mut Report, cluster: &Arc<LargeCluster>, mut proxy: Proxy) -> Result<()> {
    let mut best = f64::MAX;
    for _ in 0..if quick { 2 } else { 5 } {
        drop(proxy);
        let started = Instant::now();
        proxy = Proxy::start(cluster, Mode::Nftables)?;
        best = best.min(started.elapsed().as_secs_f64() * 1e3);
    }
    drop(proxy);
    let (name, goal) = ("full sync after a restart, 5,000 services", Goal::AtMost(1.0));
    report.add(&BenchmarkResult { name, value: best, unit: "ms", limit: 1000.0, goal });
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "this thread is not one of a runtime")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A running proxy in the namespace of this process.
struct Proxy {
    running: Option<ProxyHandle>,
    runtime: Handle,
}

impl Proxy {
    /// Starts one, and waits for its first complete sync.
    fn start(cluster: &Arc<LargeCluster>, mode: Mode) -> Result<Proxy> {
        let runtime = Handle::current();
        let environment = Environment {
            client: cluster.client(),
            node_client: None,
            configuration: configuration(mode),
            metrics: Metrics::default(),
            clock: Arc::new(SystemClock),
        };
        let running = runtime.block_on(async {
            let running = proxy::runner::start(environment).await?;
            running.synced().await;
            Result::Ok(running)
        })?;
        Ok(Proxy { running: Some(running), runtime })
    }
}

/// Stops it; its rules stay.
impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop());
        }
    }
}

/// A period of its own would be measured instead of iptables; that of nftables is short.
fn configuration(mode: Mode) -> Configuration {
    Configuration {
        node_name: "node-0".to_string(),
        mode: Some(mode),
        table: TABLE.to_string(),
        local_mode: LocalMode::BridgeInterface(pods::BRIDGE.to_string()),
        min_sync_period: (mode == Mode::Iptables).then_some(Duration::ZERO),
        healthz_address: None,
        metrics_address: None,
        conntrack: None,
        ..Configuration::default()
    }
}
