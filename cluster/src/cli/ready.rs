//! The text that `up` prints once the cluster is ready.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ::network::cidr::IpNet;

use super::session::Session;
use crate::machine::address;
use crate::machine::network::ClusterNetwork;
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
        text.push_str(&self.suggestions());
        text.push_str(self.pods.hint());
        let stop = self.session.stop();
        format!("{text}\n{stop} stops it; its data stays in {}", self.data_dir.display())
    }

    /// Three things to try, each with its commands, which are below each other so that they can be copied at once.
    fn suggestions(&self) -> String {
        let program = program();
        let status = format!("TIPHYS status{}", self.session.selector);
        let mut text = "\nThree things to try:\n".to_string();
        let all = self.pods.suggestions().into_iter().chain([("How the cluster is:", vec![status.as_str()])]);
        for (number, (what, commands)) in (1..).zip(all) {
            text.push_str(&format!("{number}. {what}\n"));
            for command in commands {
                text.push_str(&format!("     {}\n", command.replace("TIPHYS", &program)));
            }
        }
        text
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

    /// What to try, and its commands, with TIPHYS for this program.
    fn suggestions(self) -> [(&'static str, Vec<&'static str>); 2] {
        const GET_PODS: &str = "TIPHYS kubectl get pods --output wide";
        const WAIT: &str = "TIPHYS kubectl wait --for=condition=Available deployment/hello";
        match self {
            PodSupport::Run => [
                (
                    "An application that answers behind a service:",
                    vec![
                        "TIPHYS kubectl create deployment hello --image=tiphys.local/hello --replicas=3",
                        "TIPHYS kubectl expose deployment hello --port=80 --target-port=8080",
                        WAIT,
                        // The rules of the service follow its endpoints a moment later.
                        "curl --silent --show-error --retry 5 --retry-connrefused http://$(TIPHYS kubectl get service hello \
                         -o jsonpath={.spec.clusterIP})",
                    ],
                ),
                (
                    "Pods that are replaced when they are deleted:",
                    vec![
                        "TIPHYS kubectl delete pods --selector=app=hello",
                        "TIPHYS kubectl wait --for=condition=Ready pods --selector=app=hello",
                        GET_PODS,
                    ],
                ),
            ],
            PodSupport::Off { fake_nodes: true } | PodSupport::NeedRoot { fake_nodes: true } => [
                (
                    "Pods that fake nodes simulate:",
                    vec!["TIPHYS kubectl create deployment hello --image=tiphys.local/hello --replicas=3", WAIT],
                ),
                ("Where the pods run:", vec![GET_PODS]),
            ],
            PodSupport::Off { fake_nodes: false } | PodSupport::NeedRoot { fake_nodes: false } => [
                (
                    "An object of the API:",
                    vec![
                        "TIPHYS kubectl create configmap greeting --from-literal=text=hello",
                        "TIPHYS kubectl get configmap greeting --output yaml",
                    ],
                ),
                ("What the API knows:", vec!["TIPHYS kubectl api-resources"]),
            ],
        }
    }
}

/// How this program is called: by its name if the shell finds it, otherwise by its path.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "tiphys".to_string() };
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&directories).map(|directory| directory.join("tiphys")).find(|file| file.is_file());
    match found.and_then(|file| std::fs::canonicalize(file).ok()) == std::fs::canonicalize(&own).ok() {
        true => "tiphys".to_string(),
        false => own.display().to_string(),
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
            &["Other", "needs root"],
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
