//! The text that `up` prints once the cluster is ready.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ::network::cidr::IpNet;

use super::session::Session;
use crate::machine::address;
use crate::machine::network::ClusterNetwork;
use crate::machine::run_state::{RunState, store_bytes};
use crate::pki::kubeconfig::MergedKubeconfig;

/// Whether pods can be run, and why not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PodSupport {
    Run,
    NeedRoot { fake_nodes: bool },
    Off { fake_nodes: bool },
}

/// The text that is printed once the cluster is ready.
pub(super) struct Ready<'a> {
    pub(super) took: Duration,
    pub(super) address: SocketAddr,
    pub(super) session: &'a Session,
    pub(super) data_dir: &'a Path,
    pub(super) pods: PodSupport,
    pub(super) network: &'a ClusterNetwork,
}

impl Ready<'_> {
    pub(super) fn text(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        let here = SocketAddr::new(address::reachable(ip), port);
        let mut text = format!("\nThe cluster is ready after {} ms at https://{here}\n", self.took.as_millis());
        if ip.is_unspecified() {
            text.push_str(&format!("Other machines reach it at {}\n", address::joined_at(self.address)));
        }
        if self.pods == PodSupport::Run {
            text.push_str(&format!("{}\n", describe_ranges(self.network)));
        }
        match self.session.merged() {
            Some(MergedKubeconfig { path, context }) => {
                text.push_str(&format!("The context {context} of {} is selected\n\n", path.display()));
            }
            None => text.push_str(&format!("\n  export KUBECONFIG={}\n", self.session.kubeconfigs.own.display())),
        }
        self.pods.commands().iter().for_each(|command| text.push_str(&format!("  {command}\n")));
        text.push_str(self.pods.hint());
        let stop = self.session.stop();
        format!("{text}\n{stop} stops it; its data stays in {}", self.data_dir.display())
    }

    /// What other commands have to know about this process.
    pub(super) fn state(&self, name: &str) -> RunState {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        RunState {
            name: name.to_string(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            started: i64::try_from(seconds).unwrap_or(i64::MAX),
            took_ms: i64::try_from(self.took.as_millis()).unwrap_or(i64::MAX),
            address: SocketAddr::new(address::reachable(self.address.ip()), self.address.port()),
            kubeconfig: self.session.kubeconfigs.own.clone(),
            store_bytes: store_bytes(self.data_dir),
        }
    }
}

fn describe_ranges(network: &ClusterNetwork) -> String {
    let show = |cidrs: &[IpNet]| cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    format!("Pods have addresses of {}, services of {}", show(&network.pod_cidrs), show(&network.service_cidrs))
}

impl PodSupport {
    /// How to get nodes, if there are none.
    fn hint(self) -> &'static str {
        match self {
            PodSupport::Run | PodSupport::Off { fake_nodes: true } => "",
            PodSupport::NeedRoot { fake_nodes: true } => {
                "\nOnly fake nodes run, which simulate pods: running pods on this machine needs root\n"
            }
            PodSupport::NeedRoot { fake_nodes: false } => {
                "\nRunning pods on this machine needs root: start `tiphys up` as root, or with --fake-nodes 1 to\n\
                 simulate pods\n"
            }
            PodSupport::Off { fake_nodes: false } => {
                "\nThere are no nodes, so that pods stay pending: start `tiphys up` without --disable-agent, or with\n\
                 --fake-nodes 1 to simulate pods\n"
            }
        }
    }

    /// Commands to try next, depending on what the cluster supports.
    fn commands(self) -> &'static [&'static str] {
        const CREATE: &str = "kubectl create deployment hello --image=tiphys.local/hello";
        match self {
            PodSupport::Run => &[
                "kubectl create deployment hello --image=tiphys.local/hello --replicas=3",
                "kubectl expose deployment hello --port=80 --target-port=8080",
                "kubectl wait --for=condition=Available deployment/hello",
                "curl http://$(kubectl get service hello -o jsonpath={.spec.clusterIP})",
                "kubectl get pods,services,endpointslices",
            ],
            PodSupport::Off { fake_nodes: true } | PodSupport::NeedRoot { fake_nodes: true } => {
                &[CREATE, "kubectl get pods --output wide"]
            }
            PodSupport::Off { fake_nodes: false } | PodSupport::NeedRoot { fake_nodes: false } => &[
                "kubectl create configmap greeting --from-literal=text=hello",
                "kubectl get configmap greeting --output yaml",
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::instance::InstanceArguments;

    #[test]
    fn prints_commands_that_work() {
        let check = |address: &str, pods: PodSupport, want: &[&str], missing: &[&str]| {
            let address = address.parse().expect("an address");
            let network = &ClusterNetwork::default_names();
            let dir = tempfile::tempdir().expect("a directory");
            let session = |name: Option<&str>, is_background| {
                let instance = name.map_or_else(|| InstanceArguments::of("/d".into()), InstanceArguments::named);
                let session = Session::open(&instance, dir.path(), None, false, is_background);
                session.expect("a session")
            };
            let foreground = session(None, false);
            let data_dir = Path::new("/d");
            let ready = Ready { took: Duration::ZERO, address, session: &foreground, data_dir, pods, network };
            let text = ready.text();
            assert!(text.ends_with("ctrl-c stops it; its data stays in /d"), "{text}");
            drop(foreground);
            let mut background = session(Some("dev"), true);
            background.kubeconfigs.merged =
                Some(MergedKubeconfig { path: "/h/config".into(), context: "tiphys-dev".to_string() });
            let detached =
                Ready { took: Duration::ZERO, address, session: &background, data_dir, pods, network }.text();
            assert!(detached.contains("The context tiphys-dev of /h/config is selected"), "{detached}");
            assert!(detached.contains("`tiphys down --name dev` stops it"), "{detached}");
            assert!(!detached.contains("export"), "{detached}");
            want.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
            missing.iter().for_each(|part| assert!(!text.contains(part), "{part}: {text}"));
        };
        let off = PodSupport::Off { fake_nodes: false };
        check(
            "127.0.0.1:6443",
            PodSupport::Run,
            &[" at https://127.0.0.1:6443\n", "deployment hello", "10.42.0.0/16, services of 10.96.0.0/16\n"],
            &["Other", "root"],
        );
        check(
            "0.0.0.0:6443",
            off,
            &[" at https://127.0.0.1:6443\n", "Other machines", "create configmap greeting", "--fake-nodes 1"],
            &["https://0.0.0.0", "deployment"],
        );
        check(
            "10.0.0.1:1",
            PodSupport::NeedRoot { fake_nodes: false },
            &["https://10.0.0.1:1", "needs root", "create configmap greeting", "--fake-nodes 1"],
            &["Other", "deployment"],
        );
        let fake = PodSupport::NeedRoot { fake_nodes: true };
        check("10.0.0.1:1", fake, &["deployment hello", "needs root"], &["port-forward", "--fake-nodes"]);
        let fake = PodSupport::Off { fake_nodes: true };
        check("10.0.0.1:1", fake, &["deployment hello"], &["port-forward", "--fake-nodes"]);
    }
}
