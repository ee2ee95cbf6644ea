//! Reconciles the ReplicaSets of a Deployment with its template and strategy.

mod plan;
mod revision;
mod rollback;
mod rollout;
mod state;
mod status;

use std::sync::Arc;

use api::Tree;
use client::{Client, DeleteOptions, Error, Recorder, Resource, Result, Selection, Store, index};
use stdx::clock::Clock;

use crate::support::family::{self, ParentKind};
use crate::support::{PODS, ignore_terminating_namespace, owner, pods};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Plan, Write};
use rollback::Rollback;

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const SETS: Resource = Resource::new("apps", "v1", "replicasets");
const PARENT: ParentKind = ParentKind { kind: "Deployment", selector: family::label_selector };

struct Controller {
    deployments: Arc<Store>,
    sets: Arc<Store>,
    pods: Arc<Store>,
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let deployments = setup.informer(Selection::all(DEPLOYMENTS));
    let sets = setup.informer(Selection::all(SETS));
    let pods = setup.informer(PODS);
    let queue = context.queue.clone();
    deployments.on_change(move |change| queue.add(change.key.clone()));
    PARENT.follow(&sets, deployments.store(), &context.queue);
    // A terminating pod is visible in the status of its ReplicaSet, so that pods need no handler.
    pods.index_by(index::CONTROLLER);
    Some(Box::new(Controller {
        deployments: deployments.store().clone(),
        sets: sets.store().clone(),
        pods: pods.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(Outcome::Done) };
        let claim = owner::claim(
            &deployment,
            &family::label_selector(&deployment),
            family::candidates(&self.sets, &deployment),
        );
        let sets = owner::execute(&self.client, DEPLOYMENTS, &deployment, SETS, claim).await?;
        let old_pods_run = |new: Option<&Tree>| self.old_pods_run(&sets, new);
        let Plan { writes, again } = plan::plan(&deployment, &sets, old_pods_run, self.clock.now());
        for write in writes {
            self.execute(&deployment, write).await?;
        }
        Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    fn old_pods_run(&self, sets: &[Arc<Tree>], new: Option<&Tree>) -> bool {
        let uid = |set: &Tree| set.str("metadata.uid").to_string();
        let new = new.map(uid);
        let old = sets.iter().map(|set| uid(set)).filter(|uid| Some(uid) != new.as_ref());
        old.flat_map(|uid| self.pods.find(index::CONTROLLER, &uid)).any(|pod| !pods::is_terminal(&pod))
    }

    async fn execute(&self, deployment: &Tree, write: Write) -> Result<()> {
        let namespace = deployment.str("metadata.namespace");
        match write {
            Write::Create { set, event } => self.create(deployment, &set, event).await,
            Write::Update { set, event } => {
                self.client.update(SETS, namespace, set.str("metadata.name"), &set).await?;
                self.record_scaling_event(deployment, event);
                Ok(())
            }
            Write::Delete { set } => {
                let options = DeleteOptions::of(&set);
                match self.client.delete(SETS, namespace, set.str("metadata.name"), options).await {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => Ok(()),
                }
            }
            Write::Rollback(rollback) => self.roll_back(deployment, rollback).await,
            Write::Status(deployment) => self.update_status(&deployment).await,
        }
    }

    async fn create(&self, deployment: &Tree, set: &Tree, event: Option<String>) -> Result<()> {
        match self.client.create(SETS, deployment.str("metadata.namespace"), set).await {
            Ok(_) => {
                self.record_scaling_event(deployment, event);
                Ok(())
            }
            Err(error) if error.is_already_exists() => {
                // Another ReplicaSet has the name: the next hash uses a higher collision count.
                self.update_status(&plan::with_increased_collision_count(deployment)).await?;
                Err(error)
            }
            Err(error) if error.is_terminating() => Err(error),
            Err(error) => {
                self.set_failure(deployment, set, &error).await;
                Err(error)
            }
        }
    }

    async fn set_failure(&self, deployment: &Tree, set: &Tree, error: &Error) {
        let message = format!("Failed to create new replica set {:?}: {}", set.str("metadata.name"), error.message());
        let mut failed = deployment.clone();
        status::set_failure(&mut failed, &message, self.clock.now());
        // The status update may fail for the same reason; the next reconcile repeats it.
        if failed != *deployment {
            let _ = self.update_status(&failed).await;
        }
        self.recorder.warning(deployment, "ReplicaSetCreateError", message);
    }

    async fn roll_back(&self, deployment: &Tree, rollback: Rollback) -> Result<()> {
        let (namespace, name) = (deployment.str("metadata.namespace"), deployment.str("metadata.name"));
        self.client.update(DEPLOYMENTS, namespace, name, &rollback.deployment).await?;
        rollback.event.record(&self.recorder, deployment);
        Ok(())
    }

    fn record_scaling_event(&self, deployment: &Tree, event: Option<String>) {
        if let Some(event) = event {
            self.recorder.normal(deployment, "ScalingReplicaSet", event);
        }
    }

    async fn update_status(&self, deployment: &Tree) -> Result<()> {
        let (namespace, name) = (deployment.str("metadata.namespace"), deployment.str("metadata.name"));
        match self.client.update_status(DEPLOYMENTS, namespace, name, deployment).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async { ignore_terminating_namespace(self.sync(key).await) })
    }
}
