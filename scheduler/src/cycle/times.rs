//! Timings of extension points and counts of evaluated plugins. Plugins are timed only in sampled cycles, since a
//! clock at each call costs more than the call.

use std::time::Duration;

use tokio::time::Instant;

use crate::framework::Point;

/// One in this many cycles is timed by plugin, as upstream samples.
const SAMPLED: u64 = 10;

/// The durations of one decision.
#[derive(Default)]
pub struct Times {
    pub points: Vec<(Point, Duration)>,
    pub plugins: Vec<PluginTime>,
    is_sampled: bool,
}

/// A plugin, by its position in the profile, at a point.
pub struct PluginTime {
    pub position: usize,
    pub point: Point,
    pub is_well: bool,
    pub took: Duration,
}

impl Times {
    /// The durations of a decision by its number: only some are measured.
    pub fn of(decision: u64) -> Times {
        Times { is_sampled: decision % SAMPLED == 1, ..Times::default() }
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Records an extension point.
    pub fn point(&mut self, point: Point, began: Instant) {
        self.points.push((point, began.elapsed()));
    }

    /// Runs a plugin and records its duration.
    pub fn plugin<T>(
        &mut self,
        position: usize,
        point: Point,
        is_well: impl FnOnce(&T) -> bool,
        work: impl FnOnce() -> T,
    ) -> T {
        if !self.is_sampled {
            return work();
        }
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        self.plugins.push(PluginTime { position, point, is_well: is_well(&result), took });
        result
    }
}

/// The points at which evaluations are counted.
pub(super) const COUNTED: [Point; 4] = [Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

/// Number of cycles in which each plugin was evaluated, by position and index in [`COUNTED`].
#[derive(Default)]
pub struct Evaluations(Vec<[u64; COUNTED.len()]>);

impl Evaluations {
    /// Counts an evaluation of a plugin.
    pub fn count(&mut self, position: usize, point: Point) {
        let Some(at) = COUNTED.iter().position(|counted| *counted == point) else { return };
        if self.0.len() <= position {
            self.0.resize(position + 1, Default::default());
        }
        self.0[position][at] += 1;
    }

    /// Position, point and count of all evaluated plugins.
    pub fn all(&self) -> impl Iterator<Item = (usize, Point, u64)> {
        let by_plugin = self.0.iter().enumerate();
        let all = by_plugin.flat_map(|(position, counts)| COUNTED.iter().zip(counts).map(move |one| (position, one)));
        all.map(|(position, (point, count))| (position, *point, *count)).filter(|(_, _, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_plugin_times() {
        let timed = |decision| {
            let mut times = Times::of(decision);
            assert_eq!(times.plugin(3, Point::Filter, |value| *value == 7, || 7), 7);
            times.plugins.len()
        };
        assert_eq!((1..=21).map(timed).sum::<usize>(), 3);
    }

    #[test]
    fn counts_plugin_evaluations() {
        let mut evaluations = Evaluations::default();
        for point in [Point::Filter, Point::Filter, Point::Score, Point::Bind] {
            evaluations.count(2, point);
        }
        assert_eq!(evaluations.all().collect::<Vec<_>>(), [(2, Point::Filter, 2), (2, Point::Score, 1)]);
    }
}
