//! The scheduler: what a decision costs, and how fast pods are bound through the API. The nodes are bare
//! objects: nobody renews leases or acts on bound pods.

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

pub async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    let size = if quick {
        Size { nodes: 500, before: 100, pods: 1_000, reference: 3 }
    } else {
        Size { nodes: 5_000, before: 1_000, pods: 10_000, reference: 3 }
    };
    alone::run(&size, report)?;
    served::run(&size, plan, report).await
}
