//! LIST of many pods against the same bytes from the bare server.

use std::time::Instant;

use super::{MIB, Plan};
use crate::Result;
use crate::child::Server;
use crate::client::{Connection, Http2};
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::load::Side;
use crate::objects::{PODS, Template, pod};

const PODS_LISTED: u64 = 5_000;
/// Arguments that enlarge a pod with its managed fields to about 4.6 KB.
pub(crate) const LISTED_FILLER: usize = 500;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let (server, bare) = (Server::api(&plan.data("list")).await?, Server::bare().await?);
    Side::open(&server, 32, Template::post(PODS, &pod("list", LISTED_FILLER))).await?.fill(PODS_LISTED).await?;
    let bytes = server.connect().await?.fetch(Template::get(PODS).bytes()).await?;
    bare.connect().await?.exchange(Template::put("/list", &bytes).bytes()).await?;
    let megabytes = bytes.len() as f64 / MIB;
    let rounds = plan.rounds * 2;

    let (mut a, mut b) = (server.connect().await?, bare.connect().await?);
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        best.0 = best.0.min(time(&mut a, PODS).await?);
        best.1 = best.1.min(time(&mut b, "/list").await?);
    }
    add(report, "LIST 5,000 pods, HTTP/1.1", megabytes, best);

    let mut a = Http2::open(server.address, &server.tls).await?;
    let mut b = Http2::open(bare.address, &bare.tls).await?;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        best.0 = best.0.min(time2(&mut a, PODS, bytes.len()).await?);
        best.1 = best.1.min(time2(&mut b, "/list", bytes.len()).await?);
    }
    add(report, "LIST 5,000 pods, HTTP/2", megabytes, best);
    Ok(())
}

fn add(report: &mut Report, name: &'static str, megabytes: f64, (ours, bare): (f64, f64)) {
    let (value, limit) = (megabytes / ours, megabytes / bare);
    report.add(&BenchmarkResult { name, value, unit: "MiB/s", limit, goal: Goal::AtLeast(0.5) });
}

async fn time(connection: &mut Connection, path: &str) -> Result<f64> {
    let started = Instant::now();
    let answer = connection.exchange(Template::get(path).bytes()).await?;
    if answer.code == 200 { Ok(started.elapsed().as_secs_f64()) } else { Err(format!("LIST: {}", answer.code).into()) }
}

async fn time2(connection: &mut Http2, path: &str, bytes: usize) -> Result<f64> {
    let started = Instant::now();
    let got = connection.get(path).await?;
    if got == bytes { Ok(started.elapsed().as_secs_f64()) } else { Err(format!("{got} of {bytes} bytes").into()) }
}
