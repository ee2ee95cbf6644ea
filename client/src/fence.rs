//! The fencing header for writes of an elected component: the lease and its transition count. A server that supports
//! the header rejects writes that do not match the lease; others ignore it.

use std::sync::Arc;

use http::HeaderValue;
use stdx::sync::RwLock;

pub(crate) const HEADER: &str = "tiphys-fence";

/// Empty until the first election is won. Kept after leadership is lost, so that late writes are rejected.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<RwLock<Option<HeaderValue>>>);

impl Fence {
    /// Sets the lease that later writes must still hold.
    pub fn set(&self, namespace: &str, name: &str, holder: &str, transitions: i64) {
        let value = HeaderValue::try_from(format!("{namespace}/{name} {holder} {transitions}")).ok();
        *self.0.write() = value;
    }

    pub(crate) fn term(&self) -> Option<HeaderValue> {
        self.0.read().clone()
    }
}
