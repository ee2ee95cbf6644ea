//! Many pods: the memory they take, after updates and a restart as well, and the time to come back.

use std::path::Path;
use std::time::{Duration, Instant};

use super::list::LISTED_FILLER;
use super::{MIB, Plan};
use crate::Result;
use crate::child::{self, Server};
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{PODS, Template, numbered, pod};
use crate::process;

const CONNECTIONS: usize = 32;
/// The server gives back what it does not need within this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let dir = plan.data("memory");
    let server = Server::api(&dir).await?;
    let create = Template::post(PODS, &pod("memory", LISTED_FILLER));
    let mut side = Side::open(&server, CONNECTIONS, create).await?;
    side.fill(plan.pods).await?;
    memory(report, "private memory with all pods", &server).await?;

    for round in 0..plan.updates / plan.pods {
        let body = format!(r#"{{"metadata":{{"labels":{{"round":"{round}"}}}}}}"#);
        side.send(Template::merge_patch(&numbered(PODS, "memory"), &body), 0);
        side.fill(plan.pods).await?;
    }
    drop(side);
    memory(report, "private memory after two updates a pod", &server).await?;
    server.stop().await?;

    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        best.1 = best.1.min(bare_read(&dir.join("store"))?);
        let server = Server::api(&dir).await?;
        best.0 = best.0.min(server.ready_after.as_secs_f64());
        server.stop().await?;
    }
    let (value, limit) = (best.0 * 1e3, best.1 * 1e3);
    report.add(&BenchmarkResult {
        name: "restart with all pods to ready",
        value,
        unit: "ms",
        limit,
        goal: Goal::AtMost(3.0),
    });
    let server = Server::api(&dir).await?;
    memory(report, "private memory after a restart", &server).await
}

async fn memory(report: &mut Report, name: &'static str, server: &Server) -> Result<()> {
    tokio::time::sleep(SETTLE).await;
    let value = process::private_bytes(server.pid())? as f64 / MIB;
    // Requested after the measurement: the response may use memory itself.
    let list = server.connect().await?.exchange(Template::get(PODS).bytes()).await?;
    let limit = 1.5 * list.body_bytes as f64 / MIB + 40.0;
    report.add(&BenchmarkResult { name, value, unit: "MiB", limit, goal: Goal::AtMost(1.0) });
    Ok(())
}

/// In a process of its own, as the server is: memory that was used before costs nothing.
fn bare_read(dir: &Path) -> Result<f64> {
    let output = child::this_binary()?.args(["bench", "read"]).arg(dir).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Implements `bench read`: prints the seconds that it takes to read, check and copy each record.
pub(crate) fn read_check_copy(dir: &Path) -> Result<()> {
    let started = Instant::now();
    store::embedded::check_and_copy(dir)?;
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}
