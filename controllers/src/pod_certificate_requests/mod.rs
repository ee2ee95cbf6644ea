//! Deletes PodCertificateRequests after a quarter of an hour: a kubelet that still needs one creates another.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time};
use client::{DeleteOptions, Resource, Result, Selection, Store, split};

use crate::support::done_if_not_found;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "podcertificaterequests");
const OLD_SECONDS: i64 = 15 * 60;

struct Controller {
    requests: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(REQUESTS));
    let queue = context.queue.clone();
    informer.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller { requests: informer.store().clone(), context: context.clone() }))
}

/// The remaining lifetime in seconds.
fn left(request: &Tree, now: i64) -> i64 {
    let made = time::parse(request.str("metadata.creationTimestamp")).map_or(now, |time| time.seconds);
    (made + OLD_SECONDS - now).max(0)
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(request) = self.requests.get(key) else { return Ok(Outcome::Done) };
        let left = left(&request, self.context.now_seconds());
        if left > 0 {
            return Ok(Outcome::RequeueAfter(Duration::from_secs(left.unsigned_abs())));
        }
        let (namespace, name) = split(key);
        done_if_not_found(self.context.client.delete(REQUESTS, namespace, name, DeleteOptions::of(&request)).await)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn requests_expire_after_a_quarter_of_an_hour() {
        let request = tree! { "metadata" => tree! { "creationTimestamp" => "1970-01-01T00:00:10Z" } };
        assert_eq!([10, 909, 910, 5000].map(|now| left(&request, now)), [900, 1, 0, 0]);
    }
}
