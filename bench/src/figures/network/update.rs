//! From an event of an EndpointSlice, as the watch delivers it, until the kernel reports the changed rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use network::nft::{Monitor, Nft, TableEvent};
use proxy::config::Mode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Proxy, TABLE, pause};
use crate::Result;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::large_cluster::{LargeCluster, endpoints_of};

/// The table of iptables' translation rules: iptables keeps its rules in nftables.
const IPTABLES_TABLE: &str = "nat";
const WAIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Between two changes: the kernel frees what the last one has removed, and the proxy combines changes within 5 ms.
const PAUSE: Duration = Duration::from_millis(8);
/// The p99 at the last size must be below this.
const MOST_MILLIS: f64 = 20.0;

/// A number of Services, and the names of its figures.
struct Size {
    services: usize,
    nftables: [&'static str; 2],
    iptables: [&'static str; 2],
}

const SIZES: [Size; 3] = [
    Size {
        services: 10,
        nftables: ["endpoint change, 10 services, p50", "endpoint change, 10 services, p99"],
        iptables: ["with iptables, 10 services, p50", "with iptables, 10 services, p99"],
    },
    Size {
        services: 1_000,
        nftables: ["endpoint change, 1,000 services, p50", "endpoint change, 1,000 services, p99"],
        iptables: ["with iptables, 1,000 services, p50", "with iptables, 1,000 services, p99"],
    },
    Size {
        services: 5_000,
        nftables: ["endpoint change, 5,000 services, p50", "endpoint change, 5,000 services, p99"],
        iptables: ["with iptables, 5,000 services, p50", "with iptables, 5,000 services, p99"],
    },
];

/// Measures all sizes: nftables at 5,000 against 10 Services, and iptables for comparison.
pub(super) fn measure(quick: bool, report: &mut Report) -> Result<()> {
    let mut first = None;
    for size in &SIZES {
        report.progress(&format!("changing endpoints of {} services", size.services));
        let nftables = times(size.services, Mode::Nftables, if quick { 200 } else { 2_000 })?;
        let base = *first.get_or_insert(nftables);
        let is_last = size.services == SIZES[SIZES.len() - 1].services;
        let goal = if is_last { Goal::AtMost(2.0) } else { Goal::Nothing };
        let [p50, p99] = size.nftables;
        report.add(&BenchmarkResult {
            name: p50,
            value: nftables.p50,
            unit: "ms",
            limit: base.p50,
            goal: Goal::Nothing,
        });
        report.add(&BenchmarkResult { name: p99, value: nftables.p99, unit: "ms", limit: base.p99, goal });
        if is_last {
            let goal = Goal::AtMost(1.0);
            let name = "the same beside 20 ms";
            report.add(&BenchmarkResult { name, value: nftables.p99, unit: "ms", limit: MOST_MILLIS, goal });
        }
        let iptables = times(size.services, Mode::Iptables, if quick { 10 } else { 50 })?;
        let [p50, p99] = size.iptables;
        let goal = Goal::Nothing;
        report.add(&BenchmarkResult { name: p50, value: iptables.p50, unit: "ms", limit: nftables.p50, goal });
        report.add(&BenchmarkResult { name: p99, value: iptables.p99, unit: "ms", limit: nftables.p99, goal });
    }
    Ok(())
}

/// Milliseconds.
#[derive(Clone, Copy)]
struct Times {
    p50: f64,
    p99: f64,
}

/// One Service after the other loses an endpoint and gets it back.
fn times(services: usize, mode: Mode, count: usize) -> Result<Times> {
    let cluster = LargeCluster::new(services);
    let proxy = Proxy::start(&cluster, mode)?;
    let outcome = sample(services, mode, count, &cluster);
    drop(proxy);
    proxy::runner::cleanup(&super::configuration(mode))?;
    let mut times = outcome?;
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
    Ok(Times { p50: at(50), p99: at(99) })
}

fn sample(services: usize, mode: Mode, count: usize, cluster: &Arc<LargeCluster>) -> Result<Vec<Duration>> {
    let table = if mode == Mode::Iptables { IPTABLES_TABLE } else { TABLE };
    let mut rules = RuleMonitor::open(table)?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let service = number / 2 * 7 % services;
        let mut endpoints = endpoints_of(service);
        endpoints.truncate(endpoints.len() - (number + 1) % 2);
        pause(PAUSE);
        rules.skip()?;
        let started = Instant::now();
        cluster.set_endpoints(service, &endpoints, 8080);
        rules.wait()?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// The kernel's notices of changes.
pub(super) struct RuleMonitor {
    monitor: Monitor,
    table: &'static str,
    /// A socket that changes nothing.
    _own: Nft,
}

impl RuleMonitor {
    pub(super) fn open(table: &'static str) -> Result<RuleMonitor> {
        let own = Nft::open()?;
        Ok(RuleMonitor { monitor: Monitor::open(&own)?, table, _own: own })
    }

    /// Reads what has happened so far.
    fn skip(&mut self) -> Result<()> {
        self.monitor.read(self.table)?;
        Ok(())
    }

    /// Waits for a change.
    pub(super) fn wait(&mut self) -> Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.monitor, PollFlags::IN)];
            if poll(&mut fds, Some(&WAIT))? == 0 {
                return Err("the rules did not change within a minute".into());
            }
            if self.monitor.read(self.table)? == TableEvent::Changed {
                return Ok(());
            }
        }
    }
}
