//! Deletes expired bootstrap tokens.

use std::sync::Arc;
use std::time::Duration;

use client::{DeleteOptions, Result, Store, split};

use super::{TOKENS, plan};
use crate::support::done_if_not_found;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    tokens: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(TOKENS);
    let queue = context.queue.clone();
    informer.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller { tokens: informer.store().clone(), context: context.clone() }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(token) = self.tokens.get(key) else { return Ok(Outcome::Done) };
        let Some(end) = plan::end_of(&token) else { return Ok(Outcome::Done) };
        let left = end - self.context.now_seconds();
        if left > 0 {
            return Ok(Outcome::RequeueAfter(Duration::from_secs(left.unsigned_abs())));
        }
        let (namespace, name) = split(key);
        done_if_not_found(self.context.client.delete(TOKENS.resource, namespace, name, DeleteOptions::of(&token)).await)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
