//! A separate runtime for each test, with its own directories, cgroups and network. Leaks are counted at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cri::{
    ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, ExecSyncRequest, ExecSyncResponse, ImageServiceClient, ImageSpec, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListContainersRequest,
    ListPodSandboxRequest, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    RemovePodSandboxRequest, RunPodSandboxRequest, RuntimeService, RuntimeServiceClient, StartContainerRequest, Status,
    StopPodSandboxRequest, VersionRequest, connect,
};
use runtime::images::{Config, Images, NoProgress};

pub use crate::busybox::{Tar, layer};

pub const IMAGE: &str = "test.local/busybox:1";
/// Two layers with a few files, to be mounted as a volume.
pub const VOLUME: &str = "test.local/volume:1";
/// Symlinks that lead, or would lead, outside of the root.
pub const LINKS: &str = "test.local/links:1";
const DEADLINE: Duration = Duration::from_secs(30);

pub struct Node {
    pub directory: tempfile::TempDir,
    pub daemon: Option<Child>,
    pub runtime: RuntimeServiceClient,
    pub images: ImageServiceClient,
    /// Additional arguments of the runtime.
    pub arguments: Vec<String>,
    name: String,
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Waits until a condition holds; fails after a while, with a description.
#[track_caller]
pub fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    stdx::wait::until(what, DEADLINE, holds);
}

