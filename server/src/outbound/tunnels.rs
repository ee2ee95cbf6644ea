//! Connections to kubelets and pods: directly where that works, or through the tunnel that the node of the target keeps
//! open. A target is only ever reached through the tunnel of its own node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use http_client::{Address, ConnectError, Stream};
use rustls::ClientConfig;
use stdx::cidr::IpNet;
use stdx::sync::Mutex;
use tunnel::{Tunnel, TunnelError};

use crate::storage::Storage;

/// A direct connection is preferred if it is established in this time.
const HEAD_START: Duration = Duration::from_millis(200);
/// How long it is remembered that a node is reached only through its tunnel.
const REMEMBERED: Duration = Duration::from_secs(60);
/// More nodes cannot open tunnels.
const MAX_TUNNELS: usize = 10_000;

/// Opens the connections of this server to nodes and pods.
pub struct Dialer {
    pub(crate) storage: Arc<Storage>,
    nodes: NodeTunnels,
}

struct NodeTunnel {
    tunnel: Tunnel,
    /// The ranges of its pods, which never change once the node has them.
    pods: Vec<IpNet>,
    /// Until then, the node is not dialled directly.
    tunnel_only: Option<Instant>,
}

impl Dialer {
    pub(crate) fn new(storage: Arc<Storage>) -> Dialer {
        Dialer { storage, nodes: NodeTunnels::default() }
    }

    /// Keeps the tunnel of a node, instead of an earlier one; false if there are too many.
    pub(crate) fn add(&self, node: &str, tunnel: Tunnel) -> bool {
        self.nodes.add(node, tunnel)
    }

    /// Closes all tunnels: the server stops.
    pub(crate) fn close(&self) {
        self.nodes.0.lock().clear();
    }

    /// A connection to the kubelet of a node.
    pub(crate) async fn connect_node(
        &self,
        node: &str,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Stream, ConnectError> {
        self.nodes.connect(node, address, tls).await
    }

    /// A connection to an address, which may be that of a pod.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Stream, ConnectError> {
        match address.host.parse().ok().and_then(|ip| self.node_of(ip)) {
            Some(node) => self.connect_node(&node, address, tls).await,
            None => connect_directly(address, tls).await,
        }
    }

    /// The node with a tunnel to whose range of pods an address belongs.
    fn node_of(&self, ip: IpAddr) -> Option<String> {
        let mut tunnels = self.nodes.0.lock();
        for (name, kept) in tunnels.iter_mut().filter(|(_, kept)| kept.pods.is_empty()) {
            kept.pods = self.storage.object("minions", name).map(|node| pod_ranges(&node)).unwrap_or_default();
        }
        let has_pod = |kept: &NodeTunnel| kept.pods.iter().any(|range| range.contains(ip));
        tunnels.iter().find(|(_, kept)| has_pod(kept)).map(|(name, _)| name.clone())
    }
}

/// The tunnels of this server, by the names of their nodes.
#[derive(Default)]
struct NodeTunnels(Mutex<BTreeMap<String, NodeTunnel>>);

impl NodeTunnels {
    fn add(&self, node: &str, tunnel: Tunnel) -> bool {
        let mut tunnels = self.0.lock();
        tunnels.retain(|_, kept| !kept.tunnel.is_closed());
        if tunnels.len() >= MAX_TUNNELS && !tunnels.contains_key(node) {
            return false;
        }
        tunnels.insert(node.to_string(), NodeTunnel { tunnel, pods: Vec::new(), tunnel_only: None });
        true
    }

