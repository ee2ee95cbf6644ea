//! The servers of the cluster, for a node: a list that follows the cluster and survives restarts, a local listener that
//! balances over it, and probes by which a dead server is left within a second.

pub(crate) mod balancer;
pub(crate) mod list;
mod probe;
mod relay;
mod seats;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;
use client::{Client, Informers, Random, Resource, Selection};
use rustls::ClientConfig;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::machine::files::write_private;
use balancer::Balancer;
use list::{ServerAddress, ServerFile};
use probe::ProbeCredentials;

const SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");
const SERVICE: &str = "kubernetes";
/// A name that the certificates of all API servers have, whatever their addresses are.
pub(crate) const SERVER_NAME: &str = "kubernetes";

/// A listener that balances over servers whose addresses do not change.
pub(crate) struct FixedServers {
    stop: watch::Sender<bool>,
}

impl FixedServers {
    /// Passes connections on. The servers are probed with the CA and the certificate of a kubeconfig.
    pub(crate) fn start(
        listener: tokio::net::TcpListener,
        servers: &BTreeSet<ServerAddress>,
        kubeconfig: PathBuf,
    ) -> FixedServers {
        let balancer = Arc::new(Balancer::new("", servers));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(relay::run(listener, balancer.clone(), stopped.clone()));
        tokio::spawn(probe::run(balancer, ProbeCredentials(vec![kubeconfig]), stopped));
        FixedServers { stop }
    }

    /// Closes the listener and its connections.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// The servers of a node while it runs.
pub(crate) struct NodeServers {
    pub(crate) balancer: Arc<Balancer>,
    /// The URL of the local listener.
    pub(crate) url: String,
    given: ServerAddress,
    file: ServerFile,
    credentials: ProbeCredentials,
    stop: watch::Sender<bool>,
    informers: Option<Arc<Informers>>,
}

impl NodeServers {
    /// Listens on the loopback interface. `server` is the URL that the user has given, `kubeconfigs` have the CA.
    pub(crate) async fn start(
        data_dir: &Path,
        server: &str,
        node: &str,
        kubeconfigs: Vec<PathBuf>,
    ) -> Result<NodeServers> {
        let given = ServerAddress::of_url(server)?;
        let file = ServerFile::of(data_dir);
        let servers: BTreeSet<ServerAddress> = file.read().into_iter().chain([given.clone()]).collect();
        let balancer = Arc::new(Balancer::new(node, &servers));
        let listener = relay::listen().await;
        let failed = |error: std::io::Error| {
            Error::Node(format!("failed to listen on the loopback interface for the API server: {error}"))
        };
        let listener = listener.map_err(failed)?;
        let url = format!("https://{}", listener.local_addr().map_err(failed)?);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(relay::run(listener, balancer.clone(), stopped.clone()));
        let credentials = ProbeCredentials(kubeconfigs);
        tokio::spawn(probe::run(balancer.clone(), credentials.clone(), stopped));
        Ok(NodeServers { balancer, url, given, file, credentials, stop, informers: None })
    }

    /// The CA of the cluster, and the certificate of this node if it has one.
    pub(crate) fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.credentials.tls()
    }

    /// Reads the same again at each connection, since certificates are rotated.
    pub(crate) fn credentials(&self) -> Arc<dyn Fn() -> Option<Arc<ClientConfig>> + Send + Sync> {
        let credentials = self.credentials.clone();
        Arc::new(move || credentials.tls())
    }

    /// Whether this machine has a certificate of the cluster.
    pub(crate) fn has_joined(&self) -> bool {
        self.credentials.0.first().is_some_and(|file| file.exists())
    }

