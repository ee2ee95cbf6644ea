//! The eviction rate of a zone: the more of its nodes are unreachable, the more likely it is that this controller is
//! cut off.

use std::collections::BTreeMap;
use std::time::Duration;

/// Eviction rates, in nodes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub normal: f64,
    /// For a large zone with many unreachable nodes; a small one gets no evictions.
    pub disrupted: f64,
    pub large_zone: usize,
    /// The fraction of unreachable nodes that makes a zone partially disrupted.
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
    /// The time of the last eviction.
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

/// Whether another node of a zone may be evicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum EvictionPermit {
    Now,
    After(Duration),
    /// Not before the state of the zones changes.
    No,
}

/// The effect of a node change on other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneChange {
    None,
    /// The eviction rate of a zone has changed.
    Rates,
    /// All zones were unreachable and one is back: this controller was cut off.
    Recovered,
}

#[derive(Debug, Default)]
pub(super) struct Zones {
    rates: Rates,
    zones: BTreeMap<String, Zone>,
    /// The zone and readiness of each node.
    nodes: BTreeMap<String, (String, bool)>,
}

impl Zones {
    pub(super) fn new(rates: Rates) -> Zones {
        Zones { rates, ..Zones::default() }
    }

    /// Each zone with its numbers of ready and unreachable nodes.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.zones.iter().map(|(name, zone)| (name.as_str(), zone.ready, zone.gone))
    }

    /// Records a node's zone and readiness; None if it was deleted or does not count.
    pub(super) fn follow(&mut self, node: &str, now: Option<(String, bool)>) -> ZoneChange {
        if self.nodes.get(node) == now.as_ref() {
            return ZoneChange::None;
        }
        let (were_all_gone, old_states) = (self.are_all_disrupted(), self.states());
        if let Some((zone, ready)) = self.nodes.remove(node) {
            self.count(&zone, ready, false);
        }
        if let Some((zone, ready)) = now {
            self.count(&zone, ready, true);
            self.nodes.insert(node.to_string(), (zone, ready));
        }
        match (were_all_gone, self.are_all_disrupted()) {
            (true, false) => ZoneChange::Recovered,
            _ if old_states != self.states() => ZoneChange::Rates,
            _ => ZoneChange::None,
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

    /// Then no node is evicted: this controller is cut off.
    pub(crate) fn are_all_disrupted(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|zone| zone.state(&self.rates) == State::FullyDisrupted)
    }

    /// `Now` consumes the permit.
    pub(super) fn permit(&mut self, zone: &str, now: Duration) -> EvictionPermit {
        if self.are_all_disrupted() {
            return EvictionPermit::No;
        }
        let Some(zone) = self.zones.get_mut(zone) else { return EvictionPermit::Now };
        let rate = zone.rate(&self.rates);
        if rate <= 0.0 {
            return EvictionPermit::No;
        }
        let due = zone.last.map_or(Duration::ZERO, |last| last + Duration::from_secs_f64(1.0 / rate));
        match due.checked_sub(now).filter(|rest| !rest.is_zero()) {
            Some(rest) => EvictionPermit::After(rest),
            None => {
                zone.last = Some(now);
                EvictionPermit::Now
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
    fn eviction_rate_depends_on_zone_health() {
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
    fn no_evictions_if_all_zones_are_down() {
        let mut zones = zones("a", 1, 1);
        assert_eq!(zones.permit("a", Duration::from_secs(100)), EvictionPermit::Now);
        assert_eq!(zones.permit("a", Duration::from_secs(104)), EvictionPermit::After(Duration::from_secs(6)));
        assert_eq!(zones.follow("a0", Some(("a".to_string(), false))), ZoneChange::Rates);
        assert!(zones.are_all_disrupted());
        assert_eq!(zones.permit("a", Duration::from_secs(200)), EvictionPermit::No);
        assert_eq!(zones.follow("a0", Some(("a".to_string(), false))), ZoneChange::None);
        assert_eq!(zones.follow("b0", Some(("b".to_string(), true))), ZoneChange::Recovered);
        assert_eq!(zones.permit("a", Duration::from_secs(200)), EvictionPermit::Now);
        assert_eq!(zones.follow("b0", None), ZoneChange::Rates);
        assert_eq!(zones.follow("a0", None), ZoneChange::None, "one of two deleted nodes");
        zones.follow("a1", None);
        assert!(!zones.are_all_disrupted(), "there is no zone at all");
    }
}
