//! Pods from their creation until they are ready, on the built-in runtime and, in the same run, with the same kubelet
//! on Debian's containerd.

mod side;

use std::time::Duration;

use side::Side;

use super::runtime::at;
use super::runtime::daemon::Daemon;
use super::runtime::registry::Registry;
use super::{MIB, Plan};
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::{Result, process};

/// The limit of our time relative to containerd: a sixth.
const MUST: Goal = Goal::AtMost(0.166);
/// The maximum number of pods of a node.
const FULL: usize = 110;
/// The work after a start is complete by then: threads that waited for disks exit after ten seconds without work.
const SETTLE: Duration = Duration::from_secs(15);
/// A program that has just started does not handle signals yet.
const BEGINNING: Duration = Duration::from_millis(50);

/// Pods that are created at once, how often, and the aims.
struct Burst {
    pods: usize,
    rounds: usize,
    aim_ms: f64,
    ready: &'static str,
    aimed: &'static str,
    gone: &'static str,
}

pub(crate) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let registry = Registry::start(&plan.data("registry")).await?;
    let image = registry.image("pause");
    report.progress("starting containerd and two clusters");
    let containerd = Daemon::containerd(&plan.data("containerd"), &image).await?;
    let socket = containerd.socket.display().to_string();
    let mut ours = Side::start(&plan.data("ours"), &image, &[]).await?;
    let mut theirs = Side::start(&plan.data("theirs"), &image, &["--container-runtime-endpoint", &socket]).await?;
    one_by_one((&mut ours, &mut theirs), if quick { 8 } else { 40 }, report).await?;
    for burst in bursts(quick) {
        report.progress(&format!("starting {} replicas on each cluster", burst.pods));
        measure_burst((&mut ours, &mut theirs), &burst, report).await?;
    }
    theirs.stop().await?;
    drop(containerd);
    full(plan, ours, report).await
}

fn bursts(quick: bool) -> [Burst; 2] {
    [
        Burst {
            pods: 30,
            rounds: if quick { 1 } else { 3 },
            aim_ms: 600.0,
            ready: "30 replicas, created to ready",
            aimed: "the same beside 0.6 s",
            gone: "30 replicas, deleted to gone",
        },
        Burst {
            pods: 100,
            rounds: 1,
            aim_ms: 2000.0,
            ready: "100 replicas, created to ready",
            aimed: "the same beside 2 s",
            gone: "100 replicas, deleted to gone",
        },
    ]
}

/// The times until pods were ready, and until they were deleted.
#[derive(Default)]
struct Times {
    ready: Vec<Duration>,
    gone: Vec<Duration>,
}

async fn one_by_one((ours, theirs): (&mut Side, &mut Side), rounds: usize, report: &mut Report) -> Result<()> {
    let (mut mine, mut other) = (Times::default(), Times::default());
    for round in 0..rounds {
        for (side, times) in [(&mut *ours, &mut mine), (&mut *theirs, &mut other)] {
            let name = format!("one-{round}");
            times.ready.push(side.create_pod(&name).await?);
            tokio::time::sleep(BEGINNING).await;
            times.gone.push(side.delete_pod(&name).await?);
        }
    }
    let mut add = |name, value, limit, goal| report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal });
    let p50 = at(&mine.ready, 0.5);
    add("a pod, created to ready, p50", p50, at(&other.ready, 0.5), MUST);
    add("the same beside 50 ms", p50, 50.0, Goal::Aim(1.0));
    add("a pod, created to ready, p99", at(&mine.ready, 0.99), at(&other.ready, 0.99), Goal::Nothing);
    add("a pod, deleted to gone, p50", at(&mine.gone, 0.5), at(&other.gone, 0.5), Goal::Nothing);
    add("a pod, deleted to gone, p99", at(&mine.gone, 0.99), at(&other.gone, 0.99), Goal::Nothing);
    Ok(())
}

async fn measure_burst((ours, theirs): (&mut Side, &mut Side), burst: &Burst, report: &mut Report) -> Result<()> {
    let (mut mine, mut other) = (Times::default(), Times::default());
    for _ in 0..burst.rounds {
        for (side, times) in [(&mut *ours, &mut mine), (&mut *theirs, &mut other)] {
            times.ready.push(side.create_replicas(burst.pods).await?);
            tokio::time::sleep(BEGINNING).await;
            times.gone.push(side.delete_replicas().await?);
        }
    }
    let mut add = |name, value, limit, goal| report.add(&BenchmarkResult { name, value, unit: "ms", limit, goal });
    let ready = at(&mine.ready, 0.5);
    add(burst.ready, ready, at(&other.ready, 0.5), MUST);
    add(burst.aimed, ready, burst.aim_ms, Goal::Aim(1.0));
    add(burst.gone, at(&mine.gone, 0.5), at(&other.gone, 0.5), Goal::Nothing);
    Ok(())
}

/// The resources of an idle process.
struct Idle {
    percent: f64,
    mib: f64,
}

async fn idle(server: &Server, time: Duration) -> Result<Idle> {
    tokio::time::sleep(SETTLE).await;
    // In ticks: threads that end meanwhile would take their time along otherwise.
    let before = process::cpu(server.pid())?;
    tokio::time::sleep(time).await;
    let spent = process::cpu(server.pid())?.saturating_sub(before);
    let mib = process::private_bytes(server.pid())? as f64 / MIB;
    Ok(Idle { percent: spent.as_secs_f64() / time.as_secs_f64() * 100.0, mib })
}

/// A node with all the pods that it takes, beside the same server without any node.
async fn full(plan: &Plan, ours: Side, report: &mut Report) -> Result<()> {
    // A process of its own: what bursts have left in memory is not of these pods.
    let mut node = ours.start_again().await?;
    node.create_replicas(FULL).await?;
    report.progress(&format!("watching {FULL} idle pods for {} s", (SETTLE + plan.idle).as_secs()));
    let with = idle(&node.server, plan.idle).await?;
    node.stop().await?;
    let server = Server::api_with(&plan.data("alone"), &[]).await?;
    let without = idle(&server, plan.idle).await?;
    let mut add = |name, unit, value: f64, limit| {
        report.add(&BenchmarkResult { name, value: value.max(0.0), unit, limit, goal: Goal::Aim(1.0) });
    };
    add("CPU for 110 idle pods", "%", with.percent - without.percent, 1.0);
    add("memory for a node with 110 pods", "MiB", with.mib - without.mib, 40.0);
    server.stop().await
}
