//! The CRI runtime service. Each call is a few lines; the other modules do the work.

use std::collections::BTreeMap;
use std::time::Duration;

use cri::*;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::streaming::Session;
use super::{Service, blocking, convert, status};
use crate::shim::log::Timestamp;
use crate::shim::protocol::Call;

/// The number of items in one message of a stream.
const CHUNK: usize = 100;

pub(super) fn chunks<T: Send + 'static, M: Send + 'static>(
    items: Vec<T>,
    message: impl Fn(Vec<T>) -> M + Send + 'static,
) -> ResponseStream<M> {
    let mut messages = Vec::new();
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        messages.push(Ok(message(items.by_ref().take(CHUNK).collect())));
    }
    Box::pin(tokio_stream::iter(messages))
}

fn check_streams(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Result<(), Status> {
    match () {
        () if tty && stderr => Err(Status::invalid_argument("tty and stderr cannot both be true")),
        () if !stdin && !stdout && !stderr => Err(Status::invalid_argument("stdin, stdout and stderr are all false")),
        () => Ok(()),
    }
}

fn unsupported<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("{what} is not supported by this runtime")))
}

impl RuntimeService for Service {
    async fn version(&self, _: VersionRequest) -> Result<VersionResponse, Status> {
        Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "tiphys".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn run_pod_sandbox(&self, request: RunPodSandboxRequest) -> Result<RunPodSandboxResponse, Status> {
        // A client that gives up must not leave an incomplete sandbox behind.
        let service = self.clone();
        let task = tokio::spawn(async move { service.run_sandbox(request).await });
        let pod_sandbox_id = task.await.map_err(|e| Status::internal(e.to_string()))?.map_err(status)?;
        Ok(RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(&self, request: StopPodSandboxRequest) -> Result<StopPodSandboxResponse, Status> {
        if let Some(sandbox) = self.0.sandboxes.find(&request.pod_sandbox_id) {
            self.stop_sandbox(&sandbox).await.map_err(status)?;
        }
        Ok(StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(&self, request: RemovePodSandboxRequest) -> Result<RemovePodSandboxResponse, Status> {
        if let Some(sandbox) = self.0.sandboxes.find(&request.pod_sandbox_id) {
            self.remove_sandbox(&sandbox).await.map_err(status)?;
        }
        Ok(RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(&self, request: PodSandboxStatusRequest) -> Result<PodSandboxStatusResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let record = sandbox.record();
        let mut info = BTreeMap::new();
        if request.verbose {
            info.insert("pid".into(), record.pause.to_string());
        }
        Ok(PodSandboxStatusResponse {
            status: Some(convert::sandbox_status(&record)),
            info,
            containers_statuses: self.containers_of(&sandbox.id).iter().map(|c| convert::container_status(c)).collect(),
            timestamp: Timestamp::now().0,
        })
    }

    async fn list_pod_sandbox(&self, request: ListPodSandboxRequest) -> Result<ListPodSandboxResponse, Status> {
        Ok(ListPodSandboxResponse { items: self.sandboxes(request.filter) })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: StreamPodSandboxesRequest,
    ) -> Result<ResponseStream<StreamPodSandboxesResponse>, Status> {
        let list = self.sandboxes(request.filter);
        Ok(chunks(list, |pod_sandboxes| StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn create_container(&self, request: CreateContainerRequest) -> Result<CreateContainerResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let service = self.clone();
        let task = tokio::spawn(async move { service.create(&sandbox, request).await });
        let container_id = task.await.map_err(|e| Status::internal(e.to_string()))?.map_err(status)?;
        Ok(CreateContainerResponse { container_id })
    }

    async fn start_container(&self, request: StartContainerRequest) -> Result<StartContainerResponse, Status> {
        let container = self.container(&request.container_id)?;
        let service = self.clone();
        let task = tokio::spawn(async move { service.start(&container).await });
        task.await.map_err(|e| Status::internal(e.to_string()))?.map_err(status)?;
        Ok(StartContainerResponse {})
    }

    async fn stop_container(&self, request: StopContainerRequest) -> Result<StopContainerResponse, Status> {
        if let Some(container) = self.0.containers.find(&request.container_id) {
            let timeout = Duration::from_secs(request.timeout.max(0) as u64);
            self.stop(&container, timeout).await.map_err(status)?;
        }
        Ok(StopContainerResponse {})
    }

    async fn remove_container(&self, request: RemoveContainerRequest) -> Result<RemoveContainerResponse, Status> {
        if let Some(container) = self.0.containers.find(&request.container_id) {
            self.remove(&container).await.map_err(status)?;
        }
        Ok(RemoveContainerResponse {})
    }

    async fn list_containers(&self, request: ListContainersRequest) -> Result<ListContainersResponse, Status> {
        Ok(ListContainersResponse { containers: self.containers(request.filter) })
    }

    async fn stream_containers(
        &self,
        request: StreamContainersRequest,
    ) -> Result<ResponseStream<StreamContainersResponse>, Status> {
        let list = self.containers(request.filter);
        Ok(chunks(list, |containers| StreamContainersResponse { containers }))
    }

    async fn container_status(&self, request: ContainerStatusRequest) -> Result<ContainerStatusResponse, Status> {
        let container = self.container(&request.container_id)?;
        let mut info = BTreeMap::new();
        if request.verbose {
            info.insert("pid".into(), container.status().pid.to_string());
            info.insert("sandboxID".into(), container.sandbox.id.clone());
        }
        Ok(ContainerStatusResponse { status: Some(convert::container_status(&container)), info })
    }

    async fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Result<UpdateContainerResourcesResponse, Status> {
        let container = self.container(&request.container_id)?;
        self.update(&container, request.linux.unwrap_or_default()).await.map_err(status)?;
        Ok(UpdateContainerResourcesResponse {})
    }

    /// The client manages the pod's cgroup. The runtime only stores the new values.
    async fn update_pod_sandbox_resources(
        &self,
        request: UpdatePodSandboxResourcesRequest,
    ) -> Result<UpdatePodSandboxResourcesResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        self.update_sandbox(&sandbox, request.overhead, request.resources).map_err(status)?;
        Ok(UpdatePodSandboxResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: ReopenContainerLogRequest,
    ) -> Result<ReopenContainerLogResponse, Status> {
        let container = self.container(&request.container_id)?;
        let shim = self.running_shim(&container).map_err(status)?;
        shim.call(Call::ReopenLog { container: container.id.clone() }, &[]).await.map_err(status)?;
        Ok(ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
        let container = self.container(&request.container_id)?;
        let timeout = Duration::from_secs(request.timeout.max(0) as u64);
        self.execute_sync(&container, request.cmd, timeout).await
    }

    async fn exec(&self, request: ExecRequest) -> Result<ExecResponse, Status> {
        let container = self.container(&request.container_id)?;
        self.running_shim(&container).map_err(status)?;
        check_streams(request.stdin, request.stdout, request.stderr, request.tty)?;
        let url = self.0.streaming.url(Session::Exec(ExecRequest { container_id: container.id.clone(), ..request }));
        Ok(ExecResponse { url: url.map_err(status)? })
    }

    async fn attach(&self, request: AttachRequest) -> Result<AttachResponse, Status> {
        let container = self.container(&request.container_id)?;
        self.running_shim(&container).map_err(status)?;
        check_streams(request.stdin, request.stdout, request.stderr, request.tty)?;
        let request = AttachRequest { container_id: container.id.clone(), ..request };
        let url = self.0.streaming.url(Session::Attach(request));
        Ok(AttachResponse { url: url.map_err(status)? })
    }

    async fn port_forward(&self, request: PortForwardRequest) -> Result<PortForwardResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if convert::sandbox_state(&sandbox.record()) != PodSandboxState::Ready {
            return Err(Status::unknown(format!("sandbox {:?} is not running", sandbox.id)));
        }
        let request = PortForwardRequest { pod_sandbox_id: sandbox.id.clone(), ..request };
        let url = self.0.streaming.url(Session::PortForward(request));
        Ok(PortForwardResponse { url: url.map_err(status)? })
    }

    async fn container_stats(&self, request: ContainerStatsRequest) -> Result<ContainerStatsResponse, Status> {
        let container = self.container(&request.container_id)?;
        let service = self.clone();
        let stats = blocking(move || service.container_usage(&container)).await.map_err(status)?;
        Ok(ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: ListContainerStatsRequest,
    ) -> Result<ListContainerStatsResponse, Status> {
        Ok(ListContainerStatsResponse { stats: self.containers_usage(request.filter).await? })
    }

    async fn stream_container_stats(
        &self,
        request: StreamContainerStatsRequest,
    ) -> Result<ResponseStream<StreamContainerStatsResponse>, Status> {
        let list = self.containers_usage(request.filter).await?;
        Ok(chunks(list, |container_stats| StreamContainerStatsResponse { container_stats }))
    }

    async fn pod_sandbox_stats(&self, request: PodSandboxStatsRequest) -> Result<PodSandboxStatsResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let service = self.clone();
        let stats = blocking(move || service.sandbox_usage(&sandbox)).await.map_err(status)?;
        Ok(PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: ListPodSandboxStatsRequest,
    ) -> Result<ListPodSandboxStatsResponse, Status> {
        Ok(ListPodSandboxStatsResponse { stats: self.sandboxes_usage(request.filter).await? })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: StreamPodSandboxStatsRequest,
    ) -> Result<ResponseStream<StreamPodSandboxStatsResponse>, Status> {
        let list = self.sandboxes_usage(request.filter).await?;
        Ok(chunks(list, |pod_sandbox_stats| StreamPodSandboxStatsResponse { pod_sandbox_stats }))
    }

    async fn update_runtime_config(
        &self,
        request: UpdateRuntimeConfigRequest,
    ) -> Result<UpdateRuntimeConfigResponse, Status> {
        let network = request.runtime_config.and_then(|c| c.network_config).unwrap_or_default();
        self.0.network.set_pod_cidr(network.pod_cidr).await.map_err(status)?;
        Ok(UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: StatusRequest) -> Result<StatusResponse, Status> {
        let not_ready = self.0.network.not_ready().await;
        let condition = |kind: &str, problem: Option<(&str, String)>| {
            let status = problem.is_none();
            let (reason, message) = problem.unwrap_or(("", String::new()));
            RuntimeCondition { r#type: kind.into(), status, reason: reason.into(), message }
        };
        let network = not_ready.map(|reason| ("NetworkPluginNotReady", reason));
        let conditions = vec![condition("RuntimeReady", None), condition("NetworkReady", network)];
        let own = RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
        let handlers = self.0.options.handlers.keys();
        let mut info = BTreeMap::new();
        if request.verbose {
            info.insert("zygote".into(), self.0.zygote.pid().to_string());
        }
        Ok(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            info,
            runtime_handlers: std::iter::once(RuntimeHandler { name: String::new(), features: Some(own) })
                .chain(handlers.map(|name| RuntimeHandler { name: name.clone(), features: Some(Default::default()) }))
                .collect(),
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
                mount_options: true,
            }),
        })
    }

    async fn runtime_config(&self, _: RuntimeConfigRequest) -> Result<RuntimeConfigResponse, Status> {
        let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs as i32 };
        Ok(RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn checkpoint_container(&self, _: CheckpointContainerRequest) -> Result<CheckpointContainerResponse, Status> {
        unsupported("CheckpointContainer")
    }

    async fn checkpoint_pod(&self, _: CheckpointPodRequest) -> Result<CheckpointPodResponse, Status> {
        unsupported("CheckpointPod")
    }

    async fn restore_pod(&self, _: RestorePodRequest) -> Result<RestorePodResponse, Status> {
        unsupported("RestorePod")
    }

    async fn get_container_events(
        &self,
        _: GetEventsRequest,
    ) -> Result<ResponseStream<ContainerEventResponse>, Status> {
        let events = BroadcastStream::new(self.0.events.subscribe());
        // A client that was too slow has to list again.
        let lost = |_| Status::data_loss("events were missed");
        Ok(Box::pin(events.map(move |event| event.map_err(lost))))
    }

    async fn list_metric_descriptors(
        &self,
        _: ListMetricDescriptorsRequest,
    ) -> Result<ListMetricDescriptorsResponse, Status> {
        Ok(ListMetricDescriptorsResponse { descriptors: super::metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: ListPodSandboxMetricsRequest,
    ) -> Result<ListPodSandboxMetricsResponse, Status> {
        Ok(ListPodSandboxMetricsResponse { pod_metrics: self.pods_metrics().await? })
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: StreamPodSandboxMetricsRequest,
    ) -> Result<ResponseStream<StreamPodSandboxMetricsResponse>, Status> {
        let list = self.pods_metrics().await?;
        Ok(chunks(list, |pod_sandbox_metrics| StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
    }
}

impl Service {
    async fn pods_metrics(&self) -> Result<Vec<PodSandboxMetrics>, Status> {
        let (service, list) = (self.clone(), self.ready_sandboxes(None));
        blocking(move || list.iter().map(|s| service.pod_metrics(s)).collect()).await.map_err(status)
    }

    async fn containers_usage(&self, filter: Option<ContainerStatsFilter>) -> Result<Vec<ContainerStats>, Status> {
        let (service, list) = (self.clone(), self.running_containers(filter));
        blocking(move || list.iter().map(|c| service.container_usage(c)).collect()).await.map_err(status)
    }

    async fn sandboxes_usage(&self, filter: Option<PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>, Status> {
        let (service, list) = (self.clone(), self.ready_sandboxes(filter));
        blocking(move || list.iter().map(|s| service.sandbox_usage(s)).collect()).await.map_err(status)
    }
}
