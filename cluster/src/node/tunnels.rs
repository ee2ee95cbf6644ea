//! Tunnels of this node to all servers of the cluster, through which they reach its kubelet and its pods even if no
//! address of the node is reachable for them. The node decides about each target: its kubelet's port and the addresses
//! of its own pods, and nothing else of its machine or network.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tunnel::{DialFuture, PATH, PROTOCOL, Refusal, TargetDialer};
use api::Tree;
use bytes::Bytes;
use client::{Client, Resource};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use http_client::{Address, tls};
use hyper_util::rt::TokioIo;
use stdx::backoff::Backoff;
use stdx::cidr::IpNet;
use stdx::sync::Mutex;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use super::servers::balancer::Balancer;
use super::servers::list::ServerAddress;
use super::servers::{NodeServers, SERVER_NAME};

const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A server that offers no tunnels, such as one of another kind, is asked again after this time.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the node's own addresses are cached.
const ADDRESS_AGE: Duration = Duration::from_secs(10);

/// Keeps a tunnel to each server of the list, until it is aborted.
pub(super) fn start(servers: &NodeServers, client: Client, node: &str, kubelet: SocketAddr) -> JoinHandle<()> {
    let targets = NodeTargets { client, node: node.to_string(), kubelet, known: Mutex::new(None) };
    let (balancer, credentials) = (servers.balancer.clone(), servers.credentials());
    tokio::spawn(run(balancer, credentials, Arc::new(targets)))
}

type ReadTls = Arc<dyn Fn() -> Option<Arc<rustls::ClientConfig>> + Send + Sync>;

