//! Approves kubelet client certificates if a subject access review allows it, and kubelet serving certificates if
//! that is configured.

use std::sync::Arc;

use api::Tree;
use client::{Error, Resource, Result, Selection, Store};

use super::x509::Request;
use super::{REQUESTS, follow, plan};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const NODES: Resource = Resource::core("nodes");
const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");

struct Controller {
    requests: Arc<Store>,
    /// Only set if kubelet serving certificates are approved.
    nodes: Option<Arc<Store>>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let approves_serving = context.options.approve_kubelet_serving;
    let nodes = approves_serving.then(|| setup.informer(Selection::all(NODES)).store().clone());
    Some(Box::new(Controller { requests: follow(setup, context), nodes, context: context.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(request) = self.requests.get(name).filter(|request| plan::is_undecided(request)) else {
            return Ok(Outcome::Done);
        };
        let Ok(asked) = Request::decode(request.str("spec.request")) else { return Ok(Outcome::Done) };
        if request.str("spec.signerName") == plan::KUBELET_SERVING {
            return self.approve_serving(name, &request, &asked).await;
        }
        let ways = plan::auto_approvals(&request, &asked.subject);
        for way in &ways {
            let response = self.context.client.create(REVIEWS, "", &plan::access_review(&request, way)).await?;
            if response.bool("status.allowed") {
                return self.approve(name, &request, way).await;
            }
        }
        let tried: Vec<&str> = ways.iter().map(|way| way.permission).collect();
        match tried.is_empty() {
            true => Ok(Outcome::Done),
            // The permission may be granted a moment later.
            false => Err(Error::failed(format!(
                "recognized csr {name:?} as [{}] but subject access review was not approved",
                tried.join(" ")
            ))),
        }
    }
}

impl Controller {
    async fn approve_serving(&self, name: &str, request: &Tree, asked: &Request) -> Result<Outcome> {
        let Some(nodes) = &self.nodes else { return Ok(Outcome::Done) };
        match plan::is_own_serving(request, &asked.subject, &asked.hosts, &nodes.all()) {
            true => self.approve(name, request, &plan::SELF_SERVING).await,
            // The node may report the address a moment later.
            false => {
                Err(Error::failed(format!("csr {name:?} requests an address that does not belong to its node alone")))
            }
        }
    }

    async fn approve(&self, name: &str, request: &Tree, way: &plan::AutoApproval) -> Result<Outcome> {
        let approved = plan::approved(request, way, self.context.now_seconds());
        let written = self.context.client.update_subresource(REQUESTS, "", name, "approval", &approved).await;
        written.map(|_| Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
