//! The data for the audit events of a request that the request itself does not contain.

use std::borrow::Cow;

use http::HeaderValue;
use stdx::sync::Mutex;

use crate::authorization::{Decision, Reason};
use crate::request::audit::{Level, RequestRecord};

/// Collected while the request is handled, for its audit events.
pub(crate) struct AuditRecord {
    /// The same in every event and in the response of a request.
    pub id: HeaderValue,
    /// Set if the audit policy records the request.
    pub trail: Option<Box<RequestRecord>>,
    /// The decision of the authorizers.
    pub decision: Option<(Decision, Reason)>,
    pub annotations: Annotations,
}

impl Default for AuditRecord {
    fn default() -> AuditRecord {
        let id = HeaderValue::from_static("");
        AuditRecord { id, trail: None, decision: None, annotations: Annotations::default() }
    }
}

impl AuditRecord {
    /// Adds an annotation if the request is recorded.
    pub(crate) fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        if self.trail.is_some() {
            self.annotations.add(key, value);
        }
    }

    /// Adds an annotation that repeats parts of a body, only if the policy records bodies.
    pub(crate) fn annotate_request(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if self.trail.as_ref().is_some_and(|trail| trail.decision.level >= Level::Request) {
            self.annotations.add(key, value());
        }
    }
}

/// Annotations of a request's audit event; the first value of a key counts.
#[derive(Debug, Default)]
pub(crate) struct Annotations(Mutex<Vec<(Cow<'static, str>, String)>>);

impl Annotations {
    pub(crate) fn add(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let key = key.into();
        let mut all = self.0.lock();
        if !all.iter().any(|(other, _)| *other == key) {
            all.push((key, value.into()));
        }
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&[(Cow<'static, str>, String)]) -> T) -> T {
        read(&self.0.lock())
    }
}
