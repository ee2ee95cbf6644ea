//! Custom resources beside built-in objects of the same size, on the same server.

use std::time::{Duration, Instant};

use super::{MIB, collection, definition, install, millis, rules};
use crate::Result;
use crate::child::Server;
use crate::client::Connection;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::figures::Plan;
use crate::load::{Side, compare};
use crate::objects::{CONFIG_MAPS, Template, config_map};

const WRITERS: usize = 64;
const LISTED: u64 = 5_000;
/// As it is sent.
const OBJECT_BYTES: usize = 1024;
const GROUP: &str = "bench.example.com";
/// Definitions whose time to the first response is taken; the median counts.
const DEFINITIONS: usize = 11;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = Server::api(&plan.data("custom")).await?;
    measure_install(&server, report).await?;
    let (plain, ruled) = (collection(GROUP, "plains"), collection(GROUP, "ruleds"));
    install(&server, &definition(GROUP, "plains", "Plain", &rules::schema(&[])), &plain).await?;
    install(&server, &definition(GROUP, "ruleds", "Ruled", &rules::schema(rules::RULES)), &ruled).await?;
    measure_list(plan, report, &server, &plain).await?;
    measure_create(plan, report, &server, [&plain, &ruled]).await
}

/// From the request that creates a definition to the first good response for its resource.
async fn measure_install(server: &Server, report: &mut Report) -> Result<()> {
    let mut times = Vec::new();
    for number in 0..DEFINITIONS {
        let plural = format!("firsts{number}");
        let definition = definition(GROUP, &plural, &format!("First{number}"), &rules::schema(rules::RULES));
        times.push(install(server, &definition, &collection(GROUP, &plural)).await?);
    }
    times.sort_unstable();
    let (name, value) = ("CRD created to first response, median", millis(times[DEFINITIONS / 2]));
    report.add(&BenchmarkResult { name, value, unit: "ms", limit: 50.0, goal: Goal::AtMost(1.0) });
    Ok(())
}

async fn measure_create(plan: &Plan, report: &mut Report, server: &Server, [plain, ruled]: [&str; 2]) -> Result<()> {
    let object = |kind| rules::object(GROUP, kind, "create", OBJECT_BYTES);
    let mut built_in =
        Side::open(server, WRITERS, Template::post(CONFIG_MAPS, &config_map("create", OBJECT_BYTES))).await?;
    let mut plains = Side::open(server, WRITERS, Template::post(plain, &object("Plain"))).await?;
    let mut ruleds = Side::open(server, WRITERS, Template::post(ruled, &object("Ruled"))).await?;
    let (value, limit) = compare(&mut plains, &mut built_in, plan.rounds, plan.round).await?;
    let name = "create custom resource against ConfigMap";
    report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(0.6) });
    let (value, limit) = compare(&mut ruleds, &mut plains, plan.rounds, plan.round).await?;
    let name = "create with 10 rules against without";
    report.add(&BenchmarkResult { name, value, unit: "1/s", limit, goal: Goal::AtLeast(0.8) });
    Ok(())
}

async fn measure_list(plan: &Plan, report: &mut Report, server: &Server, plain: &str) -> Result<()> {
    let custom = rules::object(GROUP, "Plain", "list", OBJECT_BYTES);
    let cases = [(plain, custom), (CONFIG_MAPS, config_map("list", OBJECT_BYTES))];
    for (path, body) in &cases {
        Side::open(server, WRITERS, Template::post(path, body)).await?.fill(LISTED).await?;
    }
    let mut connection = server.connect().await?;
    let mut best = (0.0_f64, 0.0_f64);
    for _ in 0..plan.rounds * 2 {
        best.0 = best.0.max(list_rate(&mut connection, plain).await?);
        best.1 = best.1.max(list_rate(&mut connection, CONFIG_MAPS).await?);
    }
    let (name, (value, limit)) = ("LIST 5,000 custom resources against ConfigMaps", best);
    report.add(&BenchmarkResult { name, value, unit: "MiB/s", limit, goal: Goal::AtLeast(0.9) });
    Ok(())
}

/// Bytes and not objects a second: the names of the two collections differ in length.
async fn list_rate(connection: &mut Connection, path: &str) -> Result<f64> {
    let started = Instant::now();
    let response = connection.exchange(Template::get(path).bytes()).await?;
    if response.code != 200 {
        return Err(format!("LIST: {}", response.code).into());
    }
    let took = started.elapsed().max(Duration::from_nanos(1));
    Ok(response.body_bytes as f64 / MIB / took.as_secs_f64())
}
