//! The certificates of a cluster: one list, with their CAs.

use std::net::IpAddr;

use crate::error::Result;
use crate::pki::{CertificateAndKey, Pki, Subject};

/// The CAs: of the cluster, of the front proxy, and of the ports of kubelets. A node chooses the addresses of its
/// serving certificate: clients of the API server must not trust the CA of the kubelets.
pub(crate) const CAS: &[(&str, &str)] =
    &[("ca", "kubernetes"), ("front-proxy-ca", "front-proxy-ca"), (KUBELET_SERVING_CA, "kubelet-serving-ca")];

pub(crate) const KUBELET_SERVING_CA: &str = "kubelet-serving-ca";

pub(crate) const ADMIN: &str = "admin";
/// The file of the API server's serving certificate.
pub const SERVING: &str = "apiserver";
pub(crate) const PROXY_CLIENT: &str = "front-proxy-client";
/// Shown to the API server by the kubelet of this machine.
pub const KUBELET_SERVING: &str = "kubelet-server";
/// The client certificate of the API server for kubelets; a ClusterRoleBinding grants its access.
pub const KUBELET_CLIENT: &str = "apiserver-kubelet-client";
pub(crate) const KUBELET_CLIENT_USER: &str = "kube-apiserver-kubelet-client";

/// The clients: file, CA, CN and O.
const CLIENTS: &[(&str, &str, &str, &str)] = &[
    (ADMIN, "ca", "kubernetes-admin", "system:masters"),
    ("controller-manager", "ca", "system:kube-controller-manager", ""),
    ("scheduler", "ca", "system:kube-scheduler", ""),
    ("kube-proxy", "ca", "system:kube-proxy", ""),
    (KUBELET_CLIENT, "ca", KUBELET_CLIENT_USER, ""),
    // Presented to servers behind this one, with the name of the user in headers.
    (PROXY_CLIENT, "front-proxy-ca", "front-proxy-client", ""),
];

/// The subjects of all certificates.
pub fn subjects(node: &str, names: Vec<String>, addresses: Vec<IpAddr>) -> Vec<Subject> {
    let client = |&(file, ca, common_name, organization): &(&str, &'static str, &str, &str)| Subject {
        file: file.to_string(),
        ca,
        common_name: common_name.to_string(),
        organization: organization.to_string(),
        names: Vec::new(),
        addresses: Vec::new(),
    };
    let mut subjects: Vec<Subject> = CLIENTS.iter().map(client).collect();
    subjects.push(client(&("kubelet", "ca", &format!("system:node:{node}"), "system:nodes")));
    subjects.push(Subject { names, addresses, ..client(&(SERVING, "ca", "kube-apiserver", "")) });
    subjects
}

/// The port of a node's kubelet, as nodes are called and reached.
pub fn kubelet_serving(node: &str, addresses: &[IpAddr]) -> Subject {
    let mut addresses = addresses.to_vec();
    addresses.sort_unstable();
    addresses.dedup();
    Subject {
        file: KUBELET_SERVING.to_string(),
        ca: KUBELET_SERVING_CA,
        common_name: format!("system:node:{node}"),
        organization: "system:nodes".to_string(),
        names: vec![node.to_string()],
        addresses,
    }
}

/// The certificates of a directory, by the names of their files.
pub struct IssuedCertificates {
    pub cas: Vec<CertificateAndKey>,
    leaves: Vec<(String, CertificateAndKey)>,
}

impl IssuedCertificates {
    pub(crate) fn leaf(&self, file: &str) -> CertificateAndKey {
        self.leaves.iter().find(|(name, _)| name == file).map(|(_, pair)| pair.clone()).unwrap_or_default()
    }
}

/// Loads the certificates that stay valid for a while, and issues the others.
pub fn ensure(pki: &Pki, subjects: &[Subject]) -> Result<IssuedCertificates> {
    // In parallel, since each new one waits for the disk.
    let cas = std::thread::scope(|scope| {
        let key = scope.spawn(|| pki.tokens().map(drop));
        let threads: Vec<_> = CAS.iter().map(|(file, name)| scope.spawn(|| pki.ensure_ca(file, name))).collect();
        let made = threads.into_iter().map(joined).collect::<Result<Vec<CertificateAndKey>>>();
        joined(key).and(made)
    })?;
    let leaf = |subject: &Subject| {
        let at = CAS.iter().position(|(file, _)| *file == subject.ca).unwrap_or(0);
        Ok((subject.file.clone(), pki.leaf(&cas[at], subject)?))
    };
    let leaves = subjects.iter().map(leaf).collect::<Result<Vec<_>>>()?;
    Ok(IssuedCertificates { cas, leaves })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
