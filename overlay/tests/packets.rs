//! Packets between two nodes, on a real kernel: each node is a network namespace that the test creates, with an address
//! of its pod CIDR in place of a pod. They need root.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use network::netlink::{Route, Rtnl, Veth};
use network::ns::{self, Netns};
use overlay::config::{Backend, Config};
use overlay::kernel::{self, Local};
use overlay::model::{Endpoint, Peer, own_mac};
use overlay::plan::plan;
use stdx::cidr::IpNet;

const BRIDGE: &str = "tiphys0";
const NAMES: [&str; 2] = ["a", "b"];
const TIMEOUT: Duration = Duration::from_secs(5);
const VXLAN: Backend = Backend::Vxlan { vni: 1, port: 8472, direct: false };

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn cidr(text: &str) -> IpNet {
    text.parse().expect("a CIDR")
}

fn host(at: usize, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { ip(&format!("192.0.2.{}", at + 1)) } else { ip(&format!("2001:db8::{}", at + 1)) }
}

fn pod_cidr(at: usize, is_ipv4: bool) -> IpNet {
    if is_ipv4 { cidr(&format!("10.42.{at}.0/24")) } else { cidr(&format!("fd00:42:0:{at}::/64")) }
}

fn pod(at: usize, is_ipv4: bool) -> IpAddr {
    if is_ipv4 { ip(&format!("10.42.{at}.7")) } else { ip(&format!("fd00:42:0:{at}::7")) }
}

fn peer(at: usize) -> Peer {
    let endpoint = |is_ipv4| Endpoint {
        pod_cidr: pod_cidr(at, is_ipv4),
        host: host(at, is_ipv4),
        mac: Some(own_mac(NAMES[at], 1, is_ipv4)),
    };
    Peer { name: NAMES[at].into(), created: "".into(), endpoints: vec![endpoint(true), endpoint(false)] }
}

fn config(backend: Backend) -> Config {
    Config { pod_cidrs: vec![cidr("10.42.0.0/16"), cidr("fd00:42::/48")], backend }
}

struct Machines([Netns; 2]);

impl Machines {
    /// Two machines that share a link.
    fn new() -> Machines {
        let space = || {
            let created = std::thread::spawn(|| {
                ns::unshare().expect("a namespace");
                Netns::current().expect("the namespace")
            });
            created.join().expect("the thread")
        };
        let machines = Machines([space(), space()]);
        let veth =
            Veth { name: "u0", peer: "u0", peer_netns: &machines.0[1], peer_mac: None, master: None, mtu: Some(1500) };
        machines.rtnl(0).add_veth(&veth).expect("a link");
        for at in 0..2 {
            let mut rtnl = machines.rtnl(at);
            let link = rtnl.link("u0").expect("an answer").expect("the link");
            rtnl.set_up(link.index).expect("up");
            let lo = rtnl.link("lo").expect("an answer").expect("lo");
            rtnl.set_up(lo.index).expect("up");
            machines.0[at].run(|| network::sysctl::set("ipv6/conf/u0/accept_dad", "0")).expect("a sysctl");
            for is_ipv4 in [true, false] {
                let prefix = if is_ipv4 { 24 } else { 64 };
                let net = IpNet::new(host(at, is_ipv4), prefix).expect("a network");
                rtnl.add_address(link.index, net).expect("an address");
                rtnl.add_address(lo.index, IpNet::host(pod(at, is_ipv4))).expect("an address");
            }
        }
        machines
    }

    fn rtnl(&self, at: usize) -> Rtnl {
        Rtnl::open_in(&self.0[at]).expect("netlink")
    }

    /// Applies what the node plans if these are the nodes of the cluster.
    fn apply(&self, at: usize, backend: Backend, peers: &[Peer]) {
        let (config, own) = (config(backend), peer(at));
        let applied = self.0[at].run(|| {
            let mut rtnl = Rtnl::open().map_err(std::io::Error::other)?;
            for endpoint in &own.endpoints {
                let local = Local::find(&mut rtnl, endpoint.host).map_err(std::io::Error::other)?;
                let is_ipv4 = endpoint.pod_cidr.is_ipv4();
                let plan = plan(&config, &own, is_ipv4, peers, |host| local.net.contains(host));
                assert_eq!(plan.problems, []);
                kernel::apply(&mut rtnl, &config, (&own.name, BRIDGE), &local, endpoint, &plan)
                    .map_err(std::io::Error::other)?;
            }
            Ok(())
        });
        applied.expect("applied");
    }

    /// Whether the pod of one machine reaches that of the other, with its own address.
    fn connects(&self, from: usize, is_ipv4: bool) -> bool {
        let to = 1 - from;
        let at = SocketAddr::new(pod(to, is_ipv4), 0);
        let listener = self.0[to].run(|| TcpListener::bind(at)).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let client = self.0[from].run(|| TcpStream::connect_timeout(&address, TIMEOUT));
        let Ok(mut client) = client else { return false };
        let (mut served, peer) = listener.accept().expect("a client");
        served.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        // Larger than the MTU of the link.
        client.write_all(&[7; 20_000]).expect("sent");
        let mut received = vec![0; 20_000];
        served.read_exact(&mut received).expect("received");
        assert!(pod_cidr(from, is_ipv4).contains(peer.ip()) || peer.ip() == host(from, is_ipv4), "{peer}");
        true
    }

