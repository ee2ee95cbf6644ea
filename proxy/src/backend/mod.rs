//! Backends, which turn plans into rules of the kernel. Each applies a difference in one transaction.

mod iptables;
mod nftables;
mod userspace;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

pub use iptables::Iptables;
pub use nftables::Nftables;
pub use userspace::Userspace;

use crate::config::Mode;
use crate::model::PortName;
use crate::plan::{NodeRules, PortPlan};

/// The plans of all ports.
pub type Plans = BTreeMap<PortName, PortPlan>;

/// A port whose plan has changed.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The port.
    pub name: &'a PortName,
    /// The plan that was applied before; None if there was none.
    pub old: Option<&'a PortPlan>,
    /// The desired plan; None if the port was removed.
    pub new: Option<&'a PortPlan>,
}

/// A failed change of rules. Nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A netlink request failed.
    #[error("{0}")]
    Netlink(#[from] network::netlink::Error),
    /// A program or a file failed.
    #[error("{what}")]
    Io {
        /// The attempted operation.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program refused its input.
    #[error("{program} failed: {message}")]
    Program {
        /// Its name.
        program: String,
        /// The output on standard error.
        message: String,
    },
}

/// Applies plans to the kernel.
pub trait Backend: Send {
    /// Its mode.
    fn mode(&self) -> Mode;

    /// Replaces all rules by new ones in one transaction, without interrupting connections.
    fn replace(&mut self, rules: &[NodeRules], plans: &Plans) -> Result<(), Error>;

    /// Applies changes in one transaction. After an error, everything has to be replaced.
    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), Error>;

    /// Whether rules were changed or deleted by another process since the last call.
    fn is_tampered(&mut self) -> Result<bool, Error>;

    /// A descriptor that becomes readable when rules may have changed; None if they have to be verified periodically.
    fn notices(&self) -> Option<OwnedFd>;

    /// Whether the kernel translates addresses to those of endpoints.
    fn translates_to_endpoints(&self) -> bool {
        true
    }

    /// Deletes all rules of this proxy.
    fn cleanup(&mut self) -> Result<(), Error>;
}
