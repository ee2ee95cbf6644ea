//! Sums by domain of one key.

use api::Str;

use crate::snapshot::{Counts, Domain, KeyId, NodeId, Snapshot};

#[derive(Clone)]
pub(super) struct Tally {
    pub key: Str,
    pub place: Option<KeyId>,
    /// By domain.
    pub sums: Vec<i64>,
    /// Of all domains.
    pub total: i64,
}

impl Tally {
    pub(super) fn new(snapshot: &Snapshot, key: &Str) -> Tally {
        let domains = snapshot.topology.domains(key).map_or(0, |domains| domains.slot_count());
        Tally { key: key.clone(), place: snapshot.topology.key(key), sums: vec![0; domains], total: 0 }
    }

    pub(super) fn domain(&self, snapshot: &Snapshot, node: NodeId) -> Option<Domain> {
        snapshot.topology.domain_at(self.place?, node)
    }

    pub(super) fn count_on(&self, snapshot: &Snapshot, node: NodeId) -> i64 {
        let domain = self.domain(snapshot, node);
        domain.and_then(|domain| self.sums.get(domain.at())).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, snapshot: &Snapshot, node: NodeId, amount: i64) {
        let domain = self.domain(snapshot, node);
        if let Some(sum) = domain.and_then(|domain| self.sums.get_mut(domain.at())) {
            *sum += amount;
            self.total += amount;
        }
    }

    /// Adds `weight` for each pod; returns whether any of their nodes has the key.
    pub(crate) fn add_all(&mut self, snapshot: &Snapshot, counts: &Counts, weight: i64) -> bool {
        let Some(domains) = snapshot.topology.domains(&self.key) else { return false };
        let mut any = false;
        for (node, count) in counts.iter() {
            if let Some(domain) = domains.of(node) {
                let amount = weight * i64::from(count);
                self.sums[domain.at()] += amount;
                self.total += amount;
                any = true;
            }
        }
        any
    }
}

/// The tally of a key, created if missing.
pub(crate) fn tally_for_key<'a>(tallies: &'a mut Vec<Tally>, snapshot: &Snapshot, key: &Str) -> &'a mut Tally {
    let at = tallies.iter().position(|tally| tally.key == *key).unwrap_or_else(|| {
        tallies.push(Tally::new(snapshot, key));
        tallies.len() - 1
    });
    &mut tallies[at]
}
