//! Confirms to kubelets which endpoints are applied, by an annotation of the Node (ADR 26).

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Patch};
use stdx::backoff::Backoff;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{NODES, Shared};

/// The highest resourceVersion of EndpointSlices that the node's proxy has applied.
const ANNOTATION: &str = "tiphys.io/endpoints-applied";
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long a stopping proxy waits for the API server.
const WITHDRAWAL: Duration = Duration::from_secs(5);

/// Writes the newest revision; while a write is under way, later ones are combined.
pub(super) struct RevisionConfirmer {
    writer: Option<Writer>,
}

struct Writer {
    client: Client,
    node: String,
    revision: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl RevisionConfirmer {
    pub(super) fn new(shared: &Arc<Shared>, client: Client) -> RevisionConfirmer {
        if !shared.config.confirm_endpoints {
            return RevisionConfirmer { writer: None };
        }
        let (revision, changes) = watch::channel(0);
        let node = shared.config.node_name.clone();
        let task = tokio::spawn(write_all(client.clone(), node.clone(), changes));
        RevisionConfirmer { writer: Some(Writer { client, node, revision, task }) }
    }

    /// Everything up to a revision is applied. It is written if a kubelet may wait for it.
    pub(super) fn applied(&self, revision: u64, is_awaited: bool) {
        let Some(writer) = self.writer.as_ref().filter(|_| is_awaited) else { return };
        writer.revision.send_if_modified(|last| std::mem::replace(last, revision) != revision);
    }

    /// Writes again if the annotation was lost, for instance because the Node was created again.
    pub(super) fn node_changed(&self, node: &Tree) {
        let Some(writer) = &self.writer else { return };
        let is_missing = !node.map("metadata.annotations").contains(ANNOTATION);
        writer.revision.send_if_modified(|revision| is_missing && *revision != 0);
    }

    /// Removes the annotation, so that kubelets do not wait for a proxy that does not run.
    pub(super) async fn withdraw(&self) {
        let Some(Writer { client, node, revision, task }) = &self.writer else { return };
        task.abort();
        if *revision.borrow() == 0 {
            return;
        }
        let patch = annotation(Tree::Null);
        let removed = client.patch(NODES, "", node, "", Patch::Merge(&patch));
        match tokio::time::timeout(WITHDRAWAL, removed).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to withdraw the confirmation of endpoints"),
            Err(_) => tracing::warn!("timed out withdrawing the confirmation of endpoints"),
        }
    }
}

fn annotation(value: Tree) -> Tree {
    tree! { "metadata" => tree! { "annotations" => tree! { ANNOTATION => value } } }
}

async fn write_all(client: Client, node: String, mut changes: watch::Receiver<u64>) {
    let mut retry = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    while changes.changed().await.is_ok() {
        loop {
            let revision = *changes.borrow_and_update();
            let patch = annotation(revision.to_string().into());
            match client.patch(NODES, "", &node, "", Patch::Merge(&patch)).await {
                Ok(_) => break retry.reset(),
                Err(error) => {
                    let pause = retry.next_pause();
                    tracing::warn!(%error, ?pause, "failed to confirm applied endpoints, retrying");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}
