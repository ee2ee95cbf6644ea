//! Notifies the loops that process flow schemas and priority levels.

use tokio::sync::watch;

use crate::storage::cache::Caches;

/// Changes of any schema or level, until the server drains.
pub(crate) struct Changes {
    schemas: watch::Receiver<u64>,
    levels: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
}

impl Changes {
    pub(crate) fn of(caches: &Caches, closing: watch::Receiver<bool>) -> Option<Changes> {
        let watch = |path| caches.get(path).map(|cache| cache.subscribe());
        let (schemas, levels) = (watch("flowschemas")?, watch("prioritylevelconfigurations")?);
        Some(Changes { schemas, levels, closing })
    }

    /// Waits for the next change; false if no more will come.
    pub(crate) async fn next(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => false,
            changed = self.schemas.changed() => changed.is_ok(),
            changed = self.levels.changed() => changed.is_ok(),
        }
    }
}
