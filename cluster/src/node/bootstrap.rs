//! The kubelet's client certificate: requested with a bootstrap token if there is none, and rotated before it expires.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{Tree, list, tree};
use client::{Client, Random};
use server::outbound::callout::kubeconfig;
use stdx::backoff::Backoff;
use tokio::sync::watch;

use super::request::{self, CertificateRequest, StoredCertificate};
use crate::component::remote::Remote;
use crate::error::{Error, Result};
use crate::machine::files::write_private;
use crate::pki::CertificateAndKey;

const BASE: &str = "kubelet-client";
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Timers stand still while a machine sleeps: a long wait is split into hours.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Ensures a valid kubeconfig. If there is none, a certificate is requested as the bootstrap kubeconfig's user. Waits
/// until the API server is reachable.
pub async fn ensure(kubeconfig: &Path, bootstrap: Option<&Path>, dir: &Path, node: &str) -> Result<()> {
    let Err(why) = checked(kubeconfig) else { return Ok(()) };
    let Some(bootstrap) = bootstrap else {
        return Err(Error::Flags(vec![format!(
            "--kubeconfig: {why}; set --bootstrap-kubeconfig to request a new one"
        )]));
    };
    let client = Remote::read(super::NAME, "bootstrap-kubeconfig", bootstrap)?.client();
    let pair = first(&client, &CertificateRequest::client(node)).await?;
    let current = request::store_certificate(dir, BASE, &pair, SystemTime::now())?;
    write(kubeconfig, bootstrap, &current)
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
enum KubeconfigError {
    #[error("{0}")]
    Unreadable(String),
    #[error("{}: the certificate has expired", .0.display())]
    Expired(PathBuf),
}

/// Whether the kubeconfig is readable and its certificate has not expired.
fn checked(file: &Path) -> std::result::Result<(), KubeconfigError> {
    kubeconfig::read(file).map_err(|error| KubeconfigError::Unreadable(error.to_string()))?;
    let now = SystemTime::now();
    let ended = |path: &&PathBuf| request::read_certificate(path).is_some_and(|kept| kept.until <= now);
    match kubeconfig::files(file).iter().skip(1).find(ended) {
        Some(path) => Err(KubeconfigError::Expired(path.clone())),
        None => Ok(()),
    }
}

/// Rejected credentials are an error; other failures are retried.
async fn first(client: &Client, wanted: &CertificateRequest) -> Result<CertificateAndKey> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match client.get_path("/version", "").await {
            Ok(_) => return request::request_certificate(client, wanted).await,
            Err(error) if matches!(error.code(), Some(401 | 403)) => {
                return Err(Error::BootstrapRejected(error.to_string()));
            }
            Err(error) => tracing::warn!(%error, "API server unreachable, retrying"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// The cluster of the bootstrap kubeconfig, and a user whose certificate is in a file that is exchanged.
fn write(file: &Path, bootstrap: &Path, current: &Path) -> Result<()> {
    let bytes = std::fs::read(bootstrap).map_err(Error::file(bootstrap))?;
    let known = api::yaml::decode(&bytes).map_err(|error| Error::Flags(vec![error.to_string()]))?;
    let text = api::yaml::encode(&config(&known, &current.to_string_lossy()));
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    write_private(file, &String::from_utf8_lossy(&text))
}

fn config(bootstrap: &Tree, current: &str) -> Tree {
    let context = bootstrap.list("contexts").iter().find(|one| one.str("name") == bootstrap.str("current-context"));
    let name = context.map_or("", |context| context.str("context.cluster"));
    let cluster = bootstrap.list("clusters").iter().find(|one| one.str("name") == name);
    let cluster = cluster.map(|cluster| cluster.at("cluster").clone()).unwrap_or_default();
    let user = tree! { "client-certificate" => current, "client-key" => current };
    let context = tree! { "cluster" => "default-cluster", "namespace" => "default", "user" => "default-auth" };
    tree! {
        "apiVersion" => "v1",
        "kind" => "Config",
        "clusters" => list![tree! { "name" => "default-cluster", "cluster" => cluster }],
        "contexts" => list![tree! { "name" => "default-context", "context" => context }],
        "current-context" => "default-context",
        "users" => list![tree! { "name" => "default-auth", "user" => user }],
    }
}

/// The certificate to request now, since addresses may have changed. None while they are unknown.
type Desired = Box<dyn Fn() -> Option<CertificateRequest> + Send + Sync>;
type StoreCertificate = Box<dyn Fn(&CertificateAndKey) -> Result<()> + Send + Sync>;

/// A certificate that is renewed before it expires.
pub struct CertificateRotation {
    pub dir: std::path::PathBuf,
    pub base: &'static str,
    pub client: Client,
    pub random: Arc<Random>,
    pub wanted: Desired,
    /// The node object, whose changes may change the requested names and addresses.
    pub node: Option<watch::Receiver<Option<Arc<Tree>>>>,
    /// Applies a new certificate, and the existing one at the start.
    pub take: StoreCertificate,
}

impl CertificateRotation {
    /// The rotation of the client certificate. Clients that follow the kubeconfig reload it.
    pub(crate) fn client(dir: &Path, node: &str, client: Client, random: Arc<Random>) -> CertificateRotation {
        let node = node.to_string();
        CertificateRotation {
            dir: dir.to_path_buf(),
            base: BASE,
            client,
            random,
            wanted: Box::new(move || Some(CertificateRequest::client(&node))),
            node: None,
            take: Box::new(|_| Ok(())),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let part = 0.7 + 0.2 * self.random.fraction();
        let mut taken = None;
        loop {
            if let Some(node) = &mut self.node {
                node.mark_unchanged();
            }
            let now = SystemTime::now();
            let known =
                request::read_certificate(&request::current(&self.dir, self.base)).filter(|kept| kept.until > now);
            if let Some(kept) = known.as_ref().filter(|kept| taken.as_ref() != Some(&kept.pair.certificate)) {
                self.log_load((self.take)(&kept.pair));
                taken = Some(kept.pair.certificate.clone());
            }
            match next(known.as_ref(), (self.wanted)(), part, now) {
                Next::Wait(time) => self.wait(time).await,
                Next::Ask(wanted) => self.renew(&wanted).await,
            }
        }
    }

    /// Until then, or until the node has changed.
    async fn wait(&mut self, time: Duration) {
        let Some(node) = &mut self.node else { return tokio::time::sleep(time).await };
        if let Ok(Err(_)) = tokio::time::timeout(time, node.changed()).await {
            // The sender was dropped: there will be no more changes.
            self.node = None;
        }
    }

    async fn renew(&self, wanted: &CertificateRequest) {
        let issued = request::request_certificate(&self.client, wanted).await;
        let kept = issued.and_then(|pair| request::store_certificate(&self.dir, self.base, &pair, SystemTime::now()));
        if let Err(error) = kept {
            tracing::warn!(error = error.describe(), base = self.base, "failed to renew certificate, retrying");
            tokio::time::sleep(RETRY).await;
        }
    }

    fn log_load(&self, result: Result<()>) {
        match result {
            Ok(()) => tracing::info!(base = self.base, "certificate loaded"),
            Err(error) => tracing::warn!(error = error.describe(), base = self.base, "failed to load certificate"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait(Duration),
    Ask(CertificateRequest),
}

/// A certificate that has expired, expires soon, or does not cover the requested names is requested again.
fn next(known: Option<&StoredCertificate>, wanted: Option<CertificateRequest>, part: f64, now: SystemTime) -> Next {
    let Some(wanted) = wanted else { return Next::Wait(LONGEST_WAIT) };
    let left = known.filter(|kept| kept.fits(&wanted)).map(|kept| due(kept.from, kept.until, part));
    match left.and_then(|due| due.duration_since(now).ok()).filter(|left| !left.is_zero()) {
        Some(left) => Next::Wait(left.min(LONGEST_WAIT)),
        None => Next::Ask(wanted),
    }
}

/// After a part of its time, which differs from node to node.
fn due(from: SystemTime, until: SystemTime, part: f64) -> SystemTime {
    from + until.duration_since(from).unwrap_or_default().mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_due_before_they_expire() {
        let from = SystemTime::UNIX_EPOCH;
        let until = from + Duration::from_secs(1000);
        assert_eq!(due(from, until, 0.8), from + Duration::from_secs(800));
        assert_eq!(due(until, from, 0.8), until, "an invalid period is due at once");
    }

    /// A stored certificate for 127.0.0.1.
    fn kept(dir: &Path) -> StoredCertificate {
        let pair = crate::pki::self_signed("n", [127, 0, 0, 1].into()).expect("a certificate");
        request::read_certificate(&request::store_certificate(dir, BASE, &pair, SystemTime::now()).expect("kept"))
            .expect("one")
    }

    #[test]
    fn requests_a_new_certificate_for_other_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let kept = kept(dir.path());
        let wanted = |last: u8| CertificateRequest {
            addresses: vec![[127, 0, 0, last].into()],
            ..CertificateRequest::client("n")
        };
        let (fitting, other) = (wanted(1), wanted(2));
        let early = kept.from + Duration::from_secs(60);
        assert_eq!(next(Some(&kept), None, 0.8, early), Next::Wait(LONGEST_WAIT), "the addresses are unknown");
        assert_eq!(next(Some(&kept), Some(fitting.clone()), 0.8, early), Next::Wait(LONGEST_WAIT));
        assert_eq!(next(Some(&kept), Some(other.clone()), 0.8, early), Next::Ask(other));
        assert_eq!(next(Some(&kept), Some(fitting.clone()), 0.8, kept.until), Next::Ask(fitting.clone()));
        let late = due(kept.from, kept.until, 0.8) - Duration::from_secs(9);
        assert_eq!(next(Some(&kept), Some(fitting.clone()), 0.8, late), Next::Wait(Duration::from_secs(9)));
        assert_eq!(next(None, Some(fitting.clone()), 0.8, early), Next::Ask(fitting));
    }

    #[tokio::test]
    async fn uses_an_expiring_certificate_until_it_is_renewed() {
        let dir = tempfile::tempdir().expect("a directory");
        let kept = kept(dir.path());
        let (send, mut taken) = tokio::sync::mpsc::unbounded_channel();
        let tls = http_client::tls::config(&http_client::Trust::InsecureSkipVerify, None, &[]).expect("TLS");
        let unreachable_api = client::https::Https::new("127.0.0.1", 1, None, Arc::new(tls)).expect("a client");
        let rotated = CertificateRotation {
            // The request does not match the stored certificate and is due immediately.
            wanted: Box::new(|| {
                Some(CertificateRequest { names: vec!["other".to_string()], ..CertificateRequest::client("n") })
            }),
            take: Box::new(move |pair| {
                let _ = send.send(pair.certificate.clone());
                Ok(())
            }),
            ..CertificateRotation::client(
                dir.path(),
                "n",
                Client::new(Arc::new(unreachable_api), "test"),
                Arc::new(Random::seeded(7)),
            )
        };
        let running = tokio::spawn(rotated.run());
        let shown = tokio::time::timeout(Duration::from_secs(10), taken.recv()).await.expect("in time");
        assert_eq!(shown, Some(kept.pair.certificate));
        running.abort();
    }

    #[test]
    fn kubeconfig_keeps_the_cluster() {
        let text = "
current-context: c
contexts: [{name: d, context: {cluster: x}}, {name: c, context: {cluster: k, user: u}}]
clusters: [{name: x, cluster: {server: 'https://x'}}, {name: k, cluster: {server: 'https://a:1'}}]
users: [{name: u, user: {token: secret}}]
";
        let config = config(&api::yaml::decode(text.as_bytes()).expect("yaml"), "/pki/current.pem");
        assert_eq!(config.list("clusters")[0].str("cluster.server"), "https://a:1");
        let written = String::from_utf8(api::yaml::encode(&config)).expect("text");
        assert!(written.contains("/pki/current.pem") && !written.contains("secret"), "{written}");
    }

    #[tokio::test]
    async fn missing_credentials_name_the_flags() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = ensure(&dir.path().join("none"), None, dir.path(), "n").await.expect_err("an error");
        assert!(error.describe().contains("set --bootstrap-kubeconfig to request a new one"), "{}", error.describe());
    }
}
