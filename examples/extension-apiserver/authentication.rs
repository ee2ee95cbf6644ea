//! Delegated authentication: only the API server may name users, and it proves itself by a client certificate.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use hyper::HeaderMap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Result;

/// Who sent a request, according to the API server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Names of headers, by what they contain.
#[derive(Debug, Default)]
struct Headers {
    names: Vec<String>,
    uids: Vec<String>,
    groups: Vec<String>,
    extra_prefixes: Vec<String>,
}

/// The configuration that the API server publishes.
pub(crate) struct FrontProxy {
    acceptor: TlsAcceptor,
    /// Common names of its certificate; any name if empty.
    allowed_names: Vec<String>,
    headers: Headers,
}

impl FrontProxy {
    /// From ConfigMap extension-apiserver-authentication, and the serving certificate in PEM.
    pub(crate) fn new(config: &Tree, certificate: &[u8], key: &[u8]) -> Result<FrontProxy> {
        let data = config.at("data");
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(data.str("requestheader-client-ca-file").as_bytes()) {
            roots.add(ca?)?;
        }
        let provider = http_client::tls::provider();
        // Probes have no certificate. A certificate of another CA ends the handshake.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<std::result::Result<Vec<_>, _>>()?;
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?;
        Ok(FrontProxy {
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            allowed_names: names(data, "requestheader-allowed-names")?,
            headers: Headers::new(data)?,
        })
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Whether a verified certificate is that of the API server.
    pub(crate) fn is_trusted(&self, certificates: Option<&[CertificateDer<'_>]>) -> bool {
        let Some(leaf) = certificates.and_then(<[_]>::first) else { return false };
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return false };
        let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.allowed_names.is_empty() || names.any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }

    /// The user that the headers name.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<User> {
        self.headers.user(headers)
    }
}

impl Headers {
    fn new(data: &Tree) -> Result<Headers> {
        Ok(Headers {
            names: names(data, "requestheader-username-headers")?,
            uids: names(data, "requestheader-uid-headers")?,
            groups: names(data, "requestheader-group-headers")?,
            extra_prefixes: names(data, "requestheader-extra-headers-prefix")?,
        })
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.names)?;
        let mut groups: Vec<String> = self.groups.iter().flat_map(|name| all(headers, name)).collect();
        // The API server names no groups of its own requests, such as those for OpenAPI documents.
        let is_decided = |group: &String| matches!(group.as_str(), "system:authenticated" | "system:unauthenticated");
        if name != "system:anonymous" && !groups.iter().any(is_decided) {
            groups.push("system:authenticated".to_string());
        }
        let uid = first(headers, &self.uids).unwrap_or_default();
        Some(User { name, uid, groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            let is_prefix = |prefix: &String| name.as_str().strip_prefix(&prefix.to_lowercase());
            if let Some(key) = self.extra_prefixes.iter().find_map(is_prefix) {
                let key = api::query::percent_decode(key).into_owned();
                extra.entry(key).or_default().extend(all(headers, name.as_str()));
            }
        }
        extra
    }
}

/// A list of strings, which the ConfigMap has as JSON.
fn names(data: &Tree, key: &str) -> Result<Vec<String>> {
    let text = data.str(key);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let list = api::json::decode(text.as_bytes()).map_err(|error| format!("{key}: {error}"))?;
    Ok(list.as_list().unwrap_or_default().iter().filter_map(Tree::as_str).map(str::to_string).collect())
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().flat_map(|name| all(headers, name)).find(|value| !value.is_empty())
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_string).collect()
}
