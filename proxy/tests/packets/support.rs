//! A node with pods, another node's pod, and a machine outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use api::{Tree, json};
use network::netlink::{Route, Rtnl, Veth};
use network::ns::Netns;
use proxy::backend::{Backend, Iptables, Nftables, Userspace};
use proxy::config::{Configuration, LocalMode, Mode, NodePortAddress};
use proxy::model::Family;
use proxy::proxier::{Proxier, Report};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Long enough for a busy machine, short enough to fail.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a dropped packet is waited for.
const SILENCE: Duration = Duration::from_millis(700);

pub const NODE: &str = "node-1";
pub const NODE_IP: &str = "192.0.2.1";
pub const NODE_IP6: &str = "fd02::1";
/// The clusters of the tests have another name than the one that a real proxy would use.
pub const TABLE: &str = "proxy-test";

/// A network namespace.
pub struct NetNamespace {
    pub netns: Netns,
    _file: File,
}

impl NetNamespace {
    pub fn new() -> NetNamespace {
        let file = std::thread::spawn(|| {
            new_namespace();
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        let file = file.join().expect("the thread");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        NetNamespace { netns: Netns::open(Path::new(&path)).expect("the namespace"), _file: file }
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.netns.run(work)
    }
}

fn new_namespace() {
    // SAFETY: the file table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a namespace");
    let mut rtnl = Rtnl::open().expect("netlink");
    let lo = rtnl.link("lo").expect("an answer").expect("lo");
    rtnl.set_up(lo.index).expect("lo up");
}

/// A reply of an echo server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub server: String,
    pub client: IpAddr,
}

fn parse_reply(text: &str) -> Reply {
    let (server, client) = text.split_once(' ').unwrap_or_else(|| panic!("not a reply: {text:?}"));
    Reply { server: server.to_string(), client: client.parse().expect("an address") }
}

/// A machine with addresses, which is a client and a server.
pub struct Machine {
    pub name: String,
    pub space: NetNamespace,
    pub ip: IpAddr,
    pub ip6: IpAddr,
}

impl Machine {
    /// Replies to TCP and UDP on a port with its name and the client's address.
    pub fn serve(&self, port: u16) {
        for address in [self.ip, self.ip6] {
            let at = SocketAddr::new(address, port);
            let listener = self.space.run(|| TcpListener::bind(at)).expect("a listener");
            let name = self.name.clone();
            std::thread::spawn(move || {
                while let Ok((mut stream, peer)) = listener.accept() {
                    let name = name.clone();
                    std::thread::spawn(move || serve_stream(&mut stream, &name, peer.ip()));
                }
            });
            let socket = self.space.run(|| UdpSocket::bind(at)).expect("a socket");
            let name = self.name.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 512];
                while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(format!("{name} {}", peer.ip()).as_bytes(), peer);
                }
            });
        }
    }

    /// Connects, and reads who replies.
    pub fn tcp(&self, to: &str) -> io::Result<Reply> {
        self.space.run(|| connect(to, TIMEOUT)).and_then(read_reply)
    }

    pub fn connect(&self, to: &str) -> TcpStream {
        self.space.run(|| connect(to, TIMEOUT)).unwrap_or_else(|error| panic!("connect to {to}: {error}"))
    }

    /// Whether a connection attempt is neither accepted nor refused.
    pub fn is_dropped(&self, to: &str) -> bool {
        let outcome = self.space.run(|| connect(to, SILENCE));
        // Namespaces forward packets if the machine does, and report that there is no route.
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        matches!(outcome, Err(error) if matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable))
    }

    /// Whether a connection attempt is refused at once.
    pub fn is_refused(&self, to: &str) -> bool {
        let started = Instant::now();
        let outcome = self.space.run(|| connect(to, TIMEOUT));
        assert!(started.elapsed() < TIMEOUT, "it hangs");
        matches!(outcome, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    pub fn udp_socket(&self, to: &str) -> UdpSocket {
        let to: SocketAddr = to.parse().expect("an address");
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = self.space.run(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            Ok(socket)
        });
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    }

    /// A raw socket that sends and receives SCTP.
    pub fn raw_sctp(&self) -> OwnedFd {
        use rustix::net::{AddressFamily, Protocol, SocketType, socket, sockopt};
        let protocol = std::num::NonZero::new(132).map(Protocol::from_raw);
        let socket = self.space.run(|| Ok(socket(AddressFamily::INET, SocketType::RAW, protocol)?)).expect("a socket");
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(SILENCE)).expect("a timeout");
        socket
    }

    pub fn udp(&self, to: &str) -> io::Result<Reply> {
        ask(&self.udp_socket(to))
    }

    /// The servers that reply to some connections.
    pub fn servers(&self, to: &str, times: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..times).map(|_| self.tcp(to).expect("a reply").server).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn serve_stream(stream: &mut TcpStream, name: &str, peer: IpAddr) {
    let mut line = [0; 1];
    // A client may keep its connection and ask again.
    while stream.write_all(format!("{name} {peer}\n").as_bytes()).is_ok() {
        if !matches!(stream.read(&mut line), Ok(1)) {
            return;
        }
    }
}

