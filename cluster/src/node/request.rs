//! Requests a certificate from the API server: the CertificateSigningRequest, waiting for its signature, and the files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{Tree, base64, list, tree};
use client::{Client, Resource};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use stdx::backoff::Backoff;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::error::{Error, Result};
use crate::machine::files::write_private;
use crate::pki::{self, CertificateAndKey};

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests");
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of the kubelets' serving certificates.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Upstream gives up after this time and creates a new request.
const PATIENCE: Duration = Duration::from_secs(900);

/// The request for a node's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    pub signer: &'static str,
    pub node: String,
    /// A request without names and addresses is for a client certificate.
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

impl CertificateRequest {
    /// A request for the client certificate of a node.
    pub fn client(node: &str) -> CertificateRequest {
        CertificateRequest { signer: CLIENT_SIGNER, node: node.to_string(), names: Vec::new(), addresses: Vec::new() }
    }

    fn purpose(&self) -> &'static str {
        if self.signer == SERVING_SIGNER { "server auth" } else { "client auth" }
    }
}

/// A new key, and the request for it in PEM.
fn request(wanted: &CertificateRequest) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{}", wanted.node));
    for name in &wanted.names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.subject_alt_names.extend(wanted.addresses.iter().map(|address| SanType::IpAddress(*address)));
    Ok((key.serialize_pem(), params.serialize_request(&key)?.pem()?))
}

fn object(wanted: &CertificateRequest, pem: &str) -> Tree {
    tree! {
        "apiVersion" => "certificates.k8s.io/v1",
        "kind" => "CertificateSigningRequest",
        "metadata" => tree! { "generateName" => "csr-" },
        "spec" => tree! {
            "request" => base64::encode(pem.as_bytes()),
            "signerName" => wanted.signer,
            "usages" => list!["digital signature", wanted.purpose()],
        },
    }
}

/// Creates a request and waits until it is approved and signed.
pub async fn request_certificate(client: &Client, wanted: &CertificateRequest) -> Result<CertificateAndKey> {
    let (key, pem) = request(wanted)?;
    let answered =
        |error: client::Error| Error::Response(format!("failed to create certificate signing request: {error}"));
    let made = client.create(REQUESTS, "", &object(wanted, &pem)).await.map_err(answered)?;
    let name = made.str("metadata.name");
    tracing::info!(request = name, signer = wanted.signer, "requested certificate");
    let signed = tokio::time::timeout(PATIENCE, signature(client, name)).await;
    let certificate =
        signed.map_err(|_| Error::Response(format!("timed out waiting for {name} to be approved and signed")))??;
    Ok(CertificateAndKey { certificate, key, path: PathBuf::new() })
}

