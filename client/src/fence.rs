//! What the writes of an elected component carry: by which lease they go, and by which transition of it.
//! A server that knows the header makes them only while that holds; others ignore it.

use std::sync::Arc;

use http::HeaderValue;
use stdx::sync::RwLock;

pub(crate) const HEADER: &str = "tiphys-fence";

/// Empty until the first election is won. After one that is lost it stays as it was, so that what is
/// written late is refused.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<RwLock<Option<HeaderValue>>>);

impl Fence {
    pub fn set(&self, namespace: &str, name: &str, holder: &str, transitions: i64) {
        let value = HeaderValue::try_from(format!("{namespace}/{name} {holder} {transitions}")).ok();
        *self.0.write() = value;
    }

    pub(crate) fn term(&self) -> Option<HeaderValue> {
        self.0.read().clone()
    }
}
