//! The flags of `dns`: those of CoreDNS, and the API server.

use std::path::PathBuf;

use crate::component::flags::text;
use crate::error::Result;
use crate::flags::values::{log_format, log_level, parsed};
use crate::flags::{Flag, flag, unfinished};
use crate::logs::{Format, Level};

/// The flags of the cluster DNS.
pub struct Flags {
    /// A Corefile, instead of the ConfigMap.
    pub conf: Option<PathBuf>,
    pub port: u16,
    pub kubeconfig: Option<PathBuf>,
    pub cluster_domain: String,
    pub node_name: Option<String>,
    pub log_format: Format,
    pub log_level: Level,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            conf: None,
            port: 53,
            kubeconfig: None,
            cluster_domain: "cluster.local".to_string(),
            node_name: None,
            log_format: Format::Text,
            log_level: Level::Info,
        }
    }
}

/// Sorted by name.
static FLAGS: &[Flag<Flags>] = &[
    field!("cluster-domain", "the domain of the cluster without --conf [cluster.local]", text, cluster_domain),
    file!("conf", "a Corefile [the ConfigMap kube-system/coredns]", conf),
    field!("dns.port", "the port of zones that name none [53]", parsed, port),
    file!("kubeconfig", "the API server and the credentials [the service account of the pod]", kubeconfig),
    field!("logging-format", "text or json [text]", log_format, log_format),
    flag("node-name", "the node whose pods use this server, for autopath [all]", |flags: &mut Flags, value| {
        flags.node_name = Some(value.to_string()).filter(|name| !name.is_empty());
        Ok(())
    }),
    field!("p", "the same as --dns.port", parsed, port),
    unfinished("pidfile", "the process writes no file"),
    unfinished("plugins", "the list of plugins is fixed"),
    unfinished("quiet", "logs are narrowed by RUST_LOG"),
    field!("v", "how much is logged [0]", log_level, log_level),
];

/// CoreDNS is called with one dash: `-conf FILE`.
pub fn with_two_dashes(arguments: &[String]) -> Vec<String> {
    let two = |argument: &String| match argument.strip_prefix('-') {
        Some(name) if name.len() > 1 && !name.starts_with('-') => format!("--{name}"),
        Some("p") => "--p".to_string(),
        Some("v") => "--v".to_string(),
        _ => argument.clone(),
    };
    arguments.iter().map(two).collect()
}

/// Parses the flags of the cluster DNS.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    crate::flags::parse(&[FLAGS], arguments)
}

/// The help text.
pub fn help() -> String {
    crate::flags::help("dns", "The cluster DNS alone, with the flags of CoreDNS", &[FLAGS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::testing;

    fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
        testing::read(|arguments| parse(&with_two_dashes(arguments)), arguments)
    }

    #[test]
    fn accepts_the_flags_of_coredns() {
        let flags = read(&["-conf", "/etc/coredns/Corefile", "-dns.port=1053"]).expect("flags");
        assert_eq!((flags.conf, flags.port), (Some("/etc/coredns/Corefile".into()), 1053));
        let flags = read(&["-p", "5353", "--kubeconfig", "x", "-v=4"]).expect("flags");
        assert_eq!((flags.port, flags.kubeconfig), (5353, Some("x".into())));
    }

    #[test]
    fn rejects_other_flags_by_name() {
        let cases = [
            ("--no-such-flag=1", "unknown flag: --no-such-flag"),
            ("-quiet", "invalid flag --quiet"),
            ("-dns.port=x", "invalid flag --dns.port"),
        ];
        testing::check_refused(|arguments| parse(&with_two_dashes(arguments)), &cases);
    }

    #[test]
    fn flag_table_is_sorted_and_printed() {
        testing::check_sorted(&[FLAGS]);
        assert!(help().contains("--conf"));
    }
}
