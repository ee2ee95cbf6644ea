//! The kubelet's configuration, with upstream's defaults. [`read`] merges a KubeletConfiguration, drop-in files and
//! flags.

mod check;
pub(crate) mod cpu_options;
mod error;
mod eviction;
mod fields;
mod gates;
mod image_verification;
mod overlay;
mod read;
mod sections;
#[cfg(test)]
mod tests;
pub(crate) mod topology;
mod values;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::quantity::Quantity;

pub(crate) use error::InvalidValue;
pub(crate) use eviction::{Amount, Eviction, Threshold};
pub(crate) use image_verification::ImageVerification;
pub use overlay::{FlagType, Overlay};
pub use read::{Settings, read, read_file};
pub use sections::{Allocatable, ContainerGc, ContainerLogs, ImagePulls, Serving, Shutdown};
pub(crate) use sections::{Certificates, ImageGc, Logs, Pinning, Process, Requests};

/// Amounts by the names of their resources.
pub(crate) type Resources = BTreeMap<String, Quantity>;

/// The configuration of a kubelet, with upstream's defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the Node object.
    pub node_name: String,
    /// The hostname: the label, and the address of type Hostname.
    pub hostname: String,
    /// Pods' directories, checkpoints, plugins' sockets.
    pub root_dir: PathBuf,
    /// Logs of containers, a directory a pod.
    pub pod_logs_dir: PathBuf,
    /// The parent of all cgroups of pods: `/` or a path that starts with a slash.
    pub cgroup_root: String,
    /// `cgroupsPerQOS`.
    pub cgroups_per_qos: bool,
    /// `cgroupDriver`.
    pub cgroup_driver: CgroupDriver,
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// The resolver of pods with dnsPolicy Default.
    pub resolv_conf: PathBuf,
    /// `maxPods`.
    pub max_pods: u32,
    /// None unless pods are counted by cores too.
    pub pods_per_core: Option<u32>,
    /// `podPidsLimit`.
    pub pod_pids_limit: i64,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`.
    pub cpu_cfs_quota_period: Duration,
    /// The part of a limit that a container gets before it is throttled, with cgroup v2; no throttling without a
    /// number.
    pub memory_throttling_factor: Option<f64>,
    /// Requested memory of pods is protected from reclaim, with cgroup v2.
    pub reserves_memory: bool,
    /// Kills one process, not the whole container, when it runs out of memory; the default depends on the cgroup
    /// version.
    pub single_process_oom_kill: Option<bool>,
    /// Containers without a profile get the runtime's.
    pub seccomp_default: bool,
    /// How many IDs a pod with its own user namespace gets.
    pub user_namespace_ids_per_pod: u32,
    /// `failSwapOn` and `memorySwap`.
    pub swap: Swap,
    /// The longest pause before a container that crashes is started again.
    pub crash_loop_max: Duration,
    /// How often a pod is synced without a change.
    pub sync_frequency: Duration,
    /// `nodeStatusUpdateFrequency`.
    pub node_status_update_frequency: Duration,
    /// `nodeStatusReportFrequency`.
    pub node_status_report_frequency: Duration,
    /// `nodeLeaseDurationSeconds`.
    pub node_lease_duration: Duration,
    /// The largest images that the node's status lists; all of them without a number.
    pub node_status_max_images: Option<usize>,
    /// `registerNode`.
    pub register_node: bool,
    /// `--register-schedulable`.
    pub register_schedulable: bool,
    /// Labels and taints the node registers with.
    pub node_labels: Vec<(String, String)>,
    /// `registerWithTaints`.
    pub register_with_taints: Vec<Taint>,
    /// At most one of each family; an unspecified address chooses the family.
    pub node_ips: Vec<IpAddr>,
    /// `providerID`.
    pub provider_id: String,
    /// A cloud controller writes the node's addresses, and removes the taint of new nodes.
    pub external_cloud_provider: bool,
    /// `staticPodPath`.
    pub static_pod_path: Option<PathBuf>,
    /// `staticPodURL`.
    pub static_pod_url: Option<String>,
    /// `staticPodURLHeader`.
    pub static_pod_url_headers: Vec<(String, String)>,
    /// `fileCheckFrequency`.
    pub file_check_frequency: Duration,
    /// `httpCheckFrequency`.
    pub http_check_frequency: Duration,
    /// The socket of another runtime; None for the built-in runtime.
    pub runtime_endpoint: Option<PathBuf>,
    /// `imageServiceEndpoint`.
    pub image_endpoint: Option<PathBuf>,
    /// `runtimeRequestTimeout`.
    pub runtime_request_timeout: Duration,
    /// Never garbage-collected; the runtime decides whether it is used.
    pub pod_infra_image: Option<String>,
    /// How images are pulled.
    pub image_pulls: ImagePulls,
    /// Which pods may use an image that is present.
    pub image_verification: ImageVerification,
    /// `--image-credential-provider-config`.
    pub credential_provider_config: Option<PathBuf>,
    /// `--image-credential-provider-bin-dir`.
    pub credential_provider_bin_dir: Option<PathBuf>,
    /// Image garbage collection.
    pub image_gc: ImageGc,
    /// Container garbage collection.
    pub container_gc: ContainerGc,
    /// Thresholds of the eviction manager.
    pub eviction: Eviction,
    /// Resources reserved for processes outside of pods.
    pub allocatable: Allocatable,
    /// CPU, memory and topology managers.
    pub pinning: Pinning,
    /// The logs of containers.
    pub container_logs: ContainerLogs,
    /// How long measurements of volumes are cached; None if volumes are not measured.
    pub volume_stats_period: Option<Duration>,
    /// `enableControllerAttachDetach`.
    pub enable_controller_attach_detach: bool,
    /// `localStorageCapacityIsolation`.
    pub local_storage_capacity_isolation: bool,
    /// `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Graceful node shutdown.
    pub shutdown: Shutdown,
    /// The port of the kubelet, as in the Node object.
    pub port: u16,
    /// `readOnlyPort`.
    pub read_only_port: u16,
    /// `streamingConnectionIdleTimeout`.
    pub streaming_connection_idle_timeout: Duration,
    /// The kubelet's own server.
    pub serving: Serving,
    /// Certificates and their rotation.
    pub certificates: Certificates,
    /// Rate limits of requests to the API server.
    pub requests: Requests,
    /// The process of the kubelet.
    pub process: Process,
    /// The kubelet's own log.
    pub logs: Logs,
    /// Waits before SIGTERM until the service proxies that confirm have taken a pod out of rotation.
    pub drain_by_proxies: bool,
}

