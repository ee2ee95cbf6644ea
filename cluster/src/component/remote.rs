//! A client for the API server of a kubeconfig.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::https::Https;
use client::{Client, ThrottledTransport, Transport};
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use server::outbound::callout::{self, kubeconfig};

use super::accounts::{Account, TokenFile};
use super::follow::FileFollower;
use crate::error::{Error, Result};
use crate::machine::instance;

/// A server, and the transports to it.
#[derive(Clone)]
pub struct Remote {
    /// As the user of the kubeconfig.
    own: Https,
    /// A transport without a client certificate, for clients with tokens.
    bare: Https,
    /// Requests a second, and how many at once.
    limit: Option<(f64, u32)>,
    /// The field manager and the user agent.
    agent: &'static str,
}

fn bad(flag: &str, why: impl std::fmt::Display) -> Error {
    Error::Flags(vec![format!("--{flag}: {why}")])
}

fn read(flag: &str, file: &Path) -> Result<kubeconfig::Remote> {
    kubeconfig::read(file).map_err(|error| bad(flag, error))
}

/// The directory with the token and the CA bundle of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Host and port of the API server, from the variables of a pod.
pub(crate) fn service_address() -> Option<(String, String)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some((variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?))
}

/// The kubeconfig of a service account; its files are in the same directory.
fn in_cluster_text(host: &str, port: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
    format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'https://{host}:{port}', certificate-authority: ca.crt}}}}], \
         users: [{{name: u, user: {{tokenFile: token}}}}]}}"
    )
}

/// The same without a certificate of our own.
fn without_certificate(tls: &ClientConfig) -> ClientConfig {
    let mut tls = tls.clone();
    tls.client_auth_cert_resolver = Arc::new(NoClientCert);
    tls
}

impl Remote {
    /// Reads the kubeconfig of a flag.
    pub fn read(agent: &'static str, flag: &str, file: &Path) -> Result<Remote> {
        Remote::new(agent, flag, file, &read(flag, file)?)
    }

    /// Reads the kubeconfig of `--kubeconfig` and follows it; without one, the service account of this pod.
    pub(crate) fn open(agent: &'static str, file: Option<&Path>, follow: &mut FileFollower) -> Result<Remote> {
        let Some(file) = file else { return Remote::in_cluster(agent) };
        let remote = Remote::read(agent, "kubeconfig", file)?;
        remote.follow("kubeconfig", file, follow);
        Ok(remote)
    }

    /// The API server of the cluster that this process is a pod of, as its service account.
    pub fn in_cluster(agent: &'static str) -> Result<Remote> {
        let (host, port) = service_address().ok_or_else(|| bad("kubeconfig", "it is required outside of a pod"))?;
        let file = Path::new(SERVICE_ACCOUNT).join("kubeconfig");
        let remote =
            kubeconfig::parse(&file, &in_cluster_text(&host, &port)).map_err(|error| bad("kubeconfig", error))?;
        Remote::new(agent, "kubeconfig", &file, &remote)
    }

    fn new(agent: &'static str, flag: &str, file: &Path, remote: &kubeconfig::Remote) -> Result<Remote> {
        if !remote.url.tls || !matches!(remote.url.path.as_str(), "" | "/") {
            let why = format!("{}: the server URL must use https and have no path", file.display());
            return Err(bad(flag, why));
        }
        let to = |tls: Arc<ClientConfig>| {
            Https::new(&remote.url.host, remote.url.port, remote.client.server_name(), tls)
                .map_err(|error| bad(flag, error))
        };
        let own = to(remote.client.tls().clone())?;
        let own = match remote.client.credentials() {
            callout::Credentials::None => own,
            callout::Credentials::Bearer(token) => own.with_token(token).map_err(|error| bad(flag, error))?,
            callout::Credentials::BearerFile(path) => own.with_credentials(Arc::new(TokenFile::new(path.clone()))),
            callout::Credentials::Basic { .. } => return Err(bad(flag, "passwords are not supported")),
        };
        let bare = to(Arc::new(without_certificate(remote.client.tls())))?;
        Ok(Remote { own, bare, limit: None, agent })
    }

    /// Limits each client to this many requests per second.
    pub fn limited(self, limit: Option<(f64, u32)>) -> Remote {
        Remote { limit, ..self }
    }

    /// Reloads certificates when the kubeconfig, or a file that it names, changes. The server's URL and an inline token
    /// are read only at the start.
    pub fn follow(&self, flag: &'static str, file: &Path, follow: &mut FileFollower) {
        let (remote, kubeconfig) = (self.clone(), file.to_path_buf());
        follow.add(flag, kubeconfig::files(file), move || {
            let tls = read(flag, &kubeconfig)?.client.tls().clone();
            remote.own.exchange_tls(&tls);
            remote.bare.exchange_tls(&without_certificate(&tls));
            Ok(())
        });
    }

    /// A client that acts as the user of the kubeconfig.
    pub fn client(&self) -> Client {
        self.client_by(self.own.clone())
    }

    /// A client that acts as a service account of kube-system.
    pub fn client_as(&self, account: &'static str) -> Client {
        let credentials = Account::new(account, self.client());
        self.client_by(self.bare.with_credentials(credentials))
    }

    fn client_by(&self, https: Https) -> Client {
        let transport: Arc<dyn Transport> = Arc::new(https);
        let transport = match self.limit {
            Some((per_second, burst)) => ThrottledTransport::wrap(transport, per_second, burst),
            None => transport,
        };
        Client::new(transport, self.agent)
    }
}

/// The flag, the variable of kubectl, the file of the cluster that variables select or of `./data`, or kubectl's default.
pub(crate) fn find_kubeconfig(flag: Option<&Path>) -> Result<PathBuf> {
    let named = flag.map(Path::to_path_buf).or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
    if let Some(named) = named.filter(|path| !path.as_os_str().is_empty()) {
        return Ok(named);
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
    let selected = instance::selected_data_dir()?;
    let known = [Some(selected.unwrap_or_else(|| "./data".into()).join("kubeconfig")), home];
    let found = known.into_iter().flatten().find(|path| path.exists());
    found.ok_or_else(|| {
        let why = "no kubeconfig found in $KUBECONFIG, ./data/kubeconfig or ~/.kube/config: use --kubeconfig FILE; \
                   `tiphys up` writes DATA_DIR/kubeconfig";
        Error::Flags(vec![why.to_string()])
    })
}

/// Presents no certificate: it would override any token.
#[derive(Debug)]
struct NoClientCert;

impl ResolvesClientCert for NoClientCert {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
