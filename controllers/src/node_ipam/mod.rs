//! Allocates pod CIDRs to nodes.

mod plan;

use std::sync::Arc;

use api::{Tree, tree};
use client::{Error, Patch, Resource, Result, Selection, Store};
use stdx::cidr::IpNet;
use stdx::sync::Mutex;

use crate::options::Options;
use crate::support::node_events;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Pool, PoolError};

const NODES: Resource = Resource::core("nodes");

struct Controller {
    nodes: Arc<Store>,
    pool: Arc<Mutex<Pool>>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    if !context.options.allocate_node_cidrs {
        return None;
    }
    let pool = pool(&context.options)
        .inspect_err(|error| tracing::error!(%error, "invalid cluster CIDRs, nodes get no pod CIDR"))
        .ok()?;
    let pool = Arc::new(Mutex::new(pool));
    let informer = setup.informer(Selection::all(NODES));
    let (queue, known) = (context.queue.clone(), pool.clone());
    // The existing pod CIDRs of nodes are recorded before the first allocation.
    informer.on_change(move |change| {
        match change.new.as_deref() {
            None => known.lock().release(&change.key),
            Some(node) => allocate_existing(&known, node),
        }
        queue.add(change.key.clone());
    });
    Some(Box::new(Controller { nodes: informer.store().clone(), pool, context: context.clone() }))
}

fn pool(options: &Options) -> std::result::Result<Pool, PoolError> {
    let read = |texts: &[String]| {
        texts.iter().map(|text| text.trim().parse::<IpNet>()).collect::<std::result::Result<Vec<_>, _>>()
    };
    let mask =
        |cidr: IpNet| if cidr.is_ipv4() { options.node_cidr_mask_size_ipv4 } else { options.node_cidr_mask_size_ipv6 };
    let clusters: Vec<(IpNet, u8)> = read(&options.cluster_cidr)?.into_iter().map(|cidr| (cidr, mask(cidr))).collect();
    if clusters.is_empty() {
        return Err(PoolError::NoRange);
    }
    Pool::new(&clusters, &read(&options.service_cluster_ip_range)?)
}

fn allocate_existing(pool: &Mutex<Pool>, node: &Tree) {
    let cidrs: Vec<IpNet> = node.list("spec.podCIDRs").iter().filter_map(|text| text.as_str()?.parse().ok()).collect();
    if !cidrs.is_empty() {
        pool.lock().allocate_existing(node.str("metadata.name"), cidrs);
    }
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(node) = self.nodes.get(name).filter(|node| node.list("spec.podCIDRs").is_empty()) else {
            return Ok(Outcome::Done);
        };
        let Some(cidrs) = self.pool.lock().allocate(name) else {
            node_events::record_status(&self.context.recorder.named("cidrAllocator"), &node, "CIDRNotAvailable");
            return Err(Error::failed("no range of pod addresses is left".to_string()));
        };
        let cidrs: Vec<Tree> = cidrs.iter().map(|cidr| Tree::from(cidr.to_string())).collect();
        let first = cidrs.first().cloned().unwrap_or_default();
        let patch = tree! { "spec" => tree! { "podCIDR" => first, "podCIDRs" => cidrs } };
        match self.context.client.patch(NODES, "", name, "", Patch::Strategic(&patch)).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            Err(error) => {
                node_events::record_status(
                    &self.context.recorder.named("cidrAllocator"),
                    &node,
                    "CIDRAssignmentFailed",
                );
                Err(error)
            }
            Ok(_) => Ok(Outcome::Done),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