/// Moves this thread, and the processes it starts, into a new network namespace.
fn enter_new_netns() {
    thread_local!(static LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if LEFT.replace(true) {
        return;
    }
    // SAFETY: only the network namespace changes; files and memory stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
}

impl Node {
    pub async fn start() -> Node {
        let mut node = Node::unstarted();
        node.build_images().await;
        node.start_runtime(&[]).await;
        node
    }

    pub async fn build_images(&self) {
        build_images(&self.path("root/images")).await;
    }

    /// A runtime that is not started yet.
    pub fn unstarted() -> Node {
        assert!(rustix::process::geteuid().is_root(), "these tests make containers: they need root");
        enter_new_netns();
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("net.d")).unwrap();
        let name = format!("tiphys-test-{}", directory.path().file_name().unwrap().to_string_lossy().replace('.', ""));
        let (runtime, images) = connect(&directory.path().join("cri.sock"));
        Node { directory, daemon: None, runtime, images, arguments: Vec::new(), name }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sets the pod CIDR.
    pub async fn network(&self) {
        let cidr = cri::NetworkConfig { pod_cidr: "10.213.77.0/24".into() };
        let config = cri::RuntimeConfig { network_config: Some(cidr) };
        let request = cri::UpdateRuntimeConfigRequest { runtime_config: Some(config) };
        self.runtime.update_runtime_config(request).await.unwrap();
    }

    /// A pod with its own network.
    pub fn networked_config(&self, name: &str) -> PodSandboxConfig {
        let mut pod = self.sandbox_config(name);
        let security = pod.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options = Some(options(NamespaceMode::Pod, NamespaceMode::Container));
        pod
    }

    /// The content of a file of a container's or the pod's cgroup, with cgroup v1 or v2.
    pub fn cgroup_file(&self, below: &str, controller: &str, v1: &str, v2: &str) -> String {
        let directory = PathBuf::from("/sys/fs/cgroup");
        let old = directory.join(controller).join(&self.name).join(below).join(v1);
        let file = if unified() { directory.join(&self.name).join(below).join(v2) } else { old };
        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_string()
    }

    pub fn set_cgroup_file(&self, below: &str, controller: &str, file: &str, value: &str) {
        let directory = PathBuf::from("/sys/fs/cgroup");
        let directory = if unified() { directory } else { directory.join(controller) };
        fs::write(directory.join(&self.name).join(below).join(file), value).unwrap();
    }

    pub fn runtime_pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// The parent of all cgroups of this test.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.name)
    }

    pub async fn start_runtime(&mut self, environment: &[(&str, &str)]) {
        let log = fs::File::options().append(true).create(true).open(self.path("daemon.log")).unwrap();
        let daemon = Command::new(env!("CARGO_BIN_EXE_tiphys-cri"))
            .arg("--socket")
            .arg(self.path("cri.sock"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--cni-conf-dir")
            .arg(self.path("net.d"))
            .arg("--cni-cache-dir")
            .arg(self.path("cni"))
            .arg("--shim-cgroup")
            .arg(format!("{}/shims", self.cgroup()))
            .args(&self.arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        self.wait_ready().await;
    }

    /// Waits until the runtime responds.
    pub async fn wait_ready(&mut self) {
        let give_up = Instant::now() + DEADLINE;
        while let Err(error) = self.runtime.version(VersionRequest::default()).await {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(Instant::now() < give_up && ended.is_none(), "the daemon does not answer: {error}\n{}", self.log());
            tokio::task::yield_now().await;
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// Kills the runtime, as a crash would.
    pub fn kill_runtime(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Waits for a runtime that exits by itself, at a fault point.
    pub fn wait_runtime(&mut self) {
        self.daemon.take().unwrap().wait().unwrap();
    }

    pub fn sandbox_config(&self, name: &str) -> PodSandboxConfig {
        let logs = self.path(&format!("logs-{name}"));
        fs::create_dir_all(&logs).unwrap();
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: format!("{name}-uid"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: logs.to_string_lossy().into_owned(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(options(NamespaceMode::Node, NamespaceMode::Container)),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub async fn run_sandbox(&self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        match self.runtime.run_pod_sandbox(request).await {
            Ok(response) => response.pod_sandbox_id,
            Err(error) => panic!("{error}\n{}", self.log()),
        }
    }

    pub async fn create(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        pod: &PodSandboxConfig,
    ) -> Result<String, Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        self.runtime.create_container(request).await.map(|r| r.container_id)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), Status> {
        self.runtime.start_container(StartContainerRequest { container_id: id.into() }).await.map(drop)
    }

    pub async fn run(&self, sandbox: &str, config: ContainerConfig, pod: &PodSandboxConfig) -> String {
        let id = self.create(sandbox, config, pod).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        self.start_container(&id).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        id
    }

    pub async fn status(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.runtime.container_status(request).await.unwrap().status.unwrap()
    }

    pub async fn wait_exit(&self, id: &str) -> ContainerStatus {
        let give_up = Instant::now() + DEADLINE;
        loop {
            let status = self.status(id).await;
            if status.state() == ContainerState::Exited {
                return status;
            }
            assert!(Instant::now() < give_up, "{id} does not end: {status:?}\n{}", self.log());
            tokio::task::yield_now().await;
        }
    }

    /// Runs a command line in a new container, and returns its exit code and log.
    pub async fn shell(&self, config: ContainerConfig) -> (i32, String) {
        let name = config.metadata.clone().unwrap().name;
        let pod = self.sandbox_config(&name);
        let sandbox = self.run_sandbox(&pod).await;
        let result = self.shell_in(&sandbox, &pod, config).await;
        self.remove_sandbox(&sandbox).await;
        result
    }

    pub async fn shell_in(&self, sandbox: &str, pod: &PodSandboxConfig, config: ContainerConfig) -> (i32, String) {
        let id = self.run(sandbox, config, pod).await;
        let status = self.wait_exit(&id).await;
        (status.exit_code, text(Path::new(&status.log_path)))
    }

    pub async fn exec(&self, id: &str, command: &str) -> (i32, String) {
        let response = self.exec_sync(id, command, 0).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        let output = [response.stdout, response.stderr].concat();
        (response.exit_code, String::from_utf8(output).unwrap())
    }

    pub async fn exec_sync(&self, id: &str, command: &str, timeout: i64) -> Result<ExecSyncResponse, Status> {
        let cmd = ["sh", "-c", command].map(String::from).to_vec();
        self.runtime.exec_sync(ExecSyncRequest { container_id: id.into(), cmd, timeout }).await
    }

    pub async fn remove_sandbox(&self, id: &str) {
        let stop = StopPodSandboxRequest { pod_sandbox_id: id.into() };
        self.runtime.stop_pod_sandbox(stop).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        let remove = RemovePodSandboxRequest { pod_sandbox_id: id.into() };
        self.runtime.remove_pod_sandbox(remove).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
    }

    pub async fn remove_all(&self) {
        let list = self.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
        for sandbox in list.items {
            self.remove_sandbox(&sandbox.id).await;
        }
    }

    /// Ends the test: removes everything, and checks that nothing is left.
    pub async fn end(mut self) {
        self.remove_all().await;
        let list = self.runtime.list_containers(ListContainersRequest::default()).await.unwrap();
        assert_eq!(list.containers, [], "containers without a sandbox");
        let state = fs::read_dir(self.path("state/sandboxes")).unwrap().count();
        assert_eq!(state, 0, "records are left");
        let snapshots = fs::read_dir(self.path("root/images/snapshots")).map_or(0, |entries| entries.count());
        assert_eq!(snapshots, 0, "snapshots are left");
        self.kill_runtime();
        wait_for("the processes to end", || self.processes().is_empty());
        assert_eq!(self.remove_cgroups(), Vec::<String>::new(), "cgroups are left");
        let directory = self.directory.path().to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&directory), "mounts are left");
        assert_eq!(leases(&self.path("root/network/networks")), Vec::<PathBuf>::new(), "addresses are left");
        let cached = fs::read_dir(self.path("cni/results")).map_or(0, |entries| entries.count());
        assert_eq!(cached, 0, "results of the pod network are left");
    }

    /// The processes of this test's shims, pause processes and containers.
    pub fn processes(&self) -> Vec<i32> {
        let directory = self.directory.path().to_string_lossy();
        let ours = |pid: &i32| {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let daemon = self.daemon.as_ref().is_some_and(|daemon| daemon.id() == *pid as u32);
            !daemon && (groups.contains(&self.name) || String::from_utf8_lossy(&command).contains(&*directory))
        };
        pids().into_iter().filter(ours).collect()
    }

    /// Removes the parent cgroups, and returns the leaked cgroups below them.
    pub fn remove_cgroups(&self) -> Vec<String> {
        let mut left = Vec::new();
        let roots = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|e| e.path());
        for root in roots.filter(|r| r.is_dir()).chain([PathBuf::from("/sys/fs/cgroup")]) {
            let parent = root.join(&self.name);
            let _ = fs::remove_dir(parent.join("shims"));
            let below = fs::read_dir(&parent).into_iter().flatten().flatten();
            left.extend(below.filter(|e| e.path().is_dir()).map(|e| e.path().display().to_string()));
            let _ = fs::remove_dir(&parent);
        }
        left
    }
}

/// Whether the machine only has cgroup v2.
pub fn unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Moves this thread into a new mount namespace, so that its mounts do not affect the machine.
pub fn enter_new_mount_ns() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: the working directory stays the same; files and memory stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}

/// Lease files, which are named after the addresses of pods.
pub fn leases(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(leases(&entry.path()));
        } else if entry.file_name().to_string_lossy().parse::<std::net::IpAddr>().is_ok() {
            found.push(entry.path());
        }
    }
    found
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in self.processes() {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
    }
}

pub fn options(network: NamespaceMode, pid: NamespaceMode) -> NamespaceOption {
    NamespaceOption { network: network as i32, pid: pid as i32, ipc: NamespaceMode::Pod as i32, ..Default::default() }
}

pub fn container(name: &str, command: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: ["sh", "-c", command].map(String::from).to_vec(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(options(NamespaceMode::Node, NamespaceMode::Container)),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub fn secured(config: &mut ContainerConfig) -> &mut LinuxContainerSecurityContext {
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap()
}

/// The lines of a CRI log without their prefixes.
pub fn text(log: &Path) -> String {
    let lines = fs::read_to_string(log).unwrap_or_default();
    lines.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
}

/// Builds images with Debian's static busybox.
async fn build_images(root: &Path) {
    fs::create_dir_all(root).unwrap();
    let images = Images::open(root, Default::default()).unwrap();
    let config = Config { env: vec!["FROM_IMAGE=yes".into()], cmd: vec!["sh".into()], ..Default::default() };
    images.build(IMAGE, vec![layer()], config.clone(), &NoProgress).await.unwrap();
    images.build(VOLUME, volume_layers(), config.clone(), &NoProgress).await.unwrap();
    images.build(LINKS, vec![layer(), links_layer()], config, &NoProgress).await.unwrap();
}

fn volume_layers() -> Vec<Vec<u8>> {
    let (mut below, mut above) = (Tar::default(), Tar::default());
    for directory in ["data/", "data/sub/"] {
        below.entry(directory, b'5', 0o755, "", &[]);
    }
    below.entry("data/file", b'0', 0o644, "", b"below");
    below.entry("data/sub/deep", b'0', 0o644, "", b"deep");
    above.entry("data/file", b'0', 0o644, "", b"above");
    vec![below.finish(), above.finish()]
}

fn links_layer() -> Vec<u8> {
    let mut tar = Tar::default();
    tar.entry("etc/resolv.conf", b'2', 0o777, "../../../../../tmp/tiphys-escape/resolv.conf", &[]);
    tar.entry("etc/hostname", b'2', 0o777, "/tmp/tiphys-escape/hostname", &[]);
    tar.entry("volume", b'2', 0o777, "../../tmp/tiphys-escape/volume", &[]);
    tar.entry("work", b'2', 0o777, "/proc/1/root/tmp/tiphys-escape", &[]);
    tar.finish()
}
