//! Initializers of old Kubernetes: the field `metadata.initializers` and its configuration kind are in the table only
//! if enabled before the table was first read.

use std::sync::atomic::{AtomicU8, Ordering};

const UNREAD: u8 = 0;
const WANTED: u8 = 1;
const ABSENT: u8 = 2;
const PRESENT: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);

/// Adds them to the table; false if the table was already read.
pub fn add() -> bool {
    let added = STATE.compare_exchange(UNREAD, WANTED, Ordering::AcqRel, Ordering::Acquire);
    added.is_ok() || matches!(added, Err(WANTED | PRESENT))
}

/// Whether they are enabled.
pub fn are_on() -> bool {
    STATE.load(Ordering::Relaxed) == PRESENT || STATE.load(Ordering::Relaxed) == WANTED
}

/// The table is being read: returns whether they are enabled, which is then final.
pub(super) fn read() -> bool {
    let absent = STATE.compare_exchange(UNREAD, ABSENT, Ordering::AcqRel, Ordering::Acquire);
    if absent.is_err() {
        let _ = STATE.compare_exchange(WANTED, PRESENT, Ordering::AcqRel, Ordering::Acquire);
    }
    STATE.load(Ordering::Acquire) == PRESENT
}

#[cfg(test)]
mod tests {
    #[test]
    fn absent_by_default() {
        let meta = super::super::type_named("meta/v1", "ObjectMeta").expect("in the table");
        assert!(meta.field("initializers").is_none());
        assert!(
            super::super::type_of("admissionregistration.k8s.io", "v1alpha1", "InitializerConfiguration").is_none()
        );
        assert!(!super::add(), "too late");
        assert!(!super::are_on());
    }
}
