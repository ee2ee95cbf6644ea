//! How many nodes of a zone may be given up, and how fast: the more of a zone is gone, the likelier it is
//! that we are the ones who are cut off.

use std::collections::BTreeMap;
use std::time::Duration;

/// How fast nodes are given up, in nodes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub normal: f64,
    /// In a zone of which a part is gone, if it is large; a small one waits.
    pub disrupted: f64,
    pub large_zone: usize,
    /// Which part has to be gone for that.
    pub threshold: f64,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { normal: 0.1, disrupted: 0.01, large_zone: 50, threshold: 0.55 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Normal,
    PartlyDisrupted,
    FullyDisrupted,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    gone: usize,
    /// When a node was given up last.
    last: Option<Duration>,
}

impl Zone {
    fn state(&self, rates: &Rates) -> State {
        let part = self.gone as f64 / (self.gone + self.ready).max(1) as f64;
        match self {
            Zone { ready: 0, gone: 1.., .. } => State::FullyDisrupted,
            Zone { gone: 3.., .. } if part >= rates.threshold => State::PartlyDisrupted,
            _ => State::Normal,
        }
    }

    fn rate(&self, rates: &Rates) -> f64 {
        match self.state(rates) {
            State::Normal | State::FullyDisrupted => rates.normal,
            State::PartlyDisrupted if self.ready + self.gone > rates.large_zone => rates.disrupted,
            State::PartlyDisrupted => 0.0,
        }
    }
}

/// Whether one more node of a zone may be given up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Permit {
    Now,
    After(Duration),
    /// Not before the zones change.
    No,
}

/// What a change of one node means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    None,
    /// Some zone's rate has changed.
    Rates,
    /// All zones had been gone, and one is back: what we saw of their nodes was our own blindness.
    Recovered,
}

#[derive(Debug, Default)]
pub struct Zones {
    rates: Rates,
    zones: BTreeMap<String, Zone>,
    /// The zone of each node, and whether it is ready.
    nodes: BTreeMap<String, (String, bool)>,
}

impl Zones {
    pub fn new(rates: Rates) -> Zones {
        Zones { rates, ..Zones::default() }
    }

    /// Each zone with its nodes that are ready and that are gone.
    pub fn counts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.zones.iter().map(|(name, zone)| (name.as_str(), zone.ready, zone.gone))
    }

    /// Takes a node's zone and readiness; None where it is gone or does not count.
    pub fn follow(&mut self, node: &str, now: Option<(String, bool)>) -> Shift {
        if self.nodes.get(node) == now.as_ref() {
            return Shift::None;
        }
        let (were_all_gone, old_states) = (self.are_all_gone(), self.states());
        if let Some((zone, ready)) = self.nodes.remove(node) {
            self.count(&zone, ready, false);
        }
        if let Some((zone, ready)) = now {
            self.count(&zone, ready, true);
            self.nodes.insert(node.to_string(), (zone, ready));
        }
        match (were_all_gone, self.are_all_gone()) {
            (true, false) => Shift::Recovered,
            _ if old_states != self.states() => Shift::Rates,
            _ => Shift::None,
        }
    }

    fn count(&mut self, name: &str, ready: bool, more: bool) {
        let zone = self.zones.entry(name.to_string()).or_default();
        let number = if ready { &mut zone.ready } else { &mut zone.gone };
        *number = if more { *number + 1 } else { number.saturating_sub(1) };
        if zone.ready + zone.gone == 0 {
            self.zones.remove(name);
        }
    }

    fn states(&self) -> Vec<(String, State)> {
        self.zones.iter().map(|(name, zone)| (name.clone(), zone.state(&self.rates))).collect()
    }

    /// Then nobody is given up: it is us who do not see.
    pub fn are_all_gone(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|zone| zone.state(&self.rates) == State::FullyDisrupted)
    }

    /// A node of the zone is given up if the answer is `Now`.
    pub fn permit(&mut self, zone: &str, now: Duration) -> Permit {
        if self.are_all_gone() {
            return Permit::No;
        }
        let Some(zone) = self.zones.get_mut(zone) else { return Permit::Now };
        let rate = zone.rate(&self.rates);
        if rate <= 0.0 {
            return Permit::No;
        }
        let due = zone.last.map_or(Duration::ZERO, |last| last + Duration::from_secs_f64(1.0 / rate));
        match due.checked_sub(now).filter(|rest| !rest.is_zero()) {
            Some(rest) => Permit::After(rest),
            None => {
                zone.last = Some(now);
                Permit::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(name: &str, ready: usize, gone: usize) -> Zones {
        let mut zones = Zones::default();
        for at in 0..ready + gone {
            zones.follow(&format!("{name}{at}"), Some((name.to_string(), at < ready)));
        }
        zones
    }

    #[test]
    fn the_rate_follows_what_is_left() {
        let check = |ready: usize, gone: usize, want: f64| {
            let mut zones = zones("a", ready, gone);
            zones.follow("other", Some(("b".to_string(), true)));
            assert_eq!(zones.zones["a"].rate(&zones.rates), want, "{ready} ready, {gone} gone");
        };
        check(5, 1, 0.1);
        check(1, 2, 0.1);
        check(2, 3, 0.0);
        check(20, 31, 0.01);
        check(0, 60, 0.1);
    }

    #[test]
    fn nobody_is_given_up_where_all_are_gone() {
        let mut zones = zones("a", 1, 1);
        assert_eq!(zones.permit("a", Duration::from_secs(100)), Permit::Now);
        assert_eq!(zones.permit("a", Duration::from_secs(104)), Permit::After(Duration::from_secs(6)));
        assert_eq!(zones.follow("a0", Some(("a".to_string(), false))), Shift::Rates);
        assert!(zones.are_all_gone());
        assert_eq!(zones.permit("a", Duration::from_secs(200)), Permit::No);
        assert_eq!(zones.follow("a0", Some(("a".to_string(), false))), Shift::None);
        assert_eq!(zones.follow("b0", Some(("b".to_string(), true))), Shift::Recovered);
        assert_eq!(zones.permit("a", Duration::from_secs(200)), Permit::Now);
        assert_eq!(zones.follow("b0", None), Shift::Rates);
        assert_eq!(zones.follow("a0", None), Shift::None, "one of two that are gone");
        zones.follow("a1", None);
        assert!(!zones.are_all_gone(), "there is no zone at all");
    }
}
