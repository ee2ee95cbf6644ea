//! An agent on a runtime that only remembers: pods begin, run and end as the agent asks, and what it asked is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::{Clock, Events, Metrics, Random, SystemClock};
use cri::{ContainerState, PodSandboxState, Status};
use kubelet::node::{self, Node};
use kubelet::pressure::rank::Layout;
use kubelet::pressure::senses::{Places, Senses};
use kubelet::pressure::signal::{Left, Seen, Signal};
use testkit::Cluster;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::node_client;

/// A runtime of sandboxes and containers that are records.
#[derive(Default)]
pub struct Remembered {
    state: Mutex<State>,
    /// Containers do not end while this is true.
    pub holds: watch::Sender<bool>,
    /// How many images that are called slow may be pulled; nobody waits for others.
    pub gate: tokio::sync::Notify,
}

#[derive(Default)]
pub struct State {
    /// Bytes that containers of a pod use, by its name.
    pub memory: BTreeMap<String, u64>,
    /// Images that are there although nobody has pulled them.
    pub images: Vec<String>,
    /// How many percent of the disk are left; one less for each of those images.
    pub disk: i64,
    /// How long a pull takes, and what is said of it meanwhile.
    pub pull: Duration,
    pub progress: Option<String>,
    /// None for the machine's.
    pub clock: Option<Arc<dyn Clock>>,
    /// Whether it tells of what happens. Nothing does by itself.
    pub has_events: bool,
    /// It does not say which sandboxes it has.
    pub is_mute: bool,
    /// Of sandboxes, where they can be reached.
    pub address: Option<String>,
    /// Where the containers of a sandbox write to.
    logs: BTreeMap<String, PathBuf>,
    made: u64,
    sandboxes: BTreeMap<String, cri::PodSandboxStatus>,
    containers: BTreeMap<String, (String, cri::ContainerStatus)>,
    /// Names of containers that only end when their time is over.
    pub stubborn: Vec<String>,
    /// Names of containers that were told to end, and how long they were given.
    stopped: Vec<(String, i64)>,
    pulls: Vec<cri::PullImageRequest>,
    /// Pulls that wait for leave now, and how many did at a time.
    pulling: usize,
    pub most_pulling: usize,
    /// Starts and ends of containers as they came.
    order: Vec<String>,
    /// Whether it can take pods, and how often it was asked.
    pub is_unready: bool,
    pub looks: u64,
    /// Ranges of pods' addresses that it was told.
    pub cidrs: Vec<String>,
    /// Calls of which the next one is never answered.
    pub hangs: Vec<&'static str>,
}

fn open_log(path: &Path) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::File::options().append(true).create(true).open(path).expect("a log");
}

