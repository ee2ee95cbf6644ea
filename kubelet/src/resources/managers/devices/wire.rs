//! Device plugins, v1beta1: messages by their published field numbers, and one function a call.

use std::collections::BTreeMap;
use std::time::Duration;

use cri::Status;
use cri::grpc::{Channel, ResponseStream, call, stream};

use crate::volumes::csi::wire::RpcError;

/// The version of the API.
pub const VERSION: &str = "v1beta1";
pub(crate) const HEALTHY: &str = "Healthy";
/// The method with which a plugin registers.
pub const REGISTER: &str = "/v1beta1.Registration/Register";

/// Upstream's timeout of PreStartContainer. Other calls have a longer one, because only one pod is admitted at a time.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(120);

/// No arguments, or no result.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// The optional calls of a plugin.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Options {
    #[prost(bool, tag = "1")]
    pub(crate) pre_start_required: bool,
    #[prost(bool, tag = "2")]
    pub(crate) get_preferred_allocation_available: bool,
}

/// The request of a plugin that registers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub version: String,
    /// The name of the plugin's socket in the same directory.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    #[prost(string, tag = "3")]
    pub resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub options: Option<Options>,
}

/// All devices of a plugin.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// A device and its health.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub health: String,
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// The NUMA nodes of a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<NumaNode>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct NumaNode {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PreferredAllocationRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerPreferredAllocationRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerPreferredAllocationRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) available: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) must_include: Vec<String>,
    #[prost(int32, tag = "3")]
    pub(crate) allocation_size: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PreferredAllocationResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerPreferredAllocationResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerPreferredAllocationResponse {
    #[prost(string, repeated, tag = "1")]
    pub(crate) ids: Vec<String>,
}

/// The devices that a container gets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<ContainerAllocateRequest>,
}

/// Also the request before a container starts.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) ids: Vec<String>,
}

/// The response with the settings of each container for its devices.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// The settings of a container for its devices.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerAllocateResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    pub envs: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) devices: Vec<DeviceSpec>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeviceSpec {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(string, tag = "3")]
    pub(crate) permissions: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

macro_rules! calls {
    ($($name:ident: $path:literal ($request:ty) -> $response:ty, $within:ident;)*) => { $(
        pub(crate) async fn $name(channel: &Channel, request: $request) -> Result<$response, RpcError> {
            in_time($within, call::<$request, $response>(channel, concat!("/v1beta1.DevicePlugin/", $path), request)).await
        }
    )* };
}

calls! {
    options: "GetDevicePluginOptions" (Empty) -> Options, START_TIMEOUT;
    preferred: "GetPreferredAllocation" (PreferredAllocationRequest) -> PreferredAllocationResponse, TIMEOUT;
    allocate: "Allocate" (AllocateRequest) -> AllocateResponse, TIMEOUT;
    pre_start: "PreStartContainer" (ContainerAllocateRequest) -> Empty, START_TIMEOUT;
}

pub(crate) async fn list_and_watch(channel: &Channel) -> Result<ResponseStream<ListAndWatchResponse>, RpcError> {
    let answers = stream(channel, "/v1beta1.DevicePlugin/ListAndWatch", Empty {});
    in_time(START_TIMEOUT, answers).await
}

async fn in_time<T>(within: Duration, work: impl Future<Output = Result<T, Status>>) -> Result<T, RpcError> {
    let late = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
    tokio::time::timeout(within, work).await.unwrap_or_else(late).map_err(RpcError::from)
}
