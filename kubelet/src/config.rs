//! What the agent is told, with upstream's defaults.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Config {
    /// Pods' folders, checkpoints, plugins' sockets.
    pub root_dir: PathBuf,
    /// Logs of containers, a folder a pod.
    pub pod_logs_dir: PathBuf,
    /// The parent of all control groups of pods: `/` or a path that starts with a slash.
    pub cgroup_root: String,
    pub cgroups_per_qos: bool,
    pub cgroup_driver: CgroupDriver,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// What pods take over whose dnsPolicy is Default.
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    pub pod_pids_limit: i64,
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_quota_period: Duration,
    /// The longest pause before a container that crashes is started again.
    pub crash_loop_max: Duration,
    /// How often a pod is looked at although nothing is known to have changed.
    pub sync_frequency: Duration,
    pub node_status_update_frequency: Duration,
    pub node_status_report_frequency: Duration,
    pub node_lease_duration: Duration,
    pub register_node: bool,
    /// Labels and taints the node registers with.
    pub node_labels: Vec<(String, String)>,
    pub register_with_taints: Vec<Taint>,
    pub node_ips: Vec<IpAddr>,
    pub provider_id: String,
    pub static_pod_path: Option<PathBuf>,
    pub static_pod_url: Option<String>,
    pub serialize_image_pulls: bool,
    pub max_parallel_image_pulls: Option<u32>,
    pub registry_qps: u32,
    pub registry_burst: u32,
    pub container_log_max_size: u64,
    pub container_log_max_files: u32,
    pub enable_service_links_default: bool,
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The port of the agent, as the node says it.
    pub port: u16,
    pub read_only_port: u16,
    pub streaming_connection_idle_timeout: Duration,
    /// Waits before SIGTERM until service proxies that announced themselves say that a pod is out of rotation.
    pub drain_by_proxies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cgroup_root: "/".to_string(),
            cgroups_per_qos: true,
            cgroup_driver: CgroupDriver::Cgroupfs,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            pod_pids_limit: -1,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            crash_loop_max: Duration::from_secs(300),
            sync_frequency: Duration::from_secs(60),
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(300),
            node_lease_duration: Duration::from_secs(40),
            register_node: true,
            node_labels: Vec::new(),
            register_with_taints: Vec::new(),
            node_ips: Vec::new(),
            provider_id: String::new(),
            static_pod_path: None,
            static_pod_url: None,
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            registry_qps: 5,
            registry_burst: 10,
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            enable_service_links_default: true,
            allowed_unsafe_sysctls: Vec::new(),
            port: 10250,
            read_only_port: 0,
            streaming_connection_idle_timeout: Duration::from_secs(4 * 3600),
            drain_by_proxies: true,
        }
    }
}

impl Config {
    /// The folder of a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }
}
