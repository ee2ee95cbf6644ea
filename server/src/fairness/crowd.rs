//! Who crowds a level. A request that needs no more than memory is done in one go and never waits for a
//! seat, so that somebody with a hundred connections has a hundred turns before anybody else has one. A
//! flow that makes most of a level's requests steps aside once before each of them, as long as others ask.

use std::sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 64;
/// What is counted is halved after this many requests: who crowded once is soon forgotten. A flood makes them in a
/// second; in a shorter time somebody who waits behind it would hardly have asked twice, and be forgotten.
const WINDOW: u32 = 32_768;
/// Fewer requests than this are nobody's crowd.
const LEAST: u32 = 64;

/// Recent requests of a level's flows. Two flows may share a slot, and are then told apart by nothing else.
pub struct Crowd {
    slots: [AtomicU32; SLOTS],
    total: AtomicU32,
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd { slots: [const { AtomicU32::new(0) }; SLOTS], total: AtomicU32::new(0) }
    }
}

impl Crowd {
    /// Counts a request of a flow; true where the flow has to step aside.
    pub fn count(&self, flow: u64) -> bool {
        let own = 1 + self.slots[(flow % SLOTS as u64) as usize].fetch_add(1, Ordering::Relaxed);
        let total = 1 + self.total.fetch_add(1, Ordering::Relaxed);
        if total >= WINDOW {
            self.halve();
        }
        steps_aside(own, total)
    }

    fn halve(&self) {
        let half = |slot: &AtomicU32| {
            let half = slot.load(Ordering::Relaxed) / 2;
            slot.store(half, Ordering::Relaxed);
            half
        };
        self.total.store(self.slots.iter().map(half).sum(), Ordering::Relaxed);
    }
}

fn steps_aside(own: u32, total: u32) -> bool {
    total >= LEAST && own < total && u64::from(own) * 4 > u64::from(total) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_steps_aside_while_others_ask() {
        let crowd = Crowd::default();
        assert!((0..5000).all(|_| !crowd.count(1)), "there is nobody else");
        assert!(!crowd.count(2), "a seldom one never does");
        assert!(crowd.count(1));
        let many = 4 * WINDOW;
        let aside = (0..many).filter(|at| crowd.count(if at % 5000 == 0 { 2 } else { 1 })).count() as u32;
        assert!(aside > many - 100, "{aside} of {many}");
        assert!((0..many).filter(|_| crowd.count(1)).count() < 3 * WINDOW as usize, "the other one is forgotten");
        let crowd = Crowd::default();
        assert!((0..5000).all(|at| !crowd.count(at % 4)), "nobody has most of it");
    }
}
