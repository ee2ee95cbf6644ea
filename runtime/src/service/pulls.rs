//! The pulls that go on, for those who ask how far one is.

use std::sync::{Arc, Weak};

use stdx::sync::Mutex;

use crate::images::progress::{Event, Progress, Sum};

/// Each with the name that was asked for; those that are over go with the next.
#[derive(Default)]
pub struct Pulls(Mutex<Vec<(String, Weak<Pull>)>>);

/// How far a pull is. It is known for as long as somebody has it.
#[derive(Default)]
pub struct Pull(Mutex<Sum>);

impl Pulls {
    pub fn begin(&self, name: &str) -> Arc<Pull> {
        let pull = Arc::default();
        let mut all = self.0.lock();
        all.retain(|(_, pull)| pull.strong_count() > 0);
        all.push((name.to_string(), Arc::downgrade(&pull)));
        pull
    }

    /// None where nothing is known yet: the registry has not said what the image is made of.
    pub fn line(&self, name: &str) -> Option<String> {
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
    fn a_pull_is_known_while_it_goes_on() {
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
