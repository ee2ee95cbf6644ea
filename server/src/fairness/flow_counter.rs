//! Detects the flow that crowds a level. A request that only reads memory runs to its end and never waits for a seat: a
//! client with a hundred connections would get a hundred turns before any other client gets one. A flow that sends most
//! of a level's requests yields once before each of them, as long as other flows send requests.

use std::sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 64;
/// The counts are halved after this many requests: an earlier crowd stops counting soon. A flood sends them in a
/// second; with a smaller window, a client behind it would have sent hardly two requests before its count is halved.
const WINDOW: u32 = 32_768;
/// With fewer requests than this no flow is a crowd.
const LEAST: u32 = 64;

/// Recent requests of a level's flows. Two flows may share a slot, and then count as one.
pub(crate) struct FlowCounter {
    slots: [AtomicU32; SLOTS],
    total: AtomicU32,
}

impl Default for FlowCounter {
    fn default() -> FlowCounter {
        FlowCounter { slots: [const { AtomicU32::new(0) }; SLOTS], total: AtomicU32::new(0) }
    }
}

impl FlowCounter {
    /// Counts a request of a flow; true if the flow has to yield.
    pub(super) fn count(&self, flow: u64) -> bool {
        let own = 1 + self.slots[(flow % SLOTS as u64) as usize].fetch_add(1, Ordering::Relaxed);
        let total = 1 + self.total.fetch_add(1, Ordering::Relaxed);
        if total >= WINDOW {
            self.halve();
        }
        should_yield(own, total)
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

fn should_yield(own: u32, total: u32) -> bool {
    total >= LEAST && own < total && u64::from(own) * 4 > u64::from(total) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowding_flow_yields_to_other_flows() {
        let crowd = FlowCounter::default();
        assert!((0..5000).all(|_| !crowd.count(1)), "no other flow sends requests");
        assert!(!crowd.count(2), "a seldom one never does");
        assert!(crowd.count(1));
        let many = 4 * WINDOW;
        let aside = (0..many).filter(|at| crowd.count(if at % 5000 == 0 { 2 } else { 1 })).count() as u32;
        assert!(aside > many - 100, "{aside} of {many}");
        assert!((0..many).filter(|_| crowd.count(1)).count() < 3 * WINDOW as usize, "the other one is forgotten");
        let crowd = FlowCounter::default();
        assert!((0..5000).all(|at| !crowd.count(at % 4)), "no flow sends most requests");
    }
}