fn connect(to: &str, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to.parse().expect("an address"), timeout)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

pub fn read_reply(mut stream: TcpStream) -> io::Result<Reply> {
    next_reply(&mut stream)
}

/// One line of an open connection.
pub fn next_reply(stream: &mut TcpStream) -> io::Result<Reply> {
    let (mut text, mut byte) = (String::new(), [0; 1]);
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        text.push(char::from(byte[0]));
    }
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(parse_reply(&text)) }
}

pub fn ask(socket: &UdpSocket) -> io::Result<Reply> {
    let mut buffer = [0; 512];
    socket.send(b"?")?;
    let length = socket.recv(&mut buffer)?;
    Ok(parse_reply(&String::from_utf8_lossy(&buffer[..length])))
}

/// A node with its proxy.
pub struct Cluster {
    pub proxier: Proxier,
    config: Configuration,
    /// The objects of the API.
    objects: BTreeMap<String, Tree>,
    pub pods: Vec<Machine>,
    /// A pod of another node.
    pub remote: Machine,
    pub outside: Machine,
    /// The node itself as a client.
    pub node: Machine,
}

impl Cluster {
    /// Runs a test on a thread in the node's namespace.
    pub fn run(mode: &str, test: fn(&mut Cluster)) {
        Cluster::configured(mode, |_| {}, test);
    }