fn fits(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Remembered {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stopped(&self) -> Vec<(String, i64)> {
        self.state().stopped.clone()
    }

    pub fn pulls(&self) -> Vec<cri::PullImageRequest> {
        self.state().pulls.clone()
    }

    /// `+name` for each start, `-name` for each end; `?name` for one that shall end and is held.
    pub fn order(&self) -> Vec<String> {
        self.state().order.clone()
    }

    /// Ends the container of a pod, which nobody has told to end.
    pub fn crash(&self, pod: &str) {
        let mut state = self.state();
        let State { sandboxes, containers, .. } = &mut *state;
        let is_its = |of: &String| sandboxes[of].metadata.as_ref().is_some_and(|metadata| metadata.name == pod);
        let mut own = containers.values_mut().filter(|(of, _)| is_its(of)).map(|(_, status)| status);
        let status = own.find(|status| status.state() == ContainerState::Running).expect("it runs");
        status.set_state(ContainerState::Exited);
        status.exit_code = 1;
        let id = status.id.clone();
        let now = state.now();
        state.containers.get_mut(&id).expect("it is there").1.finished_at = now;
    }

    fn order_stop(&self, id: &str) {
        let mut state = self.state();
        if let Some((_, status)) = state.containers.get(id).filter(|_| *self.holds.borrow()) {
            let name = status.metadata.clone().unwrap_or_default().name;
            state.order.push(format!("?{name}"));
        }
    }

    /// How many pulls wait for leave.
    pub fn pulling(&self) -> usize {
        self.state().pulling
    }

    /// All sandboxes are gone, as after a restart of the machine.
    pub fn lose_sandboxes(&self) {
        let mut state = self.state();
        let ids: Vec<String> = state.containers.keys().cloned().collect();
        ids.iter().for_each(|id| state.end(id, 0));
        state.sandboxes.values_mut().for_each(|sandbox| sandbox.set_state(PodSandboxState::Notready));
    }

    /// Stays here for ever where this call is to hang.
    async fn hang(&self, call: &str) {
        let place = self.state().hangs.iter().position(|hangs| *hangs == call);
        if let Some(place) = place {
            self.state().hangs.remove(place);
            std::future::pending::<()>().await;
        }
    }

    /// A container ends by itself.
    pub fn exit(&self, name: &str, code: i32) {
        let mut state = self.state();
        let now = state.now();
        let is_it = |status: &cri::ContainerStatus| status.metadata.as_ref().is_some_and(|own| own.name == name);
        let running = |status: &cri::ContainerStatus| status.state() == ContainerState::Running;
        for (_, status) in state.containers.values_mut().filter(|(_, status)| is_it(status) && running(status)) {
            status.set_state(ContainerState::Exited);
            (status.exit_code, status.finished_at) = (code, now);
        }
    }

    /// Nothing runs any more, and nobody knows that anything did.
    pub fn forget(&self) {
        let mut state = self.state();
        state.sandboxes.clear();
        state.containers.clear();
        state.order.clear();
    }

    /// Names of containers that run.
    pub fn running(&self) -> Vec<String> {
        let state = self.state();
        let running = state.containers.values().filter(|(_, status)| status.state() == ContainerState::Running);
        running.map(|(_, status)| status.metadata.clone().unwrap_or_default().name).collect()
    }
}

impl State {
    fn now(&self) -> i64 {
        let now = self.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now());
        now.seconds * 1_000_000_000 + i64::from(now.nanos)
    }

    fn id(&mut self) -> String {
        self.made += 1;
        format!("{:064x}", self.made)
    }

    /// Bytes that the containers of a sandbox use.
    fn used(&self, sandbox: &cri::PodSandboxStatus) -> u64 {
        let own = |(of, status): &&(String, cri::ContainerStatus)| {
            *of == sandbox.id && status.state() == ContainerState::Running
        };
        let name = sandbox.metadata.clone().unwrap_or_default().name;
        let each = self.memory.get(&name).copied().unwrap_or(1 << 20);
        self.containers.values().filter(own).count() as u64 * each
    }

    /// The log of a pod's container.
    pub fn log(&self, pod: &str) -> PathBuf {
        let is_its = |of: &String| self.sandboxes[of].metadata.as_ref().is_some_and(|metadata| metadata.name == pod);
        let found = self.containers.values().find(|(of, _)| is_its(of));
        found.map(|(_, status)| PathBuf::from(&status.log_path)).unwrap_or_default()
    }

    fn stats(&self, sandbox: &cri::PodSandboxStatus) -> cri::PodSandboxStats {
        let working_set_bytes = Some(cri::UInt64Value { value: self.used(sandbox) });
        let memory = cri::MemoryUsage { working_set_bytes, ..Default::default() };
        let metadata = Some(cri::ContainerMetadata { name: "c".to_string(), attempt: 0 });
        let attributes = Some(cri::ContainerAttributes { metadata, ..Default::default() });
        let container = cri::ContainerStats { attributes, memory: Some(memory.clone()), ..Default::default() };
        let linux =
            cri::LinuxPodSandboxStats { memory: Some(memory), containers: vec![container], ..Default::default() };
        let attributes = cri::PodSandboxAttributes { metadata: sandbox.metadata.clone(), ..Default::default() };
        cri::PodSandboxStats { attributes: Some(attributes), linux: Some(linux), ..Default::default() }
    }

    fn end(&mut self, id: &str, timeout: i64) {
        let now = self.now();
        let Some((_, status)) = self.containers.get_mut(id) else { return };
        if status.state() == ContainerState::Running {
            status.set_state(ContainerState::Exited);
            status.finished_at = now;
            let name = status.metadata.clone().unwrap_or_default().name;
            self.order.push(format!("-{name}"));
            self.stopped.push((name, timeout));
        }
    }
}

impl cri::RuntimeService for Remembered {
    async fn version(&self, _: cri::VersionRequest) -> Result<cri::VersionResponse, Status> {
        Ok(cri::VersionResponse { runtime_name: "remembered".to_string(), ..Default::default() })
    }

