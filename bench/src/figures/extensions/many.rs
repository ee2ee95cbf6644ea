//! Many large definitions, as the providers of a cloud install them: the time to install them, and what they cost the
//! server from then on.

mod control_plane;

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{CRDS, MIB, SERVED_WITHIN, definition, millis};
use crate::Result;
use crate::child::Server;
use crate::client::Connection;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::figures::Plan;
use crate::load::Side;
use crate::objects::Template;
use crate::process;

const GROUPS: usize = 200;
const QUICK_GROUPS: usize = 20;
/// Definitions of a group; as many clients create them at the same time.
const OF_A_GROUP: usize = 10;
const DEFINITION_BYTES: usize = 20 << 10;
/// The server gives back what it does not need within this time.
const SETTLE: Duration = Duration::from_secs(2);
const RESTARTS: usize = 3;
/// The Accept header of `kubectl get`.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub(super) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let (dir, groups) = (plan.data("many"), if quick { QUICK_GROUPS } else { GROUPS });
    let without = measure_restart(&dir).await?;
    let server = Server::api(&dir).await?;
    tokio::time::sleep(SETTLE).await;
    let before = process::private_bytes(server.pid())?;
    let value = install_all(&server, groups).await?.as_secs_f64();
    report.add(&BenchmarkResult {
        name: "2,000 CRDs of 20 KiB",
        value,
        unit: "s",
        limit: 60.0,
        goal: Goal::AtMost(1.0),
    });
    tokio::time::sleep(SETTLE).await;
    let value = process::private_bytes(server.pid())?.saturating_sub(before) as f64 / MIB;
    let name = "private memory of 2,000 CRDs";
    report.add(&BenchmarkResult { name, value, unit: "MiB", limit: 200.0, goal: Goal::AtMost(1.0) });
    measure_documents(&server, report).await?;
    server.stop().await?;
    let (value, limit) = (millis(measure_restart(&dir).await?), 2.0 * millis(without) + 1000.0);
    let name = "restart with 2,000 CRDs to ready";
    report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal: Goal::AtMost(1.0) });
    report.progress("measuring controllers beside many definitions");
    control_plane::run(&plan.data("few"), &dir, report).await
}

/// The best of some restarts on the same data.
async fn measure_restart(dir: &Path) -> Result<Duration> {
    let mut best = Duration::MAX;
    Server::api(dir).await?.stop().await?;
    for _ in 0..RESTARTS {
        let server = Server::api(dir).await?;
        best = best.min(server.ready_after);
        server.stop().await?;
    }
    Ok(best)
}

fn group_name(number: usize) -> String {
    format!("group{number}.bench.example.com")
}

/// The time until discovery has every resource.
async fn install_all(server: &Server, groups: usize) -> Result<Duration> {
    let schema = large_schema(DEFINITION_BYTES);
    let create =
        |number| Template::post(CRDS, &definition(&group_name(number), "claims########", "Claim########", &schema));
    let started = Instant::now();
    let mut side = Side::open(server, OF_A_GROUP, create(0)).await?;
    for number in 0..groups {
        side.send(create(number), 0);
        side.fill(OF_A_GROUP as u64).await?;
    }
    let mut connection = server.connect().await?;
    for number in 0..groups {
        wait_until_discovered(&mut connection, &format!("/apis/{}/v1", group_name(number))).await?;
    }
    Ok(started.elapsed())
}

async fn wait_until_discovered(connection: &mut Connection, path: &str) -> Result<()> {
    let (request, started) = (Template::get(path), Instant::now());
    let is_complete = |list: &[u8]| memchr::memmem::find_iter(list, b"\"singularName\"").count() >= OF_A_GROUP;
    // The group is not found before the first of its definitions is established.
    while !connection.fetch(request.bytes()).await.is_ok_and(|list| is_complete(&list)) {
        if started.elapsed() > SERVED_WITHIN {
            return Err(format!("{path} lacks resources").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// The first requests for the index, for a group's document, and for what `kubectl get crds` prints.
async fn measure_documents(server: &Server, report: &mut Report) -> Result<()> {
    let cases = [
        ("first OpenAPI v3 index", Template::get("/openapi/v3"), 50.0, Goal::AtMost(1.0)),
        (
            "OpenAPI v3 document of a group",
            Template::get(&format!("/openapi/v3/apis/{}/v1", group_name(0))),
            50.0,
            Goal::AtMost(1.0),
        ),
        ("kubectl get crds", Template::get_as(CRDS, TABLE), 0.0, Goal::Nothing),
    ];
    let mut connection = server.connect().await?;
    for (name, request, limit, goal) in cases {
        let started = Instant::now();
        let body = connection.fetch(request.bytes()).await.map_err(|error| format!("{name}: {error}"))?;
        let value = millis(started.elapsed());
        report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal });
        report.progress(&format!("{name}: {} KiB", body.len() / 1024));
    }
    Ok(())
}

/// A schema that enlarges a definition to this many bytes: sections of documented fields.
fn large_schema(bytes: usize) -> String {
    let (head, tail) = (r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"#, "}}}}");
    let mut text = head.to_string();
    for number in 0.. {
        let section = section(number);
        if text.len() + section.len() + tail.len() > bytes {
            break;
        }
        if number > 0 {
            text.push(',');
        }
        text.push_str(&section);
    }
    text + tail
}

fn section(number: usize) -> String {
    let text = "Describes what the controller does with this field, which values it accepts, and what happens if it is not set.";
    let fields = [
        ("name", r#""type":"string","maxLength":253"#),
        ("mode", r#""type":"string","enum":["Always","Never","OnDemand"],"default":"Always""#),
        ("replicas", r#""type":"integer","format":"int32","minimum":0,"maximum":100"#),
        ("paused", r#""type":"boolean""#),
        ("arguments", r#""type":"array","items":{"type":"string"}"#),
        ("labels", r#""type":"object","additionalProperties":{"type":"string"}"#),
        ("size", r#""x-kubernetes-int-or-string":true"#),
    ];
    let mut properties = String::new();
    for (index, (name, of)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(properties, r#"{comma}"{name}":{{{of},"description":"{text}"}}"#);
    }
    format!(
        r#""section{number}":{{"type":"object","description":"{text}","required":["name"],"properties":{{{properties}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_json_of_the_documented_size() {
        let text = large_schema(DEFINITION_BYTES);
        assert!((DEFINITION_BYTES - 2_000..=DEFINITION_BYTES).contains(&text.len()), "{}", text.len());
        api::json::decode(text.as_bytes()).expect("JSON");
    }
}
