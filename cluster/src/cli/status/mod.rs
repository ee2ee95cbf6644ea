//! `tiphys status`: whether a cluster of this machine runs, how healthy it is, and what is wrong.

mod collect;
mod text;

use std::io::IsTerminal;

use api::{Tree, tree};

use super::instance::InstanceArguments;
use super::{Output, runtime, say};
use crate::error::{Error, Result};
use crate::machine::run_state::RunState;

/// The arguments of `tiphys status`.
#[derive(clap::Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    instance: InstanceArguments,
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// The status of a cluster.
#[derive(Debug, Default)]
struct Status {
    name: String,
    data_dir: String,
    /// The process, if it is ready.
    process: Option<RunState>,
    /// The process holds the data directory, but is not ready.
    is_starting: bool,
    now: i64,
    store_bytes: i64,
    components: Vec<Check>,
    nodes: Vec<Check>,
    /// The manifests of the data directory.
    manifests: Vec<Check>,
    pods: Pods,
    certificates: Vec<Certificate>,
    /// Why the cluster could not be examined.
    unreachable: Option<String>,
}

/// A component or a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: String,
    is_healthy: bool,
    /// The version of a node; otherwise what is wrong.
    detail: String,
}

/// The pods of all namespaces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pods {
    total: usize,
    ready: usize,
    /// Those that are neither ready nor completed, with the reason.
    problems: Vec<Check>,
}

/// A certificate of the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Certificate {
    name: String,
    days_left: i64,
}

/// Certificates are renewed long before.
const FEW_DAYS: i64 = 14;

impl Status {
    fn is_healthy(&self) -> bool {
        self.process.is_some()
            && self.unreachable.is_none()
            && self.components.iter().chain(&self.nodes).chain(&self.manifests).all(|check| check.is_healthy)
            && self.pods.problems.is_empty()
            && self.expiring().next().is_none()
    }

    fn expiring(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter().filter(|certificate| certificate.days_left < FEW_DAYS)
    }

    /// How many bytes the store has grown in an hour, since the start.
    fn growth(&self) -> Option<i64> {
        let process = self.process.as_ref()?;
        let seconds = self.now - process.started;
        let grown = self.store_bytes - process.store_bytes;
        // The first minutes say little about an hour.
        (seconds >= 60).then(|| grown.saturating_mul(3600) / seconds)
    }

    fn tree(&self) -> Tree {
        let checks = |checks: &[Check]| -> Tree {
            let tree = |check: &Check| {
                tree! {
                    "name" => check.name.as_str(),
                    "healthy" => check.is_healthy,
                    "detail" => check.detail.as_str(),
                }
            };
            checks.iter().map(tree).collect::<Vec<Tree>>().into()
        };
        let certificates: Vec<Tree> = self
            .certificates
            .iter()
            .map(|one| tree! { "name" => one.name.as_str(), "daysLeft" => one.days_left })
            .collect();
        let mut tree = tree! {
            "name" => self.name.as_str(),
            "dataDir" => self.data_dir.as_str(),
            "status" => self.state(),
            "healthy" => self.is_healthy(),
            "store" => tree! { "bytes" => self.store_bytes },
            "components" => checks(&self.components),
            "nodes" => checks(&self.nodes),
            "manifests" => checks(&self.manifests),
            "pods" => tree! {
                "total" => i64::try_from(self.pods.total).unwrap_or(i64::MAX),
                "ready" => i64::try_from(self.pods.ready).unwrap_or(i64::MAX),
                "problems" => checks(&self.pods.problems),
            },
            "certificates" => Tree::from(certificates),
        };
        if let Some(process) = &self.process {
            tree.set("pid", i64::from(process.pid));
            tree.set("version", process.version.as_str());
            tree.set("server", format!("https://{}", process.address));
            tree.set("kubeconfig", process.kubeconfig.to_string_lossy().into_owned());
            tree.set("uptimeSeconds", self.now - process.started);
        }
        if let Some(why) = &self.unreachable {
            tree.set("error", why.as_str());
        }
        tree
    }

    fn state(&self) -> &'static str {
        match (&self.process, self.is_starting) {
            (Some(_), _) => "running",
            (None, true) => "starting",
            (None, false) => "stopped",
        }
    }
}

/// Shows the status; fails if the cluster does not run or something is wrong.
pub(super) fn run(arguments: &StatusArguments) -> Result<()> {
    let data_dir = arguments.instance.existing()?;
    let status = runtime()?.block_on(collect::collect(&data_dir, arguments.instance.cluster_name()));
    match arguments.output {
        Output::Json => say(&String::from_utf8_lossy(&api::json::encode(&status.tree(), None))),
        Output::Text => {
            let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            say(&text::text(&status, colours));
        }
    }
    match (status.is_healthy(), status.state()) {
        (true, _) => Ok(()),
        (false, "stopped") => Err(Error::Flags(vec![format!(
            "the cluster is not running: `tiphys up{}` starts it",
            arguments.instance.flag()
        )])),
        (false, "starting") => Err(Error::Flags(vec!["the cluster is still starting".to_string()])),
        (false, _) => Err(Error::Flags(vec!["the cluster is not healthy".to_string()])),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    pub(super) fn running() -> Status {
        let check = |name: &str, detail: &str| Check { name: name.into(), is_healthy: true, detail: detail.into() };
        Status {
            name: "dev".to_string(),
            data_dir: "/data".to_string(),
            process: Some(RunState {
                name: "dev".to_string(),
                pid: 7,
                version: "0.1.0".to_string(),
                started: 1000,
                took_ms: 700,
                address: SocketAddr::from(([127, 0, 0, 1], 6443)),
                kubeconfig: "/data/kubeconfig".into(),
                store_bytes: 1 << 20,
            }),
            now: 1000 + 7200,
            store_bytes: 3 << 20,
            components: vec![check("scheduler", "")],
            nodes: vec![check("node", "v1.37.0")],
            pods: Pods { total: 3, ready: 3, problems: Vec::new() },
            certificates: vec![Certificate { name: "apiserver".to_string(), days_left: 300 }],
            ..Status::default()
        }
    }

    #[test]
    fn one_problem_makes_a_cluster_unhealthy() {
        assert!(running().is_healthy());
        let check = |change: fn(&mut Status)| {
            let mut status = running();
            change(&mut status);
            assert!(!status.is_healthy(), "{status:?}");
            assert_eq!(status.tree().at("healthy").as_bool(), Some(false));
        };
        check(|status| status.process = None);
        check(|status| status.unreachable = Some("connection refused".to_string()));
        check(|status| status.components[0].is_healthy = false);
        check(|status| status.nodes[0].is_healthy = false);
        check(|status| status.manifests = vec![Check { is_healthy: false, ..status.nodes[0].clone() }]);
        check(|status| status.pods.problems.push(status.nodes[0].clone()));
        check(|status| status.certificates[0].days_left = 3);
    }

    #[test]
    fn growth_is_that_of_an_hour() {
        assert_eq!(running().growth(), Some(1 << 20));
        assert_eq!(Status { now: 1010, ..running() }.growth(), None);
    }
}