    pub fn configured(mode: &str, configure: impl FnOnce(&mut Configuration) + Send, test: fn(&mut Cluster)) {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        let mode = Mode::parse(mode).expect("a mode");
        std::thread::scope(|scope| {
            let run = || {
                let mut cluster = Cluster::new(mode, configure);
                cluster.sync();
                test(&mut cluster);
                cluster.proxier.cleanup().expect("cleanup");
                assert_eq!(leftovers(), Vec::<String>::new(), "rules are left behind");
            };
            let outcome = scope.spawn(run).join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn new(mode: Mode, configure: impl FnOnce(&mut Configuration)) -> Cluster {
        new_namespace();
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            fs::write(format!("/proc/sys/net/{name}"), "1").expect("forwarding");
        }
        let mut rtnl = Rtnl::open().expect("netlink");
        rtnl.add_link("bridge", "br0", None).expect("a bridge");
        let bridge = rtnl.link("br0").expect("an answer").expect("the bridge").index;
        rtnl.set_up(bridge).expect("up");
        add_addresses(&mut rtnl, bridge, ["10.244.1.1/24", "fd00:244:1::1/64"]);
        let pods = (0..3).map(|number| {
            let ips = [format!("10.244.1.{}", number + 10), format!("fd00:244:1::{}", number + 10)];
            machine(&mut rtnl, &format!("pod-{number}"), Some(bridge), ips, ["10.244.1.1", "fd00:244:1::1"])
        });
        let pods: Vec<Machine> = pods.collect();
        let remote = machine(
            &mut rtnl,
            "remote",
            None,
            ["10.244.2.10".to_string(), "fd00:244:2::10".to_string()],
            ["10.244.2.1", "fd00:244:2::1"],
        );
        let outside =
            machine(&mut rtnl, "outside", None, ["192.0.2.2".to_string(), "fd02::2".to_string()], [NODE_IP, NODE_IP6]);
        // Without a route, a client on the node could not send anything. The machine outside forwards nothing.
        let out = rtnl.link("outside").expect("an answer").expect("the link").index;
        for (net, gateway) in [("0.0.0.0/0", "192.0.2.2"), ("::/0", "fd02::2")] {
            rtnl.add_route(&Route::new(net.parse().expect("net"), gateway.parse().ok(), out)).expect("a route");
        }
        let own = File::open("/proc/thread-self/ns/net").expect("the namespace");
        let netns = Netns::current().expect("the namespace");
        let node = Machine {
            name: "node".to_string(),
            space: NetNamespace { netns, _file: own },
            ip: NODE_IP.parse().expect("ip"),
            ip6: NODE_IP6.parse().expect("ip"),
        };
        let mut config = config();
        configure(&mut config);
        let proxier = proxier(mode, config.clone());
        let mut cluster = Cluster { proxier, config, objects: BTreeMap::new(), pods, remote, outside, node };
        cluster.set_node(&[]);
        cluster
    }

    /// The Node with labels.
    pub fn set_node(&mut self, labels: &[(&str, &str)]) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
        let text = format!(
            r#"{{"metadata":{{"name":"{NODE}","labels":{{{}}}}},"spec":{{"podCIDRs":["10.244.1.0/24","fd00:244:1::/64"]}},
            "status":{{"addresses":[{{"type":"InternalIP","address":"{NODE_IP}"}},{{"type":"InternalIP","address":"{NODE_IP6}"}}]}}}}"#,
            labels.join(",")
        );
        let node = tree(&text);
        self.proxier.set_node(&node);
        self.objects.insert("node".to_string(), node);
    }

    /// Sets a Service from its spec, and the status if there is one.
    pub fn service(&mut self, name: &str, spec: &str, status: &str) {
        let status = if status.is_empty() { "{}" } else { status };
        // Services are created one after the other.
        let known = self.objects.get(&format!("service/default/{name}"));
        let created = known.map(|known| known.str("metadata.creationTimestamp").to_string());
        let created = created.unwrap_or_else(|| format!("2026-01-01T00:00:{:02}Z", self.objects.len()));
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","creationTimestamp":"{created}"}},"spec":{spec},"status":{{"loadBalancer":{status}}}}}"#
        );
        let (key, tree) = (client::key("default", name), tree(&text));
        self.proxier.set_service(&key, Some(&tree));
        self.objects.insert(format!("service/{key}"), tree);
    }

    pub fn delete_service(&mut self, name: &str) {
        let key = client::key("default", name);
        self.proxier.set_service(&key, None);
        self.objects.remove(&format!("service/{key}"));
    }

    /// Sets a slice of a Service. Each endpoint is JSON.
    pub fn slice(&mut self, service: &str, family: Family, ports: &str, endpoints: &[String]) {
        self.named_slice(&format!("{service}-{}", family.name()), service, family, ports, endpoints);
    }

    pub fn named_slice(&mut self, name: &str, service: &str, family: Family, ports: &str, endpoints: &[String]) {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","labels":{{"kubernetes.io/service-name":"{service}"}}}},
            "addressType":"{}","ports":{ports},"endpoints":[{}]}}"#,
            family.name(),
            endpoints.join(",")
        );
        let (key, tree) = (client::key("default", name), tree(&text));
        self.proxier.set_slice(&key, Some(&tree));
        self.objects.insert(format!("slice/{key}"), tree);
    }

    /// Replaces the proxy by a new one that reads everything again, as after a kill: the rules of the old one are there.
    pub fn restart(&mut self) {
        let (mode, config) = (self.proxier.mode(), self.config.clone());
        self.proxier = proxier(mode, config);
        self.proxier.set_node(&self.objects["node"]);
        for (name, tree) in &self.objects {
            let key = client::key_of(tree);
            match name.split_once('/') {
                Some(("service", _)) => drop(self.proxier.set_service(&key, Some(tree))),
                Some(("slice", _)) => drop(self.proxier.set_slice(&key, Some(tree))),
                _ => {}
            }
        }
        self.sync();
    }

    /// Ready endpoints of pods in both families, at one port.
    pub fn endpoints(&mut self, service: &str, protocol: &str, port: u16, pods: &[usize]) {
        for family in Family::ALL {
            let ports = format!(r#"[{{"name":"","protocol":"{protocol}","port":{port}}}]"#);
            let list: Vec<String> = pods.iter().map(|pod| ready(&self.pods[*pod], family, NODE)).collect();
            self.slice(service, family, &ports, &list);
        }
    }

    /// The proxy of another cluster on this machine.
    pub fn other_proxier(&self, table: &str) -> Proxier {
        proxier(self.proxier.mode(), Configuration { table: table.to_string(), ..self.config.clone() })
    }

    /// Whether the kernel translates addresses, so that endpoints may see the client's.
    pub fn translates(&self) -> bool {
        self.proxier.mode() != Mode::Userspace
    }

    pub fn sync(&mut self) -> Report {
        self.proxier.sync().expect("a sync")
    }
}

