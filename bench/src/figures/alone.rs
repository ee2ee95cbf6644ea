//! One writer that waits for each response, compared with commits to the same kind of disk without a server.

use std::sync::Arc;
use std::time::Instant;

use store::embedded::{self, EmbeddedStore};
use store::{Durability, Event, Op, Precondition, Revision, Sink, Store, Template as Value, Write};

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::client::BlockingConnection;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::objects::{CONFIG_MAPS, Template, config_map};

struct EmptyService;

impl Sink for EmptyService {
    fn publish(&self, _events: &[Event]) {}
    fn progress(&self, _revision: Revision) {}
}

/// Short rounds, since the best one counts: a disk has good and bad moments.
const WRITES: u64 = 200;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = Server::api(&plan.data("alone")).await?;
    let store = embedded::open_dir(plan.data("commit"), Arc::new(EmptyService))?;
    let mut client = BlockingConnection::open(server.address, &server.tls)?;
    let mut best = (f64::MAX, f64::MAX);
    for round in 0..plan.rounds as u64 {
        let started = Instant::now();
        client = tokio::task::spawn_blocking(move || create(client, round)).await??;
        best.0 = best.0.min(started.elapsed().as_secs_f64());
        let started = Instant::now();
        commit(&store, round).await?;
        best.1 = best.1.min(started.elapsed().as_secs_f64());
    }
    let each = |seconds: f64| seconds / WRITES as f64 * 1e6;
    let (value, limit) = (each(best.0), each(best.1));
    report.add(&BenchmarkResult { name: "create alone", value, unit: "us", limit, goal: Goal::AtMost(2.5) });
    Ok(())
}

fn create(mut client: BlockingConnection, round: u64) -> Result<BlockingConnection> {
    let template = Template::post(CONFIG_MAPS, &config_map("alone", 1024));
    let mut request = Vec::new();
    for number in 0..WRITES {
        template.write(round * WRITES + number, &mut request);
        let code = client.exchange(&request)?;
        if code != 201 {
            return Err(format!("a create was answered with {code}").into());
        }
    }
    Ok(client)
}

async fn commit(store: &EmbeddedStore, round: u64) -> Result<()> {
    for number in 0..WRITES {
        store.commit(vec![write(format!("/registry/configmaps/default/alone-{round}-{number}"))]).await?;
    }
    Ok(())
}

fn write(key: String) -> Write {
    Write {
        key,
        op: Op::Put(Value { bytes: vec![b'x'; 1400], hole: Some(10) }),
        expect: Precondition::Absent,
        durability: Durability::Durable,
        ttl: None,
        cause: Vec::new(),
    }
}
