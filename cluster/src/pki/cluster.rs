//! The certificates that a cluster signs itself: those of its data directory.

use std::net::IpAddr;
use std::sync::Arc;

use server::aggregation::{IdentityError, ReadIdentity};
use server::authentication::token::Tokens;
use server::outbound::callout::Identity;
use stdx::cidr::IpNet;

use super::credentials::Credentials;
use super::subjects::{self, ADMIN, KUBELET_CLIENT, KUBELET_SERVING, PROXY_CLIENT, SERVING};
use super::{Pki, Subject};
use crate::error::{Error, Result};
use crate::machine::address::reachable;

/// The certificates of a data directory, which the cluster issues itself.
#[derive(Clone)]
pub struct ClusterPki {
    pub pki: Pki,
    subjects: Vec<Subject>,
    /// Further CAs for the certificates of kubelets, in PEM; None if kubelets are not verified.
    kubelet_cas: Option<String>,
}

impl ClusterPki {
    /// The certificates of an API server that listens at an address.
    pub fn new(pki: Pki, listen: IpAddr, config: &server::Config, sans: &[String]) -> Result<ClusterPki> {
        let (names, addresses) = serving_names(listen, config, sans)?;
        let subjects = subjects::subjects(&server::hostname(), names, addresses);
        Ok(ClusterPki { pki, subjects, kubelet_cas: None })
    }

    /// The certificates of kubelets must be signed by the CA of their ports.
    pub(crate) fn verifying_kubelets(self) -> ClusterPki {
        ClusterPki { kubelet_cas: Some(String::new()), ..self }
    }

    /// Configures a serving certificate for the kubelet of this machine, and the node addresses that the certificate is
    /// for. A certificate that the kubelet's configuration names is its own CA.
    pub(crate) fn with_kubelet(mut self, config: &mut kubelet::Config, machine: Vec<IpAddr>) -> Result<ClusterPki> {
        if config.node_ips.is_empty() {
            config.node_ips = machine;
        }
        if let Some(file) = &config.certificates.tls_cert_file {
            let pem = std::fs::read_to_string(file).map_err(Error::file(file))?;
            self.kubelet_cas = Some(pem);
            return Ok(self);
        }
        let file = |end: &str| Some(self.pki.dir().join(format!("{KUBELET_SERVING}.{end}")));
        (config.certificates.tls_cert_file, config.certificates.tls_private_key_file) = (file("crt"), file("key"));
        config.certificates.server_bootstrap = false;
        self.subjects.push(subjects::kubelet_serving(&config.node_name, &config.node_ips));
        Ok(self)
    }

    /// Loads the existing certificates, and issues those that are missing or due.
    pub fn load(&self) -> Result<Credentials> {
        let made = subjects::ensure(&self.pki, &self.subjects)?;
        let [ca, proxies, kubelets] = made.cas.as_slice() else { return Ok(Credentials::default()) };
        let files = subjects::CAS.iter().map(|(file, _)| *file);
        let files = files.chain(self.subjects.iter().map(|subject| subject.file.as_str()));
        Ok(Credentials {
            serving: made.leaf(SERVING),
            clients: Some(ca.certificate.clone()),
            proxies: Some(proxies.certificate.clone()),
            kubelet_client: Some(made.leaf(KUBELET_CLIENT)),
            kubelet_ca: self.kubelet_cas.as_ref().map(|more| format!("{}{more}", kubelets.certificate)),
            admin: Some((ca.clone(), made.leaf(ADMIN))),
            renewal: files.filter_map(|file| self.pki.renewal_of(file)).min(),
        })
    }

    /// The client certificate for requests on behalf of clients.
    pub fn proxy(&self) -> ReadIdentity {
        let pki = self.pki.clone();
        Arc::new(move || {
            let pair = pki.read(PROXY_CLIENT).map_err(|error| IdentityError(error.into()))?.unwrap_or_default();
            Identity::pem(pair.certificate.as_bytes(), pair.key.as_bytes()).map_err(|error| IdentityError(error.into()))
        })
    }

