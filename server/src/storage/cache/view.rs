//! A value that is derived from several caches: updated on access, from the changes since the last access. It is never
//! older than a response that a client has received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stdx::sync::RwLock;

use super::{Cache, Item, RingRead};

/// State that is derived from objects. Sources are numbered in the order in which they were added to the view.
pub(crate) trait DerivedState: Default {
    /// Applies the change of one object of a source from the old to the new state.
    fn apply(&mut self, source: usize, old: Option<&Item>, new: Option<&Item>);
}

pub(crate) struct View<D> {
    sources: Vec<Source>,
    derived: RwLock<D>,
}

struct Source {
    cache: Arc<Cache>,
    /// The cursor of the first change that is not in the derived state; written under its lock.
    seen: AtomicU64,
}

/// A cursor that no cache has: no change was applied yet.
const NEVER: u64 = u64::MAX;

impl<D: DerivedState> View<D> {
    pub(crate) fn new(caches: impl IntoIterator<Item = Arc<Cache>>) -> View<D> {
        let source = |cache| Source { cache, seen: AtomicU64::new(NEVER) };
        View { sources: caches.into_iter().map(source).collect(), derived: RwLock::default() }
    }

    /// Looks at the state as it is now.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&D) -> R) -> R {
        if self.sources.iter().any(Source::is_behind) {
            self.catch_up();
        }
        look(&self.derived.read())
    }

    fn catch_up(&self) {
        let mut derived = self.derived.write();
        let kept = self.sources.iter().enumerate().all(|(number, source)| source.follow(number, &mut *derived));
        if !kept {
            *derived = D::default();
            self.sources.iter().enumerate().for_each(|(number, source)| source.load(number, &mut *derived));
        }
    }
}

impl Source {
    fn is_behind(&self) -> bool {
        self.seen.load(Ordering::Acquire) != self.cache.end()
    }

    /// False if unseen changes were dropped already.
    fn follow(&self, number: usize, derived: &mut impl DerivedState) -> bool {
        let seen = self.seen.load(Ordering::Acquire);
        if seen == NEVER {
            return false;
        }
        match self.cache.read(seen, usize::MAX) {
            RingRead::Lost => return false,
            RingRead::Empty => {}
            RingRead::Changes(changes, next) => {
                for change in changes {
                    derived.apply(number, change.old.as_deref(), change.new.as_deref());
                }
                self.seen.store(next, Ordering::Release);
            }
        }
        true
    }

    fn load(&self, number: usize, derived: &mut impl DerivedState) {
        let (snapshot, cursor) = self.cache.snapshot_and_cursor();
        for item in snapshot.map.values() {
            derived.apply(number, None, Some(item));
        }
        self.seen.store(cursor, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;
    use bytes::Bytes;

    #[derive(Default)]
    struct Sizes {
        total: [i64; 2],
        loads: usize,
    }

    impl DerivedState for Sizes {
        fn apply(&mut self, source: usize, old: Option<&Item>, new: Option<&Item>) {
            let size = |item: Option<&Item>| item.map_or(0, |item| item.bytes.len() as i64);
            self.total[source] += size(new) - size(old);
            self.loads += 1;
        }
    }

    fn publish(cache: &Cache, revision: u64, key: &str, size: Option<usize>) {
        let new = size.map(|size| Arc::new(Item::new(key, revision, Bytes::from(vec![0; size]))));
        cache.publish(&[Version { key, revision, item: new }]);
    }

    #[test]
    fn applies_changes_and_rebuilds_after_a_gap() {
        let cache = |limit| Arc::new(Cache::new(Arc::default(), Arc::default(), 0, limit));
        let (first, second) = (cache(1000), cache(1 << 20));
        publish(&first, 1, "a", Some(10));
        let view: View<Sizes> = View::new([first.clone(), second.clone()]);
        let check = |want: [i64; 2]| assert_eq!(view.read(|sizes| sizes.total), want);
        check([10, 0]);
        publish(&first, 2, "a", Some(20));
        publish(&second, 3, "b", Some(5));
        check([20, 5]);
        publish(&second, 4, "b", None);
        check([20, 0]);
        let applied = view.read(|sizes| sizes.loads);
        check([20, 0]);
        assert_eq!(view.read(|sizes| sizes.loads), applied, "nothing changed, nothing is done");
        // More than the ring keeps: the view is rebuilt.
        for revision in 5..15 {
            publish(&first, revision, "a", Some(400));
        }
        check([400, 0]);
        assert_eq!(view.read(|sizes| sizes.loads), 1);
    }
}
