//! The options of the kubelet that runs inside of `up`: flags, a KubeletConfiguration, and defaults for a machine that
//! is shared with other programs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ::proxy::config::Configuration;
use kubelet::Config;
use kubelet::config::Settings;

use super::container_runtime::{BuiltinRuntime, RuntimeChoice};
use super::flags::Flags;
use super::host;
use super::services::{self, Component, Dns};
use crate::error::{Error, Result};
use crate::machine::network::Claim;

#[derive(clap::Args)]
pub struct Arguments {
    /// The name of this machine's node [default: the machine's name]
    #[arg(long)]
    node_name: Option<String>,
    /// The socket of a CRI runtime such as containerd, instead of the built-in runtime
    #[arg(long, value_name = "SOCKET")]
    container_runtime_endpoint: Option<String>,
    /// Directory of the kubelet's files: pods, volumes and plugins [default: DATA_DIR/kubelet]
    #[arg(long)]
    root_dir: Option<PathBuf>,
    /// Directory of container logs
    #[arg(long, default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// The cgroup that holds the cgroups of all pods [default: /, or /tiphysN for further clusters of a machine]
    #[arg(long)]
    cgroup_root: Option<String>,
    /// Stop a deleted pod only after the service proxies that confirm have removed it from their endpoints, or after
    /// half of its grace period
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    drain_by_proxies: bool,
    /// Do not run a part of the node; can be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    pub disable: Vec<Component>,
    /// A KubeletConfiguration for this machine's node
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
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
fn check_machine(config: &Config, said: &api::Tree, root: &Path) -> Result<()> {
    let mut asked = config.clone();
    asked.swap.fail_on &= said.has("failSwapOn");
    asked.process.fail_cgroup_v1 &= said.has("failCgroupV1");
    host::check(&asked, root)?;
    if said.has("oomScoreAdj") {
        host::set_oom_score(config);
    }
    if said.has("maxOpenFiles") {
        host::raise_open_files(config);
    }
    Ok(())
}

/// The kubelet's settings from flags and a file, over the defaults for shared machines. A flag overrides the file.
fn settings(file: Option<&Path>, flags: &Flags) -> Result<(Settings, api::Tree)> {
    let said = file.map_or(Ok(api::tree! {}), read).map_err(|error| vec![error.to_string()]);
    let settings = said.and_then(|said| {
        let said = api::patch::merge(said, &flags.overlay.0);
        if let Some((field, why)) = SET_BY_FLAGS.iter().find(|(field, _)| !said.at(field).is_null()) {
            return Err(vec![format!("{field}: {why}")]);
        }
        let flags =
            super::flags::parse(&SHARED_MACHINE.map(str::to_string)).map_err(|error| vec![error.to_string()])?;
        let mut own = flags.overlay.0;
        // A field of the file replaces the default as a whole.
        said.as_map().into_iter().flat_map(|map| map.keys()).for_each(|key| drop(own.remove(key)));
        let settings = kubelet::config::read(&api::patch::merge(own, &said), &Default::default())?;
        Ok((settings, said))
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

/// Defaults for a machine that is shared with other programs. Its disk may be filled by others, so that percentages are
/// meaningless, and unused images are removed only when pods need the space.
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
    pub runtime: RuntimeChoice,
    /// Several clusters may be on the machine: a port that is in use is exchanged for another.
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

    /// None where this user cannot run containers.
    pub fn of(
        arguments: Arguments,
        flags: &Flags,
        data_dir: &Path,
        listen: IpAddr,
        claim: Option<Claim>,
    ) -> Result<Option<Options>> {
        let Some(claim) = claim.filter(|_| can_run_pods()) else { return Ok(None) };
        let cgroup_root = arguments.cgroup_root.unwrap_or_else(|| claim.network.cgroup_root());
        let (settings, said) = settings(arguments.kubelet_config.as_deref(), flags)?;
        check_machine(&settings.config, &said, Path::new("/"))?;
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
            }),
        };
        let services = services_of(&claim, &arguments.disable, listen);
        let shown = Some(settings.shown);
        let mut options = Options { config, shown, runtime, is_shared: true, claim: Some(claim), services };
        options.name_tables();
        Ok(Some(options))
    }
}

/// The DNS and the proxy inside of `up`. Ports are opened to the network only if the API server's is.
fn services_of(claim: &Claim, disabled: &[Component], listen: IpAddr) -> services::Options {
    let is_on = |component: Component| !disabled.contains(&component);
    let range = claim.network.service_cidrs.first();
    let dns = range.and_then(|range| services::dns_address(range.network().address, range.prefix()));
    // Further clusters of a machine have no ports of their own for it.
    let is_first = claim.network.index == 0;
    let usual = Configuration::default();
    let proxy = Configuration {
        healthz_address: usual.healthz_address.filter(|_| is_first).map(|at| SocketAddr::new(listen, at.port())),
        metrics_address: usual.metrics_address.filter(|_| is_first),
        // The machine is shared with other programs.
        conntrack: None,
        ..usual
    };
    services::Options {
        dns: dns.filter(|_| is_on(Component::Dns)).map_or(Dns::Disabled, Dns::At),
        proxy: is_on(Component::KubeProxy).then_some(proxy),
        policy_table: is_on(Component::NetworkPolicy).then(String::new),
    }
}

/// Whether this user can run containers.
pub(crate) fn can_run_pods() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of this machine's node: the given one, or the host name.
fn node_name(told: Option<String>) -> Result<String> {
    let name = told.unwrap_or_else(server::hostname).to_lowercase();
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
    fn file_sets_what_up_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kubelet.yaml");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            settings(Some(&file), &Flags::default())
                .map(|(settings, _)| settings.config)
                .map_err(|error| error.describe())
        };
        let config = read("{cpuManagerPolicy: static, serializeImagePulls: true}").expect("settings");
        assert!(config.pinning.cpu_static && config.serialize_image_pulls);
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
        let judge = |said: api::Tree| {
            check_machine(&config, &said, machine.path()).map_err(|error| error.describe()).err().unwrap_or_default()
        };
        assert_eq!(judge(api::tree! {}), "");
        assert!(judge(api::tree! { "failSwapOn" => true }).contains("running with swap on is not supported"));
        assert!(judge(api::tree! { "failCgroupV1" => true }).contains("failCgroupV1"));
    }
}
