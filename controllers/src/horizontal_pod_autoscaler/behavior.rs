//! Limits the rate of scaling: stabilization windows and scaling policies.

use api::Tree;

/// The recent history of an autoscaler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    /// Time and value of recommendations.
    recommendations: Vec<(i64, i64)>,
    /// Time and number of added and removed replicas.
    added: Vec<(i64, i64)>,
    removed: Vec<(i64, i64)>,
}

/// Reason and message of a condition.
type ConditionText = (&'static str, &'static str);

/// The new replica count and its condition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReplicaDecision {
    pub replicas: i64,
    pub able: ConditionText,
    pub limited: bool,
    pub limit: ConditionText,
}

pub(super) struct Bounds {
    pub min: i64,
    pub max: i64,
    pub current: i64,
    /// The default stabilization window for scaling down.
    pub down_window_seconds: i64,
}

const READY: ConditionText = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: ConditionText = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: ConditionText = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const IN_RANGE: ConditionText = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: ConditionText = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: ConditionText = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const UP_LIMIT: ConditionText =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: ConditionText =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

impl History {
    /// The initial replica count is treated as a recommendation.
    pub(super) fn begin(&mut self, current: i64, now: i64) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Stabilizes and limits the desired count. `behavior` is the autoscaler's, or null.
    pub(crate) fn normalize(&mut self, desired: i64, behavior: &Tree, bounds: &Bounds, now: i64) -> ReplicaDecision {
        let windows = Windows::of(behavior, bounds);
        let (stable, held) = self.stabilize(desired, bounds.current, windows, now);
        let able = if stable != desired { held } else { READY };
        let (replicas, limit) =
            if behavior.is_null() { by_factor(stable, bounds) } else { self.by_rules(stable, behavior, bounds, now) };
        ReplicaDecision { replicas, able, limited: replicas != stable, limit }
    }

    fn stabilize(&mut self, desired: i64, current: i64, windows: Windows, now: i64) -> (i64, ConditionText) {
        let is_up = desired >= current;
        let window = if is_up { windows.up } else { windows.down };
        let recent = self.recommendations.iter().filter(|(time, _)| *time > now - window).map(|(_, count)| *count);
        let all = recent.chain([desired]);
        let stable = if is_up { all.min() } else { all.max() };
        self.recommendations.retain(|(time, _)| *time >= now - windows.up.max(windows.down));
        self.recommendations.push((now, desired));
        (stable.unwrap_or(desired), if is_up { UP_STABILIZED } else { DOWN_STABILIZED })
    }

