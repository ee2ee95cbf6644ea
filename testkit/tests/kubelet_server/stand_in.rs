//! A fake runtime with one container, whose command echoes its input, and the pod around it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::Tree;
use cri::Status;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubelet::server::Host;
use stdx::clock::{Clock, SystemClock};
use stdx::sync::Mutex;
use streaming::Timeouts;
use streaming::port_forward::port_forward;
use streaming::remote_command::{CommandResult, Options, Streams, Verb, remote_command};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

pub const CONTAINER: &str = "c1";

pub struct StandIn {
    pub log: PathBuf,
    pub is_running: AtomicBool,
    /// The address of the streaming server.
    address: String,
    /// The last exec request.
    pub asked: Mutex<Option<cri::ExecRequest>>,
}

impl StandIn {
    pub async fn start(log: PathBuf) -> Arc<StandIn> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service_fn(|request| async { Ok::<_, Infallible>(serve(request)) });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(socket), service).with_upgrades());
            }
        });
        Arc::new(StandIn { log, is_running: AtomicBool::new(true), address, asked: Mutex::default() })
    }

    fn container(&self) -> cri::ContainerStatus {
        let running = self.is_running.load(Ordering::SeqCst);
        let state = if running { cri::ContainerState::Running } else { cri::ContainerState::Exited };
        cri::ContainerStatus {
            id: CONTAINER.to_string(),
            state: state as i32,
            log_path: self.log.to_string_lossy().into_owned(),
            ..Default::default()
        }
    }
}

fn serve(request: Request<Incoming>) -> Response<http_body_util::Full<bytes::Bytes>> {
    let timeouts = Timeouts::default();
    if request.uri().path() == "/ports" {
        return port_forward(request, timeouts, |port, mut connection| async move {
            if port == 1 {
                return Err("connection refused".to_string());
            }
            connection.write_all(format!("port {port}: ").as_bytes()).await.map_err(|error| error.to_string())?;
            let (mut read, mut write) = tokio::io::split(connection);
            tokio::io::copy(&mut read, &mut write).await.map_err(|error| error.to_string())?;
            write.shutdown().await.map_err(|error| error.to_string())
        });
    }
    let options = Options::from_query(request.uri().query().unwrap_or_default()).expect("streams");
    let verb = if request.uri().path() == "/exec" { Verb::Exec } else { Verb::Attach };
    remote_command(request, verb, options, timeouts, echo)
}

async fn echo(streams: Streams) -> CommandResult {
    let (Some(mut stdin), Some(mut stdout)) = (streams.stdin, streams.stdout) else {
        return CommandResult::Failed("no streams".to_string());
    };
    let copied = tokio::io::copy(&mut stdin, &mut stdout).await;
    let _ = stdout.shutdown().await;
    match copied {
        Ok(0) => CommandResult::Success,
        Ok(_) => CommandResult::ExitCode { code: 3, message: "exit status 3".to_string() },
        Err(error) => CommandResult::Failed(error.to_string()),
    }
}

fn matches(filter: &std::collections::BTreeMap<String, String>, key: &str, value: &str) -> bool {
    filter.get(key).is_none_or(|wanted| wanted == value)
}

impl cri::RuntimeService for StandIn {
    async fn list_containers(&self, asked: cri::ListContainersRequest) -> Result<cri::ListContainersResponse, Status> {
        let labels = asked.filter.unwrap_or_default().label_selector;
        let there = matches(&labels, "io.kubernetes.pod.uid", super::UID)
            && matches(&labels, "io.kubernetes.container.name", "c")
            && self.is_running.load(Ordering::SeqCst);
        let container = cri::Container { id: CONTAINER.to_string(), ..Default::default() };
        Ok(cri::ListContainersResponse { containers: there.then_some(container).into_iter().collect() })
    }

    async fn container_status(&self, _: cri::ContainerStatusRequest) -> Result<cri::ContainerStatusResponse, Status> {
        Ok(cri::ContainerStatusResponse { status: Some(self.container()), ..Default::default() })
    }

    async fn list_pod_sandbox(&self, _: cri::ListPodSandboxRequest) -> Result<cri::ListPodSandboxResponse, Status> {
        let sandbox = cri::PodSandbox { id: "s1".to_string(), ..Default::default() };
        Ok(cri::ListPodSandboxResponse { items: vec![sandbox] })
    }

    async fn exec(&self, asked: cri::ExecRequest) -> Result<cri::ExecResponse, Status> {
        let query = format!("stdin={}&stdout={}&stderr={}", asked.stdin, asked.stdout, asked.stderr);
        *self.asked.lock() = Some(asked);
        Ok(cri::ExecResponse { url: format!("{}/exec?{query}", self.address) })
    }

    async fn attach(&self, asked: cri::AttachRequest) -> Result<cri::AttachResponse, Status> {
        let query = format!("stdin={}&stdout={}&stderr={}", asked.stdin, asked.stdout, asked.stderr);
        Ok(cri::AttachResponse { url: format!("{}/attach?{query}", self.address) })
    }

    async fn port_forward(&self, _: cri::PortForwardRequest) -> Result<cri::PortForwardResponse, Status> {
        Ok(cri::PortForwardResponse { url: format!("{}/ports", self.address) })
    }

    absent! {
        version(VersionRequest) -> VersionResponse,
        run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse,
        stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse,
        remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse,
        pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse,
        create_container(CreateContainerRequest) -> CreateContainerResponse,
        start_container(StartContainerRequest) -> StartContainerResponse,
        stop_container(StopContainerRequest) -> StopContainerResponse,
        remove_container(RemoveContainerRequest) -> RemoveContainerResponse,
        update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse,
        reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse,
        exec_sync(ExecSyncRequest) -> ExecSyncResponse,
        container_stats(ContainerStatsRequest) -> ContainerStatsResponse,
        list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse,
        pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse,
        list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse,
        update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse,
        status(StatusRequest) -> StatusResponse,
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

impl cri::ImageService for StandIn {
    absent! {
        list_images(ListImagesRequest) -> ListImagesResponse,
        image_status(ImageStatusRequest) -> ImageStatusResponse,
        pull_image(PullImageRequest) -> PullImageResponse,
        remove_image(RemoveImageRequest) -> RemoveImageResponse,
        image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse,
    }

    absent_streams! { stream_images(StreamImagesRequest) -> StreamImagesResponse }
}

/// A fake kubelet with the state of its pod.
pub struct Agent {
    pub runtime: Arc<StandIn>,
    pub pod: Tree,
}

impl Host for Agent {
    fn node_name(&self) -> &str {
        super::NODE
    }

    fn pods(&self) -> Vec<Tree> {
        vec![self.pod.clone()]
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Tree> {
        let is_it =
            (kubelet::model::pod::namespace(&self.pod), kubelet::model::pod::name(&self.pod)) == (namespace, name);
        is_it.then(|| self.pod.clone())
    }

    fn runtime(&self) -> Arc<dyn cri::DynRuntimeService> {
        self.runtime.clone()
    }

    fn images(&self) -> Arc<dyn cri::DynImageService> {
        self.runtime.clone()
    }

    fn configuration(&self) -> Tree {
        api::tree! { "kind" => "KubeletConfiguration" }
    }

    fn metrics(&self) -> String {
        "kubelet_running_pods 1\n".to_string()
    }

    fn probe_metrics(&self) -> String {
        String::new()
    }

    fn sync_loop(&self) -> Result<(), kubelet::server::SyncLoopError> {
        Ok(())
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    fn root_dir(&self) -> PathBuf {
        "/".into()
    }
}
