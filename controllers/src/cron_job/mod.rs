//! Starts the Jobs of CronJobs on schedule.

mod plan;
mod schedule;

use std::sync::Arc;

use api::Tree;
use client::{DeleteOptions, Key, Propagation, Resource, Result, Selection, Store, index};

use crate::support::owner;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Event, Plan, ScheduledJob};
pub use schedule::ZonedSchedule;

const CRON_JOBS: Resource = Resource::new("batch", "v1", "cronjobs");
const JOBS: Resource = Resource::new("batch", "v1", "jobs");

struct Controller {
    cron_jobs: Arc<Store>,
    jobs: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let cron_jobs = setup.informer(Selection::all(CRON_JOBS));
    let jobs = setup.informer(Selection::all(JOBS));
    jobs.index_by(index::CONTROLLER);
    let queue = context.queue.clone();
    cron_jobs.on_change(move |change| queue.add(change.key.clone()));
    let queue = context.queue.clone();
    jobs.on_change(move |change| {
        for job in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
            owner_key(job).into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        cron_jobs: cron_jobs.store().clone(),
        jobs: jobs.store().clone(),
        context: context.clone(),
    }))
}

fn owner_key(job: &Tree) -> Option<Key> {
    let reference = owner::controller_of(job).filter(|reference| reference.str("kind") == "CronJob")?;
    Some(client::key(job.str("metadata.namespace"), reference.str("name")))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(cron) = self.cron_jobs.get(key) else { return Ok(Outcome::Done) };
        let jobs = self.jobs.find(index::CONTROLLER, cron.str("metadata.uid"));
        let plan = plan::plan(&cron, &jobs, parse_schedule(&cron), self.context.clock.now());
        let again = plan.again;
        let mut status = plan.status.clone();
        let result = self.execute(&cron, plan, &mut status).await;
        // The status is written even if a step failed, since it records what was done.
        self.write(&cron, status).await?;
        result?;
        Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    async fn execute(&self, cron: &Tree, plan: Plan, status: &mut Tree) -> Result<()> {
        self.record_events(cron, &plan.events);
        for job in &plan.old {
            self.delete(cron, job).await?;
        }
        for job in &plan.replace {
            self.delete(cron, job).await?;
            plan::drop_active(status, job.str("metadata.uid"));
        }
        match plan.start {
            Some(start) => self.start(cron, &start, status).await,
            None => Ok(()),
        }
    }

    async fn start(&self, cron: &Tree, start: &ScheduledJob, status: &mut Tree) -> Result<()> {
        let (namespace, name) = (cron.str("metadata.namespace"), start.job.str("metadata.name"));
        let job = match self.context.client.create(JOBS, namespace, &start.job).await {
            Ok(job) => {
                self.context.recorder.normal(cron, "SuccessfulCreate", format!("Created job {name}"));
                let skew = self.context.now_seconds() - start.scheduled;
                self.context.metrics.record(&crate::metrics::CRON_JOB_SKEW, &[], skew.max(0) as f64);
                job
            }
            Err(error) if error.is_terminating() => return Ok(()),
            // The Job is ours from before a crash, or another owner's, which must not be recorded.
            Err(error) if error.is_already_exists() => {
                let job = self.context.client.get(JOBS, namespace, name).await?;
                if !owner::is_controlled_by(&job, cron) {
                    return Ok(());
                }
                job
            }
            Err(error) => {
                let text = format!("Error creating job: {}", error.message());
                self.context.recorder.warning(cron, "FailedCreate", text);
                return Err(error);
            }
        };
        plan::started(status, &job, start.scheduled);
        Ok(())
    }

    async fn delete(&self, cron: &Tree, job: &Tree) -> Result<()> {
        let (namespace, name) = (job.str("metadata.namespace"), job.str("metadata.name"));
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::of(job) };
        match self.context.client.delete(JOBS, namespace, name, options).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let text = format!("Deleted job: {}", error.message());
                self.context.recorder.warning(cron, "FailedDelete", text);
                Err(error)
            }
            Ok(_) => {
                self.context.recorder.normal(cron, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
        }
    }

    /// An unchanged status is not written.
    async fn write(&self, cron: &Tree, status: Tree) -> Result<()> {
        if *cron.at("status") == status {
            return Ok(());
        }
        let mut changed = cron.clone();
        changed.set("status", status);
        let (namespace, name) = (cron.str("metadata.namespace"), cron.str("metadata.name"));
        self.context.client.update_status(CRON_JOBS, namespace, name, &changed).await.map(|_| ())
    }

    fn record_events(&self, cron: &Tree, events: &[Event]) {
        for event in events {
            match event.ty {
                "Warning" => self.context.recorder.warning(cron, event.reason, event.message.as_str()),
                _ => self.context.recorder.normal(cron, event.reason, event.message.as_str()),
            }
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}

/// A time zone in the schedule itself takes precedence over `spec.timeZone`.
fn parse_schedule(cron: &Tree) -> std::result::Result<ZonedSchedule, Event> {
    let zones = kinds::time_zones::database();
    let zone = |name: &str| zones.zone(name).ok_or_else(|| plan::unknown_zone(name));
    let text = cron.str("spec.schedule");
    let of_spec = zone(cron.str("spec.timeZone"))?;
    let schedule = kinds::batch::cron::parse(text).map_err(|error| plan::unparseable(text, &error.to_string()))?;
    let zone = match kinds::batch::cron::zone_of(text) {
        Some(name) => zone(name)?,
        None => of_spec,
    };
    Ok(ZonedSchedule { schedule, zone })
}
