//! `tiphys up --servers N`: the arguments of a highly available cluster on this machine, and its output.

use std::net::SocketAddr;
use std::path::Path;

use super::ready::{PodSupport, Ready};
use super::session::Session;
use super::up::{Steps, UpArguments, check_nodes, value_name};
use super::{interrupted, runtime, say};
use crate::error::{Error, Result};
use crate::machine::network::{self, Claim, Requested};
use crate::node::container_runtime::STATES;
use crate::node::options::{self, Options};
use crate::node::pod_network::PodNetwork;
use crate::snapshots::Settings;
use crate::up::SimulatedNodes;
use crate::up::etcd::EtcdBinary;
use crate::up::hosts::NodeLink;
use crate::up::servers::{self, Servers};

/// Starts the cluster and waits for a signal. The data directory is locked.
pub(super) fn run(args: UpArguments, data_dir: &Path, session: &Session) -> Result<()> {
    check(&args)?;
    let servers = servers(args, data_dir, session)?;
    let (link, network) = (servers.link.clone(), servers.network.clone());
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let steps = Steps::new();
        let progress = |step: &str| steps.begin(step);
        let starting = Box::pin(servers::start(servers, &progress));
        let running = tokio::select! {
            biased;
            () = interrupted() => {
                link.remove().iter().for_each(|why| say(&format!("  ✗ {why}")));
                return Ok(());
            }
            started = starting => started.inspect_err(|_| steps.fail())?,
        };
        steps.end();
        let (took, address) = (steps.started.elapsed(), running.address);
        session.show(&Ready { took, address, session, data_dir, pods: PodSupport::Run, network: &network })?;
        interrupted().await;
        say("\nstopping the nodes and their pods; press ctrl-c again to stop immediately");
        let left = tokio::select! {
            biased;
            () = interrupted() => link.remove(),
            left = running.stop() => left,
        };
        left.iter().for_each(|why| say(&format!("  ✗ {why}")));
        say("stopped");
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Flags that cannot be used with several servers, and why.
fn check(args: &UpArguments) -> Result<()> {
    let pods = match options::can_run_pods() {
        true if !args.disable_agent => PodSupport::Run,
        true => PodSupport::Off { fake_nodes: false },
        false => PodSupport::NeedRoot { fake_nodes: false },
    };
    check_nodes(args.nodes, pods, &args.agent)?;
    let mut errors = Vec::new();
    let mut refuse = |flag: &str, is_set: bool, why: &str| {
        if is_set {
            errors.push(format!("--{flag}: {why}"));
        }
    };
    const NO_NODE: &str = "with --servers no node runs on this machine itself, only on simulated hosts";
    refuse("servers", args.servers > args.nodes, "each server is a node: --nodes must be at least as many");
    let why =
        "the servers are reached through the loopback interface of this machine; with --servers it must be 127.0.0.1";
    refuse("bind-address", !args.bind_address.is_loopback(), why);
    refuse("fake-nodes", args.fake_nodes > 0, "fake nodes need a cluster of one server");
    refuse("keep-pods", args.keep_pods, "pods of simulated hosts end with their hosts");
    refuse("root-dir", args.agent.root_dir.is_some(), NO_NODE);
    let why = "the objects are in etcd: `tiphys store snapshot --etcd-servers` saves them";
    refuse("snapshot-schedule", args.snapshots.is_configured(), why);
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

fn servers(args: UpArguments, data_dir: &Path, session: &Session) -> Result<Servers> {
    let etcd = EtcdBinary::find(args.etcd_binary.as_deref())?;
    let listen = SocketAddr::new(args.bind_address, args.port);
    // The flags of the components are checked here: the logs of the servers are less visible.
    args.components.apiserver(data_dir, listen)?;
    args.components.manager()?;
    args.components.scheduler()?;
    let mut passed = vec![
        format!("--controllers={}", args.controllers.join(",")),
        format!("--network-backend={}", value_name(&args.network_backend).unwrap_or_default()),
        format!("--tls-san={}", args.bind_address),
    ];
    passed.extend(args.tls_sans.iter().map(|name| format!("--tls-san={name}")));
    passed.extend(args.disable_scheduler.then(|| "--disable-scheduler".to_string()));
    passed.extend(args.agent.of_servers());
    passed.extend(args.components.words());
    let requested = Requested { pod_cidrs: args.cluster_cidr, service_cidrs: args.service_cidr };
    let claim = network::claim(data_dir, Path::new(STATES), &requested)?;
    let network = claim.network.clone();
    let cgroup_root = args.agent.cgroup_root.clone().unwrap_or_default();
    let disable = args.agent.disable.iter().filter_map(value_name).collect();
    let link = NodeLink::create(data_dir, &network, &cgroup_root, args.servers)?;
    let (options, claim) = node_options(args.agent, &args.components.kubelet()?, data_dir, listen, claim)?;
    let nodes =
        SimulatedNodes { nodes: args.nodes, kubelet_config: options.configuration, disable, log_level: args.log_level };
    Ok(Servers {
        count: args.servers,
        etcd,
        data_dir: data_dir.to_path_buf(),
        listen,
        kubeconfigs: session.kubeconfigs.clone(),
        node_name: options.config.node_name,
        network,
        claim,
        passed,
        nodes,
        link,
    })
}

/// The options that a node of this machine would have: those of the hosts are like them.
fn node_options(
    arguments: options::Arguments,
    kubelet: &crate::node::flags::Flags,
    data_dir: &Path,
    listen: SocketAddr,
    claim: Claim,
) -> Result<(Options, Claim)> {
    let options = Options::of(arguments, kubelet, data_dir, listen.ip(), Some(claim), PodNetwork::Disabled)?;
    let needs_root = || Error::Flags(vec!["--servers: simulated hosts need root".to_string()]);
    let mut options = options.ok_or_else(needs_root)?;
    let claim = options.claim.take().ok_or_else(needs_root)?;
    Ok((options, claim))
}

impl Settings {
    /// Whether a flag of snapshots is set.
    fn is_configured(&self) -> bool {
        let Settings { schedule, retention, dir, s3_endpoint, s3_region, s3_ca_file, s3_credentials_file } = self;
        let texts = [schedule, dir, s3_endpoint, s3_region].into_iter().any(Option::is_some);
        texts || retention.is_some() || [s3_ca_file, s3_credentials_file].into_iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    #[test]
    fn refuses_flags_that_need_one_server() {
        let why = |words: &[&str]| {
            let command = UpArguments::augment_args(clap::Command::new("up"));
            let words = ["up", "--servers=3"].iter().chain(words);
            let matches = command.try_get_matches_from(words).expect("arguments");
            let args = UpArguments::from_arg_matches(&matches).expect("arguments");
            check(&args).err().map(|error| error.describe()).unwrap_or_default()
        };
        if !options::can_run_pods() {
            assert!(why(&["--nodes=3"]).contains("need root"));
            return;
        }
        assert_eq!(why(&["--nodes=3"]), "");
        for (words, want) in [
            (&["--nodes=2"][..], "--servers: each server is a node"),
            (&["--nodes=3", "--bind-address=0.0.0.0"], "--bind-address: the servers are reached through"),
            (&["--nodes=3", "--fake-nodes=1"], "--fake-nodes: "),
            (&["--nodes=3", "--keep-pods"], "--keep-pods: "),
            (&["--nodes=3", "--snapshot-dir=x"], "--snapshot-schedule: the objects are in etcd"),
            (&["--nodes=3", "--disable-agent"], "--nodes: with --disable-agent there are no nodes"),
        ] {
            assert!(why(words).contains(want), "{words:?}: {}", why(words));
        }
    }
}
