//! A runtime that runs nothing: containers are what it remembers of them, and use as much memory as a test says.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use cri::{ContainerState, PodSandboxState, Status, UInt64Value};
use kubelet::pressure::rank::Layout;
use kubelet::pressure::senses::{Places, Senses};
use kubelet::pressure::signal::{Left, Seen, Signal};

#[derive(Default)]
pub struct MadeUp(Mutex<World>);

#[derive(Default)]
pub struct World {
    /// What all is made at: it only ever grows.
    time: i64,
    sandboxes: BTreeMap<String, cri::PodSandboxStatus>,
    logs: BTreeMap<String, PathBuf>,
    containers: BTreeMap<String, cri::ContainerStatus>,
    owners: BTreeMap<String, String>,
    /// Bytes that a pod's container uses, by the pod's name.
    pub memory: BTreeMap<String, u64>,
    /// Images that nobody uses, and what is left of the disk, of a thousand bytes, with all of them.
    pub images: Vec<String>,
    pub disk: i64,
}

pub const CAPACITY: i64 = 1000 << 20;

impl World {
    fn now(&mut self) -> i64 {
        self.time += 1;
        self.time
    }

    fn name_of(&self, sandbox: &str) -> String {
        self.sandboxes[sandbox].metadata.clone().unwrap_or_default().name
    }

    fn used(&self, sandbox: &str) -> u64 {
        let runs = |id: &String| self.containers.get(id).is_some_and(|one| one.state() == ContainerState::Running);
        let own = self.owners.iter().filter(|(id, owner)| *owner == sandbox && runs(id)).count() as u64;
        own * self.memory.get(&self.name_of(sandbox)).copied().unwrap_or(1 << 20)
    }

    pub fn container_of(&self, pod: &str) -> String {
        let own = self.owners.iter().find(|(_, sandbox)| self.name_of(sandbox) == pod);
        own.map(|(id, _)| id.clone()).unwrap_or_default()
    }

    pub fn log_of(&self, pod: &str) -> PathBuf {
        self.containers[&self.container_of(pod)].log_path.clone().into()
    }
}

impl MadeUp {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("a lock")
    }

    fn stop(&self, id: &str) {
        let mut world = self.world();
        let now = world.now();
        if let Some(one) = world.containers.get_mut(id).filter(|one| one.state() == ContainerState::Running) {
            one.set_state(ContainerState::Exited);
            one.exit_code = 137;
            one.finished_at = now;
        }
    }
}

/// A machine on which nothing runs but the pods.
impl Senses for MadeUp {
    fn look(&self, _: &Places) -> Seen {
        let world = self.world();
        let used: u64 = world.sandboxes.keys().map(|sandbox| world.used(sandbox)).sum();
        let available = CAPACITY - i64::try_from(used).expect("bytes");
        let disk = Left { available: world.disk - 100 * world.images.len() as i64, capacity: 1000 };
        Seen::from([(Signal::Memory, Left { available, capacity: CAPACITY }), (Signal::NodeFs, disk)])
    }

    fn layout(&self, _: &Places) -> Layout {
        Layout::One
    }
}

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

