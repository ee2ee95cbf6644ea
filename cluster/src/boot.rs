//! What starts in which order, and ends in the reverse one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use server::Server;
use server::cache::Caches;
use tokio::net::TcpListener;

use crate::kubeconfig;
use crate::pki::{Pair, Pki, Subject, write_private};

/// What `up` is told.
#[derive(Debug, Clone)]
pub struct Up {
    pub data_dir: PathBuf,
    pub address: IpAddr,
    pub port: u16,
    pub kubeconfig: PathBuf,
    pub config: server::Config,
}

/// A running API server.
pub struct Running {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Drains, then closes the store.
    pub async fn stop(self) {
        self.server.closing.send_replace(true);
        let _ = self.task.await;
        if let Err(error) = self.server.store.close().await {
            tracing::error!(%error, "the store could not be closed");
        }
    }
}

/// Starts everything; `progress` hears of each step.
pub async fn up(options: &Up, progress: impl Fn(&str)) -> io::Result<Running> {
    let pki = Pki::open(options.data_dir.join("pki"))?;
    let authority = pki.authority("ca", "kubernetes")?;
    progress("certificates");
    let serving = serving_certificate(&pki, &authority, options)?;
    let admin = pki.issue(&authority, &admin())?;
    let mut config = options.config.clone();
    config.advertise_address = advertised(options.address);
    config.client_ca.clone_from(&authority.certificate);
    let listener = TcpListener::bind((options.address, options.port)).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {}:{}: {error}", options.address, options.port))
    })?;
    let address = listener.local_addr()?;
    config.port = address.port();
    let server = start_server(options, config, &authority, &pki.signing_key("sa")?).await?;
    progress("store");
    let tls = server::http::tls::server_config(certificates(&serving.certificate)?, key(&serving.key)?)
        .map_err(io::Error::other)?;
    let task = tokio::spawn(server::http::serve::serve(server.clone(), listener, tls));
    server::bootstrap::run(&server).await.map_err(io::Error::other)?;
    progress("API server");
    let url = format!("https://{}", SocketAddr::new(config_address(options.address), address.port()));
    let text = kubeconfig::write(&url, &authority.certificate, "kubernetes-admin", &admin);
    write_private(&options.kubeconfig, &String::from_utf8_lossy(&text))?;
    progress("kubeconfig");
    Ok(Running { server, address, task })
}

fn admin() -> Subject<'static> {
    Subject {
        file: "admin",
        common_name: "kubernetes-admin",
        organization: "system:masters",
        names: &[],
        addresses: &[],
    }
}

/// Where the clients of this machine reach a server that listens here.
fn config_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        other => other,
    }
}

/// Where others reach it: the address of the way out of this machine, where it listens on all or on
/// the loopback alone. Connecting a datagram socket sends nothing.
fn advertised(address: IpAddr) -> IpAddr {
    if !address.is_unspecified() && !address.is_loopback() {
        return address;
    }
    let way_out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    way_out().unwrap_or_else(|| config_address(address))
}

fn serving_certificate(pki: &Pki, authority: &Pair, options: &Up) -> io::Result<Pair> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    addresses.extend([config_address(options.address), advertised(options.address)]);
    addresses.extend(options.config.service_cidrs.iter().filter_map(|(network, _)| first_address(*network)));
    addresses.sort_unstable();
    addresses.dedup();
    pki.issue(
        authority,
        &Subject {
            file: "apiserver",
            common_name: "kube-apiserver",
            organization: "",
            names: &names,
            addresses: &addresses,
        },
    )
}

/// The address of the `kubernetes` service: the first of its range.
fn first_address(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V4(v4) => Some(IpAddr::from((u32::from(v4).checked_add(1)?).to_be_bytes())),
        IpAddr::V6(v6) => Some(IpAddr::from((u128::from(v6).checked_add(1)?).to_be_bytes())),
    }
}

async fn start_server(
    options: &Up,
    config: server::Config,
    authority: &Pair,
    signing_key: &str,
) -> io::Result<Arc<Server>> {
    let adopt = server::resource::adopt_own;
    let caches = Arc::new(Caches::new(&config.storage_prefix, server::resource::storage_paths(), adopt));
    let store_dir = options.data_dir.join("store");
    let store = store::embedded::open_dir(store_dir, caches.clone()).map_err(io::Error::other)?;
    let authorities = certificates(&authority.certificate)?;
    let tokens = server::auth::token::Tokens::new(&key(signing_key)?).map_err(io::Error::other)?;
    let auth = server::auth::Authenticator::new(&authorities, server::http::tls::provider())
        .map_err(io::Error::other)?
        .with_tokens(tokens);
    Server::start(config, Arc::new(store), caches, auth, false).await.map_err(io::Error::other)
}

fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(io::Error::other)
}

fn key(pem: &str) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(io::Error::other)
}
