//! How long rejected clients must wait (Retry-After): doubled while many of them return too early, and reduced
//! by one second at a time when few are rejected. Pure; upstream's numbers.

use std::collections::VecDeque;

const MAX_SECONDS: u32 = 32;

#[derive(Debug)]
pub(super) struct DroppedRequests {
    /// Refusals of past seconds, each with its second.
    history: VecDeque<(i64, i64)>,
    current: (i64, i64),
    retry_after: u32,
    raised: i64,
}

impl Default for DroppedRequests {
    fn default() -> DroppedRequests {
        DroppedRequests { history: VecDeque::new(), current: (0, 0), retry_after: 1, raised: 0 }
    }
}

impl DroppedRequests {
    /// Counts a rejection in this second; returns the delay for the client in seconds.
    pub(super) fn count(&mut self, second: i64) -> u32 {
        if self.current.0 == second {
            self.current.1 += 1;
            return self.retry_after;
        }
        self.history.push_back(self.current);
        self.history.retain(|(past, _)| self.current.0 - past <= i64::from(MAX_SECONDS));
        self.current = (second, 1);
        self.decide(second);
        self.retry_after
    }

    /// Adjusts the delay by the rejections of the last seconds, as many as clients must wait.
    fn decide(&mut self, now: i64) {
        let span = i64::from(self.retry_after);
        let recent = self.history.iter().filter(|(past, _)| *past < now && now - past <= span);
        let dropped: i64 = recent.map(|(_, count)| count).sum();
        // A wave of rejections raises the delay once.
        if now - self.raised >= span && dropped >= 3 * span {
            self.retry_after = (self.retry_after * 2).min(MAX_SECONDS);
            self.raised = now;
        } else if dropped < span && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_raise_it_and_quiet_lowers_it() {
        let mut dropped = DroppedRequests::default();
        let mut at = |second: i64, count: usize| (0..count).map(|_| dropped.count(second)).last();
        // The second, the rejections in it, and the delay of the last one.
        let steps = [
            (1000, 5, 1),
            // The wave of the second before doubles it.
            (1001, 10, 2),
            // Too early to double it again.
            (1002, 10, 2),
            (1003, 10, 4),
            (1007, 100, 4),
            (1008, 1, 8),
            (1020, 1, 7),
            (1021, 1, 6),
        ];
        for (second, count, want) in steps {
            assert_eq!(at(second, count), Some(want), "{second}");
        }
        let most = (0..200).map(|step| at(2000 + step, 1000)).last().flatten();
        assert_eq!(most, Some(MAX_SECONDS));
        let least = (0..200).map(|step| at(3000 + 100 * step, 1)).last().flatten();
        assert_eq!(least, Some(1));
    }
}
