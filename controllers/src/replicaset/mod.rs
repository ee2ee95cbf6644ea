//! Maintains the replicas of ReplicaSets and ReplicationControllers with one implementation.

mod plan;
mod rank;

use std::sync::Arc;

use api::Tree;
use api::selector::Selector;
use client::{Error, Metrics, Resource, Result, Selection, Store, index};
use stdx::clock::Clock;

use crate::metrics::REPLICASET_AGE_RATIO;
use crate::support::family::{self, ParentKind};
use crate::support::pod_control::PodControl;
use crate::support::{PODS, owner, pods, status};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Pods, Scale, ScaleFailure};

/// The differences between the two kinds.
struct Kind {
    resource: Resource,
    parent: ParentKind,
    /// The event source.
    component: &'static str,
    /// Whether the status has `terminatingReplicas`.
    counts_terminating: bool,
}

static REPLICA_SET: Kind = Kind {
    resource: Resource::new("apps", "v1", "replicasets"),
    parent: ParentKind { kind: "ReplicaSet", selector: family::label_selector },
    component: "replicaset-controller",
    counts_terminating: true,
};

static REPLICATION_CONTROLLER: Kind = Kind {
    resource: Resource::core("replicationcontrollers"),
    parent: ParentKind {
        kind: "ReplicationController",
        selector: |object| Selector::from_labels(object.map("spec.selector")),
    },
    component: "replication-controller",
    counts_terminating: false,
};

struct Controller {
    kind: &'static Kind,
    sets: Arc<Store>,
    pods: Arc<Store>,
    control: PodControl,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

pub(crate) fn start_replica_sets(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    Some(start(setup, context, &REPLICA_SET))
}

pub(crate) fn start_replication_controllers(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    Some(start(setup, context, &REPLICATION_CONTROLLER))
}

fn start(setup: &Setup, context: &Context, kind: &'static Kind) -> Box<dyn Reconcile> {
    let sets = setup.informer(Selection::all(kind.resource));
    let pods = setup.informer(PODS);
    let queue = context.queue.clone();
    sets.index_by(index::CONTROLLER).on_change(move |change| queue.add(change.key.clone()));
    kind.parent.follow(&pods, sets.store(), &context.queue);
    Box::new(Controller {
        kind,
        sets: sets.store().clone(),
        pods: pods.store().clone(),
        control: PodControl { client: context.client.clone(), recorder: context.recorder.named(kind.component) },
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
    })
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(set) = self.sets.get(key) else { return Ok(Outcome::Done) };
        let mut pods = self.claim(&set).await?;
        let now = self.clock.now();
        let failure = match plan::scale(&set, &pods.active, || self.related(&set), now) {
            Scale::Keep => None,
            Scale::Create(count) => self.create(&set, count, &mut pods).await,
            Scale::Delete(doomed) => {
                for ratio in rank::age_ratios(&pods.active, &doomed, now) {
                    self.metrics.record(&REPLICASET_AGE_RATIO, &[], ratio);
                }
                self.delete(&set, &doomed, &mut pods).await
            }
        };
        let (failure, error) = failure.unzip();
        let status = plan::status(&set, &pods, failure.as_ref(), self.kind.counts_terminating, now);
        status::write(&self.control.client, self.kind.resource, &set, status).await?;
        match error {
            Some(error) => Err(error),
            None => Ok(plan::next_available(&set, &pods.active, now).map_or(Outcome::Done, Outcome::RequeueAfter)),
        }
    }

    /// Only active pods are adopted or released; terminating ones are counted.
    async fn claim(&self, set: &Tree) -> Result<Pods> {
        let selector = (self.kind.parent.selector)(set);
        let (active, rest): (Vec<_>, Vec<_>) =
            family::candidates(&self.pods, set).into_iter().partition(|pod| pods::is_active(pod));
        let claim = owner::claim(set, &selector, active);
        let active = owner::execute(&self.control.client, self.kind.resource, set, PODS.resource, claim).await?;
        let rest = owner::claim(set, &selector, rest).mine;
        Ok(Pods::of(active.into_iter().chain(rest)))
    }

    /// The active pods of all ReplicaSets with the same owner.
    fn related(&self, set: &Tree) -> Vec<Arc<Tree>> {
        let uid_of = |set: &Tree| set.str("metadata.uid").to_string();
        let uids: Vec<String> = match owner::controller_of(set) {
            Some(owner) => self.sets.find(index::CONTROLLER, owner.str("uid")).iter().map(|set| uid_of(set)).collect(),
            None => vec![uid_of(set)],
        };
        let pods = uids.iter().flat_map(|uid| self.pods.find(index::CONTROLLER, uid));
        pods.filter(|pod| pods::is_active(pod)).collect()
    }

    async fn create(&self, set: &Tree, count: usize, pods: &mut Pods) -> Option<(ScaleFailure, Error)> {
        let pod = pods::from_template(set.at("spec.template"), set);
        let (made, error) = self.control.create(set, count, |_| pod.clone()).await;
        pods.active.extend(made);
        error.map(|error| (ScaleFailure::Create(error.message()), error))
    }

    async fn delete(&self, set: &Tree, doomed: &[Arc<Tree>], pods: &mut Pods) -> Option<(ScaleFailure, Error)> {
        let deleted = self.control.delete(set, doomed).await;
        deleted.take_from(&mut pods.active);
        pods.terminating.extend(deleted.ending);
        deleted.error.map(|error| (ScaleFailure::Delete(error.message()), error))
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