    fn by_rules(&self, desired: i64, behavior: &Tree, bounds: &Bounds, now: i64) -> (i64, ConditionText) {
        let current = bounds.current;
        if desired > current {
            let limit = self.up_limit(current, behavior.at("scaleUp"), now).max(current);
            let (most, said) = if bounds.max > limit { (limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
            return if desired > most { (most, said) } else { (desired, IN_RANGE) };
        }
        if desired < current {
            let limit = self.down_limit(current, behavior.at("scaleDown"), now).min(current);
            let (least, said) = if bounds.min < limit { (limit, DOWN_LIMIT) } else { (bounds.min, TOO_FEW) };
            return if desired < least { (least, said) } else { (desired, IN_RANGE) };
        }
        (desired, IN_RANGE)
    }

    fn up_limit(&self, current: i64, rules: &Tree, now: i64) -> i64 {
        let proposals = rules.list("policies").iter().map(|policy| {
            let start = current - changed(&self.added, policy, now) + changed(&self.removed, policy, now);
            let value = policy.int("value").unwrap_or(0);
            match policy.str("type") {
                "Pods" => start + value,
                _ => (start as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64,
            }
        });
        match rules.str("selectPolicy") {
            "Disabled" => Some(current),
            "Min" => proposals.min(),
            _ => proposals.max(),
        }
        .unwrap_or(i64::MAX)
    }

    fn down_limit(&self, current: i64, rules: &Tree, now: i64) -> i64 {
        let proposals = rules.list("policies").iter().map(|policy| {
            let start = current - changed(&self.added, policy, now) + changed(&self.removed, policy, now);
            let value = policy.int("value").unwrap_or(0);
            match policy.str("type") {
                "Pods" => start - value,
                _ => (start as f64 * (1.0 - value as f64 / 100.0)) as i64,
            }
        });
        match rules.str("selectPolicy") {
            "Disabled" => Some(current),
            "Min" => proposals.max(),
            _ => proposals.min(),
        }
        .unwrap_or(0)
    }

    /// Records a scaling for the scaling policies.
    pub(super) fn scaled(&mut self, from: i64, to: i64, behavior: &Tree, now: i64) {
        if behavior.is_null() {
            return;
        }
        let periods = ["scaleUp", "scaleDown"].iter().flat_map(|way| behavior.at(way).list("policies"));
        let longest = periods.filter_map(|policy| policy.int("periodSeconds")).max().unwrap_or(0);
        for changes in [&mut self.added, &mut self.removed] {
            changes.retain(|(time, _)| *time >= now - longest);
        }
        if to > from {
            self.added.push((now, to - from));
        } else {
            self.removed.push((now, from - to));
        }
    }
}

#[derive(Clone, Copy)]
struct Windows {
    up: i64,
    down: i64,
}

impl Windows {
    fn of(behavior: &Tree, bounds: &Bounds) -> Windows {
        let window = |way: &str| behavior.at(way).int("stabilizationWindowSeconds");
        Windows { up: window("scaleUp").unwrap_or(0), down: window("scaleDown").unwrap_or(bounds.down_window_seconds) }
    }
}

/// The change within the period of a policy.
fn changed(changes: &[(i64, i64)], policy: &Tree, now: i64) -> i64 {
    let period = policy.int("periodSeconds").unwrap_or(0);
    changes.iter().filter(|(time, _)| *time > now - period).map(|(_, count)| count).sum()
}

/// Without policies the count may double, or grow to four.
fn by_factor(desired: i64, bounds: &Bounds) -> (i64, ConditionText) {
    let limit = (bounds.current * 2).max(4);
    let (most, said) = if bounds.max > limit { (limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
    if desired < bounds.min {
        (bounds.min, TOO_FEW)
    } else if desired > most {
        (most, said)
    } else {
        (desired, IN_RANGE)
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    fn bounds(current: i64) -> Bounds {
        Bounds { min: 2, max: 20, current, down_window_seconds: 300 }
    }

    #[test]
    fn default_limit_doubles() {
        let check = |current: i64, desired: i64, want: (i64, bool, &str)| {
            let decision = History::default().normalize(desired, &Tree::Null, &bounds(current), 1000);
            assert_eq!((decision.replicas, decision.limited, decision.limit.0), want, "{current} {desired}");
        };
        check(3, 5, (5, false, "DesiredWithinRange"));
        check(3, 9, (6, true, "ScaleUpLimit"));
        check(2, 9, (4, true, "ScaleUpLimit"));
        check(15, 25, (20, true, "TooManyReplicas"));
        check(3, 1, (2, true, "TooFewReplicas"));
    }

    #[test]
    fn scale_down_is_stabilized() {
        let mut history = History::default();
        history.begin(10, 0);
        let decision = history.normalize(4, &Tree::Null, &bounds(10), 100);
        assert_eq!((decision.replicas, decision.able.0), (10, "ScaleDownStabilized"));
        let decision = history.normalize(4, &Tree::Null, &bounds(10), 299);
        assert_eq!(decision.replicas, 10);
        let decision = history.normalize(4, &Tree::Null, &bounds(10), 301);
        assert_eq!((decision.replicas, decision.able.0), (4, "ReadyForNewScale"));
    }

    #[test]
    fn scaling_policies_limit_the_rate() {
        let rules = r#"{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":60},{"type":"Percent","value":50,"periodSeconds":60}]},
            "scaleDown":{"stabilizationWindowSeconds":0,"selectPolicy":"Min","policies":[{"type":"Pods","value":1,"periodSeconds":60},{"type":"Percent","value":50,"periodSeconds":60}]}}"#;
        let behavior = decode(rules.as_bytes()).expect("rules");
        let mut history = History::default();
        let decision = history.normalize(20, &behavior, &bounds(4), 1000);
        assert_eq!((decision.replicas, decision.limit.0), (8, "ScaleUpLimit"));
        history.scaled(4, 8, &behavior, 1000);
        let decision = history.normalize(20, &behavior, &bounds(8), 1030);
        assert_eq!((decision.replicas, decision.limit.0), (8, "ScaleUpLimit"), "the minute's share is used up");
        let decision = history.normalize(20, &behavior, &bounds(8), 1061);
        assert_eq!(decision.replicas, 12);
        let decision = History::default().normalize(2, &behavior, &bounds(8), 1000);
        assert_eq!((decision.replicas, decision.limit.0), (7, "ScaleDownLimit"));
        let mut disabled = behavior.clone();
        disabled.child("scaleDown").set("selectPolicy", "Disabled");
        let decision = History::default().normalize(2, &disabled, &bounds(8), 1000);
        assert_eq!((decision.replicas, decision.limited), (8, true));
    }

    #[test]
    fn scale_up_can_be_stabilized() {
        let rules = r#"{"scaleUp":{"stabilizationWindowSeconds":60,"policies":[{"type":"Pods","value":100,"periodSeconds":60}]},"scaleDown":{}}"#;
        let behavior = decode(rules.as_bytes()).expect("rules");
        let mut history = History::default();
        history.begin(4, 0);
        let decision = history.normalize(9, &behavior, &bounds(4), 30);
        assert_eq!((decision.replicas, decision.able.0), (4, "ScaleUpStabilized"));
        assert_eq!(history.normalize(9, &behavior, &bounds(4), 89).replicas, 9);
    }
}
