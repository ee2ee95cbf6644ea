//! A cluster of one node in its own namespaces, on the built-in runtime or on containerd.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use runtime::images::{Config, Images, NoProgress};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use super::case::ChildProcess;
use crate::support::BINARY;
use crate::{busybox, debian_containerd, debian_nginx};

/// The image with a shell and its tools; it is on the node before the cluster starts.
pub const IMAGE: &str = "suite.local/busybox:1";
/// A few files, to be mounted as a volume.
pub const FILES: &str = "suite.local/files:1";
/// Debian's web server, which replies with its host name and the requested one.
pub const NGINX: &str = "suite.local/nginx:1";
const PAUSE: &str = "suite.local/pause:1";
/// For a KubeletConfiguration: other programs may fill the machine's disk.
pub const ANY_DISK: &str = "evictionHard: {memory.available: 1Mi}\nimageGCHighThresholdPercent: 100\n";
/// Of the clusters that cases share: logs are put aside early.
const SHARED: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerLogMaxSize: 100Ki
containerLogMaxFiles: 20
containerLogMonitorInterval: 3s
enableSystemLogQuery: true
";
pub const NODE: &str = "node";
/// The source address of the default route, which has no peer.
pub const ADDRESS: &str = "192.0.2.10";

/// A separate network with a default route without a peer; no file of the machine is changed.
pub const ENTER: &str = "ip link set lo up && ip link add way type veth peer name out && \
    ip address add 192.0.2.10/24 dev way && ip link set way up && ip link set out up && \
    ip route add default via 192.0.2.1 && mount -t tmpfs none /run && mount -t tmpfs none /var/log && \
    mkdir -p /var/lib/cni && mount -t tmpfs none /var/lib/cni";

/// Starts containerd with its images first.
const CONTAINERD: &str = "{ containerd --config config.toml >containerd.log 2>&1 & } && \
    n=0 && until ctr -a cri.sock version >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.1; done && \
    ctr -a cri.sock -n k8s.io images import images.tar >/dev/null";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Embedded,
    Containerd,
}

pub struct Cluster {
    process: Child,
    /// The first process of the namespaces, in which commands are run.
    inside: String,
    pub dir: TempDir,
    cgroup: String,
    pub runtime: Runtime,
}

impl Cluster {
    /// `up`, when its node is ready.
    pub fn up(runtime: Runtime) -> Cluster {
        Cluster::up_with(runtime, &[])
    }

    /// The same with simulated hosts, which have the images too.
    pub fn up_with_nodes(nodes: u32) -> Cluster {
        Cluster::up_with_nodes_and(nodes, &[])
    }

    /// The same with more flags.
    pub fn up_with_nodes_and(nodes: u32, flags: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 2..=nodes {
            make_images(&dir.path().join(format!("data/nodes/{NODE}-{number}/agent/runtime/images")));
        }
        Cluster::up_in(dir, Runtime::Embedded, ENTER, &[&["--nodes", &nodes.to_string()], flags].concat())
    }

