//! Lets somebody wait for a change of one object, by its key, without looking again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// Those for whom somebody waits.
#[derive(Default)]
pub struct Changes(Mutex<BTreeMap<String, watch::Sender<()>>>);

/// Hears of the changes of one object from its making on.
pub struct Interest {
    changes: Arc<Changes>,
    key: String,
    heard: watch::Receiver<()>,
}

impl Changes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<()>>> {
        self.0.lock()
    }

    /// An object came, changed or went.
    pub fn changed(&self, key: &str) {
        if let Some(sender) = self.all().get(key) {
            sender.send_replace(());
        }
    }

    pub fn of(self: &Arc<Changes>, key: &str) -> Interest {
        let heard = self.all().entry(key.to_string()).or_default().subscribe();
        Interest { changes: self.clone(), key: key.to_string(), heard }
    }
}

impl Interest {
    /// Waits for the next change since the last one that was heard of.
    pub async fn changed(&mut self) {
        let _ = self.heard.changed().await;
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut all = self.changes.all();
        // This one is counted still.
        if all.get(&self.key).is_some_and(|sender| sender.receiver_count() <= 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_heard_by_those_who_wait_for_it() {
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
        assert!(changes.all().is_empty(), "nobody waits any more");
    }
}