    /// The keys of service account tokens.
    pub fn tokens(&self) -> Result<Tokens> {
        self.pki.tokens()
    }

    /// The CA and keys that controllers publish and sign with.
    pub fn controller_options(&self, config: &server::Config) -> Result<Arc<controllers::Options>> {
        let (ca, _) = subjects::CAS[0];
        let ca = self.pki.read(ca)?.unwrap_or_default();
        let signer = controllers::Signer { certificate: ca.certificate.clone(), key: ca.key };
        let kubelets = self.pki.read(subjects::KUBELET_SERVING_CA)?.unwrap_or_default();
        let kubelets = controllers::Signer { certificate: kubelets.certificate, key: kubelets.key };
        let ranges = config.service_cidrs.iter().map(IpNet::to_string);
        Ok(Arc::new(controllers::Options {
            root_ca: ca.certificate,
            cluster_signing: controllers::Signers {
                kubelet_serving: Some(kubelets),
                ..controllers::Signers::all(signer)
            },
            service_account_private_key: self.pki.signing_key()?,
            service_cluster_ip_range: ranges.collect(),
            balance_by_nodes: true,
            ..controllers::Options::default()
        }))
    }
}

/// The names and addresses of the serving certificate.
fn serving_names(listen: IpAddr, config: &server::Config, sans: &[String]) -> Result<(Vec<String>, Vec<IpAddr>)> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    addresses.extend([reachable(listen), config.advertise_address]);
    addresses.extend(config.service_cidrs.iter().filter_map(IpNet::first));
    for san in sans {
        match san.parse() {
            Ok(address) => addresses.push(address),
            Err(_) if is_dns_name(san) => names.push(san.clone()),
            Err(_) => return Err(Error::Flags(vec![format!("--tls-san: {san:?} is neither a name nor an address")])),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    names.dedup();
    Ok((names, addresses))
}

/// A DNS name, whose first label may be a wildcard.
fn is_dns_name(name: &str) -> bool {
    api::validation::dns1123_subdomain(name.strip_prefix("*.").unwrap_or(name)).is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn own(dir: &Path, listen: [u8; 4], sans: &[&str]) -> Result<Credentials> {
        let sans: Vec<String> = sans.iter().map(ToString::to_string).collect();
        let pki = Pki::open(dir.join("pki"))?;
        ClusterPki::new(pki, IpAddr::from(listen), &server::Config::default(), &sans)?.load()
    }

    #[test]
    fn certificates_are_stable_and_follow_addresses() {
        let dir = tempfile::tempdir().expect("a directory");
        let make = |listen: [u8; 4], sans: &[&str]| own(dir.path(), listen, sans).expect("certificates");
        let (first, again) = (make([127, 0, 0, 1], &[]), make([127, 0, 0, 1], &[]));
        assert!(first == again);
        let (other, named) = (make([10, 1, 2, 3], &[]), make([10, 1, 2, 3], &["api.example", "10.9.8.7"]));
        assert_ne!(first.serving.certificate, other.serving.certificate);
        assert_ne!(named.serving.certificate, other.serving.certificate);
        assert!(first.admin == named.admin && first.clients == named.clients);
        let error = own(dir.path(), [127, 0, 0, 1], &["a b"]).err().expect("an error");
        assert!(error.describe().contains("--tls-san: \"a b\""), "{}", error.describe());
    }

    #[test]
    fn damaged_ca_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        own(dir.path(), [127, 0, 0, 1], &[]).expect("certificates");
        std::fs::remove_file(dir.path().join("pki/ca.key")).expect("a file");
        let error = own(dir.path(), [127, 0, 0, 1], &[]).err().expect("an error");
        assert!(error.describe().contains("pki/ca.key"), "{}", error.describe());
    }
}
