//! A simulated host and its pods, each in its own network namespace.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use network::cni::{Attachment, Cni, CniOptions, PodId};
use network::netlink::{Rtnl, Veth};
use network::ns::Netns;
use rustix::thread::{UnshareFlags, unshare_unsafe};

pub const DEBIAN: &str = "/usr/lib/cni";
/// Long enough for a busy machine, short enough to fail.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test on a thread in the host's namespace.
pub fn on_host(test: impl FnOnce(&Host) + Send) {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    std::thread::scope(|scope| {
        let run = || {
            let host = Host::new();
            let before = host.count();
            test(&host);
            assert_eq!(host.count(), before, "something was left behind");
        };
        let outcome = scope.spawn(run).join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

pub fn new_namespace() {
    // SAFETY: the file table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a namespace");
    let mut rtnl = Rtnl::open().expect("netlink");
    let lo = rtnl.link("lo").expect("an answer").expect("lo");
    rtnl.set_up(lo.index).expect("lo up");
}

pub struct Host {
    pub directory: tempfile::TempDir,
}

/// Counts of everything that may leak.
#[derive(Debug, PartialEq, Eq)]
pub struct Count {
    pub links: Vec<String>,
    pub leases: usize,
    pub results: usize,
    pub elements: usize,
}

impl Host {
    fn new() -> Host {
        new_namespace();
        Host { directory: tempfile::tempdir().expect("a directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn options(&self) -> CniOptions {
        CniOptions {
            conf_dir: self.path("net.d"),
            bin_dirs: Vec::new(),
            cache_dir: self.path("cache"),
            state_dir: self.path("state"),
            builtin: true,
            names: Default::default(),
            cluster: Default::default(),
        }
    }

    /// The built-in network.
    pub fn builtin(&self) -> Cni {
        let cni = Cni::open(self.options()).expect("cni");
        let cidrs = ["10.244.7.0/24".parse().expect("v4"), "fd00:244:7::/64".parse().expect("v6")];
        cni.set_pod_cidr(&cidrs).expect("pod CIDR");
        cni
    }

    /// A network with a configuration file.
    pub fn configured(&self, name: &str, text: &str, options: CniOptions) -> Cni {
        fs::create_dir_all(self.path("net.d")).expect("a directory");
        fs::write(self.path("net.d").join(name), text).expect("a file");
        Cni::open(options).expect("cni")
    }

    /// Bridges and subnet chains stay; everything that belongs to a pod has to be deleted.
    pub fn count(&self) -> Count {
        let links = Rtnl::open().and_then(|mut rtnl| rtnl.links()).expect("links");
        let files = |directory: PathBuf| {
            fs::read_dir(directory).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default()
        };
        let networks = files(self.path("state/networks")).into_iter().chain(files(self.path("networks")));
        let leases = networks.flat_map(|network| files(network.path()));
        let is_lease =
            |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.parse::<IpAddr>().is_ok());
        let port = |name: &str| !["cnio0", "tiphys0"].contains(&name);
        Count {
            links: links.into_iter().map(|link| link.name).filter(|name| port(name)).collect(),
            leases: leases.filter(is_lease).count(),
            results: files(self.path("cache/results")).len(),
            elements: ruleset().matches("comment").count(),
        }
    }

    pub fn pod(&self, name: &str) -> Pod {
        Pod { name: name.to_string(), space: NetNamespace::new() }
    }

    /// A machine next to the host without routes to the pods: the host has 192.0.2.1, it has 192.0.2.2, and fd02 too.
    pub fn outside(&self) -> NetNamespace {
        let outside = NetNamespace::new();
        let mut rtnl = Rtnl::open().expect("netlink");
        let veth =
            Veth { name: "out0", peer: "eth0", peer_netns: &outside.netns, peer_mac: None, master: None, mtu: None };
        rtnl.add_veth(&veth).expect("veth");
        let set = |rtnl: &mut Rtnl, name: &str, addresses: [&str; 2]| {
            let link = rtnl.link(name).expect("an answer").expect("the link");
            rtnl.set_up(link.index).expect("up");
            addresses.iter().for_each(|net| rtnl.add_address(link.index, net.parse().expect("net")).expect("address"));
        };
        set(&mut rtnl, "out0", ["192.0.2.1/24", "fd02::1/64"]);
        set(&mut Rtnl::open_in(&outside.netns).expect("netlink"), "eth0", ["192.0.2.2/24", "fd02::2/64"]);
        outside
    }

    pub fn take_away_outside(&self) {
        assert!(Rtnl::open().and_then(|mut rtnl| rtnl.delete_link("out0")).expect("deleted"));
    }
}

pub fn ruleset() -> String {
    let output = Command::new("nft").args(["list", "ruleset"]).output().expect("nft is there (Debian's nftables)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A network namespace.
pub struct NetNamespace {
    pub netns: Netns,
    file: File,
}

impl NetNamespace {
    pub fn new() -> NetNamespace {
        let file = std::thread::spawn(|| {
            // SAFETY: the file table stays shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a namespace");
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        let file = file.join().expect("the thread");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        NetNamespace { netns: Netns::open(Path::new(&path)).expect("the namespace"), file }
    }

    /// The path by which other processes find it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    pub fn listen(&self, address: &str) -> TcpListener {
        let address: SocketAddr = address.parse().expect("an address");
        self.netns.run(|| TcpListener::bind(address)).unwrap_or_else(|error| panic!("listen at {address}: {error}"))
    }

    pub fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let address: SocketAddr = address.parse().expect("an address");
        self.netns.run(|| TcpStream::connect_timeout(&address, RECEIVE_TIMEOUT))
    }

    pub fn udp(&self, address: &str) -> UdpSocket {
        let socket = self.netns.run(|| UdpSocket::bind(address)).expect("a socket");
        socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).expect("a timeout");
        socket
    }
}

/// Sends data in both directions, and returns the client's address as the server sees it.
pub fn talk(client: io::Result<TcpStream>, server: &TcpListener) -> IpAddr {
    let mut client = client.expect("a connection");
    let (mut served, peer) = server.accept().expect("a client");
    for stream in [&client, &served] {
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).expect("a timeout");
    }
    let mut bytes = [0; 5];
    client.write_all(b"hello").expect("sent");
    served.read_exact(&mut bytes).expect("received");
    served.write_all(&bytes).expect("sent back");
    client.read_exact(&mut bytes).expect("received back");
    assert_eq!(&bytes, b"hello");
    peer.ip()
}

pub struct Pod {
    pub name: String,
    pub space: NetNamespace,
}

impl Pod {
    pub fn attachment(&self) -> Attachment {
        Attachment {
            container_id: format!("sandbox-{}", self.name),
            netns: self.space.path(),
            ifname: "eth0".to_string(),
            pod: PodId { namespace: "default".to_string(), name: self.name.clone(), uid: format!("uid-{}", self.name) },
            ..Attachment::default()
        }
    }
}
