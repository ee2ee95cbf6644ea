//! The calls of the fake runtime for sandboxes and containers.

use std::path::Path;
use std::time::Duration;

use cri::{ContainerState, PodSandboxState, Status};

use super::{Remembered, fits, open_log};

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
    ) -> Result<cri::ResponseStream<cri::ContainerEventResponse>, Status> {
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
