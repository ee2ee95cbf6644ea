//! The agent's own certificate: asked for with a token when there is none, and again before it ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::{Tree, list, tree};
use client::{Client, Random};
use server::callout::kubeconfig;

use super::request::{self, Wanted};
use crate::component::remote::Remote;
use crate::error::{Error, Result};
use crate::pki::{Pair, write_private};

const BASE: &str = "kubelet-client";
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Timers stand still while a machine sleeps, so that a long wait is cut into hours.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Makes the kubeconfig where there is none that is good: with a certificate that is asked for as the bootstrap
/// kubeconfig's user. Waits for an API server that is not there yet.
pub async fn ensure(kubeconfig: &Path, bootstrap: Option<&Path>, dir: &Path, node: &str) -> Result<()> {
    let Err(why) = checked(kubeconfig) else { return Ok(()) };
    let Some(bootstrap) = bootstrap else {
        return Err(Error::Flags(vec![format!("--kubeconfig: {why}; --bootstrap-kubeconfig could get a new one")]));
    };
    let client = Remote::read(super::NAME, "bootstrap-kubeconfig", bootstrap)?.client();
    let pair = first(&client, &Wanted::client(node)).await?;
    let current = request::keep(dir, BASE, &pair, SystemTime::now())?;
    write(kubeconfig, bootstrap, &current)
}

/// It can be read, and a certificate of its own has not ended.
fn checked(file: &Path) -> std::result::Result<(), String> {
    kubeconfig::read(file).map_err(|error| error.to_string())?;
    let now = SystemTime::now();
    let ended = |path: &&std::path::PathBuf| request::kept(path).is_some_and(|(_, (_, until))| until <= now);
    match kubeconfig::files(file).iter().skip(1).find(ended) {
        Some(path) => Err(format!("{}: the certificate has ended", path.display())),
        None => Ok(()),
    }
}

/// Whoever is refused will be refused again; everything else may pass.
async fn first(client: &Client, wanted: &Wanted) -> Result<Pair> {
    let mut pause = FIRST_PAUSE;
    loop {
        match client.get_path("/version", "").await {
            Ok(_) => return request::ask(client, wanted).await,
            Err(error) if matches!(error.code(), Some(401 | 403)) => {
                return Err(Error::Answered(format!("--bootstrap-kubeconfig: {error}")));
            }
            Err(error) => tracing::warn!(%error, "the API server does not answer; it is tried again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
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

/// What is wanted now: addresses may have changed. None while they are not known.
type Want = Box<dyn Fn() -> Option<Wanted> + Send + Sync>;
type Take = Box<dyn Fn(&Pair) -> Result<()> + Send + Sync>;

/// A certificate that is asked for anew before it ends.
pub struct Rotated {
    pub dir: std::path::PathBuf,
    pub base: &'static str,
    pub client: Client,
    pub random: Arc<Random>,
    pub wanted: Want,
    /// Takes up a new one, and the old one at the start.
    pub take: Take,
}

impl Rotated {
    /// The client's own, which whoever follows the kubeconfig takes up by itself.
    pub fn client(dir: &Path, node: &str, client: Client, random: Arc<Random>) -> Rotated {
        let node = node.to_string();
        Rotated {
            dir: dir.to_path_buf(),
            base: BASE,
            client,
            random,
            wanted: Box::new(move || Some(Wanted::client(&node))),
            take: Box::new(|_| Ok(())),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let part = 0.7 + 0.2 * self.random.fraction();
        let mut taken = None;
        loop {
            let known = request::kept(&request::current(&self.dir, self.base));
            let now = SystemTime::now();
            let due = known.as_ref().map(|(_, (from, until))| due(*from, *until, part));
            if let Some((pair, _)) = known.filter(|_| due.is_some_and(|due| due > now))
                && taken.as_ref() != Some(&pair.certificate)
            {
                self.told((self.take)(&pair));
                taken = Some(pair.certificate);
            }
            let wait = match due.and_then(|due| due.duration_since(now).ok()) {
                Some(wait) if !wait.is_zero() => wait.min(LONGEST_WAIT),
                _ => match self.renew().await {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::warn!(
                            error = error.describe(),
                            base = self.base,
                            "no new certificate; it is tried again"
                        );
                        RETRY
                    }
                },
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn renew(&self) -> Result<()> {
        let wanted =
            (self.wanted)().ok_or_else(|| Error::Ended("the node's addresses are not known yet".to_string()))?;
        let pair = request::ask(&self.client, &wanted).await?;
        request::keep(&self.dir, self.base, &pair, SystemTime::now()).map(drop)
    }

    fn told(&self, result: Result<()>) {
        match result {
            Ok(()) => tracing::info!(base = self.base, "the certificate was taken up"),
            Err(error) => tracing::warn!(error = error.describe(), base = self.base, "the certificate is no good"),
        }
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
    fn a_certificate_is_due_before_it_ends() {
        let from = SystemTime::UNIX_EPOCH;
        let until = from + Duration::from_secs(1000);
        assert_eq!(due(from, until, 0.8), from + Duration::from_secs(800));
        assert_eq!(due(until, from, 0.8), until, "one that makes no sense is due at once");
    }

    #[test]
    fn a_kubeconfig_takes_over_the_cluster() {
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
    async fn without_any_way_in_the_flags_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let error = ensure(&dir.path().join("none"), None, dir.path(), "n").await.expect_err("an error");
        assert!(error.describe().contains("--bootstrap-kubeconfig could get a new one"), "{}", error.describe());
    }
}
