//! The cost of one object among many, compared with its cost among few, in CPU time of the server. Two servers take
//! turns, so that both measure the same machine.

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{CONFIG_MAPS, Template, config_map, numbered};

const CONNECTIONS: usize = 16;
const GETS: u64 = 10_000;
const CREATES: u64 = 300;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let few = plan.objects / 100;
    let (large, small) = (Server::api(&plan.data("large")).await?, Server::api(&plan.data("small")).await?);
    let create = Template::post(CONFIG_MAPS, &config_map("scale", 1024));
    Side::open(&large, 64, create.clone()).await?.fill(plan.objects).await?;
    Side::open(&small, 64, create).await?.fill(few).await?;

    let get = Template::get(&numbered(CONFIG_MAPS, "scale"));
    let mut many = Side::open(&large, CONNECTIONS, get.clone()).await?.wrapping(plan.objects);
    let mut some = Side::open(&small, CONNECTIONS, get).await?.wrapping(few);
    let costs = compare((&large, &mut many), (&small, &mut some), plan.rounds, GETS).await?;
    add(report, "GET among many against among few", costs);

    // Creates make objects: they come last.
    let create = Template::post(CONFIG_MAPS, &config_map("more", 1024));
    let mut many = Side::open(&large, CONNECTIONS, create.clone()).await?;
    let mut some = Side::open(&small, CONNECTIONS, create).await?;
    let costs = compare((&large, &mut many), (&small, &mut some), plan.rounds, CREATES).await?;
    add(report, "create among many against among few", costs);
    Ok(())
}

/// The means over all rounds: the kernel counts CPU time too coarsely for a single one.
async fn compare(
    (large, many): (&Server, &mut Side),
    (small, few): (&Server, &mut Side),
    rounds: usize,
    count: u64,
) -> Result<(f64, f64)> {
    let mut sums = (0.0, 0.0);
    for _ in 0..rounds {
        sums.0 += many.cost(large, count).await?;
        sums.1 += few.cost(small, count).await?;
    }
    Ok((sums.0 / rounds as f64, sums.1 / rounds as f64))
}

fn add(report: &mut Report, name: &'static str, (value, limit): (f64, f64)) {
    report.add(&BenchmarkResult { name, value, unit: "us", limit, goal: Goal::AtMost(1.2) });
}
