//! The limit on requests in flight when priority and fairness is disabled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kinds::User;

use crate::request::info::RequestInfo;
use crate::request::limits::{Limits, is_long_running};

/// The requests in flight when fairness is disabled.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    reading: Arc<AtomicU32>,
    mutating: Arc<AtomicU32>,
}

/// One counted request; the count is decremented on drop.
#[derive(Debug)]
pub(crate) struct InflightGuard(Arc<AtomicU32>);

impl Drop for InflightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inflight {
    /// Counts a request; the inner None is a request that is not limited. A limit of 0 means no limit.
    pub(crate) fn enter(
        &self,
        limits: &Limits,
        info: &RequestInfo,
        user: Option<&User>,
    ) -> Result<Option<InflightGuard>, Full> {
        let reads = matches!(info.verb, "get" | "list" | "watch");
        let (count, most) = if reads {
            (&self.reading, limits.max_requests_inflight)
        } else {
            (&self.mutating, limits.max_mutating_requests_inflight)
        };
        let master = user.is_some_and(|user| user.groups.iter().any(|group| group == "system:masters"));
        if most == 0 || master || is_long_running(info) {
            return Ok(None);
        }
        let taken =
            count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        taken.map(|_| Some(InflightGuard(count.clone()))).map_err(|_| Full)
    }
}

/// The limit is reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_releases_requests() {
        let limits = Limits { max_requests_inflight: 1, ..Limits::default() };
        let inflight = Inflight::default();
        let get = RequestInfo { verb: "get", is_resource: true, ..RequestInfo::default() };
        let create = RequestInfo { verb: "create", ..get.clone() };
        let watch = RequestInfo { verb: "watch", ..get.clone() };
        let held = inflight.enter(&limits, &get, None).expect("the first place");
        assert_eq!(inflight.enter(&limits, &get, None).err(), Some(Full));
        assert!(inflight.enter(&limits, &create, None).is_ok_and(|place| place.is_some()));
        assert!(inflight.enter(&limits, &watch, None).is_ok_and(|place| place.is_none()));
        let master = User { groups: vec!["system:masters".to_string()], ..User::default() };
        assert!(inflight.enter(&limits, &get, Some(&master)).is_ok_and(|place| place.is_none()));
        drop(held);
        assert!(inflight.enter(&limits, &get, None).is_ok());
    }
}
