//! Opens the backend of a mode, and chooses the mode from what the kernel supports.

use std::io;
use std::net::SocketAddr;

use crate::backend::{Backend, Error, Iptables, Nftables, Plans};
use crate::config::{Configuration, Mode};
use crate::model::Family;
use crate::plan::{LocalTraffic, NodePortAddresses, NodeRules};
use crate::proxier::Proxier;

/// A proxy that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel or the machine lacks what the mode needs.
    #[error("the proxy mode {mode} is not usable on this machine: {error}", mode = mode.name())]
    Mode {
        /// The configured mode.
        mode: Mode,
        /// What failed.
        error: String,
    },
    /// None of the modes can be used.
    #[error("no proxy mode is usable on this machine: {0}")]
    NoMode(String),
    /// The rules could not be opened.
    #[error("failed to open the proxy rules")]
    Open(#[from] Error),
    /// A port could not be bound.
    #[error("failed to bind {address} for {what}")]
    Bind {
        /// The port's purpose.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Tries the rules of a mode in a network namespace of its own, and returns the families that work.
pub fn probe(mode: Mode) -> Result<Vec<Family>, String> {
    let tried = std::thread::Builder::new().name("proxy-probe".to_string()).spawn(move || probe_here(mode));
    let tried = tried.map_err(|error| error.to_string())?;
    tried.join().unwrap_or_else(|_| Err("the probe panicked".to_string()))
}

/// Moves the calling thread into a new namespace, which is deleted when the thread ends.
fn probe_here(mode: Mode) -> Result<Vec<Family>, String> {
    network::ns::unshare().map_err(|error| format!("failed to create a network namespace: {error}"))?;
    let mut first_error = None;
    let mut works = |family: Family| match try_family(mode, family) {
        Ok(()) => true,
        Err(error) => {
            first_error.get_or_insert(describe(&error));
            false
        }
    };
    let families: Vec<Family> = Family::ALL.into_iter().filter(|family| works(*family)).collect();
    match (families.is_empty(), first_error) {
        (true, error) => Err(error.unwrap_or_default()),
        (false, _) => Ok(families),
    }
}

fn try_family(mode: Mode, family: Family) -> Result<(), Error> {
    let config = Configuration { table: "tiphys-probe".to_string(), ..Configuration::default() };
    let rules = NodeRules {
        family,
        local_traffic: LocalTraffic::Interface("probe".to_string()),
        masquerade_all: false,
        node_ports: NodePortAddresses::All,
        service_cidrs: Vec::new(),
    };
    open_backend(mode, &config)?.replace(&[rules], &Plans::new())
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn open_backend(mode: Mode, config: &Configuration) -> Result<Box<dyn Backend>, Error> {
    match mode {
        Mode::Nftables => Ok(Box::new(Nftables::open(&config.table, config.masquerade_bit)?)),
        Mode::Iptables => {
            Ok(Box::new(Iptables::new(&config.table, config.masquerade_bit, config.localhost_node_ports)))
        }
        Mode::Userspace => {
            Err(Error::Program { program: mode.name().to_string(), message: "the mode is not implemented".to_string() })
        }
    }
}

/// The proxy of the configured mode, or of the first one that works.
pub(super) fn open(config: &Configuration) -> Result<(Proxier, Vec<Family>), StartError> {
    let (mode, families) = choose(config.mode)?;
    let names: Vec<&str> = families.iter().map(|family| family.name()).collect();
    tracing::info!(mode = mode.name(), families = names.join(","), "service proxy mode");
    let backend = open_backend(mode, config)?;
    Ok((Proxier::new(config.clone(), backend, families.clone()), families))
}

fn choose(configured: Option<Mode>) -> Result<(Mode, Vec<Family>), StartError> {
    if let Some(mode) = configured {
        let families = probe(mode).map_err(|error| StartError::Mode { mode, error })?;
        return Ok((mode, families));
    }
    let mut errors = Vec::new();
    for mode in [Mode::Nftables, Mode::Iptables, Mode::Userspace] {
        match probe(mode) {
            Ok(families) => {
                if !errors.is_empty() {
                    tracing::warn!(reason = errors.join("; "), "a better service proxy mode is not usable");
                }
                return Ok((mode, families));
            }
            Err(error) => errors.push(format!("{}: {error}", mode.name())),
        }
    }
    Err(StartError::NoMode(errors.join("; ")))
}

/// Sets what is not part of the rules. Failures are reported and do not stop the proxy.
pub(super) fn set_up_machine(_config: &Configuration) {}

/// Deletes the rules of all modes of a proxy with this table name, in the namespace of the calling thread.
pub fn cleanup(config: &Configuration) -> Result<(), Error> {
    Nftables::open(&config.table, config.masquerade_bit)?.cleanup()
}
