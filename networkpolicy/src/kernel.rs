//! Applies tables to the kernel, each change in one transaction.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use network::netlink;
use network::nft::{Batch, Family, Monitor, Nft, TableEvent};

use crate::table::{Table, diff};

const FAMILY: Family = Family::Inet;

/// Rules that could not be applied or watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses a change.
    #[error("failed to change the network policy rules")]
    Change(#[from] netlink::Error),
    /// Changes of other processes cannot be watched.
    #[error("failed to watch the network policy rules")]
    Watch(#[source] io::Error),
}

/// The table of network policies in the kernel.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    nft: Nft,
    monitor: Monitor,
    /// The rules in the kernel; None if unknown.
    applied: Option<Table>,
}

impl Kernel {
    /// Opens sockets in the network namespace of the calling thread. Nothing is changed yet.
    pub fn open(name: &str) -> Result<Kernel, Error> {
        let nft = Nft::open()?;
        let monitor = Monitor::open(&nft)?;
        Ok(Kernel { name: name.to_string(), nft, monitor, applied: None })
    }

    /// Applies a state: the difference, or everything if it is not known what the kernel has. Returns the number of
    /// changes.
    pub fn apply(&mut self, desired: Table) -> Result<usize, Error> {
        let changes = match self.applied.take() {
            Some(applied) if applied == desired => 0,
            Some(applied) if !applied.is_empty() && !desired.is_empty() => match self.update(&applied, &desired) {
                Ok(changes) => changes,
                Err(error) => {
                    // Another process may have deleted the table, and its notice is not read yet.
                    tracing::warn!(%error, "failed to update the network policy rules, replacing all of them");
                    self.replace(&desired)?
                }
            },
            _ => self.replace(&desired)?,
        };
        self.applied = Some(desired);
        Ok(changes)
    }

    fn update(&mut self, applied: &Table, desired: &Table) -> Result<usize, Error> {
        let changes = diff(applied, desired);
        let mut batch = Batch::new(FAMILY, &self.name);
        changes.iter().for_each(|change| change.put(&mut batch));
        batch.commit(&mut self.nft, "update the network policy rules")?;
        Ok(changes.len())
    }

    /// Replaces the whole table, without a moment in between. A packet that the kernel is judging while it switches to
    /// the new rules may find the old sets empty, so a second table with the same rules is in force meanwhile.
    fn replace(&mut self, desired: &Table) -> Result<usize, Error> {
        if desired.is_empty() {
            return self.remove();
        }
        // Notices of earlier changes are about rules that are replaced; a later one leads to another replacement.
        self.read_notices()?;
        let (name, substitute) = (self.name.clone(), self.substitute());
        let is_replacement = self.nft.has_table(FAMILY, &name)?;
        if is_replacement {
            self.create(&substitute, desired)?;
        }
        let changes = self.create(&name, desired)?;
        // A process that was killed may have left it.
        if is_replacement || self.nft.has_table(FAMILY, &substitute)? {
            self.delete(&substitute)?;
        }
        Ok(changes)
    }

    /// The name of the table that is in force while the other one is replaced.
    fn substitute(&self) -> String {
        format!("{}-substitute", self.name)
    }

    /// Creates a table with these rules in place of one of the same name.
    fn create(&mut self, name: &str, desired: &Table) -> Result<usize, Error> {
        let nothing = Table::default();
        let changes = diff(&nothing, desired);
        let mut batch = Batch::new(FAMILY, name);
        // A table that does not exist cannot be deleted.
        batch.ensure_table();
        batch.delete_table();
        batch.ensure_table();
        changes.iter().for_each(|change| change.put(&mut batch));
        batch.commit(&mut self.nft, "replace the network policy rules")?;
        Ok(changes.len())
    }

    fn delete(&mut self, name: &str) -> Result<(), Error> {
        let mut batch = Batch::new(FAMILY, name);
        batch.delete_table();
        Ok(batch.commit(&mut self.nft, "delete the network policy rules")?)
    }

    /// Without policies, a kernel without nftables is good enough.
    fn remove(&mut self) -> Result<usize, Error> {
        let mut removed = 0;
        for name in [self.name.clone(), self.substitute()] {
            match self.nft.has_table(FAMILY, &name) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    tracing::warn!(%error, "network policies cannot be applied on this machine");
                    return Ok(0);
                }
            }
            self.delete(&name)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Whether another process has changed the table. If so, the next state is applied completely.
    pub fn is_tampered(&mut self) -> Result<bool, Error> {
        let notice = self.read_notices();
        if !matches!(notice, Ok(TableEvent::Unchanged)) {
            self.applied = None;
        }
        notice.map(|notice| notice == TableEvent::Changed)
    }

    fn read_notices(&mut self) -> Result<TableEvent, Error> {
        self.monitor.read_family(FAMILY, &self.name).map_err(Error::Watch)
    }

    /// A descriptor that is readable when another process may have changed the table.
    pub fn notices(&self) -> Result<OwnedFd, Error> {
        self.monitor.as_fd().try_clone_to_owned().map_err(Error::Watch)
    }

    /// Deletes the tables, if they exist.
    pub fn cleanup(&mut self) -> Result<(), Error> {
        self.applied = None;
        self.remove().map(drop)
    }
}
