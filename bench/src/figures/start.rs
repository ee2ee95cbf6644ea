//! An empty server: how soon it is ready, what it holds, what it writes while nothing happens.

use super::{MIB, Plan};
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::process;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut best = f64::MAX;
    for round in 0..3 {
        let server = Server::api_with(&plan.data(&format!("start-{round}")), &[]).await?;
        best = best.min(server.ready_after.as_secs_f64() * 1e3);
    }
    report.add(&BenchmarkResult {
        name: "empty start to ready",
        value: best,
        unit: "ms",
        limit: 150.0,
        goal: Goal::Aim(1.0),
    });

    let server = Server::api_with(&plan.data("idle"), &[]).await?;
    report.progress(&format!("watching an idle server for {} s", (plan.idle + plan.idle / 4).as_secs()));
    tokio::time::sleep(plan.idle / 4).await;
    let before = process::written_bytes(server.pid())?;
    tokio::time::sleep(plan.idle).await;
    let value = process::private_bytes(server.pid())? as f64 / MIB;
    report.add(&BenchmarkResult { name: "idle", value, unit: "MiB", limit: 30.0, goal: Goal::Aim(1.0) });
    let written = (process::written_bytes(server.pid())? - before) as f64;
    let value = written / plan.idle.as_secs_f64() * 3600.0 / 1024.0;
    report.add(&BenchmarkResult {
        name: "written in an idle hour",
        value,
        unit: "KiB",
        limit: 0.0,
        goal: Goal::Nothing,
    });
    Ok(())
}
