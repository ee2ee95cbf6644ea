//! The demand for a level's seats over time, and how seats are lent between levels because of it. Pure; upstream's
//! names and numbers.

use std::time::Duration;

/// Integrates a number that changes now and then.
#[derive(Debug)]
pub(crate) struct Demand {
    since: Duration,
    changed: Duration,
    value: f64,
    /// Over time: the value, and its square.
    sum: f64,
    squares: f64,
    high: f64,
}

/// A level's demand over one period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Summary {
    pub high: f64,
    pub average: f64,
    pub deviation: f64,
}

impl Demand {
    pub(super) fn new(now: Duration) -> Demand {
        Demand { since: now, changed: now, value: 0.0, sum: 0.0, squares: 0.0, high: 0.0 }
    }

    pub(super) fn set(&mut self, now: Duration, value: u32) {
        self.integrate(now);
        self.value = f64::from(value);
        self.high = self.high.max(self.value);
    }

    fn integrate(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.changed).as_secs_f64();
        self.sum += self.value * elapsed;
        self.squares += self.value * self.value * elapsed;
        self.changed = self.changed.max(now);
    }

    /// The summary since the last time, and a new beginning.
    pub(super) fn take(&mut self, now: Duration) -> Summary {
        self.integrate(now);
        let elapsed = now.saturating_sub(self.since).as_secs_f64();
        let value = self.value;
        let (average, deviation) = if elapsed > 0.0 {
            let average = self.sum / elapsed;
            (average, (self.squares / elapsed - average * average).max(0.0).sqrt())
        } else {
            (value, 0.0)
        };
        let summary = Summary { high: self.high, average, deviation };
        *self = Demand { value, high: value, ..Demand::new(now) };
        summary
    }
}

/// Old demand fades with this share of what it was.
const SMOOTHING: f64 = 0.977;

/// Follows demand up at once and down slowly.
pub(crate) fn smooth(before: f64, summary: Summary) -> f64 {
    let envelope = summary.average + summary.deviation;
    envelope.max(SMOOTHING * before + (1.0 - SMOOTHING) * envelope)
}

/// The limits of a level's seats, and its demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelDemand {
    pub least: f64,
    pub most: f64,
    pub wanted: f64,
}

/// A level's seats when nothing is lent.
pub(crate) fn nominal(total: u32, shares: u32, all_shares: u32) -> u32 {
    if all_shares == 0 { 0 } else { (u64::from(total) * u64::from(shares)).div_ceil(u64::from(all_shares)) as u32 }
}

/// Divides `total` in proportion to the demands, within the bounds of each claim. The sum is `total` unless the bounds
/// forbid it.
pub(super) fn allocate(total: u32, claims: &[LevelDemand]) -> Vec<u32> {
    let given = |factor: f64| claims.iter().map(move |claim| bounded(claim, factor));
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    // Above the factor at which every claim has its maximum, a larger factor changes nothing.
    while given(high).sum::<f64>() < f64::from(total) && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if given(middle).sum::<f64>() > f64::from(total) { high = middle } else { low = middle }
    }
    whole(&given(low).collect::<Vec<_>>(), total)
}

fn bounded(claim: &LevelDemand, factor: f64) -> f64 {
    (claim.wanted.max(1e-6) * factor).clamp(claim.least, claim.most.max(claim.least))
}

/// Whole seats: the largest fractions are rounded up as long as the total allows.
fn whole(exact: &[f64], total: u32) -> Vec<u32> {
    // A billionth absorbs the rounding error of the search.
    let mut seats: Vec<u32> = exact.iter().map(|value| (value + 1e-9).floor() as u32).collect();
    let mut order: Vec<usize> = (0..exact.len()).collect();
    order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let mut left = total.saturating_sub(seats.iter().sum());
    for at in order {
        if left > 0 && exact[at].fract() > 1e-9 && f64::from(seats[at]) < exact[at] {
            seats[at] += 1;
            left -= 1;
        }
    }
    seats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_weighed_by_time() {
        let at = Duration::from_secs;
        let mut demand = Demand::new(at(0));
        demand.set(at(0), 10);
        demand.set(at(5), 0);
        let summary = demand.take(at(10));
        assert_eq!(summary, Summary { high: 10.0, average: 5.0, deviation: 5.0 });
        assert_eq!(demand.take(at(20)), Summary::default());
        assert_eq!(smooth(0.0, summary), 10.0);
        assert!(smooth(10.0, Summary::default()) > 9.7);
    }

    #[test]
    fn seats_go_where_they_are_wanted_within_bounds() {
        let claim = |least: f64, most: f64, wanted: f64| LevelDemand { least, most, wanted };
        let cases: [(&str, Vec<LevelDemand>, Vec<u32>); 4] = [
            ("equal wishes", vec![claim(0.0, 100.0, 5.0), claim(0.0, 100.0, 5.0)], vec![50, 50]),
            ("an idle level lends what it may", vec![claim(20.0, 100.0, 0.0), claim(50.0, 100.0, 90.0)], vec![20, 80]),
            ("no level above its maximum", vec![claim(0.0, 30.0, 90.0), claim(10.0, 90.0, 1.0)], vec![30, 70]),
            ("no level below its minimum", vec![claim(60.0, 100.0, 0.0), claim(60.0, 100.0, 99.0)], vec![60, 60]),
        ];
        for (name, claims, want) in cases {
            assert_eq!(allocate(100, &claims), want, "{name}");
        }
    }

    #[test]
    fn nominal_seats_follow_shares() {
        assert_eq!(nominal(600, 100, 245), 245);
        assert_eq!(nominal(600, 5, 245), 13);
        assert_eq!(nominal(600, 0, 245), 0);
    }
}
