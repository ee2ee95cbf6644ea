//! Signs the public `cluster-info` with each bootstrap token, so that a joining machine can verify it.

use std::sync::Arc;
use std::time::Duration;

use client::{Key, Resource, Result, Selection, Store};

use super::{TOKENS, plan};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const MAPS: Resource = Resource::core("configmaps");
const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const INFO: Selection =
    Selection { resource: MAPS, query: "fieldSelector=metadata.name%3Dcluster-info,metadata.namespace%3Dkube-public" };

struct Controller {
    tokens: Arc<Store>,
    info: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    for selection in [TOKENS, INFO] {
        let queue = context.queue.clone();
        setup.informer(selection).on_change(move |_| queue.add(Key::from(NAME)));
    }
    let (tokens, info) = (setup.informer(TOKENS).store().clone(), setup.informer(INFO).store().clone());
    Some(Box::new(Controller { tokens, info, context: context.clone() }))
}

impl Controller {
    async fn sync(&self) -> Result<Outcome> {
        let (tokens, now) = (self.tokens.all(), self.context.now_seconds());
        let Some(info) = self.info.get(&client::key(NAMESPACE, NAME)) else { return Ok(Outcome::Done) };
        if let Some(signed) = plan::signed(&info, &tokens, now) {
            self.context.client.update(MAPS, NAMESPACE, NAME, &signed).await?;
        }
        let next = tokens.iter().filter_map(|token| plan::end_of(token)).filter(|end| *end > now).min();
        Ok(next.map_or(Outcome::Done, |end| Outcome::RequeueAfter(Duration::from_secs((end - now).unsigned_abs()))))
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, _: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync())
    }
}
