//! What definitions without objects cost the controllers: memory, CPU at rest, and the time of their work. The garbage
//! collector and others watch each resource.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{MIB, millis};
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::objects::Template;
use crate::process;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICAS: usize = 10;
/// Deployments one after the other; the fastest counts.
const ROUNDS: usize = 5;
const PODS_WITHIN: Duration = Duration::from_secs(60);
/// Discovery is read for the last time 30 seconds after a change.
const SETTLE: Duration = Duration::from_secs(40);
const REST: Duration = Duration::from_secs(10);
/// The CPU that definitions may take at rest, in milliseconds per second.
const MOST_AT_REST: f64 = 10.0;

struct Cost {
    private_bytes: u64,
    /// CPU time at rest in milliseconds per second.
    at_rest: f64,
    pods_after: Duration,
}

/// Compares a control plane without definitions with one on a data directory that has many.
pub(super) async fn run(few: &Path, many: &Path, report: &mut Report) -> Result<()> {
    let without = measure(few).await?;
    let with = measure(many).await?;
    let value = with.private_bytes.saturating_sub(without.private_bytes) as f64 / MIB;
    let name = "private memory of 2,000 CRDs with controllers";
    report.add(&BenchmarkResult { name, value, unit: "MiB", limit: 200.0, goal: Goal::AtMost(1.0) });
    let value = (with.at_rest - without.at_rest).max(0.0);
    let name = "CPU at rest of 2,000 CRDs with controllers";
    report.add(&BenchmarkResult { name, value, unit: "ms/s", limit: MOST_AT_REST, goal: Goal::AtMost(1.0) });
    let (value, limit) = (millis(with.pods_after), 2.0 * millis(without.pods_after) + 50.0);
    let name = "Deployment to pods beside 2,000 CRDs";
    report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::AtMost(1.0) });
    Ok(())
}

async fn measure(dir: &Path) -> Result<Cost> {
    let server = Server::api_with(dir, &["--disable-scheduler"]).await?;
    tokio::time::sleep(SETTLE).await;
    let before = process::cpu_nanos(server.pid())?;
    tokio::time::sleep(REST).await;
    let at_rest = millis(process::cpu_nanos(server.pid())?.saturating_sub(before)) / REST.as_secs_f64();
    let private_bytes = process::private_bytes(server.pid())?;
    let mut pods_after = Duration::MAX;
    for round in 0..ROUNDS {
        pods_after = pods_after.min(deploy(&server, &format!("web-{round}")).await?);
    }
    server.stop().await?;
    Ok(Cost { private_bytes, at_rest, pods_after })
}

/// The time until a new Deployment has its pods.
async fn deploy(server: &Server, name: &str) -> Result<Duration> {
    let labels = format!(r#"{{"app":"{name}"}}"#);
    let body = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},"spec":{{"replicas":{REPLICAS},
            "selector":{{"matchLabels":{labels}}},"template":{{"metadata":{{"labels":{labels}}},
            "spec":{{"containers":[{{"name":"main","image":"none"}}]}}}}}}}}"#
    );
    let mut connection = server.connect().await?;
    let started = Instant::now();
    connection.fetch(Template::post(DEPLOYMENTS, &body).bytes()).await?;
    let pods = Template::get(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}"));
    loop {
        let list = connection.fetch(pods.bytes()).await?;
        let list = api::json::decode(&list)?;
        if list.list("items").len() == REPLICAS {
            return Ok(started.elapsed());
        }
        if started.elapsed() > PODS_WITHIN {
            return Err(format!("the Deployment {name} has {} pods", list.list("items").len()).into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
