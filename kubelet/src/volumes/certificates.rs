//! Certificates for pods: the kubelet creates a key, requests a certificate with a PodCertificateRequest, and renews it
//! in time. Nothing is kept over a restart: a key is never read back from a pod's directory.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{Tree, base64, list, time, tree};
use client::{Client, Random, Resource};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};
use stdx::sync::{Mutex, MutexGuard};

use super::Host;
use crate::model::pod;

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "podcertificaterequests");
const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const NODES: Resource = Resource::core("nodes");

/// How often and how long the kubelet waits for a signer before the pod has to wait.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: usize = 40;
/// Certificates that were issued together are not all replaced together.
const SPREAD: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: String,
    volume: String,
    /// The index of the volume's source.
    source: usize,
}

/// A key and its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) key: String,
    pub(crate) chain: String,
    /// When the certificate should be replaced, in seconds since the epoch.
    pub(crate) due: i64,
}

/// A request that is under way.
#[derive(Debug, Clone)]
struct PendingRequest {
    name: String,
    key: String,
}

#[derive(Debug, Clone, Default)]
struct State {
    has: Option<Credential>,
    pending: Option<PendingRequest>,
    /// A rejection by the signer is final.
    refused: Option<CertificateRejection>,
}

/// A signer's refusal, which is final.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PodCertificateRequest was permanently {outcome}: reason={reason:?} message={message:?}")]
pub(crate) struct CertificateRejection {
    outcome: &'static str,
    reason: String,
    message: String,
}

