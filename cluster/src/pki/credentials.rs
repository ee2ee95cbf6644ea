//! Keeps the certificates and CA bundles of a running server up to date: reloads files that change, and renews
//! certificates before they expire.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use server::Server;
use server::authentication::CaBundle;
use server::outbound::callout::{Identity, Trust};
use server::outbound::kubelets::Kubelets;
use server::tls::Serving;

use super::kubeconfig::Kubeconfigs;
use crate::error::{Error, Result};
use crate::pki::{CertificateAndKey, certificates, private_key};
use client::files::Files;

/// All credentials at one moment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub serving: CertificateAndKey,
    /// CAs in PEM: of clients, and of front proxies.
    pub clients: Option<String>,
    pub proxies: Option<String>,
    /// The client certificate for kubelets, and the CA bundle for theirs; None if they are not verified.
    pub kubelet_client: Option<CertificateAndKey>,
    pub kubelet_ca: Option<String>,
    /// The CA and the certificate of the administrator's kubeconfig.
    pub admin: Option<(CertificateAndKey, CertificateAndKey)>,
    /// When a certificate is due for renewal.
    pub renewal: Option<SystemTime>,
}

/// Reads the files and renews certificates that are due.
pub type LoadCredentials = Box<dyn Fn() -> Result<Credentials> + Send + Sync>;

/// Timers stand still while a machine sleeps: a long wait is split into days.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);
/// Files that belong together are rarely written in one moment.
const SETTLE: Duration = Duration::from_millis(50);
/// After a failure, such as a full disk.
const RETRY: Duration = Duration::from_secs(60);

/// The serving certificate.
pub fn serving(credentials: &Credentials) -> Result<Arc<Serving>> {
    let pair = &credentials.serving;
    Ok(Arc::new(Serving::new(certificates(pair)?, private_key(pair)?)?))
}

/// Keeps a server's credentials up to date until it drains.
pub struct CredentialsRefresher {
    pub load: LoadCredentials,
    pub current: Credentials,
    pub watched: Vec<PathBuf>,
    pub serving: Arc<Serving>,
    pub kubeconfig: Option<(Kubeconfigs, SocketAddr)>,
}

impl CredentialsRefresher {
    /// Reloads the credentials when their files change or are due.
    pub async fn run(mut self, server: Arc<Server>) {
        let mut closing = server.closing.subscribe();
        let files = Files::watch(&self.watched).inspect_err(|error| {
            tracing::warn!(%error, "failed to watch certificate files; changes take effect at the next start");
        });
        let mut wait = self.wait();
        loop {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                () = settled(files.as_ref().ok()) => {}
                () = tokio::time::sleep(wait) => {}
            }
            wait = match self.refresh(&server) {
                Ok(()) => self.wait(),
                Err(error) => {
                    tracing::warn!(error = error.describe(), "failed to reload certificates, keeping the old ones");
                    RETRY
                }
            };
        }
    }

    fn wait(&self) -> Duration {
        let left = |renewal: SystemTime| renewal.duration_since(SystemTime::now()).unwrap_or_default();
        self.current.renewal.map_or(LONGEST_WAIT, left).min(LONGEST_WAIT)
    }

    fn refresh(&mut self, server: &Server) -> Result<()> {
        let loaded = (self.load)()?;
        if loaded.serving != self.current.serving {
            self.serving.replace(certificates(&loaded.serving)?, private_key(&loaded.serving)?)?;
            tracing::info!("serving certificate reloaded");
        }
        let of_kubelets =
            |credentials: &Credentials| (credentials.kubelet_client.clone(), credentials.kubelet_ca.clone());
        if let Some(kubelets) = &server.config.kubelets
            && of_kubelets(&loaded) != of_kubelets(&self.current)
        {
            let (trust, identity) = kubelet_access(&loaded)?;
            kubelets.exchange(&trust, identity.as_ref())?;
            tracing::info!("kubelet client certificate reloaded");
        }
        let proxies = server.registry.authentication.config.request_header.as_ref().map(|proxies| &proxies.cas);
        exchange(server.registry.authentication.config.clients.as_ref(), loaded.clients.as_deref())?;
        exchange(proxies, loaded.proxies.as_deref())?;
        if let (Some((files, address)), Some((ca, admin))) = (&self.kubeconfig, &loaded.admin)
            && loaded.admin != self.current.admin
        {
            files.write(*address, ca, admin, false)?;
        }
        self.current = loaded;
        Ok(())
    }
}

/// How the agents of nodes are reached.
pub fn kubelets(credentials: &Credentials, preferred: &[String], timeout: Duration) -> Result<Arc<Kubelets>> {
    let (trust, identity) = kubelet_access(credentials)?;
    Ok(Arc::new(Kubelets::new(&trust, identity.as_ref(), preferred.to_vec(), timeout)?))
}

fn kubelet_access(credentials: &Credentials) -> Result<(Trust, Option<Identity>)> {
    let bad = |what: &str| {
        let path = PathBuf::from(what);
        move |why: http_client::PemError| Error::Pem { path, source: why.into() }
    };
    let ca = credentials.kubelet_ca.as_ref().map(|pem| Trust::pem(pem.as_bytes()));
    let trust = ca.transpose().map_err(bad("the CA bundle of kubelets"))?.unwrap_or(Trust::InsecureSkipVerify);
    let client = credentials.kubelet_client.as_ref();
    let identity = client.map(|pair| Identity::pem(pair.certificate.as_bytes(), pair.key.as_bytes()));
    Ok((trust, identity.transpose().map_err(bad("the kubelet client certificate"))?))
}

fn exchange(ca_bundle: Option<&CaBundle>, pem: Option<&str>) -> Result<()> {
    let (Some(ca_bundle), Some(pem)) = (ca_bundle, pem) else { return Ok(()) };
    ca_bundle.replace(pem).map_err(|why| Error::Pem { path: "a CA bundle".into(), source: why.into() })
}

/// Waits for a change, and for further changes right after it.
pub async fn settled(files: Option<&Files>) {
    match files {
        Some(files) => files.changed().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(SETTLE).await;
}
