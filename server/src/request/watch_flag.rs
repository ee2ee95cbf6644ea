//! Marks a connection that carries a watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the request, read by the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchFlag(Arc<AtomicBool>);

impl WatchFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
