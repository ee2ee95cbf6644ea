//! The figures, in groups that share a server. A group is a file and a line in `GROUPS`.

mod alone;
pub(crate) mod controllers;
mod create;
pub(crate) mod dns;
pub(crate) mod extensions;
pub(crate) mod gate;
mod get;
mod growth;
pub(crate) mod kubectl;
mod list;
mod memory;
pub(crate) mod network;
mod node_pods;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod runtime;
mod scale;
pub(crate) mod scheduler;
pub(crate) mod servers;
mod stalled;
mod start;
mod watch;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

pub(crate) use memory::read_check_copy;

use crate::Result;
use crate::figure::Report;

/// How long and how much is measured.
pub(crate) struct Plan {
    pub dir: PathBuf,
    /// Short rounds that take turns: the best one of each side is an undisturbed one.
    pub round: Duration,
    pub rounds: usize,
    /// Objects of the groups about memory and restart.
    pub pods: u64,
    pub updates: u64,
    /// Objects against which the cost of one is judged at a hundredth.
    pub objects: u64,
    pub unpaced_events: u64,
    pub paced: Duration,
    pub idle: Duration,
}

impl Plan {
    pub(crate) fn new(quick: bool, dir: PathBuf) -> Plan {
        let dir = dir.join(format!("tiphys-bench-{}", std::process::id()));
        let seconds = Duration::from_secs_f64;
        if quick {
            return Plan {
                dir,
                round: seconds(0.3),
                rounds: 5,
                pods: 10_000,
                updates: 20_000,
                objects: 20_000,
                unpaced_events: 300,
                paced: seconds(3.0),
                idle: seconds(3.0),
            };
        }
        Plan {
            dir,
            round: seconds(0.5),
            rounds: 12,
            pods: 50_000,
            updates: 100_000,
            objects: 100_000,
            unpaced_events: 1_500,
            paced: seconds(8.0),
            idle: seconds(20.0),
        }
    }

    /// A data directory for one group's server.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

type Run = for<'a> fn(&'a Plan, &'a mut Report) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Idle figures come first, while the machine is; the large ones last.
static GROUPS: &[(&str, Run)] = &[
    ("start", |plan, report| Box::pin(start::run(plan, report))),
    ("get", |plan, report| Box::pin(get::run(plan, report))),
    ("list", |plan, report| Box::pin(list::run(plan, report))),
    ("create", |plan, report| Box::pin(create::run(plan, report))),
    ("alone", |plan, report| Box::pin(alone::run(plan, report))),
    ("watch", |plan, report| Box::pin(watch::run(plan, report))),
    ("stalled", |plan, report| Box::pin(stalled::run(plan, report))),
    ("growth", |plan, report| Box::pin(growth::run(plan, report))),
    ("scale", |plan, report| Box::pin(scale::run(plan, report))),
    ("memory", |plan, report| Box::pin(memory::run(plan, report))),
];

pub(crate) fn names() -> Vec<&'static str> {
    GROUPS.iter().map(|(name, _)| *name).collect()
}

pub(crate) async fn run(plan: &Plan, wanted: &[String], report: &mut Report) -> Result<()> {
    for (name, run) in GROUPS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            report.progress(&format!("measuring {name}"));
            run(plan, report).await.map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}

const MIB: f64 = (1 << 20) as f64;
