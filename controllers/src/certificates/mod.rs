//! Certificate signing requests: three controllers that approve the requests of nodes, sign approved requests, and
//! delete old ones.

mod approving;
mod cleaner;
mod der;
mod plan;
mod signing;
mod x509;

use std::sync::Arc;

use client::{Resource, Selection, Store};

use crate::{Context, Setup};

pub(crate) use approving::start as start_approving;
pub(crate) use cleaner::start as start_cleaner;
pub(crate) use signing::start as start_signing;

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests");

/// The store of requests; every change queues the request.
fn follow(setup: &Setup, context: &Context) -> Arc<Store> {
    let informer = setup.informer(Selection::all(REQUESTS));
    let queue = context.queue.clone();
    informer.on_change(move |change| queue.add(change.key.clone()));
    informer.store().clone()
}
