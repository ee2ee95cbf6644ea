//! Protects claims that pods use from deletion, and maintains their Unused condition.

mod plan;

use std::sync::Arc;

use api::{Tree, time};
use client::{Change, Client, Key, Result, Store, split};

use crate::support::PODS;
use crate::support::finalizers;
use crate::support::volumes::{BY_CLAIM, CLAIMS, claims_of};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    claims: Arc<Store>,
    pods: Arc<Store>,
    client: Client,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let queue = context.queue.clone();
    let claims = setup.informer(CLAIMS);
    claims.on_change(move |change| queue.add(change.key.clone()));
    let queue = context.queue.clone();
    let pods = setup.informer(PODS);
    pods.index_by(BY_CLAIM);
    pods.on_change(move |change| affected(change).into_iter().for_each(|key| queue.add(Key::from(key))));
    Some(Box::new(Controller {
        claims: claims.store().clone(),
        pods: pods.store().clone(),
        client: context.client.clone(),
        context: context.clone(),
    }))
}

/// The claims of a pod whose use the change affects.
fn affected(change: &Change) -> Vec<String> {
    let relevant = |pod: &Tree| {
        let meta = pod.at("metadata");
        (
            pod.str("spec.nodeName").to_string(),
            pod.str("status.phase").to_string(),
            plan::has_ended(pod),
            meta.int("deletionGracePeriodSeconds"),
        )
    };
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    match old.map(relevant) == new.map(relevant) {
        true => Vec::new(),
        false => new.or(old).map(claims_of).unwrap_or_default(),
    }
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(claim) = self.claims.get(key) else { return Ok(Outcome::Done) };
        let pods = self.pods.find(BY_CLAIM, key);
        let now = time::format_seconds(self.context.now_seconds());
        if let Some(changed) = plan::unused_condition(&claim, pods.iter().map(|pod| &**pod), &now) {
            return self.update_status(key, &changed).await;
        }
        let is_kept = || pods.iter().any(|pod| plan::keeps(pod, &claim));
        let Some(changed) = finalizers::protect(&claim, plan::FINALIZER, is_kept) else { return Ok(Outcome::Done) };
        if finalizers::has(&claim, plan::FINALIZER) && self.is_kept_now(&claim).await? {
            return Ok(Outcome::Done);
        }
        finalizers::write(&self.client, CLAIMS.resource, &changed).await
    }

    async fn update_status(&self, key: &str, changed: &Tree) -> Result<Outcome> {
        let (namespace, name) = split(key);
        match self.client.update_status(CLAIMS.resource, namespace, name, changed).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Outcome::Done),
        }
    }

    /// A pod that was created just before the deletion may not be in the informer yet, so the pods are
    /// listed from the server before the finalizer is removed.
    async fn is_kept_now(&self, claim: &Tree) -> Result<bool> {
        let list = self.client.list(PODS.resource, claim.str("metadata.namespace"), "").await?;
        Ok(list.list("items").iter().any(|pod| plan::keeps(pod, claim)))
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
