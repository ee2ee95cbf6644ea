//! A thousand watchers that never read: what they cost the server and the kernel.

use std::time::{Duration, Instant};

use super::{MIB, Plan};
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{CONFIG_MAPS, Template, config_map};
use crate::process;

const WATCHERS: usize = 1_000;
/// Together more than any socket takes.
const EVENTS: u64 = 300;
const EVENT_BYTES: usize = 16 << 10;
/// Nothing more is written after this, unless something is wrong.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = Server::api(&plan.data("stalled")).await?;
    let before = (process::private_bytes(server.pid())?, process::socket_bytes()?);
    let mut streams = Vec::with_capacity(WATCHERS);
    for _ in 0..WATCHERS {
        let watch = Template::get(&format!("{CONFIG_MAPS}?watch=1"));
        streams.push(server.connect().await?.stream(watch.bytes()).await?);
    }
    let create = Template::post(CONFIG_MAPS, &config_map("stalled", EVENT_BYTES));
    Side::open(&server, 8, create).await?.fill(EVENTS).await?;
    let mut most = (0, 0);
    let started = Instant::now();
    while started.elapsed() < SETTLE {
        most.0 = most.0.max(process::private_bytes(server.pid())?);
        most.1 = most.1.max(process::socket_bytes()?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(streams);
    let grown = |most: u64, before: u64| most.saturating_sub(before) as f64 / MIB;
    let cases = [
        ("private memory, 1,000 stalled watchers", grown(most.0, before.0), 64.0),
        ("socket memory, 1,000 stalled watchers", grown(most.1, before.1), 256.0),
    ];
    for (name, value, limit) in cases {
        report.add(&BenchmarkResult { name, value, unit: "MiB", limit, goal: Goal::AtMost(1.0) });
    }
    Ok(())
}
