//! Durable creates from many writers, against what the bare server takes and sends back.

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::{Side, compare};
use crate::objects::{CONFIG_MAPS, PODS, Template, config_map, pod};

const WRITERS: usize = 64;
/// Arguments that enlarge a pod, as it is sent, to 5 KB.
pub(super) const SENT_FILLER: usize = 3_900;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let (server, bare) = (Server::api(&plan.data("create")).await?, Server::bare().await?);
    let cases = [
        ("create 1 KiB ConfigMap, 64 writers", CONFIG_MAPS, config_map("create", 1024), 0.2),
        ("create 5 KB pod, 64 writers", PODS, pod("create", SENT_FILLER), 0.1),
    ];
    for (name, path, body, goal) in cases {
        let mut ours = Side::open(&server, WRITERS, Template::post(path, &body)).await?;
        let mut bares = Side::open(&bare, WRITERS, Template::post("/echo", &body)).await?;
        let (value, limit) = compare(&mut ours, &mut bares, plan.rounds, plan.round).await?;
        report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(goal) });
    }
    server.stop().await?;
    causes(plan, report).await
}

/// Creates with the cause of each write stored, against the same without; both servers are new.
async fn causes(plan: &Plan, report: &mut Report) -> Result<()> {
    let flags = ["--controllers=-*", "--disable-scheduler", "--apiserver-arg=record-causes=false"];
    let with = Server::api(&plan.data("create-with-causes")).await?;
    let without = Server::api_with(&plan.data("create-without-causes"), &flags).await?;
    let create = Template::post(CONFIG_MAPS, &config_map("cause", 1024));
    let mut with = Side::open(&with, WRITERS, create.clone()).await?;
    let mut without = Side::open(&without, WRITERS, create).await?;
    let (value, limit) = compare(&mut with, &mut without, plan.rounds, plan.round).await?;
    let name = "create 1 KiB ConfigMap with its cause";
    report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(0.97) });
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn pod_has_the_documented_size() {
        let bytes = super::pod("create", super::SENT_FILLER).len();
        assert!((4_800..5_300).contains(&bytes), "{bytes}");
    }
}
