//! `tiphys check`: inspects a machine before a cluster runs on it.

mod facts;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::{Tree, tree};

use super::table::aligned;
use super::{Output, say};
use crate::error::{Error, Result};
use crate::machine::preflight::{Finding, Verdict, finding};
use facts::{Facts, PortUse};

/// The arguments of `tiphys check`.
#[derive(clap::Args)]
pub(super) struct CheckArguments {
    /// The directory on whose disk the data will be
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// The address at which the API server will listen
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

const SLOW_SYNC: Duration = Duration::from_millis(20);
const LITTLE_MEMORY: u64 = 512 << 20;

/// Shows the findings; fails if a cluster could not run here.
pub(super) fn run(arguments: &CheckArguments) -> Result<()> {
    let facts = Facts::collect(&arguments.data_dir, arguments.listen)?;
    let findings = judge(&facts);
    match arguments.output {
        Output::Json => say(&String::from_utf8_lossy(&api::json::encode(&tree(&findings), None))),
        Output::Text => table(&findings).iter().for_each(|line| say(line)),
    }
    match findings.iter().filter(|finding| finding.verdict == Verdict::Failed).count() {
        0 => Ok(()),
        1 => Err(Error::Flags(vec!["a check failed: `tiphys up` would not run pods here".to_string()])),
        count => Err(Error::Flags(vec![format!("{count} checks failed: `tiphys up` would not run pods here")])),
    }
}

fn tree(findings: &[Finding]) -> Tree {
    let one = |finding: &Finding| {
        tree! { "check" => finding.what, "result" => name(finding.verdict), "detail" => finding.detail.as_str() }
    };
    findings.iter().map(one).collect::<Vec<Tree>>().into()
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "warning",
        Verdict::Failed => "failed",
    }
}

fn table(findings: &[Finding]) -> Vec<String> {
    let head = ["CHECK", "RESULT", "DETAIL"].map(str::to_string).to_vec();
    let row =
        |finding: &Finding| vec![finding.what.to_string(), name(finding.verdict).to_string(), finding.detail.clone()];
    aligned(std::iter::once(head).chain(findings.iter().map(row)))
}

/// All checks, in the order of a start.
fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![user(facts)];
    findings.extend(facts.kernel.judge());
    findings.extend([nftables(facts), memory(facts)]);
    findings.extend(facts.directory.judge(None));
    findings.extend([
        sync(facts),
        port("API server port", &facts.api_port),
        port("kubelet port", &facts.kubelet_port),
        foreign(facts),
        networks(facts),
    ]);
    findings
}

fn user(facts: &Facts) -> Finding {
    match facts.is_root {
        true => finding("user", Verdict::Ok, "root"),
        false => finding("user", Verdict::Warning, "not root: only the API, controllers and fake nodes can run"),
    }
}

fn nftables(facts: &Facts) -> Finding {
    match &facts.nftables {
        Ok(()) => finding("nftables", Verdict::Ok, "services and network policies use it"),
        Err(why) if !facts.is_root => finding("nftables", Verdict::Warning, format!("not checked: {why}")),
        Err(why) => {
            let why = format!("{why}: services fall back to iptables, and network policies are not enforced");
            finding("nftables", Verdict::Warning, why)
        }
    }
}

fn memory(facts: &Facts) -> Finding {
    let shown = format!("{} MiB available", facts.memory >> 20);
    match facts.memory < LITTLE_MEMORY {
        true => finding("memory", Verdict::Warning, format!("{shown}: little is left for pods")),
        false => finding("memory", Verdict::Ok, shown),
    }
}

fn sync(facts: &Facts) -> Finding {
    let Some(sync) = facts.sync else { return finding("disk sync", Verdict::Warning, "not measured") };
    let shown = format!("{:.1} ms for an fsync", sync.as_secs_f64() * 1000.0);
    match sync > SLOW_SYNC {
        true => finding("disk sync", Verdict::Warning, format!("{shown}: each write waits as long")),
        false => finding("disk sync", Verdict::Ok, shown),
    }
}