    /// A highly available cluster: all nodes are simulated hosts, and the first three are servers.
    pub fn up_with_servers(nodes: u32) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 1..=nodes {
            let part = if number <= 3 { "server" } else { "agent" };
            make_images(&dir.path().join(format!("data/nodes/{NODE}-{number}/{part}/runtime/images")));
        }
        Cluster::up_in(dir, Runtime::Embedded, ENTER, &["--nodes", &nodes.to_string(), "--servers", "3"])
    }

    /// The same with more flags.
    pub fn up_with(runtime: Runtime, flags: &[&str]) -> Cluster {
        Cluster::up_entering(runtime, ENTER, flags)
    }

    /// The same in another network than that of `ENTER`.
    pub fn up_entering(runtime: Runtime, enter: &str, flags: &[&str]) -> Cluster {
        Cluster::up_in(tempfile::tempdir().expect("a directory"), runtime, enter, flags)
    }

    /// The same in a directory that has files already.
    pub fn up_in(dir: TempDir, runtime: Runtime, enter: &str, flags: &[&str]) -> Cluster {
        let cgroup = cgroup_of(&dir);
        let mut words: Vec<String> =
            ["up", "--port", "6443", "--node-name", NODE, "--data-dir", "data", "--cgroup-root", &cgroup]
                .into_iter()
                .chain(["--kubelet-config", "kubelet.yaml"])
                .chain(flags.iter().copied())
                .map(str::to_string)
                .collect();
        fs::write(dir.path().join("kubelet.yaml"), format!("{SHARED}{ANY_DISK}")).expect("a file");
        let mut script = enter.to_string();
        match runtime {
            Runtime::Embedded => make_images(&dir.path().join("data/runtime/images")),
            Runtime::Containerd => {
                prepare_containerd(dir.path());
                script = format!("{script} && {CONTAINERD}");
                let socket = dir.path().join("cri.sock");
                words.extend(["--container-runtime-endpoint".to_string(), socket.to_string_lossy().into_owned()]);
            }
        }
        let cluster = Cluster::run(dir, runtime, &script, &words);
        cluster.enter();
        cluster
    }

    /// Runs the binary in separate namespaces, in a directory, until its cluster has a kubeconfig.
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    pub fn run(dir: TempDir, runtime: Runtime, script: &str, words: &[String]) -> Cluster {
        let log = fs::File::create(dir.path().join("log")).expect("a file");
        let mut process = alone(&format!("{script} && exec \"$0\" \"$@\""))
            .args(words)
            .current_dir(dir.path())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("unshare is there");
        let deadline = Instant::now() + Duration::from_secs(90);
        while !dir.path().join("data/kubeconfig").exists() {
            let is_late = Instant::now() > deadline || process.try_wait().is_ok_and(|ended| ended.is_some());
            if is_late {
                let _ = process.kill();
                panic!("the cluster does not start: {}", read(&dir.path().join("log")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let inside = read(&PathBuf::from(format!("/proc/{0}/task/{0}/children", process.id()))).trim().to_string();
        let cgroup = cgroup_of(&dir);
        Cluster { process, inside, dir, cgroup, runtime }
    }

    /// Starts another process of the binary in the namespaces of the cluster.
    pub fn spawn(&self, words: &[&str]) -> ChildProcess {
        let log = fs::File::options().append(true).open(self.dir.path().join("log")).expect("a file");
        let mut command = self.command(BINARY);
        let command = command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ChildProcess(command.spawn().expect("nsenter is there"))
    }

    /// Moves this thread, and the processes that it starts, into the cluster's network.
    pub fn enter(&self) {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.inside)).expect("its network");
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
    }

    /// A program among the processes and mounts of the cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let dir = format!("--wd={}", self.dir.path().display());
        command.args(["-t", &self.inside, "--net", "--mount", "--pid", &dir, program]);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// The certificates of the control plane.
    pub fn pki(&self) -> PathBuf {
        let own = self.dir.path().join("data/pki");
        if own.exists() { own } else { self.dir.path().join(format!("data/nodes/{NODE}-1/server/pki")) }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/kubeconfig")
    }

    /// The end of the log of its processes.
    pub fn log(&self) -> String {
        let log = read(&self.dir.path().join("log"));
        log.lines().skip(log.lines().count().saturating_sub(20)).flat_map(|line| [line, "\n"]).collect()
    }

    /// The directories below a cgroup of the cluster, in all hierarchies.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let pattern = format!("*{}*", self.cgroup);
        let output = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-path", &pattern]).output();
        let output = output.expect("find is there");
        String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
    }
}

impl Drop for Cluster {
    #[allow(clippy::disallowed_methods, reason = "a test that waits for a process may block")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The processes of the namespace end with its first one; their cgroups are empty.
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut left = self.cgroups();
        while !left.is_empty() && Instant::now() < deadline {
            left.iter().rev().for_each(|dir| drop(fs::remove_dir(dir)));
            std::thread::sleep(Duration::from_millis(20));
            left = self.cgroups();
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A shell script whose `$0` is the binary, in namespaces that end with it.
pub fn alone(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, BINARY]);
    command
}

pub fn cgroup_of(dir: &TempDir) -> String {
    format!("/tiphys-e2e-{}", dir.path().file_name().expect("a name").to_string_lossy().replace('.', ""))
}

pub fn make_images(root: &Path) {
    fs::create_dir_all(root).expect("a directory");
    let images = Images::open(root, Default::default()).expect("images");
    let sleep = ["/bin/busybox", "sleep", "1000000"].map(String::from).to_vec();
    let made = [
        (
            IMAGE,
            vec![busybox::layer()],
            Config { env: vec!["FROM_IMAGE=yes".into()], cmd: sleep.clone(), ..Default::default() },
        ),
        (FILES, vec![files()], Config::default()),
        (PAUSE, vec![busybox::layer()], Config { entrypoint: sleep, ..Default::default() }),
        (
            NGINX,
            vec![busybox::layer(), debian_nginx::layer()],
            Config { entrypoint: vec!["/usr/sbin/nginx".into()], ..Default::default() },
        ),
    ];
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (name, layers, config) in made {
        tokio.block_on(images.build(name, layers, config, &NoProgress)).expect("an image");
    }
}

fn files() -> Vec<u8> {
    let mut tar = busybox::Tar::default();
    tar.entry("data/", b'5', 0o755, "", &[]);
    tar.entry("data/file", b'0', 0o644, "", b"of the image\n");
    tar.finish()
}

/// Prepares a directory for Debian's containerd, and the images as one file.
pub fn prepare_containerd(dir: &Path) {
    let root = dir.join("images");
    make_images(&root);
    let mut export = Command::new(BINARY);
    export.args(["images", "export", IMAGE, FILES, NGINX, PAUSE, "--output"]).arg(dir.join("images.tar"));
    assert!(export.arg("--root").arg(&root).status().expect("the binary runs").success());
    fs::create_dir(dir.join("net.d")).expect("a directory");
    fs::write(dir.join("net.d/10-suite.conflist"), debian_containerd::network(dir)).expect("a file");
    fs::write(dir.join("config.toml"), debian_containerd::config(dir, PAUSE)).expect("a file");
}