/// `cgroupDriver`: which program manages the cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The kubelet writes to the file system.
    Cgroupfs,
    /// systemd manages slices.
    Systemd,
}

/// A taint with which the node registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// A machine that swaps is refused.
    pub fail_on: bool,
    /// Pods that are Burstable may swap, in the measure of their requests.
    pub(crate) limited: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            node_name: String::new(),
            hostname: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cgroup_root: "/".to_string(),
            cgroups_per_qos: true,
            cgroup_driver: CgroupDriver::Cgroupfs,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            pods_per_core: None,
            pod_pids_limit: -1,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            memory_throttling_factor: None,
            reserves_memory: false,
            single_process_oom_kill: None,
            seccomp_default: false,
            user_namespace_ids_per_pod: 65_536,
            swap: Swap { fail_on: true, limited: false },
            crash_loop_max: Duration::from_secs(300),
            sync_frequency: Duration::from_secs(60),
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(300),
            node_lease_duration: Duration::from_secs(40),
            node_status_max_images: Some(50),
            register_node: true,
            register_schedulable: true,
            node_labels: Vec::new(),
            register_with_taints: Vec::new(),
            node_ips: Vec::new(),
            provider_id: String::new(),
            external_cloud_provider: false,
            static_pod_path: None,
            static_pod_url: None,
            static_pod_url_headers: Vec::new(),
            file_check_frequency: Duration::from_secs(20),
            http_check_frequency: Duration::from_secs(20),
            runtime_endpoint: None,
            image_endpoint: None,
            runtime_request_timeout: Duration::from_secs(120),
            pod_infra_image: None,
            image_pulls: ImagePulls::default(),
            image_verification: ImageVerification::default(),
            credential_provider_config: None,
            credential_provider_bin_dir: None,
            image_gc: ImageGc::default(),
            container_gc: ContainerGc::default(),
            eviction: Eviction::default(),
            allocatable: Allocatable::default(),
            pinning: Pinning::default(),
            container_logs: ContainerLogs::default(),
            volume_stats_period: Some(Duration::from_secs(60)),
            enable_controller_attach_detach: true,
            local_storage_capacity_isolation: true,
            allowed_unsafe_sysctls: Vec::new(),
            shutdown: Shutdown::default(),
            port: 10250,
            read_only_port: 0,
            streaming_connection_idle_timeout: Duration::from_secs(4 * 3600),
            serving: Serving::default(),
            certificates: Certificates::default(),
            requests: Requests::default(),
            process: Process::default(),
            logs: Logs::default(),
            drain_by_proxies: true,
        }
    }
}

impl Config {
    /// The directory of a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }
}
