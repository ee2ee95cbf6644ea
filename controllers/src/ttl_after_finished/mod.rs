//! Deletes finished jobs after their TTL.

mod plan;

use std::sync::Arc;

use client::{DeleteOptions, Propagation, Resource, Result, Selection, Store};

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Plan;

const JOBS: Resource = Resource::new("batch", "v1", "jobs");

struct Controller {
    jobs: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let jobs = setup.informer(Selection::all(JOBS));
    let queue = context.queue.clone();
    jobs.on_change(move |change| {
        if change.new.as_deref().is_some_and(|job| job.at("spec").has("ttlSecondsAfterFinished")) {
            queue.add(change.key.clone());
        }
    });
    Some(Box::new(Controller { jobs: jobs.store().clone(), context: context.clone() }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(job) = self.jobs.get(key) else { return Ok(Outcome::Done) };
        match plan::plan(&job, self.context.clock.now()) {
            Plan::Keep => Ok(Outcome::Done),
            Plan::Wait(left) => Ok(Outcome::RequeueAfter(left)),
            Plan::Delete => self.delete(key).await,
        }
    }

    /// Reads the job from the server first: its TTL may have been extended.
    async fn delete(&self, key: &str) -> Result<Outcome> {
        let (namespace, name) = client::split(key);
        let gone = |error: &client::Error| error.is_not_found();
        let job = match self.context.client.get(JOBS, namespace, name).await {
            Err(error) if gone(&error) => return Ok(Outcome::Done),
            result => result?,
        };
        match plan::plan(&job, self.context.clock.now()) {
            Plan::Keep => return Ok(Outcome::Done),
            Plan::Wait(left) => return Ok(Outcome::RequeueAfter(left)),
            Plan::Delete => {}
        }
        let late = plan::overdue(&job, self.context.clock.now());
        let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::of(&job) };
        match self.context.client.delete(JOBS, namespace, name, options).await {
            Err(error) if gone(&error) => Ok(Outcome::Done),
            result => {
                result?;
                self.context.metrics.record(&crate::metrics::TTL_DURATION, &[], late);
                Ok(Outcome::Done)
            }
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
