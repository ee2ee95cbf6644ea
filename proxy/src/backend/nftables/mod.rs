//! nftables over netlink. Chains and rules are created once; a port of a Service is a handful of elements of maps and
//! sets, so that neither an update nor a packet costs more with more Services:
//!
//! - A set has the destinations with up to 1, 2, 4, 8 … endpoints, and leads them to a chain that chooses a random number
//!   below that size. There is one chain for each size that occurs, not for each Service.
//! - A map leads destination and number to the address of an endpoint. If there is none, another number is chosen.
//!
//! A map of verdicts, with a chain for each Service, would be simpler. But the kernel validates all elements of such maps
//! whenever one of them changes, so that an update would cost more with more Services.
//!
//! Services with session affinity have chains of their own. All rules are of a form that the nft command can print: it
//! aborts at the result of a map that is the key of another one.

mod affinity;
mod claims;
mod elements;
mod layout;
mod rules;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use network::nft::{Batch, Element, Family as TableFamily, Monitor, Nft, TableEvent};

use super::{Backend, Change, Error, Plans};
use crate::config::Mode;
use crate::model::{Family, PortName};
use crate::plan::{NodeRules, PortPlan};
use affinity::Affinity;
use claims::{Claims, Owner};
use elements::{GroupIds, SetElement, affinity_groups, entries};
use layout::{Class, SetId, class_set};

/// The backend.
pub struct Nftables {
    table: String,
    mark: u32,
    nft: Nft,
    monitor: Monitor,
    families: Vec<FamilyState>,
    ports: HashMap<PortName, GroupIds>,
    /// The numbers of groups that are in use.
    group_numbers: HashSet<u32>,
}

/// The applied state of one address family.
struct FamilyState {
    rules: NodeRules,
    claims: Claims,
    /// The classes that have a set and a chain.
    classes: BTreeSet<Class>,
    affinity: Affinity,
}

impl Nftables {
    /// Opens sockets in the namespace of the calling thread. Nothing is changed yet.
    pub fn open(table: &str, masquerade_bit: u8) -> Result<Nftables, Error> {
        let nft = Nft::open()?;
        let monitor = Monitor::open(&nft)?;
        Ok(Nftables {
            table: table.to_string(),
            mark: 1u32.checked_shl(u32::from(masquerade_bit)).unwrap_or(1 << 14),
            nft,
            monitor,
            families: Vec::new(),
            ports: HashMap::new(),
            group_numbers: HashSet::new(),
        })
    }

    /// The numbers of a port's groups; allocates them if the port is new.
    fn groups(&mut self, name: &PortName) -> GroupIds {
        if let Some(groups) = self.ports.get(name) {
            return *groups;
        }
        // Derived from the name, so that affinity survives a restart.
        let text = format!("{name}/{}/{}", name.protocol.name(), name.family.name());
        let mut id = stdx::fnv::fnv1a_32(text.bytes()) & !1;
        while !self.group_numbers.insert(id) {
            id = id.wrapping_add(2);
        }
        let groups = GroupIds { cluster: id, local: id | 1 };
        self.ports.insert(name.clone(), groups);
        groups
    }

    /// Claims the elements of a changed plan. Ports of a family that is not served claim nothing.
    fn claim(&mut self, change: &Change<'_>) {
        let groups = self.groups(change.name);
        let family = change.name.family;
        if let Some(state) = self.families.iter_mut().find(|state| state.rules.family == family) {
            state.claim(change, groups);
        }
        if change.new.is_none() {
            self.ports.remove(change.name);
            self.group_numbers.remove(&groups.cluster);
        }
    }

    fn commit(&mut self, batch: Batch<'_>, what: &str) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        Ok(batch.commit(&mut self.nft, what)?)
    }

    /// The families in which the table exists.
    fn tables(&mut self) -> Result<Vec<Family>, Error> {
        let mut found = Vec::new();
        for family in Family::ALL {
            if self.nft.has_table(table_family(family), &self.table)? {
                found.push(family);
            }
        }
        Ok(found)
    }
}

impl Backend for Nftables {
    fn mode(&self) -> Mode {
        Mode::Nftables
    }

