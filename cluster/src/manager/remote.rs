//! The API server of a kubeconfig, as a client sees it.

use std::path::Path;
use std::sync::Arc;

use client::Client;
use client::https::Https;
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use server::callout::{self, kubeconfig};

use super::accounts::{Account, TokenFile};
use crate::error::{Error, Result};

/// What its fields are owned as, and how it names itself.
const AGENT: &str = "kube-controller-manager";

/// A server, and the ways to come to it.
#[derive(Clone)]
pub struct Remote {
    /// As the user of the kubeconfig.
    own: Https,
    /// Without any certificate, for those who have tokens.
    bare: Https,
}

impl Remote {
    pub fn read(flag: &str, file: &Path) -> Result<Remote> {
        let bad = |why: String| Error::Flags(vec![format!("--{flag}: {why}")]);
        let remote = kubeconfig::read(file).map_err(|error| bad(error.to_string()))?;
        if !remote.url.tls || !matches!(remote.url.path.as_str(), "" | "/") {
            return Err(bad(format!("{}: the server must be reached by https and have no path", file.display())));
        }
        let to = |tls: Arc<ClientConfig>| {
            Https::new(&remote.url.host, remote.url.port, remote.client.server_name(), tls)
                .map_err(|error| bad(error.to_string()))
        };
        let own = to(remote.client.tls().clone())?;
        let own = match remote.client.credentials() {
            callout::Credentials::None => own,
            callout::Credentials::Bearer(token) => own.with_token(token).map_err(|error| bad(error.to_string()))?,
            callout::Credentials::BearerFile(path) => own.with_credentials(Arc::new(TokenFile::new(path.clone()))),
            callout::Credentials::Basic { .. } => return Err(bad("passwords cannot be used here".to_string())),
        };
        let mut nobody = ClientConfig::clone(remote.client.tls());
        nobody.client_auth_cert_resolver = Arc::new(Nobody);
        Ok(Remote { own, bare: to(Arc::new(nobody))? })
    }

    /// A client that acts as the user of the kubeconfig.
    pub fn client(&self) -> Client {
        Client::new(Arc::new(self.own.clone()), AGENT)
    }

    /// A client that acts as a service account of kube-system.
    pub fn client_as(&self, account: &'static str) -> Client {
        let credentials = Account::new(account, self.client());
        Client::new(Arc::new(self.bare.with_credentials(credentials)), AGENT)
    }
}

/// Shows no certificate: it would count before any token.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
