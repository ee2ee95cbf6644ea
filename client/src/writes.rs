//! Records the writes of a task, so that no reconcile acts on a cache that is older than its own writes.

use std::sync::Arc;

use api::{Map, Str, Tree};
use stdx::sync::Mutex;

use crate::object::{key_of, revision_of};
use crate::{Key, Resource, cause};

/// A successful write.
#[derive(Debug, Clone)]
pub struct WriteRecord {
    pub resource: Resource,
    pub key: Key,
    /// For selections by labels.
    pub labels: Map,
    pub mark: WriteMark,
}

/// The state of a cache once it has observed a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteMark {
    Revision(u64),
    /// No object with this uid.
    Gone(Str),
}

type WriteLog = Arc<Mutex<Vec<WriteRecord>>>;

tokio::task_local! {
    static WRITE_LOG: WriteLog;
}

/// Runs a future; returns its output and its writes.
pub async fn record_writes<F: Future>(work: F) -> (F::Output, Vec<WriteRecord>) {
    let notes = WriteLog::default();
    let output = WRITE_LOG.scope(notes.clone(), work).await;
    let written = std::mem::take(&mut *notes.lock());
    (output, written)
}

/// Spawns a task whose writes are recorded for the calling task, and have its cause.
pub fn spawn<F>(work: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    match (WRITE_LOG.try_with(WriteLog::clone), cause::current()) {
        (Ok(notes), Some(cause)) => tokio::spawn(WRITE_LOG.scope(notes, cause.scope(work))),
        (Ok(notes), None) => tokio::spawn(WRITE_LOG.scope(notes, work)),
        (Err(_), Some(cause)) => tokio::spawn(cause.scope(work)),
        (Err(_), None) => tokio::spawn(work),
    }
}

fn record(written: impl FnOnce() -> Option<WriteRecord>) {
    let _ = WRITE_LOG.try_with(|notes| {
        if let Some(written) = written() {
            notes.lock().push(written);
        }
    });
}

/// Records the object in a response.
pub(crate) fn put(resource: Resource, object: &Tree) {
    record(|| {
        let mark = if is_gone(object) {
            WriteMark::Gone(Str::new(object.str("metadata.uid")))
        } else {
            WriteMark::Revision(revision_of(object)?)
        };
        Some(WriteRecord { resource, key: key_of(object), labels: object.map("metadata.labels").clone(), mark })
    });
}

/// Records a deletion: the response is the terminating object, or a Status if it is deleted.
pub(crate) fn deleted(resource: Resource, namespace: &str, name: &str, answer: &Tree) {
    if answer.str("kind") != "Status" {
        return put(resource, answer);
    }
    record(|| {
        let mark = WriteMark::Gone(Str::new(answer.str("details.uid")));
        Some(WriteRecord { resource, key: crate::object::key(namespace, name), labels: Map::new(), mark })
    });
}

/// Removing the last finalizer of a terminating object deletes it.
fn is_gone(object: &Tree) -> bool {
    let meta = object.at("metadata");
    // A namespace also has `spec.finalizers`.
    let finalizers = !meta.list("finalizers").is_empty() || !object.list("spec.finalizers").is_empty();
    let waits = finalizers || meta.int("deletionGracePeriodSeconds").unwrap_or(0) > 0;
    meta.has("deletionTimestamp") && !waits
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[tokio::test]
    async fn records_writes_of_the_task() {
        let pods = Resource::core("pods");
        let pod =
            tree! { "metadata" => tree! { "namespace" => "a", "name" => "x", "uid" => "u", "resourceVersion" => "7" } };
        put(pods, &pod);
        let ((), written) = record_writes(async {
            put(pods, &pod);
            let mut ended = pod.clone();
            ended.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
            put(pods, &ended);
            ended.child("metadata").set("deletionGracePeriodSeconds", 30);
            spawn(async move { put(pods, &ended) }).await.expect("it ends");
            let status = tree! { "kind" => "Status", "details" => tree! { "uid" => "w" } };
            deleted(pods, "a", "y", &status);
        })
        .await;
        let marks: Vec<(&str, &WriteMark)> = written.iter().map(|written| (&*written.key, &written.mark)).collect();
        let (gone, other) = (WriteMark::Gone("u".into()), WriteMark::Gone("w".into()));
        assert_eq!(
            marks,
            [("a/x", &WriteMark::Revision(7)), ("a/x", &gone), ("a/x", &WriteMark::Revision(7)), ("a/y", &other)]
        );
    }
}
