//! One writer that waits for each answer, against commits to the same kind of disk with no server at all.

use std::sync::Arc;
use std::time::Instant;

use store::embedded::{self, Embedded};
use store::{Durability, Event, Expect, Op, Revision, Sink, Store, Template as Value, Write};

use super::Plan;
use crate::Result;
use crate::child::Server;
use crate::client::Lone;
use crate::figure::{Figure, Must, Report};
use crate::objects::{CONFIG_MAPS, Template, config_map};

struct Nothing;

impl Sink for Nothing {
    fn publish(&self, _events: &[Event]) {}
    fn progress(&self, _revision: Revision) {}
}

/// Short rounds, since the best one counts: a disk has good and bad moments.
const WRITES: u64 = 200;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = Server::api(&plan.data("alone")).await?;
    let store = embedded::open_dir(plan.data("commit"), Arc::new(Nothing))?;
    let mut client = Lone::open(server.address, &server.tls)?;
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
    report.add(&Figure { name: "create alone", value, unit: "us", limit, must: Must::AtMost(2.5) });
    Ok(())
}

fn create(mut client: Lone, round: u64) -> Result<Lone> {
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

async fn commit(store: &Embedded, round: u64) -> Result<()> {
    for number in 0..WRITES {
        store.commit(vec![write(format!("/registry/configmaps/default/alone-{round}-{number}"))]).await?;
    }
    Ok(())
}

fn write(key: String) -> Write {
    Write {
        key,
        op: Op::Put(Value { bytes: vec![b'x'; 1400], hole: Some(10) }),
        expect: Expect::Absent,
        durability: Durability::Durable,
        ttl: None,
        cause: Vec::new(),
    }
}
