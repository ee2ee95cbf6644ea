//! Which objects the last count of a quota may have missed.

use std::collections::HashMap;

use stdx::sync::Mutex;

/// The revision of each quota after its last count. An object that is older, but new in an informer, existed before
/// admission charged for it, and was not there to be counted.
#[derive(Default)]
pub(super) struct CountRevisions(Mutex<HashMap<String, u64>>);

impl CountRevisions {
    /// A count begins: objects that become visible until it ends may be missing in it.
    pub(super) fn begin(&self, quota: &str) {
        self.0.lock().insert(quota.to_string(), u64::MAX);
    }

    /// The count is stored in the quota at this revision.
    pub(super) fn finish(&self, quota: &str, revision: u64) {
        self.0.lock().insert(quota.to_string(), revision);
    }

    pub(super) fn forget(&self, quota: &str) {
        self.0.lock().remove(quota);
    }

    /// Whether the count may lack an object of this revision that has just become visible.
    pub(super) fn may_miss(&self, quota: &str, revision: u64) -> bool {
        self.0.lock().get(quota).is_some_and(|counted| revision < *counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_older_objects_that_become_visible_during_or_after_a_count() {
        let counts = CountRevisions::default();
        assert!(!counts.may_miss("default/q", 5), "not counted yet: the first count sees it");
        counts.begin("default/q");
        assert!(counts.may_miss("default/q", 12));
        counts.finish("default/q", 10);
        assert!(counts.may_miss("default/q", 9));
        assert!(!counts.may_miss("default/q", 11), "charged by admission");
        assert!(!counts.may_miss("default/other", 9));
        counts.forget("default/q");
        assert!(!counts.may_miss("default/q", 9));
    }
}
