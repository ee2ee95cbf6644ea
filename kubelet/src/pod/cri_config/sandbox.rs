//! The CRI configuration of a pod's sandbox.

use std::collections::BTreeMap;
use std::path::Path;

use api::Tree;

use super::{dns::Resolver, security};
use crate::model::pod;
use crate::model::state::keys;
use crate::model::sysctls::dotted;

/// Inputs of the configuration besides the pod.
pub(crate) struct Inputs<'a> {
    pub(crate) attempt: u32,
    pub(crate) logs: &'a Path,
    pub(crate) hostname: String,
    pub(crate) resolver: &'a Resolver,
    pub(crate) cgroup_parent: String,
    /// The host IDs of a pod with its own user namespace.
    pub(crate) users: Option<&'a cri::UserNamespace>,
    pub(crate) overhead: Option<cri::LinuxContainerResources>,
    pub(crate) resources: Option<cri::LinuxContainerResources>,
    /// Groups that the pod's volumes belong to.
    pub(crate) volume_groups: &'a [i64],
}

pub(crate) fn config(pod: &Tree, given: Inputs<'_>) -> cri::PodSandboxConfig {
    let on_host = pod.bool("spec.hostNetwork");
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: pod::name(pod).to_string(),
            uid: pod::uid(pod).to_string(),
            namespace: pod::namespace(pod).to_string(),
            attempt: given.attempt,
        }),
        hostname: if on_host { String::new() } else { given.hostname },
        log_directory: pod::log_dir(given.logs, pod).display().to_string(),
        dns_config: Some(given.resolver.to_cri()),
        port_mappings: if on_host { Vec::new() } else { ports(pod) },
        labels: labels(pod),
        annotations: texts(pod, "metadata.annotations"),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: given.cgroup_parent,
            security_context: Some(security::of_sandbox(pod, given.users, given.volume_groups)),
            sysctls: sysctls(pod),
            overhead: given.overhead,
            resources: given.resources,
        }),
        windows: None,
    }
}

fn texts(pod: &Tree, path: &str) -> BTreeMap<String, String> {
    let entries = pod.map(path).iter();
    entries.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_string())).collect()
}

fn labels(pod: &Tree) -> BTreeMap<String, String> {
    let mut labels = texts(pod, "metadata.labels");
    labels.extend(own_labels(pod));
    labels
}

/// By which the pod of a sandbox or container is found.
pub(crate) fn own_labels(pod: &Tree) -> [(String, String); 3] {
    [(keys::POD_NAME, pod::name(pod)), (keys::POD_NAMESPACE, pod::namespace(pod)), (keys::POD_UID, pod::uid(pod))]
        .map(|(key, value)| (key.to_string(), value.to_string()))
}

fn sysctls(pod: &Tree) -> BTreeMap<String, String> {
    let list = pod.list("spec.securityContext.sysctls").iter();
    list.map(|sysctl| (dotted(sysctl.str("name")), sysctl.str("value").to_string())).collect()
}

fn ports(pod: &Tree) -> Vec<cri::PortMapping> {
    let of = |spec: &Tree| spec.list("ports").iter().map(port).collect::<Vec<_>>();
    let sidecars = pod.list("spec.initContainers").iter().filter(|spec| pod::is_sidecar(spec));
    sidecars.chain(pod.list("spec.containers")).flat_map(of).collect()
}

fn port(port: &Tree) -> cri::PortMapping {
    let number = |key: &str| port.int(key).and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    let protocol = match port.str("protocol") {
        "UDP" => cri::Protocol::Udp,
        "SCTP" => cri::Protocol::Sctp,
        _ => cri::Protocol::Tcp,
    };
    cri::PortMapping {
        protocol: protocol.into(),
        container_port: number("containerPort"),
        host_port: number("hostPort"),
        host_ip: port.str("hostIP").to_string(),
    }
}
