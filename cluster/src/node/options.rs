//! The options of the kubelet that runs inside of `up`: flags, a KubeletConfiguration, and defaults for a machine that
//! is shared with other programs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ::proxy::config::{Configuration, Mode, NodePortAddress};
use kubelet::Config;
use kubelet::config::Settings;

use super::container_runtime::{BuiltinRuntime, RuntimeChoice};
use super::flags::Flags;
use super::host;
use super::pod_network::PodNetwork;
use super::services::{self, Component, Dns};
use crate::error::{Error, Result};
use crate::machine::network::Claim;

/// The arguments of `up` that configure this machine's node.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of this machine's node [default: the machine's name]
    #[arg(long)]
    node_name: Option<String>,
    /// The socket of a CRI runtime such as containerd, instead of the built-in runtime
    #[arg(long, value_name = "SOCKET")]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Directory of the kubelet's files: pods, volumes and plugins [default: DATA_DIR/kubelet]
    #[arg(long)]
    pub(crate) root_dir: Option<PathBuf>,
    /// Directory of container logs
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// The cgroup that holds the cgroups of all pods [default: /, or /tiphysN for further clusters of a machine]
    #[arg(long)]
    pub(crate) cgroup_root: Option<String>,
    /// Stop a deleted pod only after the service proxies that confirm have removed it from their endpoints, or after
    /// half of its grace period
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    drain_by_proxies: bool,
    /// Do not run a part of the node; can be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    pub disable: Vec<Component>,
    /// How Services are forwarded: nftables, iptables or userspace [default: the first that the kernel supports]
    #[arg(long, value_name = "MODE", value_parser = services::parse_proxy_mode)]
    proxy_mode: Option<Mode>,
    /// A KubeletConfiguration for this machine's node
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
}

impl Arguments {
    /// The arguments that are arguments of a server on a simulated host too. Directories are its own.
    pub(crate) fn of_servers(&self) -> Vec<String> {
        let mode = self.proxy_mode.map(|mode| format!("--proxy-mode={}", mode.name()));
        mode.into_iter().chain([format!("--drain-by-proxies={}", self.drain_by_proxies)]).collect()
    }
}

/// Fields that flags of `up` set: a file that sets them too is rejected.
const SET_BY_FLAGS: [(&str, &str); 12] = [
    ("authentication.x509.clientCAFile", "the CA of the cluster is used"),
    ("cgroupRoot", "set by --cgroup-root"),
    ("containerRuntimeEndpoint", "set by --container-runtime-endpoint"),
    ("imageServiceEndpoint", "set by --container-runtime-endpoint"),
    ("kubeAPIBurst", IN_PROCESS),
    ("kubeAPIQPS", IN_PROCESS),
    ("logging", "set by --log-format and --log-level"),
    ("podLogsDir", "set by --pod-logs-dir"),
    ("rotateCertificates", IN_PROCESS),
    ("shutdownGracePeriod", WITHOUT_SHUTDOWN),
    ("shutdownGracePeriodByPodPriority", WITHOUT_SHUTDOWN),
    ("shutdownGracePeriodCriticalPods", WITHOUT_SHUTDOWN),
];
const IN_PROCESS: &str = "the kubelet runs in the process of its API server";
const WITHOUT_SHUTDOWN: &str = "graceful node shutdown works only with `tiphys kubelet` and `tiphys agent`";

/// Checks the machine and configures the process only if the file requests it explicitly: `up` shares both with other
/// programs.
fn check_machine(config: &Config, explicit: &api::Tree, root: &Path) -> Result<()> {
    let mut configured = config.clone();
    configured.swap.fail_on &= explicit.has("failSwapOn");
    configured.process.fail_cgroup_v1 &= explicit.has("failCgroupV1");
    host::check(&configured, root)?;
    if explicit.has("oomScoreAdj") {
        host::set_oom_score(config);
    }
    if explicit.has("maxOpenFiles") {
        host::raise_open_files(config);
    }
    Ok(())
}

/// The kubelet's settings from flags and a file, over the defaults for shared machines. A flag overrides the file.
fn settings(file: Option<&Path>, flags: &Flags) -> Result<(Settings, api::Tree, api::Tree)> {
    let explicit = file.map_or(Ok(api::tree! {}), read).map_err(|error| vec![error.to_string()]);
    let settings = explicit.and_then(|explicit| {
        let explicit = api::patch::merge(explicit, &flags.overlay.0);
        if let Some((field, why)) = SET_BY_FLAGS.iter().find(|(field, _)| !explicit.at(field).is_null()) {
            return Err(vec![format!("{field}: {why}")]);
        }
        let flags =
            super::flags::parse(&SHARED_MACHINE.map(str::to_string)).map_err(|error| vec![error.to_string()])?;
        let mut own = flags.overlay.0;
        // A field of the file replaces the default as a whole.
        explicit.as_map().into_iter().flat_map(|map| map.keys()).for_each(|key| drop(own.remove(key)));
        let merged = api::patch::merge(own, &explicit);
        let settings = kubelet::config::read(&merged, &Default::default())?;
        Ok((settings, explicit, merged))
    });
    let named = |why: &String| match file {
        Some(file) => format!("--kubelet-config: {}: {why}", file.display()),
        None => format!("--kubelet-arg: {why}"),
    };
    settings.map_err(|whys| Error::Flags(whys.iter().map(named).collect()))
}