    /// What the kernel has of our network, by kind.
    fn count(&self, at: usize) -> BTreeMap<&'static str, usize> {
        let mut rtnl = self.rtnl(at);
        let links = rtnl.links().expect("links");
        let mut counts = BTreeMap::new();
        for link in &links {
            let routes = rtnl.routes(link.index).expect("routes");
            let ours = routes.iter().filter(|route| route.protocol == Some(84)).count();
            *counts.entry("routes").or_default() += ours;
            if link.name.starts_with(BRIDGE) {
                *counts.entry("devices").or_default() += 1;
                *counts.entry("forwardings").or_default() += rtnl.forwardings(link.index).expect("entries").len();
                let neighbours = rtnl.neighbours(link.index).expect("neighbours").into_iter();
                *counts.entry("neighbours").or_default() +=
                    neighbours.filter(|neighbour| !neighbour.address.is_multicast()).count();
            }
        }
        counts
    }
}

fn both() -> [Peer; 2] {
    [peer(0), peer(1)]
}

#[test]
fn pods_of_two_nodes_reach_each_other() {
    let direct = Backend::Vxlan { vni: 1, port: 8472, direct: true };
    for backend in [VXLAN, direct, Backend::HostGw] {
        let machines = Machines::new();
        (0..2).for_each(|at| machines.apply(at, backend, &both()));
        for (from, is_ipv4) in [(0, true), (1, true), (0, false), (1, false)] {
            assert!(machines.connects(from, is_ipv4), "{backend:?} from {from}, IPv4 {is_ipv4}");
        }
    }
}

#[test]
fn another_backend_replaces_the_routes() {
    let machines = Machines::new();
    (0..2).for_each(|at| machines.apply(at, VXLAN, &both()));
    (0..2).for_each(|at| machines.apply(at, Backend::HostGw, &both()));
    assert_eq!(machines.count(0), BTreeMap::from([("routes", 2)]));
    assert!(machines.connects(0, true) && machines.connects(1, false));
    (0..2).for_each(|at| machines.apply(at, VXLAN, &both()));
    assert!(machines.connects(0, true) && machines.connects(1, false));
}

#[test]
fn a_second_sync_changes_nothing_and_repairs_what_is_missing() {
    let machines = Machines::new();
    (0..2).for_each(|at| machines.apply(at, VXLAN, &both()));
    let device = |at: usize| machines.rtnl(at).link("tiphys0-vx").expect("an answer").expect("the device").index;
    let (before, counts) = (device(0), machines.count(0));
    assert_eq!(counts, BTreeMap::from([("devices", 2), ("forwardings", 2), ("neighbours", 2), ("routes", 2)]));
    machines.apply(0, VXLAN, &both());
    assert_eq!((device(0), machines.count(0)), (before, counts.clone()));

    let mut rtnl = machines.rtnl(0);
    let route = rtnl.routes(before).expect("routes").into_iter().find(|route| route.protocol == Some(84));
    rtnl.delete_route(&route.expect("a route")).expect("deleted");
    rtnl.delete_neighbour(before, ip("10.42.1.0")).expect("deleted");
    machines.apply(0, VXLAN, &both());
    assert_eq!(machines.count(0), counts);
    rtnl.delete_link("tiphys0-vx").expect("deleted");
    machines.apply(0, VXLAN, &both());
    assert_eq!(machines.count(0), counts);
    assert!(machines.connects(0, true));
}

#[test]
fn a_node_that_left_and_foreign_routes() {
    let machines = Machines::new();
    machines.apply(0, VXLAN, &both());
    let mut rtnl = machines.rtnl(0);
    let under = rtnl.link("u0").expect("an answer").expect("the link").index;
    let foreign = Route::new(cidr("10.42.200.0/24"), Some(host(1, true)), under);
    rtnl.add_route(&foreign).expect("a route");
    machines.apply(0, VXLAN, &[peer(0)]);
    assert_eq!(
        machines.count(0),
        BTreeMap::from([("devices", 2), ("forwardings", 0), ("neighbours", 0), ("routes", 0)])
    );
    let has_foreign = |rtnl: &mut Rtnl| rtnl.routes(under).expect("routes").iter().any(|route| route.to == foreign.to);
    assert!(has_foreign(&mut rtnl));
    machines.apply(0, Backend::HostGw, &both());
    let cleaned =
        machines.0[0].run(|| kernel::cleanup(BRIDGE, &config(VXLAN).pod_cidrs).map_err(std::io::Error::other));
    cleaned.expect("cleaned up");
    assert_eq!(machines.count(0), BTreeMap::from([("routes", 0)]));
    assert!(has_foreign(&mut rtnl));
}

#[test]
fn another_overlay_of_the_machine_is_named() {
    let machines = Machines::new();
    let mut rtnl = machines.rtnl(0);
    let under = rtnl.link("u0").expect("an answer").expect("the link").index;
    let theirs = network::netlink::Vxlan { vni: 1, port: 8472, local: host(0, true), device: under };
    rtnl.add_vxlan("flannel.1", &theirs, [2, 0, 0, 0, 0, 1], 1450).expect("a device");
    let (config, own) = (config(VXLAN), peer(0));
    let failed = machines.0[0].run(|| {
        let mut rtnl = Rtnl::open().map_err(std::io::Error::other)?;
        let local = Local::find(&mut rtnl, host(0, true)).map_err(std::io::Error::other)?;
        let plan = plan(&config, &own, true, &both(), |_| true);
        Ok(kernel::apply(&mut rtnl, &config, ("a", BRIDGE), &local, &own.endpoints[0], &plan))
    });
    let why = failed.expect("no other error").expect_err("refused").to_string();
    assert!(why.contains("another device uses VNI 1 and UDP port 8472"), "{why}");
}
