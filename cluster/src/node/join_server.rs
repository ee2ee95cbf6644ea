//! How a server joins a control plane: it verifies the cluster as every joining machine does, and reads the certificates
//! of the control plane with its token. They are encrypted with a key that the cluster does not store, so that neither
//! the token nor the right to read Secrets is enough to get the key of a CA.
//!
//! Each token has certificates of its own. They are deleted with the token, and only the token's user may read them.

use std::path::Path;
use std::sync::Arc;

use api::{Tree, base64, list, tree};
use client::https::Https;
use client::{Client, Resource};
use server::outbound::callout::Url;
use stdx::backoff::Backoff;

use super::join::{FIRST_PAUSE, LONGEST_PAUSE, discover};
use crate::error::{Error, Result};
use crate::pki::bundle::{self, BundleError, CertificateKey, ServerBundle};

const SECRETS: Resource = Resource::core("secrets");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "roles");
const BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");
const API_GROUP: &str = "rbac.authorization.k8s.io";
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "tiphys.io/server-certificates";
const FIELD: &str = "bundle";
const HOW: &str =
    "`tiphys token create --control-plane --print-join-command` on a server of the cluster prints the command";

/// What a server joins with.
pub(crate) struct ServerJoin<'a> {
    pub(crate) server: &'a str,
    pub(crate) token: &'a str,
    pub(crate) ca_hash: &'a str,
    pub(crate) certificate_key: &'a str,
}

/// The certificates of a control plane, encrypted for one token.
pub(crate) struct SealedCertificates {
    pub(super) key: String,
    sealed: Vec<u8>,
}

impl SealedCertificates {
    /// The key with which they are encrypted.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Encrypts the certificates of a data directory with a new key.
    pub(crate) fn read(data_dir: &Path) -> Result<SealedCertificates> {
        let bundle = ServerBundle::read(data_dir)?;
        let failed = |error: BundleError| Error::Flags(vec![format!("--control-plane: {error}")]);
        let key = CertificateKey::generate().map_err(failed)?;
        let sealed = bundle.seal(&key).map_err(failed)?;
        Ok(SealedCertificates { key: key.to_text(), sealed })
    }

    /// Stores them for the user of a token. `secret` is that of the token.
    pub(crate) async fn publish(&self, client: &Client, token: &str, secret: &Tree) -> client::Result<()> {
        let id = token.split_once('.').map_or(token, |(id, _)| id);
        for (resource, object) in self.objects(id, secret) {
            client.create(resource, NAMESPACE, &object).await?;
        }
        Ok(())
    }

    fn objects(&self, id: &str, secret: &Tree) -> [(Resource, Tree); 3] {
        let name = secret_name(id);
        let metadata = || {
            let owner = tree! {
                "apiVersion" => "v1", "kind" => "Secret", "name" => secret.str("metadata.name"),
                "uid" => secret.str("metadata.uid"),
            };
            tree! { "name" => name.as_str(), "namespace" => NAMESPACE, "ownerReferences" => list![owner] }
        };
        let certificates = tree! {
            "apiVersion" => "v1", "kind" => "Secret", "metadata" => metadata(), "type" => TYPE,
            "data" => tree! { FIELD => bundle::encode(&self.sealed) },
        };
        let rule = tree! {
            "apiGroups" => list![""], "resources" => list!["secrets"], "resourceNames" => list![name.as_str()],
            "verbs" => list!["get"],
        };
        let role = tree! {
            "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => "Role", "metadata" => metadata(),
            "rules" => list![rule],
        };
        let user = format!("system:bootstrap:{id}");
        let binding = tree! {
            "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => "RoleBinding", "metadata" => metadata(),
            "roleRef" => tree! { "apiGroup" => API_GROUP, "kind" => "Role", "name" => name.as_str() },
            "subjects" => list![tree! { "apiGroup" => API_GROUP, "kind" => "User", "name" => user }],
        };
        [(SECRETS, certificates), (ROLES, role), (BINDINGS, binding)]
    }
}

fn secret_name(id: &str) -> String {
    format!("tiphys-server-certs-{id}")
}

/// The command of a server that joins, from that of a node.
pub(super) fn command(agent: &str, key: &str) -> String {
    let arguments = agent.trim_end().strip_prefix("tiphys agent").unwrap_or_default();
    format!("tiphys server{arguments} --certificate-key {key}\n")
}

