//! The pod network for sandboxes. CNI calls block, so they run on other threads.

use std::path::PathBuf;
use std::sync::Arc;

use cri::{PodSandboxConfig, Protocol};
use network::cni::builtin::{ClusterPods, Names};
use network::cni::{Attachment, Bandwidth, Cni, CniOptions, PodId, PortMapping};

use super::records::SandboxRecord;
use super::{Options, blocking};
use crate::error::{Error, Result, refused};
use crate::plan;

/// The configuration of the pod network.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    pub conf_dir: PathBuf,
    pub bin_dirs: Vec<PathBuf>,
    pub cache_dir: PathBuf,
    /// Whether the built-in plugins run in process, and the built-in network is used if there is no configuration.
    pub builtin: bool,
    /// The names of the built-in network.
    pub names: Names,
    /// The pods of other nodes, for the built-in network.
    pub cluster: ClusterPods,
}

impl Default for NetworkOptions {
    fn default() -> NetworkOptions {
        NetworkOptions {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cache_dir: "/var/lib/cni".into(),
            builtin: true,
            names: Default::default(),
            cluster: Default::default(),
        }
    }
}

/// The name of a pod's network interface.
const INTERFACE: &str = "eth0";

#[derive(Clone)]
pub(super) struct Network(Arc<Cni>);

impl Network {
    pub(super) fn open(options: &Options) -> Result<Network> {
        let cni = Cni::open(CniOptions {
            conf_dir: options.network.conf_dir.clone(),
            bin_dirs: options.network.bin_dirs.clone(),
            cache_dir: options.network.cache_dir.clone(),
            state_dir: options.root.join("network"),
            builtin: options.network.builtin,
            names: options.network.names.clone(),
            cluster: options.network.cluster.clone(),
        });
        cni.map(|cni| Network(Arc::new(cni))).map_err(failed)
    }

    /// Why the network is not ready; None if it is.
    pub(super) async fn not_ready(&self) -> Option<String> {
        let cni = self.0.clone();
        match blocking(move || cni.status()).await {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Sets the pod CIDRs, separated by commas, one of each family.
    pub(super) async fn set_pod_cidr(&self, text: String) -> Result<()> {
        let parse = |cidr: &str| cidr.trim().parse().or_else(|_| refused(format!("pod_cidr {cidr:?} is not a CIDR")));
        let cidrs = text.split(',').filter(|c| !c.trim().is_empty()).map(parse).collect::<Result<Vec<_>>>()?;
        let cni = self.0.clone();
        blocking(move || cni.set_pod_cidr(&cidrs)).await?.map_err(failed)
    }

    /// Attaches a sandbox, and returns its addresses.
    pub(super) async fn add(&self, record: &SandboxRecord) -> Result<Vec<String>> {
        let (cni, attachment) = (self.0.clone(), attachment(record)?);
        let attached = blocking(move || cni.add(&attachment)).await?.map_err(failed)?;
        if attached.ips.is_empty() {
            return refused("the pod network assigned no address");
        }
        Ok(attached.ips.iter().map(ToString::to_string).collect())
    }

    /// Detaches all sandboxes except these.
    pub(super) async fn retain(&self, sandboxes: Vec<String>) -> Result<()> {
        let cni = self.0.clone();
        let valid: Vec<_> = sandboxes.into_iter().map(|id| (id, INTERFACE.to_string())).collect();
        blocking(move || cni.gc(&valid)).await?.map_err(failed)
    }

    /// Detaches a sandbox. It is idempotent.
    pub(super) async fn remove(&self, record: &SandboxRecord) -> Result<()> {
        let (cni, attachment) = (self.0.clone(), attachment(record)?);
        blocking(move || cni.del(&attachment)).await?.map_err(failed)
    }
}

fn failed(error: network::cni::Error) -> Error {
    Error::Refused(format!("pod network: {error}"))
}

fn attachment(record: &SandboxRecord) -> Result<Attachment> {
    let config = record.config();
    let metadata = config.metadata.clone().unwrap_or_default();
    let netns = if record.pause > 0 { PathBuf::from(format!("/proc/{}/ns/net", record.pause)) } else { PathBuf::new() };
    Ok(Attachment {
        container_id: record.id.clone(),
        netns,
        ifname: INTERFACE.into(),
        pod: PodId { namespace: metadata.namespace, name: metadata.name, uid: metadata.uid },
        port_mappings: port_mappings(&config)?,
        bandwidth: bandwidth(&config)?,
        cgroup_path: Some(plan::sandbox_cgroup(&config)),
        annotations: config.annotations.clone(),
        ..Attachment::default()
    })
}

fn port_mappings(config: &PodSandboxConfig) -> Result<Vec<PortMapping>> {
    let port = |value: i32| u16::try_from(value).or_else(|_| refused(format!("port_mappings: {value} is not a port")));
    let requested = config.port_mappings.iter().filter(|m| m.host_port != 0);
    let mapping = |m: &cri::PortMapping| {
        Ok(PortMapping {
            host_port: port(m.host_port)?,
            container_port: port(m.container_port)?,
            protocol: match m.protocol() {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            }
            .into(),
            host_ip: m.host_ip.clone(),
        })
    };
    requested.map(mapping).collect()
}

/// The bandwidth annotations of Kubernetes, in bits per second.
fn bandwidth(config: &PodSandboxConfig) -> Result<Option<Bandwidth>> {
    /// The burst, as in upstream.
    const BURST: u64 = 2_147_483_647;
    let rate = |name: &str| match config.annotations.get(name) {
        Some(text) => {
            quantity(text).map_or_else(|| refused(format!("annotation {name}: invalid quantity {text:?}")), Ok)
        }
        None => Ok(0),
    };
    let ingress_rate = rate("kubernetes.io/ingress-bandwidth")?;
    let egress_rate = rate("kubernetes.io/egress-bandwidth")?;
    let burst = |rate: u64| if rate > 0 { BURST } else { 0 };
    Ok((ingress_rate + egress_rate > 0).then_some(Bandwidth {
        ingress_rate,
        ingress_burst: burst(ingress_rate),
        egress_rate,
        egress_burst: burst(egress_rate),
    }))
}

fn quantity(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor: u64 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, expected) in
            [("10M", Some(10_000_000)), ("1Gi", Some(1 << 30)), ("7", Some(7)), ("x", None), ("1q", None)]
        {
            assert_eq!(quantity(text), expected, "{text}");
        }
    }

    #[test]
    fn maps_only_host_ports() {
        let mapping = |host_port| cri::PortMapping { host_port, container_port: 80, ..Default::default() };
        let config = PodSandboxConfig { port_mappings: vec![mapping(0), mapping(8080)], ..Default::default() };
        let found = port_mappings(&config).unwrap();
        assert_eq!((found.len(), found[0].host_port, found[0].protocol.as_str()), (1, 8080, "tcp"));
        let wrong = PodSandboxConfig { port_mappings: vec![mapping(70_000)], ..Default::default() };
        assert!(port_mappings(&wrong).is_err());
    }
}
