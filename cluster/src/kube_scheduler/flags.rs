//! The flags of `kube-scheduler`: one table. A flag is honoured, or refused by its name.

use std::path::PathBuf;

use super::gates::GATES;
use crate::component::flags::{Common, HasCommon, Table};
use crate::error::Result;
use crate::flags::{Flag, unfinished};

/// The parsed flags.
pub struct Flags {
    pub common: Common,
    /// A KubeSchedulerConfiguration.
    pub config: Option<PathBuf>,
    /// A policy of old, which is translated to one.
    pub policy_config_file: Option<PathBuf>,
    /// The file to write the effective configuration to, instead of running.
    pub write_config_to: Option<PathBuf>,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags { common: Common::new(super::NAME, 10259), config: None, policy_config_file: None, write_config_to: None }
    }
}

impl HasCommon for Flags {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

const FIXED_TLS: &str = "only secure versions and ciphers are supported";
const COUNTED: &str = "metrics cannot be filtered";

/// All parts of the table, each sorted by name.
static PARTS: &[&[Flag<Flags>]] = &[Table::<Flags>::FLAGS, FLAGS];

static FLAGS: &[Flag<Flags>] = &[
    unfinished("allow-metric-labels", COUNTED),
    unfinished("allow-metric-labels-manifest", COUNTED),
    fixed!(flag, "authentication-token-webhook-cache-ttl", "10s", "responses are cached for ten seconds"),
    fixed!(flag, "authorization-webhook-cache-authorized-ttl", "10s", "responses are cached for ten seconds"),
    fixed!(flag, "authorization-webhook-cache-unauthorized-ttl", "10s", "responses are cached for ten seconds"),
    file!("config", "a file with a KubeSchedulerConfiguration", config),
    fixed!(switch, "disable-http2-serving", "false", "HTTP/1.1 and HTTP/2 are always served"),
    unfinished("disabled-metrics", COUNTED),
    unfinished("emulated-version", "only one version is supported"),
    feature_gates!(GATES),
    unfinished("http2-max-streams-per-connection", "it is fixed at 100"),
    unfinished("master", "set the API server in the kubeconfig"),
    unfinished("permit-address-sharing", "ports cannot be shared"),
    unfinished("permit-port-sharing", "ports cannot be shared"),
    fixed!(flag, "pod-max-in-unschedulable-pods-duration", "5m0s", "it is fixed at five minutes"),
    file!("policy-config-file", "a file with a legacy scheduler Policy, instead of --config", policy_config_file),
    unfinished("show-hidden-metrics-for-version", COUNTED),
    unfinished("tls-cipher-suites", FIXED_TLS),
    unfinished("tls-min-version", FIXED_TLS),
    unfinished("tls-sni-cert-key", "SNI certificates are not supported"),
    file!("write-config-to", "write the effective configuration to this file and exit", write_config_to),
];

/// Parses the flags of the scheduler.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::component::flags::parse(PARTS, arguments)
}

/// The help of the scheduler.
pub fn help() -> String {
    crate::flags::help(super::NAME, "The scheduler alone, with upstream's flags", PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::testing;

    /// The flags of kubeadm's static pod.
    const KUBEADM: &[&str] = &[
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=true",
    ];

    fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
        testing::read(parse, arguments)
    }

    #[test]
    fn accepts_the_flags_of_kubeadm() {
        let flags = read(KUBEADM).expect("flags");
        assert_eq!(flags.common.kubeconfig, Some("/etc/kubernetes/scheduler.conf".into()));
        assert_eq!((flags.common.secure_port, flags.common.lease_name.as_str()), (10259, "kube-scheduler"));
        assert!(flags.common.leader_elect && flags.common.given.contains(&"leader-elect"));
        assert!(read(&["--profiling=false", "--v=2", "--config=x", "--secure-port=0"]).is_ok());
    }

    #[test]
    fn rejects_other_flags_by_name() {
        let cases = [
            ("--no-such-flag=1", "unknown flag: --no-such-flag"),
            ("--controllers=*", "unknown flag: --controllers"),
            ("--profiling", "invalid flag --profiling: profiling is not supported"),
            ("--feature-gates=X=true", "invalid flag --feature-gates: unrecognized feature gate: X"),
            ("--feature-gates=DRADerivedAttributes=true", "DRADerivedAttributes is off"),
            ("--tls-min-version=VersionTLS12", "invalid flag --tls-min-version: only secure versions"),
            ("--leader-elect-resource-lock=endpoints", "invalid flag --leader-elect-resource-lock"),
        ];
        testing::check_refused(parse, &cases);
    }

    #[test]
    fn flag_table_is_sorted_and_printed() {
        testing::check_sorted(PARTS);
        assert!(help().contains("--policy-config-file"));
    }
}
