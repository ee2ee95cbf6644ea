//! A thousand watchers: what an event costs at a slow pace, and how many get through at any pace.

use std::time::{Duration, Instant};

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{CONFIG_MAPS, Template, config_map};
use crate::process;
use crate::watchers::Watchers;

const WATCHERS: usize = 1_000;
const EVENTS_A_SECOND: u64 = 50;
const WRITERS: usize = 8;

/// A server with its watchers and a writer that causes events.
struct WatchedServer {
    server: Server,
    watchers: Watchers,
    lone: Side,
}

impl WatchedServer {
    async fn new(server: Server, path: &str, event: Template) -> Result<WatchedServer> {
        Ok(WatchedServer {
            watchers: Watchers::open(&server, path, WATCHERS).await?,
            lone: Side::open(&server, 1, event).await?,
            server,
        })
    }

    /// CPU milliseconds that the server spends in a second of events at a fixed pace.
    async fn measure_paced(&mut self, time: Duration) -> Result<f64> {
        let before = process::cpu(self.server.pid())?;
        let seen = self.watchers.seen();
        let started = Instant::now();
        let count = (time.as_secs_f64() * EVENTS_A_SECOND as f64) as u64;
        for number in 0..count {
            let at = started + Duration::from_secs(1) * number as u32 / EVENTS_A_SECOND as u32;
            tokio::time::sleep_until(at.into()).await;
            self.lone.fill(1).await?;
        }
        self.watchers.wait_for(seen + count * WATCHERS as u64).await?;
        let used = process::cpu(self.server.pid())?.saturating_sub(before);
        Ok(used.as_secs_f64() * 1e3 / time.as_secs_f64())
    }

    /// Events a second of several writers, over all watchers.
    async fn unpaced(&mut self, writers: &mut Side, count: u64) -> Result<f64> {
        let seen = self.watchers.seen();
        let events = count * WATCHERS as u64;
        let started = Instant::now();
        writers.fill(count).await?;
        self.watchers.wait_for(seen + events).await?;
        Ok(events as f64 / started.elapsed().as_secs_f64())
    }
}

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let (server, bare) = (Server::api(&plan.data("watch")).await?, Server::bare().await?);
    let frame = frame(&server).await?;
    let create = Template::post(CONFIG_MAPS, &config_map("watch", 1024));
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", frame.revision);
    let broadcast = Template::post("/broadcast", &frame.text);
    let mut ours = WatchedServer::new(server, &path, create).await?;
    let mut bares = WatchedServer::new(bare, "/watch", broadcast.clone()).await?;

    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..plan.rounds.div_ceil(6) + 1 {
        best.0 = best.0.min(ours.measure_paced(plan.paced).await?);
        best.1 = best.1.min(bares.measure_paced(plan.paced).await?);
    }
    let name = "CPU, 1,000 watchers at 50 creates/s";
    report.add(&BenchmarkResult { name, value: best.0, unit: "ms/s", limit: best.1, goal: Goal::AtMost(1.3) });

    // Opened only now: the server closes connections that send no first request in time.
    let many = Template::post(CONFIG_MAPS, &config_map("many", 1024));
    let mut writers = Side::open(&ours.server, WRITERS, many).await?;
    let mut bare_writers = Side::open(&bares.server, WRITERS, broadcast).await?;
    let mut best = (0.0_f64, 0.0_f64);
    for _ in 0..plan.rounds.div_ceil(6) + 1 {
        best.0 = best.0.max(ours.unpaced(&mut writers, plan.unpaced_events).await?);
        best.1 = best.1.max(bares.unpaced(&mut bare_writers, plan.unpaced_events).await?);
    }
    let name = "events to 1,000 watchers, unpaced";
    report.add(&BenchmarkResult { name, value: best.0, unit: "1/s", limit: best.1, goal: Goal::AtLeast(0.3) });
    Ok(())
}

/// An event as the server frames it, and the revision from which to watch.
struct Frame {
    text: String,
    revision: String,
}

async fn frame(server: &Server) -> Result<Frame> {
    let mut connection = server.connect().await?;
    let create = Template::post(CONFIG_MAPS, &config_map("frame", 1024).replace('#', "0"));
    let object = String::from_utf8(connection.fetch(create.bytes()).await?)?;
    let tree = api::json::decode(object.as_bytes()).map_err(|error| error.to_string())?;
    let revision = tree.str("metadata.resourceVersion").to_string();
    Ok(Frame { text: format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object.trim_end()), revision })
}
