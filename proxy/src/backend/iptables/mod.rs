//! iptables, by the programs iptables-restore and ip6tables-restore: for kernels without nftables. A Service port has
//! chains of its own; a change rewrites only these, and the chains that all ports share if an address has changed.
//! Chains of other names are never touched, and of the built-in chains only the rules that lead to ours.

mod names;
mod program;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use super::{Backend, Change, Error, Plans};
use crate::config::Mode;
use crate::model::{Family, PortName};
use crate::plan::NodeRules;
use names::Names;
use program::Program;
use text::{JumpChange, PortText, Shared, TableText};

/// The backend.
pub struct Iptables {
    names: Names,
    mark: u32,
    localhost_node_ports: bool,
    families: Vec<FamilyState>,
}

/// The applied state of one address family.
struct FamilyState {
    rules: NodeRules,
    program: Program,
    ports: BTreeMap<PortName, PortText>,
    /// The chains that all ports share.
    frame: TableText,
}

impl Iptables {
    /// Chains begin with a prefix that follows from the table name. Nothing is changed yet.
    pub fn new(table: &str, masquerade_bit: u8, localhost_node_ports: bool) -> Iptables {
        Iptables {
            names: Names::new(table),
            mark: 1u32.checked_shl(u32::from(masquerade_bit)).unwrap_or(1 << 14),
            localhost_node_ports,
            families: Vec::new(),
        }
    }

    fn shared<'a>(&'a self, rules: &'a NodeRules) -> Shared<'a> {
        Shared { names: &self.names, rules, mark: self.mark, localhost_node_ports: self.localhost_node_ports }
    }
}

impl Backend for Iptables {
    fn mode(&self) -> Mode {
        Mode::Iptables
    }

    fn replace(&mut self, rules: &[NodeRules], plans: &Plans) -> Result<(), Error> {
        let mut families = Vec::new();
        for rules in rules {
            let program = Program::of(rules.family);
            let shared = self.shared(rules);
            let of_family = plans.iter().filter(|(name, _)| name.family == rules.family);
            let ports: BTreeMap<PortName, PortText> =
                of_family.map(|(name, plan)| (name.clone(), shared.port(name, plan))).collect();
            let frame = shared.frame(&ports);
            let state = FamilyState { rules: rules.clone(), program, ports, frame };
            state.replace(&self.names)?;
            families.push(state);
        }
        for family in Family::ALL.into_iter().filter(|family| !rules.iter().any(|rules| rules.family == *family)) {
            remove_all(&self.names, family);
        }
        self.families = families;
        Ok(())
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error> {
        let mut families = std::mem::take(&mut self.families);
        let mut outcome = Ok(());
        for state in &mut families {
            let own: Vec<&Change<'_>> =
                changes.iter().filter(|change| change.name.family == state.rules.family).collect();
            if !own.is_empty() && outcome.is_ok() {
                outcome = state.apply(&self.shared(&state.rules.clone()), &own);
            }
        }
        self.families = families;
        outcome
    }

    fn is_tampered(&mut self) -> Result<bool, Error> {
        for state in &self.families {
            if state.is_incomplete(&self.names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn notices(&self) -> Option<OwnedFd> {
        None
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        self.families.clear();
        Family::ALL.into_iter().for_each(|family| remove_all(&self.names, family));
        Ok(())
    }
}

impl FamilyState {
    /// Rewrites the chains of changed ports, and the shared chains if a rule in them has changed.
    fn apply(&mut self, shared: &Shared<'_>, changes: &[&Change<'_>]) -> Result<(), Error> {
        let mut text = TableText::default();
        let mut stale: BTreeSet<(&'static str, String)> = BTreeSet::new();
        let mut is_shared_changed = false;
        for change in changes {
            let old = self.ports.remove(change.name);
            let new = change.new.map(|plan| shared.port(change.name, plan));
            let chains = |port: &Option<PortText>| port.as_ref().map(PortText::chains).unwrap_or_default();
            stale.extend(chains(&old).difference(&chains(&new)).cloned());
            is_shared_changed |= old.as_ref().map(|port| &port.shared) != new.as_ref().map(|port| &port.shared);
            if let Some(new) = new {
                text.extend(&new.own);
                self.ports.insert(change.name.clone(), new);
            }
        }
        if is_shared_changed {
            let frame = shared.frame(&self.ports);
            text.extend(&frame.difference(&self.frame));
            self.frame = frame;
        }
        self.program.restore(&text.restore_input(&stale))
    }

    /// All chains.
    fn all(&self) -> TableText {
        let mut text = self.frame.clone();
        self.ports.values().for_each(|port| text.extend(&port.own));
        text
    }

    /// Whether a jump is missing, or a chain has more or fewer rules than were applied.
    fn is_incomplete(&self, names: &Names) -> Result<bool, Error> {
        let expected = self.all().counts();
        for table in program::TABLES {
            let found = self.program.rules(table)?;
            let is_jump_missing = names.jumps().iter().any(|jump| jump.table == table && found.count_of(jump) == 0);
            let mut own = expected.iter().filter(|((of, _), _)| *of == table);
            if is_jump_missing || own.any(|((_, chain), count)| found.count(chain) != Some(*count)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces all chains and deletes those of an earlier proxy that are not needed any more, in one transaction for
    /// each table.
    fn replace(&self, names: &Names) -> Result<(), Error> {
        let desired = self.all();
        let (mut stale, mut jumps) = (BTreeSet::new(), Vec::new());
        for table in program::TABLES {
            let found = self.program.rules(table)?;
            let is_stale = |chain: &&String| names.is_own(chain) && !desired.has(table, chain);
            stale.extend(found.chains().filter(is_stale).map(|chain| (table, chain.clone())));
            let missing = names.jumps().into_iter().filter(|jump| jump.table == table && found.count_of(jump) == 0);
            jumps.extend(missing.map(JumpChange::Insert));
        }
        self.program.restore(&desired.restore_input_with(&stale, &jumps))
    }
}

/// Removes everything of a family. A family without iptables has nothing to remove.
fn remove_all(names: &Names, family: Family) {
    let program = Program::of(family);
    let (mut stale, mut jumps) = (BTreeSet::new(), Vec::new());
    for table in program::TABLES {
        let found = program.rules(table).unwrap_or_default();
        stale.extend(found.chains().filter(|chain| names.is_own(chain)).map(|chain| (table, chain.clone())));
        for jump in names.jumps().into_iter().filter(|jump| jump.table == table) {
            jumps.extend((0..found.count_of(&jump)).map(|_| JumpChange::Delete(jump.clone())));
        }
    }
    if stale.is_empty() && jumps.is_empty() {
        return;
    }
    if let Err(error) = program.restore(&TableText::default().restore_input_with(&stale, &jumps)) {
        tracing::error!(%error, family = family.name(), "failed to delete iptables chains");
    }
}
