//! What one object costs among many, against what it costs among few. Two servers take turns, so that
//! both see the same machine.

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::figure::{Figure, Must, Report};
use crate::load::{Side, compare};
use crate::objects::{CONFIG_MAPS, Template, config_map, numbered};

const CONNECTIONS: usize = 16;

pub async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let few = plan.objects / 100;
    let (large, small) = (Server::api(&plan.data("large")).await?, Server::api(&plan.data("small")).await?);
    let create = Template::post(CONFIG_MAPS, &config_map("scale", 1024));
    Side::open(&large, 64, create.clone()).await?.fill(plan.objects).await?;
    Side::open(&small, 64, create).await?.fill(few).await?;

    let get = Template::get(&numbered(CONFIG_MAPS, "scale"));
    let mut many = Side::open(&large, CONNECTIONS, get.clone()).await?.wrapping(plan.objects);
    let mut some = Side::open(&small, CONNECTIONS, get).await?.wrapping(few);
    let rates = compare(&mut many, &mut some, plan.rounds, plan.round).await?;
    add(report, "GET among many against among few", rates);

    // Creates make objects: they come last, and the rounds are short.
    let create = Template::post(CONFIG_MAPS, &config_map("more", 1024));
    let mut many = Side::open(&large, CONNECTIONS, create.clone()).await?;
    let mut some = Side::open(&small, CONNECTIONS, create).await?;
    let rates = compare(&mut many, &mut some, plan.rounds * 2, plan.round / 3).await?;
    add(report, "create among many against among few", rates);
    Ok(())
}

/// Microseconds each.
fn add(report: &mut Report, name: &'static str, (many, few): (f64, f64)) {
    let (value, limit) = (1e6 / many, 1e6 / few);
    report.add(&Figure { name, value, unit: "us", limit, must: Must::AtMost(1.2) });
}
