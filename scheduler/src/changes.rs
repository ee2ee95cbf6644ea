//! Lets a task wait for a change of one object, by its key, without polling.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// A channel for each object that is waited for.
#[derive(Default)]
pub struct Changes(Mutex<BTreeMap<String, watch::Sender<()>>>);

/// Receives the changes of one object from its creation on.
pub struct ChangeSubscription {
    changes: Arc<Changes>,
    key: String,
    receiver: watch::Receiver<()>,
}

impl Changes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<()>>> {
        self.0.lock()
    }

    /// Notifies of an added, changed or deleted object.
    pub fn changed(&self, key: &str) {
        if let Some(sender) = self.all().get(key) {
            sender.send_replace(());
        }
    }

    /// The changes of one key from now on.
    pub fn of(self: &Arc<Changes>, key: &str) -> ChangeSubscription {
        let receiver = self.all().entry(key.to_string()).or_default().subscribe();
        ChangeSubscription { changes: self.clone(), key: key.to_string(), receiver }
    }
}

impl ChangeSubscription {
    /// Waits for the next change since the last call.
    pub async fn changed(&mut self) {
        let _ = self.receiver.changed().await;
    }
}

impl Drop for ChangeSubscription {
    fn drop(&mut self) {
        let mut all = self.changes.all();
        // This receiver is still counted.
        if all.get(&self.key).is_some_and(|sender| sender.receiver_count() <= 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notifies_waiting_tasks() {
        let changes = Arc::new(Changes::default());
        let (mut one, mut other) = (changes.of("a"), changes.of("a"));
        changes.changed("b");
        changes.changed("a");
        one.changed().await;
        other.changed().await;
        drop(one);
        changes.changed("a");
        other.changed().await;
        drop(other);
        assert!(changes.all().is_empty(), "no task waits any more");
    }
}
