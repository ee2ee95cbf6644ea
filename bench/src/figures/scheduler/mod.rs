//! The scheduler: what a decision costs, and how fast pods are bound through the API. The nodes are bare
//! objects: no kubelet renews leases or runs bound pods.

mod alone;
mod served;
mod workloads;

use super::Plan;
use crate::Result;
use crate::figure::Report;

/// How much there is to do.
struct Size {
    nodes: u64,
    /// Pods that are there before it is measured.
    before: u64,
    pods: u64,
    /// Decisions of the plain reference.
    reference: u64,
}

pub(crate) const PARTS: [&str; 2] = ["alone", "served"];

pub(crate) async fn run(quick: bool, plan: &Plan, parts: &[String], report: &mut Report) -> Result<()> {
    let size = if quick {
        Size { nodes: 500, before: 100, pods: 1_000, reference: 1 }
    } else {
        Size { nodes: 5_000, before: 1_000, pods: 10_000, reference: 1 }
    };
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if is_wanted("alone") {
        report.progress("measuring decisions alone");
        alone::run(&size, report)?;
    }
    if is_wanted("served") {
        report.progress(&format!("creating {} nodes and {} pods twice", size.nodes, size.before + size.pods));
        served::run(&size, plan, report).await?;
    }
    Ok(())
}
