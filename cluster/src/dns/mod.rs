//! `dns`: the cluster DNS alone, as a process or as a pod in place of CoreDNS.

pub mod flags;

use std::sync::Arc;

use ::dns::{Cluster, Config, CorefileSource, HttpEndpoints, Limits, Listen, Server, StartError};
use stdx::clock::SystemClock;
use tokio::sync::watch;

use crate::component::follow::FileFollower;
use crate::component::remote::Remote;
use crate::error::{Error, Result};
use flags::Flags;

/// The user agent for the API server.
pub const NAME: &str = "coredns";
/// The ConfigMap of the Corefile, with the name that kubeadm and charts of CoreDNS use.
pub const CONFIG_MAP: (&str, &str) = ("kube-system", "coredns");

/// The running server.
pub struct DnsProcess {
    server: ::dns::DnsHandle,
    stop: watch::Sender<bool>,
}

impl DnsProcess {
    /// The addresses for queries.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.server.addresses()
    }

    /// Serves until other servers have taken over (the `lameduck` of the Corefile), and closes.
    pub async fn stop(self) {
        self.server.drain().await;
        self.stop.send_replace(true);
        self.server.stop().await;
    }
}

/// Starts the cluster DNS with its flags.
pub async fn run(flags: Flags) -> Result<DnsProcess> {
    let mut follow = FileFollower::default();
    let remote = remote(&flags, &mut follow)?;
    let (stop, stopped) = watch::channel(false);
    let cluster = remote.map(|remote| Cluster { client: remote.client() });
    let server = Server::start(config(&flags), cluster).await.map_err(start_error)?;
    tokio::spawn(follow.run(stopped));
    for address in server.addresses() {
        tracing::info!(%address, "serving DNS");
    }
    Ok(DnsProcess { server, stop })
}

/// The API server of the flag or of the pod; none if a Corefile is given that may not need one.
fn remote(flags: &Flags, follow: &mut FileFollower) -> Result<Option<Remote>> {
    if let Some(file) = &flags.kubeconfig {
        let remote = Remote::read(NAME, "kubeconfig", file)?;
        remote.follow("kubeconfig", file, follow);
        return Ok(Some(remote));
    }
    match (Remote::in_cluster(NAME), &flags.conf) {
        (Ok(remote), _) => Ok(Some(remote)),
        (Err(_), Some(_)) => Ok(None),
        (Err(error), None) => Err(error),
    }
}

fn config(flags: &Flags) -> Config {
    let corefile = match &flags.conf {
        Some(path) => CorefileSource::File(path.clone()),
        None => CorefileSource::ConfigMap {
            namespace: CONFIG_MAP.0.to_string(),
            name: CONFIG_MAP.1.to_string(),
            otherwise: ::dns::default_corefile(&flags.cluster_domain),
        },
    };
    Config {
        corefile,
        default_port: flags.port,
        listen: Listen::Corefile,
        http: HttpEndpoints::Corefile,
        node_name: flags.node_name.clone(),
        resolv_conf: "/etc/resolv.conf".into(),
        limits: Limits::default(),
        clock: Arc::new(SystemClock),
    }
}

fn start_error(error: StartError) -> Error {
    match error {
        StartError::Corefile(errors) => Error::Flags(errors.iter().map(ToString::to_string).collect()),
        StartError::Read { path, source } => Error::File { path, source },
        StartError::Listen { address, source } => Error::Listen { address, source },
        error @ StartError::NoCluster => Error::Flags(vec![error.to_string()]),
    }
}