fn port(what: &'static str, used: &PortUse) -> Finding {
    match used {
        PortUse::Free(address) => finding(what, Verdict::Ok, format!("{address} is free")),
        PortUse::Taken(address) => {
            finding(what, Verdict::Failed, format!("{address} is in use: stop what listens there, or use another port"))
        }
        PortUse::Unusable(address, why) => finding(what, Verdict::Failed, format!("{address}: {why}")),
    }
}

fn foreign(facts: &Facts) -> Finding {
    match facts.kubelets.as_slice() {
        [] => finding("other kubelets", Verdict::Ok, "none runs"),
        pids => {
            let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
            let why = format!("a kubelet runs (pid {}): two on one machine share its ports", pids.join(", "));
            finding("other kubelets", Verdict::Warning, why)
        }
    }
}

fn networks(facts: &Facts) -> Finding {
    match facts.cni.as_slice() {
        [] => finding("pod network", Verdict::Ok, "no configuration in /etc/cni/net.d: the built-in one is used"),
        files => {
            let why = format!("/etc/cni/net.d has {}: it is used instead of the built-in network", files.join(", "));
            finding("pod network", Verdict::Warning, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preflight::{directory, kernel};

    fn refused() -> network::netlink::Error {
        network::netlink::Error::new("opening nftables", std::io::ErrorKind::PermissionDenied)
    }

    fn facts() -> Facts {
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        Facts {
            is_root: true,
            kernel: kernel::tests::suitable(),
            directory: directory::tests::suitable(),
            nftables: Ok(()),
            memory: 4 << 30,
            sync: Some(Duration::from_millis(1)),
            api_port: PortUse::Free(address),
            kubelet_port: PortUse::Free(address),
            kubelets: Vec::new(),
            cni: Vec::new(),
        }
    }

    #[test]
    fn suitable_machines_have_no_findings() {
        let findings = judge(&facts());
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Ok), "{findings:#?}");
        assert!(table(&findings)[0].starts_with("CHECK"));
        assert_eq!(tree(&findings).as_list().map(<[Tree]>::len), Some(findings.len()));
    }

    #[test]
    fn each_problem_has_its_finding() {
        let check = |change: fn(&mut Facts), what: &str, verdict: Verdict, want: &str| {
            let mut facts = facts();
            change(&mut facts);
            let findings = judge(&facts);
            let wrong: Vec<&Finding> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].what == what && wrong[0].verdict == verdict, "{wrong:?}");
            assert!(wrong[0].detail.contains(want), "{wrong:?}");
        };
        check(|facts| facts.is_root = false, "user", Verdict::Warning, "not root");
        check(|facts| facts.kernel.version = Some((4, 19)), "kernel", Verdict::Failed, "5.4 or newer");
        check(|facts| facts.kernel.cgroups = None, "cgroups", Verdict::Failed, "/sys/fs/cgroup");
        let no_pids = |facts: &mut Facts| facts.kernel.controllers.retain(|name| name != "pids");
        check(no_pids, "cgroups", Verdict::Failed, "without pids");
        check(|facts| facts.kernel.has_overlay = false, "overlay", Verdict::Failed, "modprobe overlay");
        check(|facts| facts.nftables = Err(refused()), "nftables", Verdict::Warning, "iptables");
        check(|facts| facts.memory = 1 << 20, "memory", Verdict::Warning, "1 MiB available");
        check(|facts| facts.sync = Some(Duration::from_millis(50)), "disk sync", Verdict::Warning, "50.0 ms");
        let taken = |facts: &mut Facts| facts.api_port = PortUse::Taken(SocketAddr::from(([0, 0, 0, 0], 6443)));
        check(taken, "API server port", Verdict::Failed, "0.0.0.0:6443 is in use");
        check(|facts| facts.kubelets = vec![7], "other kubelets", Verdict::Warning, "pid 7");
        check(|facts| facts.cni = vec!["10-x.conf".to_string()], "pod network", Verdict::Warning, "10-x.conf");
    }
}
