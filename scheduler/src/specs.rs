//! Interns equal pod specs while they are used.

use std::collections::HashSet;
use std::sync::Arc;

use podmodel::{Pod, Spec};

/// Below this number, unused specs are not removed.
const FEW: usize = 1024;

#[derive(Default)]
pub(crate) struct Specs {
    known: HashSet<Arc<Spec>>,
    /// The number of specs after the last cleanup.
    kept: usize,
}

impl Specs {
    pub(crate) fn intern(&mut self, mut pod: Pod) -> Arc<Pod> {
        if let Some(known) = self.known.get(&pod.spec) {
            pod.spec = known.clone();
            return Arc::new(pod);
        }
        if self.known.len() > FEW + 2 * self.kept {
            self.known.retain(|spec| Arc::strong_count(spec) > 1);
            self.kept = self.known.len();
        }
        self.known.insert(pod.spec.clone());
        Arc::new(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn interns_equal_specs_and_drops_unused_ones() {
        let mut specs = Specs::default();
        let read = |cpu: &str| Pod::read(&pod("p").cpu(cpu).0);
        let (one, same, other) = (specs.intern(read("1")), specs.intern(read("1")), specs.intern(read("2")));
        assert!(Arc::ptr_eq(&one.spec, &same.spec) && !Arc::ptr_eq(&one.spec, &other.spec));
        (0..5 * FEW).for_each(|number| drop(specs.intern(read(&format!("{}m", number + 1)))));
        assert!(specs.known.len() <= 2 * FEW, "{}", specs.known.len());
        assert!(specs.known.contains(&one.spec));
    }
}