/// A certificate that the pod does not have yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("credential bundle is not issued yet")]
    Pending,
    #[error(transparent)]
    Refused(#[from] CertificateRejection),
    #[error("while fetching service account: {}", .0.message())]
    Account(#[source] client::Error),
    #[error("while getting node object: {}", .0.message())]
    Node(#[source] client::Error),
    #[error("while creating PodCertificateRequest: {}", .0.message())]
    Create(#[source] client::Error),
    #[error("while getting PodCertificateRequest \"{namespace}/{name}\": {}", .source.message())]
    Get { namespace: String, name: String, source: client::Error },
    #[error("while generating keypair: unknown key type {0:?}")]
    KeyType(String),
    #[error("while generating keypair: {0}")]
    Generate(#[source] rcgen::Error),
    #[error("while signing a request: {0}")]
    Sign(#[source] rcgen::Error),
    /// `beginRefreshAt` is not a time.
    #[error(transparent)]
    Time(#[from] time::ParseError),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum RequestState {
    Pending,
    Refused(CertificateRejection),
    Issued { chain: String, refresh: i64 },
}

pub(crate) struct Certificates {
    states: Mutex<BTreeMap<Key, State>>,
    random: Random,
}

impl Certificates {
    pub(crate) fn new(seed: u64) -> Certificates {
        Certificates { states: Mutex::default(), random: Random::seeded(seed) }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<Key, State>> {
        self.states.lock()
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.states().retain(|key, _| key.uid != uid);
    }

    /// The certificate of a `podCertificate` source.
    pub(crate) async fn get(
        &self,
        host: &Host,
        pod: &Tree,
        (volume, source): (&str, usize),
        wanted: &Tree,
    ) -> Result<Credential, CertificateError> {
        let key = Key { uid: pod::uid(pod).to_string(), volume: volume.to_string(), source };
        let mut state = self.states().get(&key).cloned().unwrap_or_default();
        let now = host.clock.now().seconds;
        if let Some(credential) = state.has.as_ref().filter(|has| now < has.due) {
            return Ok(credential.clone());
        }
        let result = self.advance(host, pod, wanted, &mut state).await;
        self.states().insert(key, state.clone());
        match (result, state.has) {
            // The current certificate is used until the next one is issued.
            (_, Some(credential)) => Ok(Credential { due: credential.due.max(now + 60), ..credential }),
            (Err(why), None) => Err(why),
            (Ok(()), None) => Err(CertificateError::Pending),
        }
    }

    /// Creates a request unless there is one, and reads its result.
    async fn advance(&self, host: &Host, pod: &Tree, wanted: &Tree, state: &mut State) -> Result<(), CertificateError> {
        if let Some(refused) = &state.refused {
            return Err(refused.clone().into());
        }
        let pending = match state.pending.clone() {
            Some(pending) => pending,
            None => create_request(host, pod, wanted).await?,
        };
        state.pending = Some(pending.clone());
        match wait(&host.client, pod::namespace(pod), &pending.name).await? {
            None => state.pending = None,
            Some(RequestState::Pending) => {}
            Some(RequestState::Refused(refusal)) => {
                state.refused = Some(refusal.clone());
                return Err(refusal.into());
            }
            Some(RequestState::Issued { chain, refresh }) => {
                let spread = i64::try_from(self.random.below(SPREAD.as_secs())).unwrap_or(0);
                state.has = Some(Credential { key: pending.key, chain, due: refresh + spread });
                state.pending = None;
            }
        }
        Ok(())
    }
}

async fn create_request(host: &Host, pod: &Tree, wanted: &Tree) -> Result<PendingRequest, CertificateError> {
    let kind = wanted.str("keyType").to_string();
    // A large RSA key takes a second.
    let made = tokio::task::spawn_blocking(move || create_key(&kind)).await?;
    let (key, request) = made?;
    let (namespace, account) = (pod::namespace(pod), pod.str("spec.serviceAccountName"));
    let account = host.client.get(ACCOUNTS, namespace, account).await;
    let account = account.map_err(CertificateError::Account)?;
    let node = host.client.get(NODES, "", &host.node).await;
    let node = node.map_err(CertificateError::Node)?;
    let made = host.client.create(REQUESTS, namespace, &object(pod, &account, &node, wanted, &request)).await;
    let made = made.map_err(CertificateError::Create)?;
    Ok(PendingRequest { name: made.str("metadata.name").to_string(), key })
}

/// A key, and a signing request that proves possession of the key. It has no subject: the signer decides the content of
/// the certificate.
fn create_key(kind: &str) -> Result<(String, Vec<u8>), CertificateError> {
    let key = match kind {
        "RSA3072" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
        "RSA4096" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
        "ECDSAP256" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ECDSAP384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "ECDSAP521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ED25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        other => return Err(CertificateError::KeyType(other.to_string())),
    };
    let key = key.map_err(CertificateError::Generate)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(CertificateError::Sign)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

fn object(pod: &Tree, account: &Tree, node: &Tree, wanted: &Tree, request: &[u8]) -> Tree {
    let owner = tree! { "apiVersion" => "v1", "kind" => "Pod", "name" => pod::name(pod), "uid" => pod::uid(pod) };
    let mut spec = tree! {
        "signerName" => wanted.str("signerName"), "podName" => pod::name(pod), "podUID" => pod::uid(pod),
        "serviceAccountName" => account.str("metadata.name"), "serviceAccountUID" => account.str("metadata.uid"),
        "nodeName" => node.str("metadata.name"), "nodeUID" => node.str("metadata.uid"),
        "stubPKCS10Request" => base64::encode(request),
    };
    for (from, to) in
        [("maxExpirationSeconds", "maxExpirationSeconds"), ("userAnnotations", "unverifiedUserAnnotations")]
    {
        if let Some(value) = wanted.get(from).filter(|value| !value.is_null()) {
            spec.set(to, value.clone());
        }
    }
    let metadata =
        tree! { "generateName" => "req-", "namespace" => pod::namespace(pod), "ownerReferences" => list![owner] };
    tree! {
        "apiVersion" => "certificates.k8s.io/v1", "kind" => "PodCertificateRequest", "metadata" => metadata,
        "spec" => spec,
    }
}

/// The result, if the signer responds soon; None if the request was deleted.
async fn wait(client: &Client, namespace: &str, name: &str) -> Result<Option<RequestState>, CertificateError> {
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(LOOK).await;
        }
        match client.get(REQUESTS, namespace, name).await {
            Ok(request) => match request_state(&request)? {
                RequestState::Pending => {}
                answer => return Ok(Some(answer)),
            },
            Err(error) if error.is_not_found() => return Ok(None),
            Err(source) => {
                let (namespace, name) = (namespace.to_string(), name.to_string());
                return Err(CertificateError::Get { namespace, name, source });
            }
        }
    }
    Ok(Some(RequestState::Pending))
}

fn request_state(request: &Tree) -> Result<RequestState, CertificateError> {
    for condition in request.list("status.conditions") {
        let refused = |outcome| {
            let (reason, message) = (condition.str("reason").to_string(), condition.str("message").to_string());
            CertificateRejection { outcome, reason, message }
        };
        match condition.str("type") {
            "Denied" => return Ok(RequestState::Refused(refused("denied"))),
            "Failed" => return Ok(RequestState::Refused(refused("failed"))),
            "Issued" => {
                let refresh = time::parse(request.str("status.beginRefreshAt"))?.seconds;
                return Ok(RequestState::Issued { chain: request.str("status.certificateChain").to_string(), refresh });
            }
            _ => {}
        }
    }
    Ok(RequestState::Pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_result_of_a_request() {
        let check = |status: &str, wanted: RequestState| {
            assert_eq!(request_state(&api::yaml::decode(status.as_bytes()).unwrap()).unwrap(), wanted, "{status}");
        };
        check("{}", RequestState::Pending);
        let refusal = CertificateRejection { outcome: "denied", reason: "R".to_string(), message: "M".to_string() };
        let text = "PodCertificateRequest was permanently denied: reason=\"R\" message=\"M\"";
        assert_eq!(refusal.to_string(), text);
        check("status: {conditions: [{type: Denied, reason: R, message: M}]}", RequestState::Refused(refusal));
        check(
            "status: {conditions: [{type: Issued}], certificateChain: C, beginRefreshAt: '1970-01-01T00:01:00Z'}",
            RequestState::Issued { chain: "C".to_string(), refresh: 60 },
        );
        let bad = api::yaml::decode(b"status: {conditions: [{type: Issued}], beginRefreshAt: soon}").unwrap();
        assert!(request_state(&bad).is_err());
    }

    #[test]
    fn generates_keys_of_all_types() {
        for kind in ["RSA3072", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"] {
            let (key, request) = create_key(kind).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----") && request.len() > 50, "{kind}");
        }
        assert!(create_key("DSA").unwrap_err().to_string().contains("unknown key type \"DSA\""));
    }
}