async fn run(balancer: Arc<Balancer>, credentials: ReadTls, targets: Arc<NodeTargets>) {
    let mut changes = balancer.changes();
    // Dropping the set ends all tunnels.
    let mut tasks = JoinSet::new();
    let mut running = BTreeMap::new();
    loop {
        let servers = balancer.servers();
        running.retain(|address, task: &mut tokio::task::AbortHandle| {
            let is_left = servers.contains(address);
            if !is_left {
                task.abort();
            }
            is_left
        });
        for address in servers {
            let start = || tasks.spawn(keep(address.clone(), credentials.clone(), targets.clone()));
            running.entry(address.clone()).or_insert_with(start);
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Opens a tunnel again whenever it ends.
async fn keep(server: ServerAddress, credentials: ReadTls, targets: Arc<NodeTargets>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let opened = match credentials() {
            Some(tls) => open(&server, &tls).await,
            None => Err(OpenError::NoCredentials),
        };
        let pause = match opened {
            Ok(connection) => {
                backoff.reset();
                tracing::debug!(%server, "tunnel opened");
                let _ = ::tunnel::serve(connection, targets.clone()).await;
                backoff.next_pause()
            }
            Err(OpenError::Unsupported(code)) => {
                tracing::info!(%server, %code, "the server offers no tunnel to this node; it has to reach its addresses");
                UNSUPPORTED_PAUSE
            }
            Err(error) => {
                tracing::debug!(%server, %error, "failed to open tunnel, retrying");
                backoff.next_pause()
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Why a tunnel cannot be opened.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("this node has no certificate yet")]
    NoCredentials,
    #[error("timed out connecting")]
    Timeout,
    #[error(transparent)]
    Connect(#[from] http_client::ConnectError),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the server responded with {0}")]
    Unsupported(StatusCode),
    #[error("the server responded with {0}")]
    Refused(StatusCode),
}

type Connection = TokioIo<hyper::upgrade::Upgraded>;

async fn open(server: &ServerAddress, tls: &Arc<rustls::ClientConfig>) -> Result<Connection, OpenError> {
    let tls = Arc::new(tls::with_alpn(tls, &[tls::HTTP1]));
    let address = Address { name: SERVER_NAME.to_string(), ..Address::new(true, &server.host, server.port) };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static(SERVER_NAME));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    let exchange = async {
        let stream = http_client::connect(&address, &tls).await?;
        Ok::<_, OpenError>(http_client::send_once(stream, request).await?)
    };
    let response = tokio::time::timeout(CONNECT_TIMEOUT, exchange).await.map_err(|_| OpenError::Timeout)??;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => Ok(TokioIo::new(hyper::upgrade::on(response).await?)),
        code @ (StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) => Err(OpenError::Unsupported(code)),
        code => Err(OpenError::Refused(code)),
    }
}

/// The targets on this node that servers may connect to.
struct NodeTargets {
    client: Client,
    node: String,
    /// The port of the kubelet, and the address at which it listens.
    kubelet: SocketAddr,
    known: Mutex<Option<(NodeAddresses, Instant)>>,
}

/// What the cluster knows of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeAddresses {
    own: Vec<String>,
    pods: Vec<IpNet>,
}

/// What a target is.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Kubelet,
    Pod(IpAddr),
    /// Perhaps a pod of a network with its own ranges.
    Unknown(IpAddr),
    Other,
}

impl NodeAddresses {
    fn of(node: &Tree) -> NodeAddresses {
        let own = node.list("status.addresses").iter().map(|address| address.str("address").to_string());
        let pods = node.list("spec.podCIDRs").iter().filter_map(|range| range.as_str()?.parse().ok());
        NodeAddresses { own: own.collect(), pods: pods.collect() }
    }

    fn classify(&self, host: &str, port: u16, kubelet: u16) -> Target {
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        let is_own = match ip {
            Some(_) => self.own.iter().any(|own| own.parse().ok().map(|own: IpAddr| own.to_canonical()) == ip),
            None => self.own.iter().any(|own| own == host),
        };
        match ip {
            _ if is_own && port == kubelet => Target::Kubelet,
            Some(ip) if !is_own && !is_local(ip) => match self.pods.iter().any(|range| range.contains(ip)) {
                true => Target::Pod(ip),
                false => Target::Unknown(ip),
            },
            _ => Target::Other,
        }
    }
}

/// Addresses that are no pod's: they lead to the machine itself or stay on its links, where metadata services are.
fn is_local(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
}

impl NodeTargets {
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let address = match self.addresses().await?.classify(host, port, self.kubelet.port()) {
            Target::Kubelet => SocketAddr::new(reachable(self.kubelet.ip()), self.kubelet.port()),
            Target::Pod(ip) => SocketAddr::new(ip, port),
            Target::Unknown(ip) if self.has_pod(ip).await => SocketAddr::new(ip, port),
            Target::Unknown(_) | Target::Other => return Err(Refusal::Forbidden),
        };
        let stream = TcpStream::connect(address).await?;
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn addresses(&self) -> Result<NodeAddresses, Refusal> {
        let cached = self.known.lock().clone();
        if let Some((addresses, _)) = cached.filter(|(_, since)| since.elapsed() < ADDRESS_AGE) {
            return Ok(addresses);
        }
        let node = self.client.get(NODES, "", &self.node).await;
        let node = node.map_err(|error| Refusal::Dial(std::io::Error::other(error.to_string())))?;
        let addresses = NodeAddresses::of(&node);
        *self.known.lock() = Some((addresses.clone(), Instant::now()));
        Ok(addresses)
    }

    /// Whether a pod of this node has the address, and not the node itself.
    async fn has_pod(&self, ip: IpAddr) -> bool {
        let query = format!("fieldSelector=spec.nodeName%3D{}%2Cstatus.podIP%3D{ip}", self.node);
        let pods = self.client.list(PODS, "", &query).await.unwrap_or_default();
        pods.list("items").iter().any(|pod| pod.at("spec.hostNetwork").as_bool() != Some(true))
    }
}

/// A port that listens on all addresses is reached on the loopback interface.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

impl TargetDialer for NodeTargets {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(self.connect(host, port))
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn servers_reach_the_kubelet_and_the_pods_only() {
        let node = tree! {
            "spec" => tree! { "podCIDRs" => list!["10.42.1.0/24", "fd42:1::/64"] },
            "status" => tree! { "addresses" => list![
                tree! { "type" => "InternalIP", "address" => "192.168.0.7" },
                tree! { "type" => "InternalIP", "address" => "fd00::7" },
                tree! { "type" => "Hostname", "address" => "n1" },
            ] },
        };
        let addresses = NodeAddresses::of(&node);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let cases = [
            ("192.168.0.7", 10250, Target::Kubelet),
            ("n1", 10250, Target::Kubelet),
            ("192.168.0.7", 22, Target::Other),
            ("n1", 6443, Target::Other),
            ("10.42.1.9", 80, Target::Pod(ip("10.42.1.9"))),
            ("10.42.2.9", 80, Target::Unknown(ip("10.42.2.9"))),
            ("127.0.0.1", 10250, Target::Other),
            ("0.0.0.0", 10250, Target::Other),
            ("::ffff:192.168.0.7", 10250, Target::Kubelet),
            ("::ffff:192.168.0.7", 22, Target::Other),
            ("fd00:0:0::7", 10250, Target::Kubelet),
            ("fd00:0:0::7", 22, Target::Other),
            ("fd42:1::9", 80, Target::Pod(ip("fd42:1::9"))),
            ("::ffff:10.42.1.9", 80, Target::Pod(ip("10.42.1.9"))),
            ("::ffff:10.42.2.9", 80, Target::Unknown(ip("10.42.2.9"))),
            ("::ffff:127.0.0.1", 10250, Target::Other),
            ("::1", 10250, Target::Other),
            ("::", 10250, Target::Other),
            ("169.254.169.254", 80, Target::Other),
            ("::ffff:169.254.169.254", 80, Target::Other),
            ("fe80::1", 80, Target::Other),
            ("224.0.0.1", 80, Target::Other),
            ("255.255.255.255", 80, Target::Other),
            ("files.example", 80, Target::Other),
        ];
        for (host, port, want) in cases {
            assert_eq!(addresses.classify(host, port, 10250), want, "{host}:{port}");
        }
        assert_eq!(reachable(ip("0.0.0.0")), ip("127.0.0.1"));
        assert_eq!(reachable(ip("192.168.0.7")), ip("192.168.0.7"));
    }
}
