//! Creates and deletes many pods of one owner, with an event for each.

use std::sync::Arc;

use api::Tree;
use client::{Client, DeleteOptions, Error, Recorder, Result};
use stdx::sync::Mutex;

use super::{PODS, batch, pods};

pub(crate) struct PodControl {
    pub client: Client,
    pub recorder: Recorder,
}

/// The result of deletions: the pods that no longer count, the terminating ones, and the first error.
#[derive(Default)]
pub(crate) struct DeletionResult {
    pub gone: Vec<Arc<Tree>>,
    pub ending: Vec<Arc<Tree>>,
    pub error: Option<Error>,
}

impl DeletionResult {
    /// Removes the deleted pods from a list.
    pub(crate) fn take_from(&self, pods: &mut Vec<Arc<Tree>>) {
        pods.retain(|pod| !self.gone.iter().any(|gone| Arc::ptr_eq(gone, pod)));
    }
}

impl PodControl {
    /// Creates pods in batches of growing size until one fails; returns the created pods and the first error.
    pub(crate) async fn create(
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

    /// None if the namespace is terminating.
    async fn create_one(&self, owner: &Tree, pod: &Tree) -> Result<Option<Tree>> {
        match self.client.create(PODS.resource, owner.str("metadata.namespace"), pod).await {
            Ok(made) => {
                self.recorder.normal(owner, "SuccessfulCreate", format!("Created pod: {}", made.str("metadata.name")));
                Ok(Some(made))
            }
            Err(error) if error.is_terminating() => Ok(None),
            Err(error) => {
                self.recorder.warning(owner, "FailedCreate", format!("Error creating: {}", error.message()));
                Err(error)
            }
        }
    }

    /// Deletes all pods, continuing after errors.
    pub(crate) async fn delete(&self, owner: &Tree, doomed: &[Arc<Tree>]) -> DeletionResult {
        let deletions: Vec<_> = doomed.iter().map(|pod| self.delete_one(owner, pod)).collect();
        let results = batch::bounded(deletions).await;
        let mut deleted = DeletionResult::default();
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

    /// The pod while it terminates.
    async fn delete_one(&self, owner: &Tree, pod: &Tree) -> Result<Option<Tree>> {
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        match self.client.delete(PODS.resource, namespace, name, DeleteOptions::of(pod)).await {
            Ok(left) => {
                self.recorder.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(pods::is_ending(&left).then_some(left))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                self.recorder.warning(owner, "FailedDelete", format!("Error deleting: {}", error.message()));
                Err(error)
            }
        }
    }
}
