//! The calls, a line each. One table generates the trait that a runtime implements, the same trait with boxed
//! responses for trait objects, the dispatch of the server, the client, and a client whose calls time out.

use std::future::Future;

use crate::Status;
use crate::grpc::{
    Body, BoxFuture, Channel, ResponseFuture, ResponseStream, call, respond_stream, respond_unary, stream,
};
use crate::messages::*;
use crate::timeout::{TimeoutService, wait};

macro_rules! services {
    ($($service:ident, $dynamic:ident, $client:ident, $dispatch:ident, $calls:ident, $prefix:literal {
        unary { $($call:ident: $path:literal ($request:ident) -> $response:ident,)* }
        streaming { $($flow:ident: $flow_path:literal ($ask:ident) -> $item:ident,)* }
    })*) => { $(
        /// The names of the calls.
        pub const $calls: &[&str] = &[$($path,)* $($flow_path,)*];

        /// The calls of a runtime, by their names in CRI.
        pub trait $service: Send + Sync + 'static {
            $(fn $call(&self, request: $request) -> impl Future<Output = Result<$response, Status>> + Send;)*
            $(fn $flow(&self, request: $ask) -> impl Future<Output = Result<ResponseStream<$item>, Status>> + Send;)*
        }

        /// The same calls behind a pointer.
        pub trait $dynamic: Send + Sync + 'static {
            $(fn $call(&self, request: $request) -> BoxFuture<'_, $response>;)*
            $(fn $flow(&self, request: $ask) -> BoxFuture<'_, ResponseStream<$item>>;)*
        }

        impl<T: $service> $dynamic for T {
            $(fn $call(&self, request: $request) -> BoxFuture<'_, $response> {
                Box::pin($service::$call(self, request))
            })*
            $(fn $flow(&self, request: $ask) -> BoxFuture<'_, ResponseStream<$item>> {
                Box::pin($service::$flow(self, request))
            })*
        }

        /// A runtime at the other end of a socket.
        #[derive(Clone)]
        pub struct $client(pub(crate) Channel);

        impl $service for $client {
            $(async fn $call(&self, request: $request) -> Result<$response, Status> {
                call::<$request, $response>(&self.0, concat!($prefix, $path), request).await
            })*
            $(async fn $flow(&self, request: $ask) -> Result<ResponseStream<$item>, Status> {
                stream::<$ask, $item>(&self.0, concat!($prefix, $flow_path), request).await
            })*
        }

        impl $service for TimeoutService<dyn $dynamic> {
            $(async fn $call(&self, request: $request) -> Result<$response, Status> {
                let (service, limit) = (self.service.clone(), self.limit(&request));
                wait($path, limit, async move { service.$call(request).await }).await
            })*
            $(async fn $flow(&self, request: $ask) -> Result<ResponseStream<$item>, Status> {
                self.service.$flow(request).await
            })*
        }

        /// The response to the request, if its path is one of these calls.
        pub(crate) fn $dispatch(
            service: std::sync::Arc<dyn $dynamic>,
            request: http::Request<Body>,
        ) -> Result<ResponseFuture, http::Request<Body>> {
            match request.uri().path().strip_prefix($prefix) {
                $(Some($path) => Ok(respond_unary(request, move |message: $request| -> BoxFuture<'static, $response> {
                    let service = service.clone();
                    Box::pin(async move { service.$call(message).await })
                })),)*
                $(Some($flow_path) => Ok(respond_stream(request, move |message: $ask| -> BoxFuture<'static, ResponseStream<$item>> {
                    let service = service.clone();
                    Box::pin(async move { service.$flow(message).await })
                })),)*
                _ => Err(request),
            }
        }
    )* };
}

