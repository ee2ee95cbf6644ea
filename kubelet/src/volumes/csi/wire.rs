//! The part of CSI v1 that a node needs, and plugin registration: messages by their published field numbers, and one
//! function per call.

use std::collections::BTreeMap;
use std::time::Duration;

use cri::Status;
use cri::grpc::{Channel, call};

/// Upstream's timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(120);

/// No arguments, or no result.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

/// The description of a plugin.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Whether a plugin was registered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub error: String,
}

/// The driver's identity of the node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeInfo {
    #[prost(string, tag = "1")]
    pub node_id: String,
    #[prost(int64, tag = "2")]
    pub max_volumes_per_node: i64,
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

/// The topology in which the volumes of the node are accessible.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Topology {
    #[prost(btree_map = "string, string", tag = "1")]
    pub segments: BTreeMap<String, String>,
}

/// The capabilities of a driver on a node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<NodeCapability>,
}

/// A capability of the driver's node service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeCapability {
    #[prost(message, optional, tag = "1")]
    pub rpc: Option<NodeRpc>,
}

/// A capability by its number.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeRpc {
    #[prost(int32, tag = "1")]
    pub kind: i32,
}

/// Capabilities of drivers on a node.
pub mod capability {
    /// Volumes are staged before they are published.
    pub const STAGE_UNSTAGE_VOLUME: i32 = 1;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 5;
    pub(crate) const VOLUME_MOUNT_GROUP: i32 = 6;
}

/// Access modes of a volume.
pub(crate) mod access {
    pub(crate) const SINGLE_NODE_WRITER: i32 = 1;
    pub(crate) const MULTI_NODE_READER_ONLY: i32 = 3;
    pub(crate) const MULTI_NODE_MULTI_WRITER: i32 = 5;
    pub(crate) const SINGLE_NODE_SINGLE_WRITER: i32 = 6;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 7;
}

/// Either `block` or `mount`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VolumeCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub(crate) mount: Option<MountVolume>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access_mode: Option<AccessMode>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MountVolume {
    #[prost(string, tag = "1")]
    pub(crate) fs_type: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) mount_flags: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) volume_mount_group: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AccessMode {
    #[prost(int32, tag = "1")]
    pub(crate) mode: i32,
}

/// Mounts a volume for all pods of the node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeStageVolume {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub publish_context: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub volume_context: BTreeMap<String, String>,
}

/// Undoes [`NodeStageVolume`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeUnstageVolume {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) staging_target_path: String,
}

/// Mounts a volume for one pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodePublishVolume {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) publish_context: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    #[prost(string, tag = "4")]
    pub target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(crate) secrets: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub volume_context: BTreeMap<String, String>,
}

/// Undoes [`NodePublishVolume`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeUnpublishVolume {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub target_path: String,
}

macro_rules! calls {
    ($($name:ident: $path:literal ($request:ty) -> $response:ty,)*) => { $(
        pub(crate) async fn $name(channel: &Channel, request: $request) -> Result<$response, RpcError> {
            in_time(call::<$request, $response>(channel, $path, request)).await
        }
    )* };
}

calls! {
    get_info: "/pluginregistration.Registration/GetInfo" (Empty) -> PluginInfo,
    notify: "/pluginregistration.Registration/NotifyRegistrationStatus" (RegistrationStatus) -> Empty,
    node_get_info: "/csi.v1.Node/NodeGetInfo" (Empty) -> NodeInfo,
    node_get_capabilities: "/csi.v1.Node/NodeGetCapabilities" (Empty) -> NodeCapabilities,
    stage: "/csi.v1.Node/NodeStageVolume" (NodeStageVolume) -> Empty,
    unstage: "/csi.v1.Node/NodeUnstageVolume" (NodeUnstageVolume) -> Empty,
    publish: "/csi.v1.Node/NodePublishVolume" (NodePublishVolume) -> Empty,
    unpublish: "/csi.v1.Node/NodeUnpublishVolume" (NodeUnpublishVolume) -> Empty,
}

async fn in_time<T>(work: impl Future<Output = Result<T, Status>>) -> Result<T, RpcError> {
    let late = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(late).map_err(RpcError)
}

/// A failed call, as Go writes it.
#[derive(Debug, thiserror::Error)]
#[error("{}", format_status(.0))]
pub struct RpcError(#[from] Status);

fn format_status(status: &Status) -> String {
    let code = match status.code() {
        cri::Code::Cancelled => "Canceled".to_string(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}