pub fn ip_of(machine: &Machine, family: Family) -> IpAddr {
    match family {
        Family::V4 => machine.ip,
        Family::V6 => machine.ip6,
    }
}

/// An endpoint that is ready.
pub fn ready(machine: &Machine, family: Family, node: &str) -> String {
    endpoint(machine, family, node, r#"{"ready":true,"serving":true,"terminating":false}"#, "{}")
}

pub fn endpoint(machine: &Machine, family: Family, node: &str, conditions: &str, hints: &str) -> String {
    format!(
        r#"{{"addresses":["{}"],"nodeName":"{node}","conditions":{conditions},"hints":{hints}}}"#,
        ip_of(machine, family)
    )
}

pub fn tree(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub fn config() -> Configuration {
    Configuration {
        node_name: NODE.to_string(),
        table: TABLE.to_string(),
        local_mode: LocalMode::ClusterCidr(
            ["10.244.0.0/16", "fd00:244::/32"].map(|cidr| cidr.parse().expect("a range")).into(),
        ),
        node_port_addresses: Some(vec![NodePortAddress::Primary]),
        ..Configuration::default()
    }
}

pub fn proxier(mode: Mode, config: Configuration) -> Proxier {
    let backend: Box<dyn Backend> = match mode {
        Mode::Nftables => Box::new(Nftables::open(&config.table, config.masquerade_bit).expect("nftables")),
        Mode::Iptables => Box::new(Iptables::new(&config.table, config.masquerade_bit, config.localhost_node_ports)),
        Mode::Userspace => {
            let rules = Nftables::open(&config.table, config.masquerade_bit).expect("nftables");
            Box::new(Userspace::new(Box::new(rules)).expect("userspace"))
        }
    };
    Proxier::new(config, backend, Family::ALL.into())
}

fn machine(rtnl: &mut Rtnl, name: &str, master: Option<u32>, ips: [String; 2], gateways: [&str; 2]) -> Machine {
    let space = NetNamespace::new();
    let veth = Veth { name, peer: "eth0", peer_netns: &space.netns, peer_mac: None, master, mtu: None };
    rtnl.add_veth(&veth).expect("veth");
    let link = rtnl.link(name).expect("an answer").expect("the link").index;
    rtnl.set_up(link).expect("up");
    let prefix = ["/24", "/64"];
    if master.is_some() {
        // The kernel translates inside of the bridge, which does not send a packet back to its port otherwise.
        rtnl.set_hairpin(link, true).expect("hairpin");
    } else {
        add_addresses(rtnl, link, [0, 1].map(|at| format!("{}{}", gateways[at], prefix[at])));
    }
    let mut inside = Rtnl::open_in(&space.netns).expect("netlink");
    let eth0 = inside.link("eth0").expect("an answer").expect("eth0").index;
    inside.set_up(eth0).expect("up");
    add_addresses(&mut inside, eth0, [0, 1].map(|at| format!("{}{}", ips[at], prefix[at])));
    for (net, gateway) in ["0.0.0.0/0", "::/0"].into_iter().zip(gateways) {
        let route = Route::new(net.parse().expect("net"), gateway.parse().ok(), eth0);
        inside.add_route(&route).expect("a route");
    }
    let [ip, ip6] = ips.map(|ip| ip.parse().expect("ip"));
    Machine { name: name.to_string(), space, ip, ip6 }
}

fn add_addresses(rtnl: &mut Rtnl, link: u32, nets: [impl AsRef<str>; 2]) {
    for net in nets {
        rtnl.add_address(link, net.as_ref().parse().expect("net")).expect("an address");
    }
}

pub fn ruleset() -> String {
    shown("nft", &["list", "ruleset"])
}

pub fn shown(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Tables and chains of the proxy in this namespace.
fn leftovers() -> Vec<String> {
    let tables = shown("nft", &["list", "tables"]);
    let mut left: Vec<String> = tables.lines().filter(|line| line.contains(TABLE)).map(str::to_string).collect();
    for program in ["iptables-save", "ip6tables-save"] {
        left.extend(shown(program, &[]).lines().filter(|line| line.contains("TP-")).map(str::to_string));
    }
    left
}
