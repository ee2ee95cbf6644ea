//! Approves the client certificates of nodes, where whoever asks may have them.

use std::sync::Arc;

use api::Tree;
use client::{Error, Resource, Result, Store};

use super::x509::Request;
use super::{REQUESTS, follow, plan};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");

struct Controller {
    requests: Arc<Store>,
    context: Context,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    Some(Box::new(Controller { requests: follow(setup, context), context: context.clone() }))
}

impl Controller {
    async fn bring(&self, name: &str) -> Result<Outcome> {
        let Some(request) = self.requests.get(name).filter(|request| plan::is_undecided(request)) else {
            return Ok(Outcome::Done);
        };
        let Ok(asked) = read(&request) else { return Ok(Outcome::Done) };
        let ways = plan::recognized(&request, &asked.subject);
        for way in &ways {
            let answer = self.context.client.create(REVIEWS, "", &plan::question(&request, way)).await?;
            if answer.bool("status.allowed") {
                let approved = plan::approved(&request, way, self.context.now_seconds());
                let written = self.context.client.update_subresource(REQUESTS, "", name, "approval", &approved).await;
                return written.map(|_| Outcome::Done);
            }
        }
        let tried: Vec<&str> = ways.iter().map(|way| way.permission).collect();
        match tried.is_empty() {
            true => Ok(Outcome::Done),
            // The right may be given a moment later.
            false => Err(Error::Failed(format!(
                "recognized csr {name:?} as [{}] but subject access review was not approved",
                tried.join(" ")
            ))),
        }
    }
}

fn read(request: &Tree) -> std::result::Result<Request, String> {
    Request::read(&api::base64::decode(request.str("spec.request"))?)
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
