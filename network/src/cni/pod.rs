//! The description of a pod's attachment, and its translation into CNI arguments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::list::RuntimeConf;
use crate::spec::result::{Dns, dns_json};

/// The pod that a sandbox belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// An attachment: an interface of a pod's sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attachment {
    /// The sandbox ID.
    pub container_id: String,
    /// For example `/proc/PID/ns/net`. For [`super::Cni::del`], empty if the namespace is deleted.
    pub netns: PathBuf,
    /// `eth0`.
    pub ifname: String,
    pub pod: PodId,
    pub port_mappings: Vec<PortMapping>,
    pub bandwidth: Option<Bandwidth>,
    pub dns: Option<Dns>,
    pub aliases: Vec<String>,
    pub cgroup_path: Option<String>,
    pub annotations: BTreeMap<String, String>,
}

/// A host port that is forwarded to the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMapping {
    /// 0 means that the port is not mapped.
    pub host_port: u16,
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Empty for all addresses.
    pub host_ip: String,
}

/// Rates in bits per second and bursts in bits, from the pod's point of view; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub ingress_rate: u64,
    pub ingress_burst: u64,
    pub egress_rate: u64,
    pub egress_burst: u64,
}

impl Attachment {
    pub(super) fn runtime(&self) -> RuntimeConf {
        RuntimeConf {
            container_id: self.container_id.clone(),
            netns: self.netns.display().to_string(),
            ifname: self.ifname.clone(),
            args: self.args(),
            capability_args: self.capability_args(),
        }
    }

    fn args(&self) -> Vec<(String, String)> {
        let args = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", &self.pod.namespace),
            ("K8S_POD_NAME", &self.pod.name),
            ("K8S_POD_INFRA_CONTAINER_ID", &self.container_id),
            ("K8S_POD_UID", &self.pod.uid),
        ];
        args.map(|(key, value)| (key.to_string(), value.to_string())).to_vec()
    }

    fn capability_args(&self) -> Map<String, Value> {
        let ports: Vec<Value> =
            self.port_mappings.iter().filter(|mapping| mapping.host_port != 0).map(port_json).collect();
        let args = [
            ("portMappings", (!ports.is_empty()).then(|| ports.into())),
            ("bandwidth", self.bandwidth.map(bandwidth_json)),
            ("dns", self.dns.as_ref().map(capability_dns)),
            ("aliases", (!self.aliases.is_empty()).then(|| self.aliases.clone().into())),
            ("cgroupPath", self.cgroup_path.clone().map(Value::from)),
            ("io.kubernetes.cri.pod-annotations", (!self.annotations.is_empty()).then(|| json!(self.annotations))),
        ];
        args.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
    }
}

fn port_json(mapping: &PortMapping) -> Value {
    json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": if mapping.protocol.is_empty() { "tcp" } else { &mapping.protocol },
        "hostIP": mapping.host_ip,
    })
}

fn bandwidth_json(bandwidth: Bandwidth) -> Value {
    let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst } = bandwidth;
    let numbers = [
        ("ingressRate", ingress_rate),
        ("ingressBurst", ingress_burst),
        ("egressRate", egress_rate),
        ("egressBurst", egress_burst),
    ];
    numbers
        .into_iter()
        .filter(|(_, number)| *number != 0)
        .map(|(key, number)| (key.to_string(), number.into()))
        .collect::<Map<_, _>>()
        .into()
}

/// The convention for capabilities names two of the fields differently.
fn capability_dns(dns: &Dns) -> Value {
    let mut json = dns_json(dns);
    for (from, to) in [("nameservers", "servers"), ("search", "searches")] {
        if let Some(value) = json.as_object_mut().and_then(|object| object.remove(from)) {
            json[to] = value;
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_args_and_capability_args() {
        let attachment = Attachment {
            container_id: "sandbox".to_string(),
            netns: "/proc/7/ns/net".into(),
            ifname: "eth0".to_string(),
            pod: PodId { namespace: "ns".to_string(), name: "web".to_string(), uid: "u".to_string() },
            port_mappings: vec![
                PortMapping { host_port: 8080, container_port: 80, ..PortMapping::default() },
                PortMapping { container_port: 81, ..PortMapping::default() },
            ],
            bandwidth: Some(Bandwidth { egress_rate: 8, egress_burst: 16, ..Bandwidth::default() }),
            dns: Some(Dns {
                nameservers: vec!["10.96.0.10".to_string()],
                search: vec!["svc".to_string()],
                ..Dns::default()
            }),
            aliases: vec!["web".to_string()],
            cgroup_path: Some("/kubepods/x".to_string()),
            annotations: BTreeMap::from([("a".to_string(), "b".to_string())]),
        };
        let runtime = attachment.runtime();
        assert_eq!(
            Value::from(runtime.capability_args),
            json!({
                "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "" }],
                "bandwidth": { "egressRate": 8, "egressBurst": 16 },
                "dns": { "servers": ["10.96.0.10"], "searches": ["svc"] },
                "aliases": ["web"],
                "cgroupPath": "/kubepods/x",
                "io.kubernetes.cri.pod-annotations": { "a": "b" },
            })
        );
        let args: Vec<String> = runtime.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            args.join(";"),
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=sandbox;K8S_POD_UID=u"
        );
    }
}
