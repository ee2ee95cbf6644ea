//! Deletes old certificate signing requests: one hour after the decision, one day without a decision.

use std::sync::Arc;
use std::time::Duration;

use api::base64;
use client::{DeleteOptions, Result, Store};

use super::{REQUESTS, follow, plan, x509};
use crate::support::done_if_not_found;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    requests: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    Some(Box::new(Controller { requests: follow(setup, context), context: context.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(request) = self.requests.get(name) else { return Ok(Outcome::Done) };
        let certificate = base64::decode(request.str("status.certificate")).unwrap_or_default();
        let Some(due) = plan::due(&request, x509::end_of(&certificate)) else { return Ok(Outcome::Done) };
        let left = due - self.context.now_seconds();
        if left >= 0 {
            return Ok(Outcome::RequeueAfter(Duration::from_secs(left.unsigned_abs() + 1)));
        }
        done_if_not_found(self.context.client.delete(REQUESTS, "", name, DeleteOptions::of(&request)).await)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
