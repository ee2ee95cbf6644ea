//! The pulls in progress, for image status.

use std::sync::{Arc, Weak};

use stdx::sync::Mutex;

use crate::images::progress::{Event, Progress, Summary};

/// Pulls by image reference. Finished ones are removed by the next pull.
#[derive(Default)]
pub(super) struct Pulls(Mutex<Vec<(String, Weak<Pull>)>>);

/// The progress of a pull, which exists as long as the pull.
#[derive(Default)]
pub(super) struct Pull(Mutex<Summary>);

impl Pulls {
    pub(super) fn begin(&self, name: &str) -> Arc<Pull> {
        let pull = Arc::default();
        let mut all = self.0.lock();
        all.retain(|(_, pull)| pull.strong_count() > 0);
        all.push((name.to_string(), Arc::downgrade(&pull)));
        pull
    }

    /// The progress of a pull; None while the layers of the image are not known yet.
    pub(super) fn line(&self, name: &str) -> Option<String> {
        let all = self.0.lock();
        let mut own = all.iter().filter(|(of, _)| of == name).filter_map(|(_, pull)| pull.upgrade());
        own.find_map(|pull| {
            let sum = pull.0.lock();
            (sum.layers > 0).then(|| sum.line())
        })
    }
}

impl Progress for Pull {
    fn report(&self, event: Event<'_>) {
        self.0.lock().add(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Digest;

    #[test]
    fn reports_a_pull_while_it_is_in_progress() {
        let pulls = Pulls::default();
        let (one, other) = (pulls.begin("one"), pulls.begin("other"));
        assert_eq!(pulls.line("one"), None, "nothing is known of it");
        let layer = Digest::of(b"a");
        one.report(Event::Resolved { digest: &layer, layers: 1, bytes: 2_000_000 });
        one.report(Event::Bytes { layer: &layer, done: 1_000_000, size: 2_000_000 });
        assert_eq!(pulls.line("one").as_deref(), Some("1.0 of 2.0 MB, 0 of 1 layers unpacked"));
        assert_eq!(pulls.line("other"), None);
        drop(one);
        assert_eq!(pulls.line("one"), None, "it is over");
        drop(other);
        drop(pulls.begin("next"));
        assert_eq!(pulls.0.lock().len(), 1);
    }
}