fn matches(filter: Option<BTreeMap<String, String>>, labels: &BTreeMap<String, String>) -> bool {
    filter.unwrap_or_default().iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl cri::RuntimeService for MadeUp {
    async fn version(&self, _: cri::VersionRequest) -> Result<cri::VersionResponse, Status> {
        Ok(cri::VersionResponse { runtime_name: "madeup".to_string(), ..Default::default() })
    }

    async fn status(&self, _: cri::StatusRequest) -> Result<cri::StatusResponse, Status> {
        let ready = |kind: &str| cri::RuntimeCondition { r#type: kind.to_string(), status: true, ..Default::default() };
        let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
        Ok(cri::StatusResponse { status: Some(cri::RuntimeStatus { conditions }), ..Default::default() })
    }

    async fn run_pod_sandbox(&self, asked: cri::RunPodSandboxRequest) -> Result<cri::RunPodSandboxResponse, Status> {
        let config = asked.config.unwrap_or_default();
        let mut world = self.world();
        let created_at = world.now();
        let id = format!("s{created_at}");
        world.logs.insert(id.clone(), config.log_directory.into());
        let network = cri::PodSandboxNetworkStatus { ip: "10.0.0.9".to_string(), ..Default::default() };
        let status = cri::PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata,
            state: PodSandboxState::Ready as i32,
            created_at,
            network: Some(network),
            labels: config.labels,
            ..Default::default()
        };
        world.sandboxes.insert(id.clone(), status);
        Ok(cri::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(&self, asked: cri::StopPodSandboxRequest) -> Result<cri::StopPodSandboxResponse, Status> {
        if let Some(one) = self.world().sandboxes.get_mut(&asked.pod_sandbox_id) {
            one.set_state(PodSandboxState::Notready);
        }
        Ok(cri::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        asked: cri::RemovePodSandboxRequest,
    ) -> Result<cri::RemovePodSandboxResponse, Status> {
        self.world().sandboxes.remove(&asked.pod_sandbox_id);
        Ok(cri::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        asked: cri::PodSandboxStatusRequest,
    ) -> Result<cri::PodSandboxStatusResponse, Status> {
        let found = self.world().sandboxes.get(&asked.pod_sandbox_id).cloned();
        let status = found.ok_or_else(|| Status::not_found("no such sandbox"))?;
        Ok(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    async fn list_pod_sandbox(&self, asked: cri::ListPodSandboxRequest) -> Result<cri::ListPodSandboxResponse, Status> {
        let labels = asked.filter.map(|filter| filter.label_selector);
        let shown = |one: &cri::PodSandboxStatus| cri::PodSandbox {
            id: one.id.clone(),
            metadata: one.metadata.clone(),
            state: one.state,
            created_at: one.created_at,
            labels: one.labels.clone(),
            ..Default::default()
        };
        let world = self.world();
        let items = world.sandboxes.values().filter(|one| matches(labels.clone(), &one.labels)).map(shown).collect();
        Ok(cri::ListPodSandboxResponse { items })
    }

    async fn create_container(
        &self,
        asked: cri::CreateContainerRequest,
    ) -> Result<cri::CreateContainerResponse, Status> {
        let config = asked.config.unwrap_or_default();
        let mut world = self.world();
        let created_at = world.now();
        let id = format!("c{created_at}");
        let log = world.logs[&asked.pod_sandbox_id].join(config.log_path);
        let status = cri::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata,
            state: ContainerState::Created as i32,
            created_at,
            image: config.image,
            labels: config.labels,
            annotations: config.annotations,
            log_path: log.to_string_lossy().into_owned(),
            ..Default::default()
        };
        world.containers.insert(id.clone(), status);
        world.owners.insert(id.clone(), asked.pod_sandbox_id);
        Ok(cri::CreateContainerResponse { container_id: id })
    }

    async fn start_container(&self, asked: cri::StartContainerRequest) -> Result<cri::StartContainerResponse, Status> {
        let mut world = self.world();
        let now = world.now();
        let one = world.containers.get_mut(&asked.container_id).ok_or_else(|| Status::not_found("no container"))?;
        one.set_state(ContainerState::Running);
        one.started_at = now;
        std::fs::create_dir_all(PathBuf::from(&one.log_path).parent().expect("a folder")).expect("a folder");
        std::fs::write(&one.log_path, "").expect("a log");
        Ok(cri::StartContainerResponse {})
    }

    async fn stop_container(&self, asked: cri::StopContainerRequest) -> Result<cri::StopContainerResponse, Status> {
        self.stop(&asked.container_id);
        Ok(cri::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        asked: cri::RemoveContainerRequest,
    ) -> Result<cri::RemoveContainerResponse, Status> {
        let mut world = self.world();
        world.containers.remove(&asked.container_id);
        world.owners.remove(&asked.container_id);
        Ok(cri::RemoveContainerResponse {})
    }

    async fn list_containers(&self, asked: cri::ListContainersRequest) -> Result<cri::ListContainersResponse, Status> {
        let labels = asked.filter.map(|filter| filter.label_selector);
        let world = self.world();
        let shown = |one: &cri::ContainerStatus| cri::Container {
            id: one.id.clone(),
            pod_sandbox_id: world.owners[&one.id].clone(),
            metadata: one.metadata.clone(),
            image: one.image.clone(),
            state: one.state,
            created_at: one.created_at,
            labels: one.labels.clone(),
            ..Default::default()
        };
        let containers = world.containers.values().filter(|one| matches(labels.clone(), &one.labels));
        Ok(cri::ListContainersResponse { containers: containers.map(shown).collect() })
    }

    async fn container_status(
        &self,
        asked: cri::ContainerStatusRequest,
    ) -> Result<cri::ContainerStatusResponse, Status> {
        let found = self.world().containers.get(&asked.container_id).cloned();
        let status = found.ok_or_else(|| Status::not_found("no such container"))?;
        Ok(cri::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }

    async fn reopen_container_log(
        &self,
        asked: cri::ReopenContainerLogRequest,
    ) -> Result<cri::ReopenContainerLogResponse, Status> {
        let path = self.world().containers[&asked.container_id].log_path.clone();
        std::fs::File::options().append(true).create(true).open(path).expect("a log").flush().expect("a log");
        Ok(cri::ReopenContainerLogResponse {})
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: cri::ListPodSandboxStatsRequest,
    ) -> Result<cri::ListPodSandboxStatsResponse, Status> {
        let world = self.world();
        let stats = |one: &cri::PodSandboxStatus| {
            let memory = cri::MemoryUsage { working_set_bytes: value(world.used(&one.id)), ..Default::default() };
            let metadata = Some(cri::ContainerMetadata { name: "c".to_string(), attempt: 0 });
            let attributes = Some(cri::ContainerAttributes { metadata, ..Default::default() });
            let container = cri::ContainerStats { attributes, memory: Some(memory.clone()), ..Default::default() };
            let linux =
                cri::LinuxPodSandboxStats { memory: Some(memory), containers: vec![container], ..Default::default() };
            let attributes =
                cri::PodSandboxAttributes { id: one.id.clone(), metadata: one.metadata.clone(), ..Default::default() };
            cri::PodSandboxStats { attributes: Some(attributes), linux: Some(linux), ..Default::default() }
        };
        Ok(cri::ListPodSandboxStatsResponse { stats: world.sandboxes.values().map(stats).collect() })
    }

    async fn list_container_stats(
        &self,
        _: cri::ListContainerStatsRequest,
    ) -> Result<cri::ListContainerStatsResponse, Status> {
        Ok(cri::ListContainerStatsResponse::default())
    }

    absent! {
        update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse,
        exec_sync(ExecSyncRequest) -> ExecSyncResponse,
        exec(ExecRequest) -> ExecResponse,
        attach(AttachRequest) -> AttachResponse,
        port_forward(PortForwardRequest) -> PortForwardResponse,
        container_stats(ContainerStatsRequest) -> ContainerStatsResponse,
        pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse,
        update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse,
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
        get_container_events(GetEventsRequest) -> ContainerEventResponse,
        stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse,
    }
}

impl cri::ImageService for MadeUp {
    async fn list_images(&self, _: cri::ListImagesRequest) -> Result<cri::ListImagesResponse, Status> {
        let image = |id: &String| cri::Image { id: id.clone(), size: 100, ..Default::default() };
        Ok(cri::ListImagesResponse { images: self.world().images.iter().map(image).collect() })
    }

    async fn image_status(&self, asked: cri::ImageStatusRequest) -> Result<cri::ImageStatusResponse, Status> {
        let image = cri::Image { id: asked.image.unwrap_or_default().image, ..Default::default() };
        Ok(cri::ImageStatusResponse { image: Some(image), ..Default::default() })
    }

    async fn remove_image(&self, asked: cri::RemoveImageRequest) -> Result<cri::RemoveImageResponse, Status> {
        let id = asked.image.unwrap_or_default().image;
        self.world().images.retain(|other| *other != id);
        Ok(cri::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: cri::ImageFsInfoRequest) -> Result<cri::ImageFsInfoResponse, Status> {
        Ok(cri::ImageFsInfoResponse::default())
    }

    absent! { pull_image(PullImageRequest) -> PullImageResponse }

    absent_streams! { stream_images(StreamImagesRequest) -> StreamImagesResponse }
}

pub fn runtime(made_up: &Arc<MadeUp>) -> kubelet::runtime::Runtime {
    kubelet::runtime::Runtime { service: made_up.clone(), images: made_up.clone() }
}
