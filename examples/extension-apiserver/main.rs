//! A small extension API server: `greetings.example.com/v1` with one resource, kept in memory.
//!
//! It runs in a pod behind a Service. The API server forwards requests for its group, with a client certificate and with
//! headers that name the user; ConfigMap kube-system/extension-apiserver-authentication says which certificate and which
//! headers. What the user may do is decided by a SubjectAccessReview.

mod authentication;
mod authorization;
mod cluster;
mod discovery;
mod greetings;
mod routes;
mod store;

use std::error::Error;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{RwLock, Semaphore};

use authentication::FrontProxy;
use cluster::Cluster;
use routes::Server;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Connections at the same time.
const MAX_CONNECTIONS: usize = 256;
/// How often the ConfigMap is read: its CA is rotated.
const REFRESH: Duration = Duration::from_secs(60);
const HANDSHAKE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, certificate, key] = arguments.as_slice() else {
        return Err("usage: extension-apiserver PORT CERTIFICATE KEY".into());
    };
    let files = ServingFiles { certificate: certificate.clone(), key: key.clone() };
    let server = Arc::new(Server::new(Cluster::from_pod()?));
    let proxy = Arc::new(RwLock::new(Arc::new(load(&server.cluster, &files).await?)));
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port.parse()?)).await?;
    println!("serving on port {port}");
    tokio::spawn(refresh(server.clone(), proxy.clone(), files));
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = connections.clone().acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        let (server, proxy) = (server.clone(), proxy.read().await.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(stream, server, proxy).await {
                eprintln!("connection failed: {error}");
            }
            drop(permit);
        });
    }
}

/// The serving certificate, from the Secret that is mounted into the pod.
struct ServingFiles {
    certificate: String,
    key: String,
}

async fn load(cluster: &Cluster, files: &ServingFiles) -> Result<FrontProxy> {
    let config = cluster.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await?;
    FrontProxy::new(&config, &std::fs::read(&files.certificate)?, &std::fs::read(&files.key)?)
}

/// Later connections use what has changed.
async fn refresh(server: Arc<Server>, proxy: Arc<RwLock<Arc<FrontProxy>>>, files: ServingFiles) {
    loop {
        tokio::time::sleep(REFRESH).await;
        match load(&server.cluster, &files).await {
            Ok(loaded) => *proxy.write().await = Arc::new(loaded),
            Err(error) => eprintln!("failed to read the configuration, keeping the last one: {error}"),
        }
    }
}

async fn serve(stream: TcpStream, server: Arc<Server>, proxy: Arc<FrontProxy>) -> Result<()> {
    let stream = tokio::time::timeout(HANDSHAKE, proxy.acceptor().accept(stream)).await??;
    let is_front_proxy = proxy.is_trusted(stream.get_ref().1.peer_certificates());
    let respond = service_fn(move |request| {
        let (server, proxy) = (server.clone(), proxy.clone());
        async move {
            let user = if is_front_proxy { proxy.user(request.headers()) } else { None };
            Ok::<_, std::convert::Infallible>(server.respond(user, request).await)
        }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await?;
    Ok(())
}