    /// Watches the endpoints of the `kubernetes` Service, if the cluster lets nodes read them.
    pub(crate) async fn follow(&mut self, client: &Client) {
        let query = format!("labelSelector=kubernetes.io%2Fservice-name%3D{SERVICE}");
        match client.list(SLICES, "", &query).await {
            Err(error) if error.is_forbidden() => {
                tracing::info!("the cluster does not let nodes read its servers; only that of --server is used");
                return;
            }
            _ => {}
        }
        let informers = Arc::new(Informers::new(client.clone(), Arc::new(Random::seeded(Random::fresh_seed()))));
        let informer = informers.informer(Selection::queried(SLICES, &query));
        let (store, balancer) = (informer.store().clone(), self.balancer.clone());
        let (given, file) = (self.given.clone(), self.file.clone());
        informer.on_change(move |_| {
            let slices = store.all();
            let own = slices.iter().filter(|slice| slice.str("metadata.namespace") == "default");
            apply(&balancer, &file, &given, list::of_slices(own.map(|slice| &**slice)));
        });
        informers.start();
        self.informers = Some(informers);
    }

    /// Closes the listener and its connections.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(informers) = &self.informers {
            informers.stop();
        }
    }
}

/// The server of the flag stays: it may be a load balancer, or be reached where the others are not.
fn apply(balancer: &Balancer, file: &ServerFile, given: &ServerAddress, found: BTreeSet<ServerAddress>) {
    // A cluster whose servers listen on the loopback interface publishes none.
    if found.is_empty() {
        return;
    }
    let servers: BTreeSet<ServerAddress> = found.into_iter().chain([given.clone()]).collect();
    let mut known = balancer.servers();
    known.sort();
    if known.iter().eq(servers.iter()) {
        return;
    }
    tracing::info!(servers = ?servers.iter().map(ToString::to_string).collect::<Vec<_>>(), "servers of the cluster");
    if let Err(error) = file.write(&servers) {
        tracing::warn!(error = error.describe(), "failed to keep the servers for the next start");
    }
    balancer.set_servers(&servers);
}

/// Lets a kubeconfig lead to the local listener; the server is still verified, by a name that all servers have.
pub(crate) fn use_listener(kubeconfig: &Path, url: &str) -> Result<()> {
    let bytes = std::fs::read(kubeconfig).map_err(Error::file(kubeconfig))?;
    let wrong = |error: &dyn std::fmt::Display| Error::Flags(vec![format!("{}: {error}", kubeconfig.display())]);
    let mut config = api::yaml::decode(&bytes).map_err(|error| wrong(&error))?;
    let clusters: Vec<Tree> = config.list("clusters").iter().map(|cluster| with_listener(cluster, url)).collect();
    config.set("clusters", clusters);
    write_private(kubeconfig, &String::from_utf8_lossy(&api::yaml::encode(&config)))
}

fn with_listener(cluster: &Tree, url: &str) -> Tree {
    let mut cluster = cluster.clone();
    let fields = cluster.child("cluster");
    fields.set("server", url);
    fields.set("tls-server-name", SERVER_NAME);
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> ServerAddress {
        ServerAddress { host: format!("10.0.0.{last}"), port: 6443 }
    }

    #[test]
    fn keeps_the_given_server_and_follows_the_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = ServerFile::of(dir.path());
        let given = server(1);
        let balancer = Balancer::new("n", &BTreeSet::from([given.clone()]));
        apply(&balancer, &file, &given, BTreeSet::from([server(2), server(3)]));
        let all = BTreeSet::from([given.clone(), server(2), server(3)]);
        assert_eq!(balancer.servers().into_iter().collect::<BTreeSet<_>>(), all);
        assert_eq!(file.read(), all);
        apply(&balancer, &file, &given, BTreeSet::new());
        assert_eq!(balancer.servers().len(), 3, "an empty list is no information");
    }

    #[test]
    fn kubeconfig_leads_to_the_listener() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kubelet.conf");
        std::fs::write(
            &file,
            "clusters: [{name: c, cluster: {server: 'https://a:1', certificate-authority-data: x}}]\n",
        )
        .expect("a file");
        use_listener(&file, "https://127.0.0.1:6444").expect("written");
        let config = api::yaml::decode(&std::fs::read(&file).expect("a file")).expect("YAML");
        let cluster = config.list("clusters")[0].at("cluster");
        assert_eq!(cluster.str("server"), "https://127.0.0.1:6444");
        assert_eq!(cluster.str("tls-server-name"), "kubernetes");
        assert_eq!(cluster.str("certificate-authority-data"), "x");
    }
}