services! {
    RuntimeService, DynRuntimeService, RuntimeServiceClient, dispatch_runtime, RUNTIME_CALLS, "/runtime.v1.RuntimeService/" {
        unary {
            version: "Version" (VersionRequest) -> VersionResponse,
            run_pod_sandbox: "RunPodSandbox" (RunPodSandboxRequest) -> RunPodSandboxResponse,
            stop_pod_sandbox: "StopPodSandbox" (StopPodSandboxRequest) -> StopPodSandboxResponse,
            remove_pod_sandbox: "RemovePodSandbox" (RemovePodSandboxRequest) -> RemovePodSandboxResponse,
            pod_sandbox_status: "PodSandboxStatus" (PodSandboxStatusRequest) -> PodSandboxStatusResponse,
            list_pod_sandbox: "ListPodSandbox" (ListPodSandboxRequest) -> ListPodSandboxResponse,
            create_container: "CreateContainer" (CreateContainerRequest) -> CreateContainerResponse,
            start_container: "StartContainer" (StartContainerRequest) -> StartContainerResponse,
            stop_container: "StopContainer" (StopContainerRequest) -> StopContainerResponse,
            remove_container: "RemoveContainer" (RemoveContainerRequest) -> RemoveContainerResponse,
            list_containers: "ListContainers" (ListContainersRequest) -> ListContainersResponse,
            container_status: "ContainerStatus" (ContainerStatusRequest) -> ContainerStatusResponse,
            update_container_resources: "UpdateContainerResources" (UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse,
            reopen_container_log: "ReopenContainerLog" (ReopenContainerLogRequest) -> ReopenContainerLogResponse,
            exec_sync: "ExecSync" (ExecSyncRequest) -> ExecSyncResponse,
            exec: "Exec" (ExecRequest) -> ExecResponse,
            attach: "Attach" (AttachRequest) -> AttachResponse,
            port_forward: "PortForward" (PortForwardRequest) -> PortForwardResponse,
            container_stats: "ContainerStats" (ContainerStatsRequest) -> ContainerStatsResponse,
            list_container_stats: "ListContainerStats" (ListContainerStatsRequest) -> ListContainerStatsResponse,
            pod_sandbox_stats: "PodSandboxStats" (PodSandboxStatsRequest) -> PodSandboxStatsResponse,
            list_pod_sandbox_stats: "ListPodSandboxStats" (ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse,
            update_runtime_config: "UpdateRuntimeConfig" (UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse,
            status: "Status" (StatusRequest) -> StatusResponse,
            checkpoint_container: "CheckpointContainer" (CheckpointContainerRequest) -> CheckpointContainerResponse,
            checkpoint_pod: "CheckpointPod" (CheckpointPodRequest) -> CheckpointPodResponse,
            restore_pod: "RestorePod" (RestorePodRequest) -> RestorePodResponse,
            list_metric_descriptors: "ListMetricDescriptors" (ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse,
            list_pod_sandbox_metrics: "ListPodSandboxMetrics" (ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse,
            runtime_config: "RuntimeConfig" (RuntimeConfigRequest) -> RuntimeConfigResponse,
            update_pod_sandbox_resources: "UpdatePodSandboxResources" (UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse,
        }
        streaming {
            stream_pod_sandboxes: "StreamPodSandboxes" (StreamPodSandboxesRequest) -> StreamPodSandboxesResponse,
            stream_containers: "StreamContainers" (StreamContainersRequest) -> StreamContainersResponse,
            stream_container_stats: "StreamContainerStats" (StreamContainerStatsRequest) -> StreamContainerStatsResponse,
            stream_pod_sandbox_stats: "StreamPodSandboxStats" (StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse,
            get_container_events: "GetContainerEvents" (GetEventsRequest) -> ContainerEventResponse,
            stream_pod_sandbox_metrics: "StreamPodSandboxMetrics" (StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse,
        }
    }
    ImageService, DynImageService, ImageServiceClient, dispatch_image, IMAGE_CALLS, "/runtime.v1.ImageService/" {
        unary {
            list_images: "ListImages" (ListImagesRequest) -> ListImagesResponse,
            image_status: "ImageStatus" (ImageStatusRequest) -> ImageStatusResponse,
            pull_image: "PullImage" (PullImageRequest) -> PullImageResponse,
            remove_image: "RemoveImage" (RemoveImageRequest) -> RemoveImageResponse,
            image_fs_info: "ImageFsInfo" (ImageFsInfoRequest) -> ImageFsInfoResponse,
        }
        streaming {
            stream_images: "StreamImages" (StreamImagesRequest) -> StreamImagesResponse,
        }
    }
}