    async fn status(&self, _: cri::StatusRequest) -> Result<cri::StatusResponse, Status> {
        let mut state = self.state();
        state.looks += 1;
        let status = !state.is_unready;
        let holds = |name: &str| cri::RuntimeCondition { r#type: name.to_string(), status, ..Default::default() };
        let conditions = vec![holds("RuntimeReady"), holds("NetworkReady")];
        Ok(cri::StatusResponse { status: Some(cri::RuntimeStatus { conditions }), ..Default::default() })
    }

    async fn run_pod_sandbox(&self, asked: cri::RunPodSandboxRequest) -> Result<cri::RunPodSandboxResponse, Status> {
        self.hang("run_pod_sandbox").await;
        let config = asked.config.unwrap_or_default();
        let mut state = self.state();
        let id = state.id();
        let ip = state.address.clone().unwrap_or_else(|| format!("10.9.0.{}", state.made));
        let network = cri::PodSandboxNetworkStatus { ip, ..Default::default() };
        let options = config.linux.and_then(|linux| linux.security_context?.namespace_options);
        let status = cri::PodSandboxStatus {
            id: id.clone(),
            linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(cri::Namespace { options }) }),
            metadata: config.metadata,
            state: PodSandboxState::Ready.into(),
            created_at: state.now(),
            network: Some(network),
            labels: config.labels,
            annotations: config.annotations,
            ..Default::default()
        };
        state.sandboxes.insert(id.clone(), status);
        state.logs.insert(id.clone(), config.log_directory.into());
        Ok(cri::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(&self, asked: cri::StopPodSandboxRequest) -> Result<cri::StopPodSandboxResponse, Status> {
        let mut state = self.state();
        let inside = state.containers.iter().filter(|(_, (sandbox, _))| *sandbox == asked.pod_sandbox_id);
        let inside: Vec<String> = inside.map(|(id, _)| id.clone()).collect();
        inside.iter().for_each(|id| state.end(id, 0));
        if let Some(sandbox) = state.sandboxes.get_mut(&asked.pod_sandbox_id) {
            sandbox.set_state(PodSandboxState::Notready);
        }
        Ok(cri::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        asked: cri::RemovePodSandboxRequest,
    ) -> Result<cri::RemovePodSandboxResponse, Status> {
        self.state().sandboxes.remove(&asked.pod_sandbox_id);
        Ok(cri::RemovePodSandboxResponse {})
    }

    async fn list_pod_sandbox(&self, asked: cri::ListPodSandboxRequest) -> Result<cri::ListPodSandboxResponse, Status> {
        let wanted = asked.filter.unwrap_or_default().label_selector;
        let state = self.state();
        if state.is_mute {
            return Err(Status::unavailable("it does not say"));
        }
        let fitting = state.sandboxes.values().filter(|status| fits(&status.labels, &wanted)).cloned();
        let items = fitting.map(|status| cri::PodSandbox {
            id: status.id,
            metadata: status.metadata,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            ..Default::default()
        });
        Ok(cri::ListPodSandboxResponse { items: items.collect() })
    }

    async fn pod_sandbox_status(
        &self,
        asked: cri::PodSandboxStatusRequest,
    ) -> Result<cri::PodSandboxStatusResponse, Status> {
        let found = self.state().sandboxes.get(&asked.pod_sandbox_id).cloned();
        let status = Some(found.ok_or_else(|| Status::not_found("no such sandbox"))?);
        Ok(cri::PodSandboxStatusResponse { status, ..Default::default() })
    }

    async fn create_container(
        &self,
        asked: cri::CreateContainerRequest,
    ) -> Result<cri::CreateContainerResponse, Status> {
        self.hang("create_container").await;
        let config = asked.config.unwrap_or_default();
        let mut state = self.state();
        let id = state.id();
        let status = cri::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata,
            state: ContainerState::Created.into(),
            created_at: state.now(),
            image: config.image,
            labels: config.labels,
            annotations: config.annotations,
            log_path: state.logs[&asked.pod_sandbox_id].join(config.log_path).to_string_lossy().into_owned(),
            ..Default::default()
        };
        state.containers.insert(id.clone(), (asked.pod_sandbox_id, status));
        Ok(cri::CreateContainerResponse { container_id: id })
    }

    async fn start_container(&self, asked: cri::StartContainerRequest) -> Result<cri::StartContainerResponse, Status> {
        let mut state = self.state();
        let now = state.now();
        if let Some((_, status)) = state.containers.get_mut(&asked.container_id) {
            status.set_state(ContainerState::Running);
            status.started_at = now;
            open_log(Path::new(&status.log_path));
            let name = status.metadata.clone().unwrap_or_default().name;
            state.order.push(format!("+{name}"));
        }
        Ok(cri::StartContainerResponse {})
    }

    async fn stop_container(&self, asked: cri::StopContainerRequest) -> Result<cri::StopContainerResponse, Status> {
        self.order_stop(&asked.container_id);
        let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
        self.hang("stop_container").await;
        let waits = {
            let state = self.state();
            let name = state.containers.get(&asked.container_id).and_then(|(_, status)| status.metadata.clone());
            state.stubborn.contains(&name.unwrap_or_default().name)
        };
        if waits {
            tokio::time::sleep(Duration::from_secs(asked.timeout.unsigned_abs())).await;
        }
        self.state().end(&asked.container_id, asked.timeout);
        Ok(cri::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        asked: cri::RemoveContainerRequest,
    ) -> Result<cri::RemoveContainerResponse, Status> {
        self.state().containers.remove(&asked.container_id);
        Ok(cri::RemoveContainerResponse {})
    }

    async fn list_containers(&self, asked: cri::ListContainersRequest) -> Result<cri::ListContainersResponse, Status> {
        self.hang("list_containers").await;
        let wanted = asked.filter.unwrap_or_default().label_selector;
        let state = self.state();
        let fitting = state.containers.values().filter(|(_, status)| fits(&status.labels, &wanted)).cloned();
        let containers = fitting.map(|(sandbox, status)| cri::Container {
            id: status.id,
            pod_sandbox_id: sandbox,
            metadata: status.metadata,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            ..Default::default()
        });
        Ok(cri::ListContainersResponse { containers: containers.collect() })
    }

    async fn container_status(
        &self,
        asked: cri::ContainerStatusRequest,
    ) -> Result<cri::ContainerStatusResponse, Status> {
        let found = self.state().containers.get(&asked.container_id).cloned();
        let (_, status) = found.ok_or_else(|| Status::not_found("no such container"))?;
        Ok(cri::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }

    async fn reopen_container_log(
        &self,
        asked: cri::ReopenContainerLogRequest,
    ) -> Result<cri::ReopenContainerLogResponse, Status> {
        open_log(Path::new(&self.state().containers[&asked.container_id].1.log_path));
        Ok(cri::ReopenContainerLogResponse {})
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: cri::ListPodSandboxStatsRequest,
    ) -> Result<cri::ListPodSandboxStatsResponse, Status> {
        let state = self.state();
        let stats = state.sandboxes.values().map(|sandbox| state.stats(sandbox)).collect();
        Ok(cri::ListPodSandboxStatsResponse { stats })
    }

    async fn list_container_stats(
        &self,
        _: cri::ListContainerStatsRequest,
    ) -> Result<cri::ListContainerStatsResponse, Status> {
        Ok(cri::ListContainerStatsResponse::default())
    }

    async fn update_runtime_config(
        &self,
        asked: cri::UpdateRuntimeConfigRequest,
    ) -> Result<cri::UpdateRuntimeConfigResponse, Status> {
        let network = asked.runtime_config.unwrap_or_default().network_config.unwrap_or_default();
        self.state().cidrs.push(network.pod_cidr);
        Ok(cri::UpdateRuntimeConfigResponse {})
    }

    async fn get_container_events(
        &self,
        _: cri::GetEventsRequest,
    ) -> Result<cri::Answers<cri::ContainerEventResponse>, Status> {
        match self.state().has_events {
            true => Ok(Box::pin(tokio_stream::pending())),
            false => Err(Status::unimplemented("get_container_events")),
        }
    }

    absent! {
        exec(ExecRequest) -> ExecResponse,
        attach(AttachRequest) -> AttachResponse,
        port_forward(PortForwardRequest) -> PortForwardResponse,
        update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse,
        exec_sync(ExecSyncRequest) -> ExecSyncResponse,
        container_stats(ContainerStatsRequest) -> ContainerStatsResponse,
        pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse,
        checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse,
        checkpoint_pod(CheckpointPodRequest) -> CheckpointPodResponse,
        restore_pod(RestorePodRequest) -> RestorePodResponse,
        list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse,
        list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse,
        runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse,
        update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse,
    }

    absent_streams! {
        stream_pod_sandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse,
        stream_containers(StreamContainersRequest) -> StreamContainersResponse,
        stream_container_stats(StreamContainerStatsRequest) -> StreamContainerStatsResponse,
        stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse,
        stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse,
    }
}

impl cri::ImageService for Remembered {
    async fn list_images(&self, _: cri::ListImagesRequest) -> Result<cri::ListImagesResponse, Status> {
        let image = |id: &String| cri::Image { id: id.clone(), size: 7, ..Default::default() };
        Ok(cri::ListImagesResponse { images: self.state().images.iter().map(image).collect() })
    }

    async fn remove_image(&self, asked: cri::RemoveImageRequest) -> Result<cri::RemoveImageResponse, Status> {
        let id = asked.image.unwrap_or_default().image;
        self.state().images.retain(|other| *other != id);
        Ok(cri::RemoveImageResponse {})
    }

    async fn image_status(&self, asked: cri::ImageStatusRequest) -> Result<cri::ImageStatusResponse, Status> {
        let name = asked.image.unwrap_or_default().image;
        let pulled = self.state().pulls.iter().any(|pull| pull.image.as_ref().is_some_and(|image| image.image == name));
        let image = cri::Image { id: name, size: 7, ..Default::default() };
        let progress = self.state().progress.clone().filter(|_| asked.verbose);
        let info = progress.into_iter().map(|line| ("progress".to_string(), format!("{line:?}"))).collect();
        Ok(cri::ImageStatusResponse { image: pulled.then_some(image), info })
    }

    async fn pull_image(&self, asked: cri::PullImageRequest) -> Result<cri::PullImageResponse, Status> {
        let image_ref = asked.image.clone().unwrap_or_default().image;
        let takes = self.state().pull;
        tokio::time::sleep(takes).await;
        if image_ref.contains("missing") {
            return Err(Status::unknown("no such image"));
        }
        if image_ref.contains("slow") {
            {
                let mut state = self.state();
                state.pulling += 1;
                state.most_pulling = state.most_pulling.max(state.pulling);
            }
            self.gate.notified().await;
            self.state().pulling -= 1;
        }
        self.state().pulls.push(asked);
        Ok(cri::PullImageResponse { image_ref })
    }

    absent! { image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse }

    absent_streams! { stream_images(StreamImagesRequest) -> StreamImagesResponse }
}

/// A machine on which nothing runs but what is remembered, and whose disk is never full by itself.
impl Senses for Remembered {
    fn look(&self, _: &Places) -> Seen {
        let state = self.state();
        let used: u64 = state.sandboxes.values().map(|sandbox| state.used(sandbox)).sum();
        let available = MEMORY.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX));
        let disk = state.disk - state.images.len() as i64;
        Seen::from([
            (Signal::Memory, Left { available, capacity: MEMORY }),
            (Signal::NodeFs, Left { available: disk, capacity: 100 }),
        ])
    }

    fn layout(&self, _: &Places) -> Layout {
        Layout::One
    }
}

const MEMORY: i64 = 1000 << 20;

/// A runtime that remembers nothing yet.
pub fn remembered() -> Arc<Remembered> {
    let runtime = Remembered::default();
    runtime.state().disk = 50;
    Arc::new(runtime)
}

/// A folder of a node's, which goes with all that is mounted in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|place| Path::new(place).starts_with(self.path()));
        for place in places {
            let _ = std::process::Command::new("umount").arg(place).status();
        }
    }
}

