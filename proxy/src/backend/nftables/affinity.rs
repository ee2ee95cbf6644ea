//! Session affinity. Each endpoint has a set of its clients, which packets fill, and a chain that leads to it; a group of
//! endpoints has a chain that looks for the client in these sets, and chooses an endpoint at random otherwise.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use network::cidr::octets;
use network::netlink::Error;
use network::nft::{Batch, Data, Element, Expression, Family as TableFamily, Kind, Nft, Register, Set};

use super::elements::{AffinityGroup, affinity_chain};
use super::layout::client_set;
use super::rules::{load_source, translate};
use crate::model::Family;

const R0: Register = Register(0);

/// The groups that are applied, and those that have changed since the last transaction.
#[derive(Default)]
pub(super) struct Affinity {
    applied: BTreeMap<u32, AffinityGroup>,
    changed: BTreeMap<u32, Option<AffinityGroup>>,
}

/// Objects to delete after the elements that refer to them.
#[derive(Default)]
pub(super) struct Removals {
    chains: Vec<String>,
    sets: Vec<String>,
}

impl Affinity {
    /// Replaces the groups of a port.
    pub(super) fn change(&mut self, old: Vec<AffinityGroup>, new: Vec<AffinityGroup>) {
        self.changed.extend(old.into_iter().map(|group| (group.id, None)));
        self.changed.extend(new.into_iter().map(|group| (group.id, Some(group))));
    }

    /// Puts new and changed groups into a transaction, and returns what is not needed any more.
    pub(super) fn put_changes(&mut self, batch: &mut Batch<'_>, family: Family) -> Removals {
        let mut removals = Removals::default();
        for (id, new) in std::mem::take(&mut self.changed) {
            let old = self.applied.get(&id);
            if old == new.as_ref() {
                continue;
            }
            put_group(batch, family, old, new.as_ref(), &mut removals);
            match new {
                Some(group) => drop(self.applied.insert(id, group)),
                None => drop(self.applied.remove(&id)),
            }
        }
        removals
    }

    /// The clients that the kernel has for the groups that will be applied, by set.
    pub(super) fn read_clients(
        &self,
        nft: &mut Nft,
        family: TableFamily,
        table: &str,
    ) -> Result<Vec<(String, Vec<Element>)>, Error> {
        let mut clients = Vec::new();
        for group in self.changed.values().flatten() {
            for endpoint in &group.endpoints {
                let set = client_set_name(group.id, *endpoint);
                let mut elements = nft.elements(family, table, &set)?;
                elements.retain(|element| element.timeout.is_some_and(|(_, rest)| !rest.is_zero()));
                clients.push((set, elements));
            }
        }
        clients.retain(|(_, elements)| !elements.is_empty());
        Ok(clients)
    }
}

/// Deletes chains and sets that nothing leads to any more.
pub(super) fn put_removals(batch: &mut Batch<'_>, removals: &Removals) {
    removals.chains.iter().for_each(|chain| batch.delete_chain(chain));
    removals.sets.iter().for_each(|set| batch.delete_set(set));
}

fn put_group(
    batch: &mut Batch<'_>,
    family: Family,
    old: Option<&AffinityGroup>,
    new: Option<&AffinityGroup>,
    removals: &mut Removals,
) {
    let endpoints = |group: Option<&AffinityGroup>| group.map(|group| group.endpoints.clone()).unwrap_or_default();
    let (before, after) = (endpoints(old), endpoints(new));
    let Some(id) = old.or(new).map(|group| group.id) else { return };
    let chain = affinity_chain(id);
    let picks = pick_map_name(id);
    match old {
        Some(_) => {
            batch.flush_chain(&chain);
            batch.delete_elements(&picks, &pick_elements(id, &before, false));
        }
        None => {
            batch.create_chain(&chain, None);
            batch.create_set(&Set::verdicts(&picks, &[Kind::Mark]));
        }
    }
    for endpoint in before.iter().filter(|endpoint| !after.contains(endpoint)) {
        removals.chains.push(endpoint_chain_name(id, *endpoint));
        removals.sets.push(client_set_name(id, *endpoint));
    }
    match new {
        Some(new) => put_members(batch, family, new, old),
        None => {
            removals.chains.insert(0, chain);
            removals.sets.push(picks);
        }
    }
}

/// The chains and sets of new endpoints, and the rules that choose among all of them.
fn put_members(batch: &mut Batch<'_>, family: Family, new: &AffinityGroup, old: Option<&AffinityGroup>) {
    for endpoint in &new.endpoints {
        let (set, chain) = (client_set_name(new.id, *endpoint), endpoint_chain_name(new.id, *endpoint));
        let known = old.filter(|old| old.endpoints.contains(endpoint));
        if known.is_none() {
            client_set(family, &set, |set| batch.create_set(set));
            batch.create_chain(&chain, None);
        }
        match known {
            Some(old) if old.timeout == new.timeout => {}
            known => {
                if known.is_some() {
                    batch.flush_chain(&chain);
                }
                put_endpoint(batch, family, &chain, &set, *endpoint, new.timeout);
            }
        }
    }
    let chain = affinity_chain(new.id);
    for endpoint in &new.endpoints {
        let (set, to) = (client_set_name(new.id, *endpoint), endpoint_chain_name(new.id, *endpoint));
        batch.rule(&chain, &[load_source(family, R0), Expression::In(R0, &set), Expression::Goto(&to)]);
    }
    let picks = pick_map_name(new.id);
    batch.create_elements(&picks, &pick_elements(new.id, &new.endpoints, true));
    let count = u32::try_from(new.endpoints.len()).unwrap_or(u32::MAX);
    batch.rule(&chain, &[Expression::Random(R0, count), Expression::Verdict(R0, &picks)]);
}

/// Records the client, if the set has space, and translates to the endpoint.
fn put_endpoint(
    batch: &mut Batch<'_>,
    family: Family,
    chain: &str,
    set: &str,
    endpoint: SocketAddr,
    timeout: Duration,
) {
    batch.rule(chain, &[load_source(family, R0), Expression::Remember { set, key: R0, timeout }]);
    let (address, port) = (octets(endpoint.ip()), endpoint.port().to_be_bytes());
    let behind = Register(u8::try_from(address.len() / 4).unwrap_or(4));
    let steps = [Expression::Value(R0, &address), Expression::Value(behind, &port), translate(family, R0)];
    batch.rule(chain, &steps);
}

fn pick_elements(id: u32, endpoints: &[SocketAddr], with_data: bool) -> Vec<Element> {
    let element = |(index, endpoint): (usize, &SocketAddr)| {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let data = if with_data { Data::Goto(endpoint_chain_name(id, *endpoint)) } else { Data::None };
        Element::new(index.to_ne_bytes().to_vec(), data, "")
    };
    endpoints.iter().enumerate().map(element).collect()
}

fn pick_map_name(id: u32) -> String {
    format!("affinity-pick-{id:08x}")
}

fn client_set_name(id: u32, endpoint: SocketAddr) -> String {
    format!("affinity-clients-{id:08x}-{}", endpoint_text(endpoint))
}

fn endpoint_chain_name(id: u32, endpoint: SocketAddr) -> String {
    format!("affinity-endpoint-{id:08x}-{}", endpoint_text(endpoint))
}

/// The nft command does not allow colons in names.
fn endpoint_text(endpoint: SocketAddr) -> String {
    format!("{}/{}", endpoint.ip(), endpoint.port()).replace(':', ".")
}
