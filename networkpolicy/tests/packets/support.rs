//! A node with nine pods.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, json, yaml};
use network::cni::{Attachment, Cni, CniOptions, PodId};
use network::netlink::{Rtnl, Veth};
use network::ns::Netns;
use networkpolicy::kernel::Kernel;
use networkpolicy::model::{Cluster, Pod as PodModel, Policy};
use networkpolicy::plan::plan;
use podmodel::Labels;

pub const TABLE: &str = "policy-test";
pub const NODE: &str = "node-1";
pub const NAMESPACES: [&str; 3] = ["x", "y", "z"];
pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const PORTS: [u16; 3] = [80, 81, 82];
/// Long enough for a busy machine, short enough to fail.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a packet that must not arrive is waited for.
pub const SILENCE: Duration = Duration::from_millis(300);

/// A network namespace.
pub struct NetNamespace {
    pub netns: Netns,
    file: File,
}

impl NetNamespace {
    pub fn new() -> NetNamespace {
        let file = std::thread::spawn(|| {
            new_namespace();
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        let file = file.join().expect("the thread");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        NetNamespace { netns: Netns::open(Path::new(&path)).expect("the namespace"), file }
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.netns.run(work)
    }

    pub fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let stream = self.run(|| TcpStream::connect_timeout(&to, timeout))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    pub fn udp(&self, at: SocketAddr) -> UdpSocket {
        let socket = self.run(|| UdpSocket::bind(at)).expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    }

    pub fn listen(&self, at: SocketAddr) -> TcpListener {
        self.run(|| TcpListener::bind(at)).expect("a listener")
    }
}

fn new_namespace() {
    network::ns::unshare().expect("a namespace");
    let mut rtnl = Rtnl::open().expect("netlink");
    let lo = rtnl.link("lo").expect("an answer").expect("lo");
    rtnl.set_up(lo.index).expect("lo up");
}

/// A pod on the node.
pub struct Pod {
    pub namespace: &'static str,
    pub name: &'static str,
    pub space: NetNamespace,
    pub ips: [IpAddr; 2],
    pub labels: BTreeMap<&'static str, &'static str>,
    /// Name, protocol and number.
    pub ports: Vec<(&'static str, &'static str, u16)>,
}

impl Pod {
    pub fn at(&self, v6: bool, port: u16) -> SocketAddr {
        SocketAddr::new(self.ips[usize::from(v6)], port)
    }

    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub fn model(&self) -> PodModel {
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
        let port = |(name, protocol, number): &(&str, &str, u16)| {
            format!(r#"{{"name":"{name}","protocol":"{protocol}","containerPort":{number}}}"#)
        };
        let ports: Vec<String> = self.ports.iter().map(port).collect();
        let text = format!(
            r#"{{"metadata":{{"namespace":"{}","name":"{}","uid":"uid-{}-{}","labels":{{{}}}}},
            "spec":{{"nodeName":"{NODE}","containers":[{{"ports":[{}]}}]}},
            "status":{{"phase":"Running","podIPs":[{{"ip":"{}"}},{{"ip":"{}"}}]}}}}"#,
            self.namespace,
            self.name,
            self.namespace,
            self.name,
            labels.join(","),
            ports.join(","),
            self.ips[0],
            self.ips[1],
        );
        PodModel::read(&json::decode(text.as_bytes()).expect("JSON"))
    }
}

/// The labels of the namespaces.
pub fn namespace_labels(name: &'static str) -> BTreeMap<&'static str, &'static str> {
    let mut labels = BTreeMap::from([("kubernetes.io/metadata.name", name), ("ns", name)]);
    if name != "z" {
        labels.insert("team", "one");
    }
    labels
}

/// The node.
pub struct Host {
    pub pods: Vec<Pod>,
    pub kernel: Kernel,
    pub cluster: Cluster,
    cni: Cni,
    _directory: tempfile::TempDir,
}

impl Host {
    /// Runs a test on a thread in the node's network namespace.
    pub fn run(filters_bridged_frames: bool, test: impl FnOnce(&mut Host) + Send) {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        std::thread::scope(|scope| {
            let run = || {
                let mut host = Host::new(filters_bridged_frames);
                test(&mut host);
                host.kernel.cleanup().expect("cleanup");
                assert!(!ruleset().contains(TABLE), "rules are left behind");
                host.pods.iter().for_each(|pod| host.cni.del(&attachment(pod)).expect("detached"));
            };
            let outcome = scope.spawn(run).join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn new(filters_bridged_frames: bool) -> Host {
        new_namespace();
        if fs::exists("/proc/sys/net/bridge").expect("a directory") {
            let value = if filters_bridged_frames { "1" } else { "0" };
            for name in ["iptables", "ip6tables"] {
                fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{name}"), value).expect("a sysctl");
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let options = CniOptions {
            conf_dir: path("net.d"),
            bin_dirs: Vec::<PathBuf>::new(),
            cache_dir: path("cache"),
            state_dir: path("state"),
            builtin: true,
            names: Default::default(),
            cluster: Default::default(),
        };
        let cni = Cni::open(options).expect("cni");
        let cidrs = ["10.244.7.0/24".parse().expect("v4"), "fd00:244:7::/64".parse().expect("v6")];
        cni.set_pod_cidr(&cidrs).expect("pod CIDR");
        let mut pods = Vec::new();
        for namespace in NAMESPACES {
            pods.extend(NAMES.map(|name| pod(&cni, namespace, name)));
        }
        let kernel = Kernel::open(TABLE).expect("nftables");
        let mut host = Host { cluster: Cluster::default(), pods, kernel, cni, _directory: directory };
        host.cluster = host.objects();
        host
    }

    fn objects(&self) -> Cluster {
        let labels = |name| Arc::new(namespace_labels(name).into_iter().collect::<Labels>());
        Cluster {
            node: NODE.into(),
            pods: self.pods.iter().map(|pod| (pod.key().into(), Arc::new(pod.model()))).collect(),
            namespaces: NAMESPACES.iter().map(|name| (Arc::from(*name), labels(name))).collect(),
            ..Cluster::default()
        }
    }

    /// Sets all policies, each as its namespace and its spec in YAML, and applies them. Returns the number of changes.
    pub fn apply(&mut self, policies: &str) -> usize {
        self.cluster.policies =
            policy_trees(policies).iter().map(|tree| (client::key_of(tree), Arc::new(Policy::read(tree)))).collect();
        self.sync()
    }

    pub fn sync(&mut self) -> usize {
        self.kernel
            .apply(plan(&self.cluster))
            .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", std::error::Error::source(&error), plan(&self.cluster)))
    }

    pub fn pod(&self, key: &str) -> &Pod {
        self.pods.iter().find(|pod| pod.key() == key).expect("a pod")
    }

    /// A machine next to the node: the node has 192.0.2.1, it has 192.0.2.2 and fd02::2, and routes to the pods.
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
            link.index
        };
        set(&mut rtnl, "out0", ["192.0.2.1/24", "fd02::1/64"]);
        let mut inside = Rtnl::open_in(&outside.netns).expect("netlink");
        let eth0 = set(&mut inside, "eth0", ["192.0.2.2/24", "fd02::2/64"]);
        for (net, gateway) in [("10.244.7.0/24", "192.0.2.1"), ("fd00:244:7::/64", "fd02::1")] {
            let route = network::netlink::Route::new(net.parse().expect("net"), gateway.parse().ok(), eth0);
            inside.add_route(&route).expect("a route");
        }
        outside
    }
}

/// The policies of a text: each line is a namespace and a spec.
pub fn policy_trees(text: &str) -> Vec<Tree> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tree = |(index, line): (usize, &str)| {
        let (namespace, spec) = line.split_once(' ').expect("a namespace and a spec");
        let text =
            format!("metadata: {{namespace: \"{namespace}\", name: policy-{index}, uid: uid-{index}}}\nspec: {spec}\n");
        let documents = yaml::decode(text.as_bytes());
        documents.unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    lines.enumerate().map(tree).collect()
}

fn attachment(pod: &Pod) -> Attachment {
    new_attachment(&pod.space, pod.namespace, pod.name)
}

fn new_attachment(space: &NetNamespace, namespace: &str, name: &str) -> Attachment {
    Attachment {
        container_id: format!("sandbox-{namespace}-{name}"),
        netns: format!("/proc/{}/fd/{}", std::process::id(), space.file.as_raw_fd()).into(),
        ifname: "eth0".to_string(),
        pod: PodId { namespace: namespace.to_string(), name: name.to_string(), uid: format!("uid-{namespace}-{name}") },
        ..Attachment::default()
    }
}

fn pod(cni: &Cni, namespace: &'static str, name: &'static str) -> Pod {
    let space = NetNamespace::new();
    let result = cni.add(&new_attachment(&space, namespace, name)).expect("attached");
    let ips = <[IpAddr; 2]>::try_from(result.ips).expect("two addresses");
    let tier = if name == "a" { "front" } else { "back" };
    let ports = match name {
        "a" => vec![("web", "TCP", 80), ("dns", "UDP", 82), ("alt", "TCP", 81)],
        "b" => vec![("web", "TCP", 81), ("dns", "UDP", 81), ("both", "TCP", 80), ("both", "UDP", 80)],
        _ => vec![("web", "TCP", 82), ("dns", "UDP", 80)],
    };
    Pod { namespace, name, space, ips, labels: BTreeMap::from([("pod", name), ("tier", tier)]), ports }
}

pub fn ruleset() -> String {
    nft(&["list", "ruleset"])
}

pub fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().expect("nft is there (Debian's nftables)");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
