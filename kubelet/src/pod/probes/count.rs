//! Counts consecutive probe results until they reach a threshold.

use api::Tree;

use crate::pod::action::Outcome;

pub(crate) struct Count {
    success_threshold: i64,
    failure_threshold: i64,
    last: Option<bool>,
    row: i64,
    verdict: Option<bool>,
}

impl Count {
    pub(crate) fn of(probe: &Tree, verdict: Option<bool>) -> Count {
        let at_least_one = |key: &str, otherwise: i64| probe.int(key).filter(|value| *value > 0).unwrap_or(otherwise);
        Count {
            success_threshold: at_least_one("successThreshold", 1),
            failure_threshold: at_least_one("failureThreshold", 3),
            last: None,
            row: 0,
            verdict,
        }
    }

    /// The verdict, if this result changes it.
    pub(crate) fn record(&mut self, outcome: &Outcome) -> Option<bool> {
        let good = match outcome {
            Outcome::Success | Outcome::Warning(_) => true,
            Outcome::Failure(_) => false,
            Outcome::Unknown(_) => return None,
        };
        self.row = if self.last == Some(good) { self.row + 1 } else { 1 };
        self.last = Some(good);
        let enough = self.row >= if good { self.success_threshold } else { self.failure_threshold };
        (enough && self.verdict.replace(good) != Some(good)).then_some(good)
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn verdict_needs_consecutive_results() {
        let probe = tree! { "successThreshold" => 2, "failureThreshold" => 3 };
        let mut count = Count::of(&probe, None);
        let verdict: String = "++-+--+---?--++"
            .chars()
            .map(|answer| match answer {
                '+' => Outcome::Success,
                '-' => Outcome::Failure(String::new()),
                _ => Outcome::Unknown(String::new()),
            })
            .map(|outcome| match count.record(&outcome) {
                None => '.',
                Some(true) => '+',
                Some(false) => '-',
            })
            .collect();
        assert_eq!(verdict, ".+.......-....+");
    }
}