/// Why a KubeletConfiguration cannot be read.
#[derive(Debug, thiserror::Error)]
enum ConfigFileError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Yaml(String),
}

fn read(file: &Path) -> std::result::Result<api::Tree, ConfigFileError> {
    api::yaml::decode(&std::fs::read(file)?).map_err(|error| ConfigFileError::Yaml(error.to_string()))
}

/// Defaults for a machine that is shared with other programs. Other programs may fill its disk, which makes percentages
/// meaningless; unused images are removed only when pods need the space.
pub(crate) const SHARED_MACHINE: [&str; 5] = [
    "--cluster-domain=cluster.local",
    "--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<1%,imagefs.available<1Gi,\
     imagefs.inodesFree<1%",
    "--image-gc-high-threshold=100",
    "--registry-qps=0",
    "--serialize-image-pulls=false",
];

/// How to run the kubelet.
pub struct Options {
    pub config: Config,
    /// The effective KubeletConfiguration, as `/configz` returns it; upstream's defaults without one.
    pub shown: Option<api::Tree>,
    /// The KubeletConfiguration with which it was started, for other nodes that are to be like this one.
    pub configuration: api::Tree,
    pub runtime: RuntimeChoice,
    /// Several clusters may share the machine: a port that is in use is replaced by another.
    pub is_shared: bool,
    /// The network of the cluster on this machine.
    pub claim: Option<Claim>,
    /// The DNS and the service proxy of the node.
    pub services: services::Options,
}

impl Options {
    /// Names the tables of the proxy and of network policies, and how it recognises pods, by the claimed network.
    pub fn name_tables(&mut self) {
        let names = self.claim.as_ref().map(|claim| claim.network.names()).unwrap_or_default();
        if let Some(table) = &mut self.services.policy_table {
            *table = services::policy_table(&names);
        }
        let Some(proxy) = &mut self.services.proxy else { return };
        let is_builtin = self.runtime.uses_builtin_network();
        let placed = services::proxy_configuration(&self.config.node_name, &names, is_builtin);
        (proxy.node_name, proxy.table, proxy.local_mode) = (placed.node_name, placed.table, placed.local_mode);
    }

    /// Gives the node an address of the link to simulated hosts. Node ports are open at its other addresses too, since
    /// other machines do not reach the address of the link.
    pub(crate) fn join_link(&mut self, addresses: Vec<IpAddr>) {
        self.config.node_ips = addresses;
        if let Some(proxy) = &mut self.services.proxy {
            proxy.node_port_addresses = Some(vec![NodePortAddress::All]);
        }
    }

    /// None if this user cannot run containers.
    pub fn of(
        arguments: Arguments,
        flags: &Flags,
        data_dir: &Path,
        listen: IpAddr,
        claim: Option<Claim>,
        pod_network: PodNetwork,
    ) -> Result<Option<Options>> {
        let Some(claim) = claim.filter(|_| can_run_pods()) else { return Ok(None) };
        let cgroup_root = arguments.cgroup_root.unwrap_or_else(|| claim.network.cgroup_root());
        let (settings, explicit, configuration) = settings(arguments.kubelet_config.as_deref(), flags)?;
        check_machine(&settings.config, &explicit, Path::new("/"))?;
        let client_ca_file = Some(data_dir.join("pki/ca.crt"));
        let serving = kubelet::config::Serving { client_ca_file, ..settings.config.serving };
        let config = Config {
            serving,
            root_dir: arguments.root_dir.unwrap_or_else(|| data_dir.join("kubelet")),
            pod_logs_dir: arguments.pod_logs_dir,
            cgroup_root: cgroup_root.clone(),
            node_name: node_name(arguments.node_name)?,
            drain_by_proxies: arguments.drain_by_proxies,
            node_ips: flags.node_ips.clone(),
            node_labels: flags.node_labels.clone(),
            register_schedulable: !flags.is_unschedulable,
            external_cloud_provider: flags.external_cloud_provider,
            pod_infra_image: flags.pod_infra_image.clone(),
            container_gc: flags.container_gc,
            credential_provider_config: flags.credential_provider_config.clone(),
            credential_provider_bin_dir: flags.credential_provider_bin_dir.clone(),
            ..settings.config
        };
        let runtime = match arguments.container_runtime_endpoint {
            Some(socket) => RuntimeChoice::Socket(socket.strip_prefix("unix://").unwrap_or(&socket).into()),
            None => RuntimeChoice::Builtin(BuiltinRuntime {
                data_dir: data_dir.to_path_buf(),
                cgroup_root,
                names: claim.network.names(),
                cluster: Default::default(),
            }),
        };
        let is_routed = !arguments.disable.contains(&Component::Network);
        let services = services::Options {
            pod_network: if is_routed { pod_network } else { PodNetwork::Disabled },
            ..services_of(&claim, &arguments.disable, arguments.proxy_mode, listen)
        };
        let shown = Some(settings.shown);
        let claim = Some(claim);
        let mut options = Options { config, shown, configuration, runtime, is_shared: true, claim, services };
        options.name_tables();
        Ok(Some(options))
    }
}