async fn signature(client: &Client, name: &str) -> Result<String> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match client.get(REQUESTS, "", name).await {
            Ok(request) => {
                if let Some(certificate) = outcome(name, &request)? {
                    return Ok(certificate);
                }
            }
            Err(error) if error.is_not_found() => return Err(Error::Response(format!("{name} was deleted"))),
            Err(error) => tracing::debug!(%error, "failed to read certificate signing request, retrying"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// None while the request is pending.
fn outcome(name: &str, request: &Tree) -> Result<Option<String>> {
    let refusal = |condition: &&Tree| matches!(condition.str("type"), "Denied" | "Failed");
    if let Some(refusal) = request.list("status.conditions").iter().find(refusal) {
        let (kind, reason, message) = (refusal.str("type"), refusal.str("reason"), refusal.str("message"));
        return Err(Error::Response(format!("{name} is {kind}: {reason}: {message}")));
    }
    let certificate = request.str("status.certificate");
    if certificate.is_empty() {
        return Ok(None);
    }
    let bytes = base64::decode(certificate).map_err(|why| Error::Response(format!("{name}: {why}")))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The name under which the newest is found: `kubelet-client-current.pem`.
pub fn current(dir: &Path, base: &str) -> PathBuf {
    dir.join(format!("{base}-current.pem"))
}

/// Stores certificate and key in one file, like upstream, and makes it the current one atomically.
pub(crate) fn store_certificate(dir: &Path, base: &str, pair: &CertificateAndKey, now: SystemTime) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).map_err(Error::file(dir))?;
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = api::time::format_seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
    let time = time.trim_end_matches('Z').replace(['T', ':'], "-");
    let file = dir.join(format!("{base}-{time}.pem"));
    write_private(&file, &format!("{}{}", pair.certificate, pair.key))?;
    let (current, next) = (current(dir, base), dir.join(format!("{base}-updated.pem")));
    let _ = std::fs::remove_file(&next);
    std::os::unix::fs::symlink(&file, &next).map_err(Error::file(&next))?;
    std::fs::rename(&next, &current).map_err(Error::file(&current))?;
    Ok(current)
}

/// A stored certificate and its validity and names.
pub struct StoredCertificate {
    pub pair: CertificateAndKey,
    pub from: SystemTime,
    pub until: SystemTime,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl StoredCertificate {
    /// Whether the certificate covers all requested names and addresses.
    pub fn fits(&self, wanted: &CertificateRequest) -> bool {
        wanted.names.iter().all(|name| self.names.contains(name))
            && wanted.addresses.iter().all(|address| self.addresses.contains(address))
    }
}

/// None if the file is missing or unreadable.
pub fn read_certificate(file: &Path) -> Option<StoredCertificate> {
    let pair = CertificateAndKey::read(file, file).ok()?;
    let leaf = pki::certificates(&pair).ok()?.into_iter().next()?;
    let (_, parsed) = X509Certificate::from_der(&leaf).ok()?;
    let time = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let (from, until) = (time(parsed.validity().not_before.timestamp()), time(parsed.validity().not_after.timestamp()));
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let also = parsed.subject_alternative_name().ok().flatten();
    for name in also.iter().flat_map(|also| &also.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push(name.to_string()),
            GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
            _ => {}
        }
    }
    Some(StoredCertificate { pair, from, until, names, addresses })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let of_four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    of_four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(common_name: &str) -> CertificateAndKey {
        pki::self_signed(common_name, IpAddr::from([127, 0, 0, 1])).expect("a certificate")
    }

    #[test]
    fn request_has_the_usages_of_its_signer() {
        let wanted = CertificateRequest {
            signer: SERVING_SIGNER,
            node: "n1".to_string(),
            names: vec!["host".to_string()],
            addresses: vec![IpAddr::from([10, 0, 0, 1])],
        };
        let (key, pem) = request(&wanted).expect("a request");
        assert!(key.contains("PRIVATE KEY") && pem.contains("CERTIFICATE REQUEST"));
        let object = object(&wanted, &pem);
        let usages: Vec<&str> = object.list("spec.usages").iter().filter_map(Tree::as_str).collect();
        assert_eq!(usages, ["digital signature", "server auth"]);
        assert_eq!(CertificateRequest::client("n1").purpose(), "client auth");
    }

    #[test]
    fn newest_certificate_is_current() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let (first, second) = (pair("a"), pair("b"));
        let file = store_certificate(dir.path(), "kubelet-client", &first, at(0)).expect("kept");
        assert_eq!(read_certificate(&file).expect("one").pair.certificate, first.certificate + &first.key);
        store_certificate(dir.path(), "kubelet-client", &second, at(60)).expect("kept");
        let found = read_certificate(&file).expect("one");
        assert!(found.pair.certificate.starts_with(&second.certificate) && found.from < found.until);
        assert!(dir.path().join("kubelet-client-1970-01-01-00-00-00.pem").exists());
        let mode = std::fs::metadata(&file).expect("a file").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }

    #[test]
    fn covers_subsets_of_its_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = store_certificate(dir.path(), "kubelet-server", &pair("a"), UNIX_EPOCH).expect("kept");
        let kept = read_certificate(&file).expect("one");
        let fits = |names: &[&str], addresses: &[[u8; 4]]| {
            let names = names.iter().map(ToString::to_string).collect();
            let addresses = addresses.iter().map(|address| IpAddr::from(*address)).collect();
            kept.fits(&CertificateRequest { names, addresses, ..CertificateRequest::client("n") })
        };
        assert!(fits(&[], &[]) && fits(&["localhost"], &[[127, 0, 0, 1]]));
        assert!(!fits(&["host"], &[]) && !fits(&["localhost"], &[[127, 0, 0, 1], [10, 0, 0, 1]]));
    }

    #[test]
    fn denials_are_errors() {
        let with = |kind: &str| {
            let condition = tree! { "type" => kind, "reason" => "R", "message" => "m" };
            tree! { "status" => tree! { "conditions" => list![condition] } }
        };
        assert!(outcome("x", &tree! {}).expect("no refusal").is_none());
        assert!(outcome("x", &with("Approved")).expect("no refusal").is_none());
        let error = outcome("x", &with("Denied")).expect_err("a refusal");
        assert_eq!(error.describe(), "x is Denied: R: m");
    }
}
