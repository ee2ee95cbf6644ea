//! Opens the backend of a mode, and chooses the mode from what the kernel supports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use network::cidr::IpNet;
use stdx::error::chain;

use crate::backend::{Backend, Error, Iptables, Nftables, Plans, Userspace};
use crate::config::{Configuration, Mode};
use crate::model::{Family, PortName, Protocol};
use crate::plan::{LocalTraffic, NodePortAddresses, NodeRules, PortPlan, Traffic};
use crate::proxier::Proxier;

/// A proxy that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel or the machine lacks what the mode needs.
    #[error("the proxy mode {mode} is not usable on this machine", mode = mode.name())]
    Mode {
        /// The configured mode.
        mode: Mode,
        /// The cause.
        #[source]
        source: ProbeError,
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

/// The error when the rules of a mode were tried.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No namespace to try them in.
    #[error("failed to create a network namespace")]
    Namespace(#[source] io::Error),
    /// No thread for the namespace.
    #[error("failed to start a thread")]
    Thread(#[source] io::Error),
    /// The rules were refused.
    #[error(transparent)]
    Rules(Error),
    /// A defect.
    #[error("the probe panicked")]
    Panic,
}

const PROBE_TABLE: &str = "tiphys-probe";
const PROBE_BIT: u8 = 14;

/// Tries the rules of a mode in a network namespace of its own, and returns the families that work.
fn probe(mode: Mode) -> Result<Vec<Family>, ProbeError> {
    in_namespace(move || {
        let mut first_error = None;
        let mut works = |family: Family| match try_family(mode, family) {
            Ok(()) => true,
            Err(error) => {
                first_error.get_or_insert(error);
                false
            }
        };
        let families: Vec<Family> = Family::ALL.into_iter().filter(|family| works(*family)).collect();
        match first_error {
            Some(error) if families.is_empty() => Err(ProbeError::Rules(error)),
            _ => Ok(families),
        }
    })
}

/// Runs on a thread in a new namespace, which is deleted when the thread ends.
fn in_namespace<T: Send>(work: impl FnOnce() -> Result<T, ProbeError> + Send) -> Result<T, ProbeError> {
    let run = || {
        network::ns::unshare().map_err(ProbeError::Namespace)?;
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("proxy-probe".to_string()).spawn_scoped(scope, run);
        let thread = thread.map_err(ProbeError::Thread)?;
        thread.join().unwrap_or(Err(ProbeError::Panic))
    })
}

fn try_family(mode: Mode, family: Family) -> Result<(), Error> {
    let config = Configuration { table: PROBE_TABLE.to_string(), ..Configuration::default() };
    open_backend(mode, &config)?.replace(&[sample_rules(family)], &sample(family, 2))
}

fn sample_rules(family: Family) -> NodeRules {
    NodeRules {
        family,
        local_traffic: LocalTraffic::Interface("probe".to_string()),
        masquerade_all: false,
        node_ports: NodePortAddresses::All,
        service_cidrs: Vec::new(),
    }
}

/// Plans that use everything that rules may need: some endpoints, affinity, and a restricted load balancer.
fn sample(family: Family, endpoints: u16) -> Plans {
    let address: IpAddr = match family {
        Family::V4 => Ipv4Addr::new(192, 0, 2, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let name =
        |port: &str| PortName { service: "probe/probe".into(), port: port.into(), protocol: Protocol::Tcp, family };
    let plan = |port: u16, affinity| PortPlan {
        created: Default::default(),
        protocol: Protocol::Tcp,
        cluster_ip: address,
        port,
        internal: Traffic::Cluster,
        external_ips: vec![address],
        node_port: Some(port),
        external: Traffic::Cluster,
        external_local: false,
        firewalled: vec![address],
        sources: vec![IpNet::host(address)],
        affinity,
        cluster: (1..=endpoints).map(|port| SocketAddr::new(address, port)).collect(),
        local: Vec::new(),
        hairpin: vec![address],
    };
    let affinity = (endpoints > 1).then_some(Duration::from_secs(1));
    [(name("a"), plan(1, None)), (name("b"), plan(2, affinity))].into()
}

fn open_backend(mode: Mode, config: &Configuration) -> Result<Box<dyn Backend>, Error> {
    let iptables = || Iptables::new(&config.table, config.masquerade_bit, config.localhost_node_ports);
    match mode {
        Mode::Nftables => Ok(Box::new(Nftables::open(&config.table, config.masquerade_bit)?)),
        Mode::Iptables => Ok(Box::new(iptables())),
        Mode::Userspace => {
            // Redirects use the rules that the kernel supports.
            let rules: Box<dyn Backend> = match try_nftables() {
                true => Box::new(Nftables::open(&config.table, config.masquerade_bit)?),
                false => Box::new(iptables()),
            };
            Ok(Box::new(Userspace::new(rules)?))
        }
    }
}

/// Whether nftables can redirect, which needs less than the mode nftables.
fn try_nftables() -> bool {
    in_namespace(|| {
        let mut nftables = Nftables::open(PROBE_TABLE, PROBE_BIT).map_err(ProbeError::Rules)?;
        let plans = sample(Family::V4, 1);
        nftables.replace(&[sample_rules(Family::V4)], &plans).map_err(ProbeError::Rules)
    })
    .is_ok()
}

/// The proxy of the configured mode, or of the first one that works.
pub(super) fn open(config: &Configuration) -> Result<(Proxier, Vec<Family>), StartError> {
    let (mode, families) = choose(config.mode, probe)?;
    let names: Vec<&str> = families.iter().map(|family| family.name()).collect();
    tracing::info!(mode = mode.name(), families = names.join(","), "service proxy mode");
    let backend = open_backend(mode, config)?;
    Ok((Proxier::new(config.clone(), backend, families.clone()), families))
}

/// The modes in the order in which they are tried.
const PREFERENCE: [Mode; 3] = [Mode::Nftables, Mode::Iptables, Mode::Userspace];

/// The configured mode, which must work, or the first one that does.
fn choose(
    configured: Option<Mode>,
    probe: impl Fn(Mode) -> Result<Vec<Family>, ProbeError>,
) -> Result<(Mode, Vec<Family>), StartError> {
    if let Some(mode) = configured {
        let families = probe(mode).map_err(|source| StartError::Mode { mode, source })?;
        return Ok((mode, families));
    }
    let mut errors = Vec::new();
    for mode in PREFERENCE {
        match probe(mode) {
            Ok(families) => {
                if !errors.is_empty() {
                    tracing::warn!(reason = errors.join("; "), "a better service proxy mode is not usable");
                }
                return Ok((mode, families));
            }
            Err(error) => errors.push(format!("{}: {}", mode.name(), chain(&error))),
        }
    }
    Err(StartError::NoMode(errors.join("; ")))
}

/// Deletes the rules of all modes of a proxy with this table name, in the namespace of the calling thread.
pub fn cleanup(config: &Configuration) -> Result<(), Error> {
    let nftables = Nftables::open(&config.table, config.masquerade_bit).and_then(|mut backend| backend.cleanup());
    Iptables::new(&config.table, config.masquerade_bit, config.localhost_node_ports).cleanup()?;
    nftables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses on a machine on which these modes work, with one family.
    fn choose_from(configured: Option<Mode>, usable: &[Mode]) -> Result<Mode, String> {
        let probe = |mode: Mode| match usable.contains(&mode) {
            true => Ok(vec![Family::V4]),
            false => Err(ProbeError::Namespace(io::Error::from(io::ErrorKind::Unsupported))),
        };
        let chosen = choose(configured, probe).map_err(|error| chain(&error))?;
        assert_eq!(chosen.1, [Family::V4]);
        Ok(chosen.0)
    }

    #[test]
    fn first_usable_mode_is_chosen() {
        use Mode::{Iptables, Nftables, Userspace};
        let cases: [(&[Mode], Mode); 5] = [
            (&[Nftables, Iptables, Userspace], Nftables),
            (&[Nftables, Userspace], Nftables),
            (&[Iptables, Userspace], Iptables),
            (&[Iptables], Iptables),
            (&[Userspace], Userspace),
        ];
        for (usable, want) in cases {
            assert_eq!(choose_from(None, usable), Ok(want), "{usable:?}");
        }
        let error = choose_from(None, &[]).expect_err("no mode");
        let reason = "failed to create a network namespace: unsupported";
        let all = format!("nftables: {reason}; iptables: {reason}; userspace: {reason}");
        assert_eq!(error, format!("no proxy mode is usable on this machine: {all}"));
    }

    #[test]
    fn configured_mode_is_used_or_refused() {
        for mode in PREFERENCE {
            assert_eq!(choose_from(Some(mode), &PREFERENCE), Ok(mode));
            let others: Vec<Mode> = PREFERENCE.into_iter().filter(|other| *other != mode).collect();
            let error = choose_from(Some(mode), &others).expect_err("an unusable mode");
            let name = mode.name();
            let text =
                format!("the proxy mode {name} is not usable on this machine: failed to create a network namespace");
            assert!(error.starts_with(&text), "{error}");
        }
    }
}