    async fn connect(
        &self,
        node: &str,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Stream, ConnectError> {
        match self.tunnel(node) {
            Some(route) => self.connect_by(node, route, address, tls).await,
            None => connect_directly(address, tls).await,
        }
    }

    fn tunnel(&self, node: &str) -> Option<(Tunnel, bool)> {
        let mut tunnels = self.0.lock();
        let kept = tunnels.get(node)?;
        if kept.tunnel.is_closed() {
            tunnels.remove(node);
            return None;
        }
        Some((kept.tunnel.clone(), kept.tunnel_only.is_some_and(|until| Instant::now() < until)))
    }

    fn record(&self, node: &str, through_tunnel: bool) {
        if let Some(kept) = self.0.lock().get_mut(node) {
            kept.tunnel_only = through_tunnel.then(|| Instant::now() + REMEMBERED);
        }
    }

    /// The direct connection gets a head start. With TLS it counts only once the certificate is verified: a private
    /// address may be that of another machine here.
    async fn connect_by(
        &self,
        node: &str,
        (tunnel, tunnel_only): (Tunnel, bool),
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Stream, ConnectError> {
        if tunnel_only && let Ok(stream) = connect_through(&tunnel, address, tls).await {
            return Ok(stream);
        }
        let mut direct = Box::pin(connect_directly(address, tls));
        let failure = match tokio::time::timeout(HEAD_START, &mut direct).await {
            Ok(Ok(stream)) => {
                self.record(node, false);
                return Ok(stream);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let mut through = Box::pin(connect_through(&tunnel, address, tls));
        let (stream, through_tunnel) = match failure {
            Some(error) => (through.await.map_err(|_| error)?, true),
            None => tokio::select! {
                stream = &mut direct => match stream {
                    Ok(stream) => (stream, false),
                    Err(error) => (through.await.map_err(|_| error)?, true),
                },
                stream = &mut through => match stream {
                    Ok(stream) => (stream, true),
                    Err(_) => (direct.await?, false),
                },
            },
        };
        self.record(node, through_tunnel);
        Ok(stream)
    }
}

/// The ranges of a node's pods.
fn pod_ranges(node: &Tree) -> Vec<IpNet> {
    node.list("spec.podCIDRs").iter().filter_map(|range| range.as_str()?.parse().ok()).collect()
}

/// A connection without any tunnel.
pub(crate) async fn connect_directly(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Stream, ConnectError> {
    let stream = http_client::dial(&address.host, address.port).await?;
    match tls {
        Some(tls) => http_client::connect::secure(stream, &address.name, tls).await,
        None => Ok(Stream::Tcp(stream)),
    }
}

/// Why a connection through a tunnel failed.
#[derive(Debug, thiserror::Error)]
enum ThroughError {
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

async fn connect_through(
    tunnel: &Tunnel,
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Stream, ThroughError> {
    let connected = async {
        let stream = Box::new(tunnel.connect(&address.host, address.port).await?);
        match tls {
            Some(tls) => Ok(http_client::connect::secure_other(stream, &address.name, tls).await?),
            None => Ok::<_, ThroughError>(Stream::Other(stream)),
        }
    };
    connected.await.inspect_err(|error| {
        tracing::debug!(host = address.host, port = address.port, %error, "failed to connect through the tunnel");
    })
}

#[cfg(test)]
mod tests {
    use api::{list, tree};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use stdx::wait::until_await;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tunnel::{DialFuture, TargetDialer};

    use super::*;

    const NODE: &str = "n1";
    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn pods_are_reached_through_their_own_node() {
        let node = tree! { "spec" => tree! { "podCIDRs" => list!["10.42.1.0/24", "fd00:42:1::/64"] } };
        let check = |ip: &str, want: bool| {
            let ip: IpAddr = ip.parse().expect("an address");
            assert_eq!(pod_ranges(&node).iter().any(|range| range.contains(ip)), want, "{ip}");
        };
        check("10.42.1.7", true);
        check("fd00:42:1::7", true);
        check("10.42.2.7", false);
        check("127.0.0.1", false);
        assert!(pod_ranges(&tree! {}).is_empty());
    }

    /// A listener whose connections get one byte: which side of the NAT they have reached.
    async fn serve(side: u8) -> (Address, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(&[side]).await;
            }
        });
        (Address::new(false, "127.0.0.1", address.port()), accepted)
    }

    /// The node's side of the tunnel: whatever the target, it connects to a port behind the NAT.
    struct Behind(u16);

    impl TargetDialer for Behind {
        fn dial<'a>(&'a self, _host: &'a str, _port: u16) -> DialFuture<'a> {
            Box::pin(async { Ok(TcpStream::connect(("127.0.0.1", self.0)).await?) })
        }
    }

    /// The tunnels of a server to a node, behind which a port sends `b't'`. Dropping the task closes the tunnel.
    async fn tunnels() -> (NodeTunnels, tokio::task::JoinHandle<()>) {
        let (behind, _) = serve(b't').await;
        let (node, server) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(async move { drop(tunnel::serve(node, Arc::new(Behind(behind.port))).await) });
        let tunnels = NodeTunnels::default();
        assert!(tunnels.add(NODE, Tunnel::open(server).await.expect("a tunnel")));
        (tunnels, serving)
    }

    async fn side(tunnels: &NodeTunnels, address: &Address) -> Result<u8, ConnectError> {
        let mut stream = tunnels.connect(NODE, address, None).await?;
        let mut byte = [0];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut byte)).await.expect("in time").expect("a byte");
        Ok(byte[0])
    }

    fn is_tunnel_only(tunnels: &NodeTunnels) -> bool {
        tunnels.tunnel(NODE).is_some_and(|(_, tunnel_only)| tunnel_only)
    }

    /// An address at which nothing listens.
    async fn refusing() -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Address::new(false, "127.0.0.1", listener.local_addr().expect("an address").port())
    }

    #[tokio::test]
    async fn a_reachable_node_is_dialled_directly() {
        let (tunnels, _serving) = tunnels().await;
        let (direct, _) = serve(b'd').await;
        assert_eq!(side(&tunnels, &direct).await.expect("connected"), b'd');
        assert!(!is_tunnel_only(&tunnels));
    }

    #[tokio::test]
    async fn an_unreachable_node_is_reached_through_its_tunnel() {
        let (tunnels, _serving) = tunnels().await;
        assert_eq!(side(&tunnels, &refusing().await).await.expect("connected"), b't');
        assert!(is_tunnel_only(&tunnels), "it is remembered");
        // So another port is not dialled directly, although it would respond.
        let (direct, dialled) = serve(b'd').await;
        assert_eq!(side(&tunnels, &direct).await.expect("connected"), b't');
        assert_eq!(dialled.load(Ordering::Relaxed), 0);
        // Until that time is over.
        tunnels.0.lock().get_mut(NODE).expect("a node").tunnel_only = Some(Instant::now());
        assert_eq!(side(&tunnels, &direct).await.expect("connected"), b'd');
        assert!(!is_tunnel_only(&tunnels));
    }

    /// A listener whose queue is full drops further connections, like a firewall.
    #[tokio::test]
    async fn a_silent_address_costs_the_head_start_only() {
        let (tunnels, _serving) = tunnels().await;
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let listener = socket.listen(1).expect("a listener");
        let silent = listener.local_addr().expect("an address");
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(HEAD_START, TcpStream::connect(silent)).await {
            queued.push(stream);
        }
        let silent = Address::new(false, "127.0.0.1", silent.port());
        assert_eq!(side(&tunnels, &silent).await.expect("connected"), b't');
        assert!(is_tunnel_only(&tunnels));
    }

    #[tokio::test]
    async fn a_closed_tunnel_is_forgotten() {
        let (tunnels, serving) = tunnels().await;
        assert_eq!(side(&tunnels, &refusing().await).await.expect("connected"), b't');
        serving.abort();
        until_await("the end of the tunnel", DEADLINE, async || tunnels.tunnel(NODE).is_none()).await;
        assert!(side(&tunnels, &refusing().await).await.is_err(), "the error is that of the direct connection");
        let (direct, _) = serve(b'd').await;
        assert_eq!(side(&tunnels, &direct).await.expect("connected"), b'd');
    }
}