/// The DNS and the proxy inside of `up`. Ports are opened to the network only if the API server's is.
fn services_of(claim: &Claim, disabled: &[Component], mode: Option<Mode>, listen: IpAddr) -> services::Options {
    let is_on = |component: Component| !disabled.contains(&component);
    let dns = services::cluster_dns_address(&claim.network.service_cidrs);
    // Further clusters of a machine have no ports of their own for it.
    let is_first = claim.network.index == 0;
    let usual = Configuration::default();
    let proxy = Configuration {
        mode,
        healthz_address: usual.healthz_address.filter(|_| is_first).map(|at| SocketAddr::new(listen, at.port())),
        metrics_address: usual.metrics_address.filter(|_| is_first),
        // The machine is shared with other programs.
        conntrack: None,
        ..usual
    };
    services::Options {
        dns: dns.map_or(Dns::Disabled, if is_on(Component::Dns) { Dns::At } else { Dns::Deployed }),
        proxy: is_on(Component::KubeProxy).then_some(proxy),
        policy_table: is_on(Component::NetworkPolicy).then(String::new),
        pod_network: PodNetwork::Disabled,
    }
}

/// Whether this user can run containers.
pub(crate) fn can_run_pods() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of this machine's node: the given one, or the host name.
fn node_name(requested: Option<String>) -> Result<String> {
    let name = requested.unwrap_or_else(server::hostname).to_lowercase();
    let wrong = api::validation::dns1123_subdomain(&name);
    match wrong.first() {
        None => Ok(name),
        Some(why) => Err(Error::Flags(vec![format!("--node-name: {name:?}: {why}")])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_sets_fields_that_up_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kubelet.yaml");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            settings(Some(&file), &Flags::default())
                .map(|(settings, ..)| settings.config)
                .map_err(|error| error.describe())
        };
        let config = read("{cpuManagerPolicy: static, serializeImagePulls: true}").expect("settings");
        assert!(config.pinning.cpu_static && config.image_pulls.serialize);
        assert_eq!(config.cluster_domain, "cluster.local");
        for (text, want) in [
            ("cgroupRoot: /x", "cgroupRoot: set by --cgroup-root"),
            ("kubeAPIQPS: 5", "kubeAPIQPS: the kubelet runs in the process of its API server"),
            ("logging: {verbosity: 4}", "logging: set by --log-format and --log-level"),
            ("rotateCertificates: true", "rotateCertificates: the kubelet runs in the process"),
            ("shutdownGracePeriod: 5s", "shutdownGracePeriod: graceful node shutdown works only with"),
            ("maxPods: many", "kubelet.yaml: maxPods: must be an integer"),
        ] {
            let why = read(text).expect_err("refused");
            assert!(why.contains("--kubelet-config") && why.contains(want), "{why}");
        }
    }

    #[test]
    fn checks_the_machine_only_on_request() {
        let machine = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(machine.path().join("proc")).expect("a directory");
        std::fs::write(machine.path().join("proc/swaps"), "Filename\n/dev/sda2 partition 1 0 -2\n").expect("a file");
        let mut config = Config::default();
        config.process.fail_cgroup_v1 = true;
        let judge = |explicit: api::Tree| {
            check_machine(&config, &explicit, machine.path())
                .map_err(|error| error.describe())
                .err()
                .unwrap_or_default()
        };
        assert_eq!(judge(api::tree! {}), "");
        assert!(judge(api::tree! { "failSwapOn" => true }).contains("running with swap on is not supported"));
        assert!(judge(api::tree! { "failCgroupV1" => true }).contains("failCgroupV1"));
    }
}