/// A node at work on a runtime that remembers.
pub struct Agent {
    pub runtime: Arc<Remembered>,
    pub metrics: Metrics,
    running: Option<kubelet::Running>,
    node: JoinHandle<()>,
    _folder: Folder,
}

impl Agent {
    pub async fn start(cluster: &Cluster, name: &str, change: impl FnOnce(&mut kubelet::Config)) -> Agent {
        let folder = Folder::new();
        let mut config = kubelet::Config {
            node_name: name.to_string(),
            root_dir: folder.path().join("kubelet"),
            pod_logs_dir: folder.path().join("logs/pods"),
            cgroups_per_qos: false,
            node_ips: vec![[127, 0, 0, 1].into()],
            ..kubelet::Config::default()
        };
        config.allocatable.enforced.clear();
        // How full this machine is does not matter.
        config.eviction.thresholds.clear();
        change(&mut config);
        let config = Arc::new(config);
        let (client, clock, metrics) = (node_client(cluster, name), Arc::new(SystemClock), Metrics::default());
        let runtime = remembered();
        let node = Node::new(node::Environment {
            recorder: Events::start(clock.clone(), metrics.clone()).recorder(client.clone(), "kubelet").on(name),
            config: config.clone(),
            client: client.clone(),
            runtime: runtime.clone(),
            images: runtime.clone(),
            clock: clock.clone(),
            random: Arc::new(Random::seeded(7)),
        });
        let environment = kubelet::Environment {
            client,
            runtime: kubelet::runtime::Runtime { service: runtime.clone(), images: runtime.clone() },
            node: node.clone(),
            config,
            clock,
            metrics: metrics.clone(),
            seed: 7,
        };
        let running = Some(kubelet::run::start_on(environment, runtime.clone()).await.expect("an agent"));
        Agent { runtime, metrics, running, node: tokio::spawn(node.run()), _folder: folder }
    }

    pub async fn stop(mut self) {
        self.node.abort();
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}
