//! Marks a connection that carries a watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the request, read by the connection.
#[derive(Debug, Clone, Default)]
pub struct Watched(Arc<AtomicBool>);

impl Watched {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
