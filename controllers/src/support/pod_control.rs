//! Making and deleting many pods of one owner, who hears of each by an event.

use std::sync::Arc;

use api::Tree;
use client::{Client, DeleteOptions, Error, Recorder, Result};
use stdx::sync::Mutex;

use super::{PODS, batch, pods, said};

pub struct PodControl {
    pub client: Client,
    pub recorder: Recorder,
}

/// What came of deletions: the pods that do not count any more, what is left of some while they end, and
/// the first failure.
#[derive(Default)]
pub struct Deleted {
    pub gone: Vec<Arc<Tree>>,
    pub ending: Vec<Arc<Tree>>,
    pub error: Option<Error>,
}

impl Deleted {
    /// Takes those that are gone from a list.
    pub fn take_from(&self, pods: &mut Vec<Arc<Tree>>) {
        pods.retain(|pod| !self.gone.iter().any(|gone| Arc::ptr_eq(gone, pod)));
    }
}

impl PodControl {
    /// Slowly at first, until one fails; the pods that were made, and why there are not more.
    pub async fn create(
        &self,
        owner: &Tree,
        count: usize,
        make: impl Fn(usize) -> Tree,
    ) -> (Vec<Arc<Tree>>, Option<Error>) {
        let made = Mutex::new(Vec::new());
        let act = |at| {
            let (pod, made) = (make(at), &made);
            async move {
                let pod = self.create_one(owner, &pod).await?;
                made.lock().extend(pod.map(Arc::new));
                Ok(())
            }
        };
        let (_, error) = batch::slow_start(count, act).await;
        (made.into_inner(), error)
    }

    /// None where the namespace takes nothing new.
    async fn create_one(&self, owner: &Tree, pod: &Tree) -> Result<Option<Tree>> {
        match self.client.create(PODS.resource, owner.str("metadata.namespace"), pod).await {
            Ok(made) => {
                self.recorder.normal(owner, "SuccessfulCreate", format!("Created pod: {}", made.str("metadata.name")));
                Ok(Some(made))
            }
            Err(error) if error.is_terminating() => Ok(None),
            Err(error) => {
                self.recorder.warning(owner, "FailedCreate", format!("Error creating: {}", said(&error)));
                Err(error)
            }
        }
    }

    /// All of them, whatever fails.
    pub async fn delete(&self, owner: &Tree, doomed: &[Arc<Tree>]) -> Deleted {
        let deletions: Vec<_> = doomed.iter().map(|pod| self.delete_one(owner, pod)).collect();
        let results = batch::bounded(deletions).await;
        let mut deleted = Deleted::default();
        for (pod, result) in doomed.iter().zip(results) {
            match result {
                Ok(left) => {
                    deleted.gone.push(pod.clone());
                    deleted.ending.extend(left.map(Arc::new));
                }
                Err(error) => deleted.error = deleted.error.or(Some(error)),
            }
        }
        deleted
    }

    /// What is left of the pod while it ends.
    async fn delete_one(&self, owner: &Tree, pod: &Tree) -> Result<Option<Tree>> {
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        match self.client.delete(PODS.resource, namespace, name, DeleteOptions::of(pod)).await {
            Ok(left) => {
                self.recorder.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(pods::is_ending(&left).then_some(left))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                self.recorder.warning(owner, "FailedDelete", format!("Error deleting: {}", said(&error)));
                Err(error)
            }
        }
    }
}
