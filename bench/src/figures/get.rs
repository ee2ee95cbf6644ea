//! GET of one object against the same bytes from the bare server.

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::{Side, compare};
use crate::objects::{CONFIG_MAPS, STORED_EXTRA_BYTES, Template, config_map, numbered};

const CONNECTIONS: usize = 64;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let (server, bare) = (Server::api(&plan.data("get")).await?, Server::bare().await?);
    let path = numbered(CONFIG_MAPS, "get").replace('#', "0");
    let object = config_map("get", 1024 - STORED_EXTRA_BYTES);
    Side::open(&server, 1, Template::post(CONFIG_MAPS, &object)).await?.fill(1).await?;
    let bytes = server.connect().await?.fetch(Template::get(&path).bytes()).await?;
    bare.connect().await?.exchange(Template::put("/object", &bytes).bytes()).await?;
    let mut ours = Side::open(&server, CONNECTIONS, Template::get(&path)).await?;
    let mut bares = Side::open(&bare, CONNECTIONS, Template::get("/object")).await?;
    let (value, limit) = compare(&mut ours, &mut bares, plan.rounds, plan.round).await?;
    report.add(&BenchmarkResult {
        name: "GET 1 KiB, 64 connections",
        value,
        unit: "1/s",
        limit,
        goal: Goal::AtLeast(0.5),
    });
    Ok(())
}