/// Reads the certificates and the settings of the control plane into a data directory.
pub(crate) async fn join(join: &ServerJoin<'_>, data_dir: &Path) -> Result<()> {
    let key = CertificateKey::parse(join.certificate_key);
    let key = key.map_err(|error| Error::Flags(vec![format!("--certificate-key: {error}; {HOW}")]))?;
    let ca = discover(join.server, join.token, join.ca_hash).await?;
    let client = client(join, &ca)?;
    let secret = read_secret(&client, join).await?;
    let damaged =
        |why: &dyn std::fmt::Display| Error::Response(format!("the certificates of the control plane: {why}"));
    let sealed = base64::decode(secret.map("data").str(FIELD)).map_err(|error| damaged(&error))?;
    let bundle = ServerBundle::open(&key, &sealed).map_err(|error| match error {
        BundleError::OtherKey => Error::Flags(vec![format!("--certificate-key: {error}; {HOW}")]),
        other => damaged(&other),
    })?;
    let hashes = |pem: &str| super::join::fingerprints(pem).unwrap_or_default();
    let trusted = hashes(&ca);
    if !hashes(bundle.ca()).iter().any(|hash| trusted.contains(hash)) {
        return Err(damaged(&"they are of another cluster"));
    }
    bundle.write(data_dir)
}

/// A client with the token, which trusts only the verified CA.
fn client(join: &ServerJoin<'_>, ca: &str) -> Result<Client> {
    let wrong = |why: &dyn std::fmt::Display| Error::Flags(vec![format!("--server: {:?}: {why}", join.server)]);
    let url = Url::parse(join.server).map_err(|why| wrong(&why))?;
    let trust = http_client::Trust::pem(ca.as_bytes()).map_err(|why| wrong(&why))?;
    let tls = Arc::new(http_client::tls::config(&trust, None, &[])?);
    let https = Https::new(&url.host, url.port, None, tls).and_then(|https| https.with_token(join.token));
    Ok(Client::new(Arc::new(https.map_err(|why| wrong(&why))?), "tiphys"))
}

async fn read_secret(client: &Client, join: &ServerJoin<'_>) -> Result<Tree> {
    let id = join.token.split_once('.').map_or(join.token, |(id, _)| id);
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match client.get(SECRETS, NAMESPACE, &secret_name(id)).await {
            Ok(secret) => return Ok(secret),
            Err(error) if error.code() == Some(401) => {
                let why = format!("--token: it is unknown or has expired; {HOW}");
                return Err(Error::Flags(vec![why]));
            }
            Err(error) if error.is_forbidden() || error.is_not_found() => {
                let why = format!("--token: it lets nodes join, and no servers; {HOW}");
                return Err(Error::Flags(vec![why]));
            }
            Err(error) if error.code().is_some() => return Err(Error::Response(error.to_string())),
            Err(error) => tracing::warn!(%error, "API server unreachable, retrying"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_of_the_token_reads_its_certificates() {
        let certificates = SealedCertificates { key: String::new(), sealed: b"sealed".to_vec() };
        let token = tree! { "metadata" => tree! { "name" => "bootstrap-token-abcdef", "uid" => "7" } };
        let [(_, secret), (_, role), (_, binding)] = certificates.objects("abcdef", &token);
        for object in [&secret, &role, &binding] {
            assert_eq!(object.str("metadata.name"), "tiphys-server-certs-abcdef");
            let owner = &object.list("metadata.ownerReferences")[0];
            assert_eq!(
                (owner.str("name"), owner.str("uid")),
                ("bootstrap-token-abcdef", "7"),
                "deleted with the token"
            );
        }
        let rule = &role.list("rules")[0];
        assert_eq!(*rule.at("resourceNames"), list!["tiphys-server-certs-abcdef"]);
        assert_eq!(*rule.at("verbs"), list!["get"]);
        assert_eq!(binding.list("subjects")[0].str("name"), "system:bootstrap:abcdef");
    }

    #[test]
    fn command_of_a_server_has_the_key() {
        let agent = "tiphys agent --server https://a:1 --token t --discovery-token-ca-cert-hash h\n";
        let want =
            "tiphys server --server https://a:1 --token t --discovery-token-ca-cert-hash h --certificate-key k\n";
        assert_eq!(command(agent, "k"), want);
    }
}