    fn replace(&mut self, rules: &[NodeRules], plans: &Plans) -> Result<(), Error> {
        let is_served = |family: Family| rules.iter().any(|rules| rules.family == family);
        let stale: Vec<Family> = self.tables()?.into_iter().filter(|family| !is_served(*family)).collect();
        self.ports.clear();
        self.group_numbers.clear();
        self.families = rules.iter().cloned().map(FamilyState::new).collect();
        for (name, plan) in plans {
            self.claim(&Change { name, old: None, new: Some(plan) });
        }
        let table = self.table.clone();
        let mut whole = Batch::new(TableFamily::Ipv4, &table);
        for family in stale {
            whole.append(delete_table(family, &table));
        }
        for state in &mut self.families {
            let family = state.rules.family;
            // Clients keep their endpoints.
            let clients = state.affinity.read_clients(&mut self.nft, table_family(family), &table)?;
            whole.append(delete_table(family, &table));
            let mut batch = Batch::new(table_family(family), &table);
            rules::put_table(&mut batch, &state.rules, self.mark);
            state.put_changes(&mut batch);
            clients.iter().for_each(|(set, elements)| batch.add_elements(set, elements));
            whole.append(batch);
        }
        // Earlier changes of others are undone now; later ones must be noticed.
        self.monitor
            .read(&table)
            .map_err(|source| Error::Io { what: "read notices of nftables".to_string(), source })?;
        self.commit(whole, "replace the service proxy's tables")?;
        Ok(())
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error> {
        for change in changes {
            self.claim(change);
        }
        let table = self.table.clone();
        let mut whole = Batch::new(TableFamily::Ipv4, &table);
        for state in &mut self.families {
            let mut batch = Batch::new(table_family(state.rules.family), &table);
            state.put_changes(&mut batch);
            whole.append(batch);
        }
        self.commit(whole, "update the service proxy's tables")
    }

    fn is_tampered(&mut self) -> Result<bool, Error> {
        let notice = self.monitor.read(&self.table);
        let notice = notice.map_err(|source| Error::Io { what: "read notices of nftables".to_string(), source })?;
        Ok(notice == TableEvent::Changed)
    }

    fn notices(&self) -> Option<OwnedFd> {
        self.monitor.as_fd().try_clone_to_owned().ok()
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        let table = self.table.clone();
        let mut batch = Batch::new(TableFamily::Ipv4, &table);
        self.tables()?.into_iter().for_each(|family| batch.append(delete_table(family, &table)));
        self.families.clear();
        self.commit(batch, "delete the service proxy's tables")
    }
}

impl FamilyState {
    fn new(rules: NodeRules) -> FamilyState {
        FamilyState { rules, claims: Claims::default(), classes: BTreeSet::new(), affinity: Affinity::default() }
    }

    fn claim(&mut self, change: &Change<'_>, groups: GroupIds) {
        let name = change.name;
        let entries_of = |plan: Option<&PortPlan>| plan.map(|plan| entries(plan, groups)).unwrap_or_default();
        let affinity_of = |plan: Option<&PortPlan>| plan.map(|plan| affinity_groups(plan, groups)).unwrap_or_default();
        let created_of = |plan: Option<&PortPlan>| plan.map(|plan| plan.created.clone());
        let (old, new) = (entries_of(change.old), entries_of(change.new));
        let owner = |created| Owner::new((created, name.clone()));
        match (created_of(change.old), created_of(change.new)) {
            (Some(before), Some(after)) if before == after => self.claims.change(&owner(after), &old, &new),
            // A Service of the same name that was created again.
            (before, after) => {
                before.into_iter().for_each(|before| self.claims.change(&owner(before), &old, &[]));
                after.into_iter().for_each(|after| self.claims.change(&owner(after), &[], &new));
            }
        }
        self.affinity.change(affinity_of(change.old), affinity_of(change.new));
    }

    /// Puts the difference of claims into a transaction: chains before elements that lead to them, and the other way round.
    fn put_changes(&mut self, batch: &mut Batch<'_>) {
        let difference = self.claims.finish();
        let family = self.rules.family;
        let removed = self.affinity.put_changes(batch, family);
        for class in difference.classes().filter(|class| self.classes.insert(*class)) {
            class_set(family, class, |set| batch.create_set(set));
            rules::put_class(batch, family, class);
        }
        each_message(difference.deletions(), |set, elements| batch.delete_elements(set, elements));
        each_message(difference.additions(), |set, elements| batch.create_elements(set, elements));
        affinity::put_removals(batch, &removed);
    }
}

/// Groups elements by set, and calls `put` as soon as a message is full: all elements together would need much memory.
fn each_message(elements: impl Iterator<Item = SetElement>, mut put: impl FnMut(&str, &[Element])) {
    let mut groups: BTreeMap<SetId, Vec<Element>> = BTreeMap::new();
    for (set, element) in elements {
        let group = groups.entry(set).or_default();
        group.push(element);
        if group.len() == Batch::ELEMENTS_A_MESSAGE {
            put(set.name(), group);
            group.clear();
        }
    }
    groups.iter().for_each(|(set, group)| put(set.name(), group));
}

fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ipv4,
        Family::V6 => TableFamily::Ipv6,
    }
}

/// The table is created first, since a table that does not exist cannot be deleted.
fn delete_table(family: Family, table: &str) -> Batch<'_> {
    let mut batch = Batch::new(table_family(family), table);
    batch.ensure_table();
    batch.delete_table();
    batch
}
