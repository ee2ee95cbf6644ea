//! The flags of `kube-proxy`: one table. A flag is honoured, or refused by its name.

use std::path::PathBuf;
use std::time::Duration;

use proxy::config::{Configuration, Conntrack, GATES, LocalMode, Mode, NodePortAddress, bind_address};
use thiserror::Error;

use crate::component::flags::text;
use crate::error::Result;
use crate::flags::values::{boolean, duration, list, log_format, log_level, parsed};
use crate::flags::{Flag, flag, unfinished};
use crate::logs::{Format, Level};

/// The parsed flags.
pub struct Flags {
    /// A KubeProxyConfiguration, instead of most flags.
    pub config: Option<PathBuf>,
    pub kubeconfig: Option<PathBuf>,
    pub kube_api_qps: Option<f64>,
    pub kube_api_burst: Option<u32>,
    pub hostname_override: String,
    /// Whether rules are deleted instead of running.
    pub cleanup: bool,
    pub log_format: Format,
    pub log_level: Level,
    /// The configuration of the other flags.
    pub configuration: Configuration,
    pub detect_local_mode: String,
    pub cluster_cidr: String,
    pub pod_bridge_interface: String,
    pub pod_interface_name_prefix: String,
    /// The names of the flags that were set.
    pub given: Vec<&'static str>,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            config: None,
            kubeconfig: None,
            kube_api_qps: None,
            kube_api_burst: None,
            hostname_override: String::new(),
            cleanup: false,
            log_format: Format::Text,
            log_level: Level::Info,
            configuration: Configuration::default(),
            detect_local_mode: String::new(),
            cluster_cidr: String::new(),
            pod_bridge_interface: String::new(),
            pod_interface_name_prefix: String::new(),
            given: Vec::new(),
        }
    }
}

/// Flags that count beside a configuration file.
pub const BESIDE_CONFIG: &[&str] =
    &["cleanup", "config", "confirm-endpoints", "hostname-override", "kubeconfig", "logging-format", "table", "v"];

const NO_IPVS: &str = "the mode ipvs is not supported";
const NO_METRICS: &str = "metrics cannot be filtered";

fn conntrack(flags: &mut Flags) -> &mut Conntrack {
    flags.configuration.conntrack.get_or_insert_default()
}

/// A duration of connection tracking.
macro_rules! tracked {
    ($name:literal, $help:literal, $field:ident) => {
        flag($name, $help, |flags: &mut Flags, value| {
            conntrack(flags).$field = duration(value)?;
            Ok(())
        })
    };
}

/// Why a value of a flag of the proxy is refused.
#[derive(Debug, Error)]
pub(crate) enum ProxyFlagError {
    #[error("{0:?} must be IP or IP:port")]
    Address(String),
    #[error("{0:?} must begin with a letter, and have at most 64 lowercase letters, digits and hyphens")]
    TableName(String),
    #[error("{0:?} must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'")]
    NodePortAddress(String),
    #[error("unknown mode {0:?}")]
    Mode(String),
    #[error("--detect-local-mode: unknown mode {0:?}")]
    LocalMode(String),
    #[error("--detect-local-mode={mode} needs --{flag}")]
    LocalModeNeeds { mode: String, flag: &'static str },
    #[error("--cluster-cidr: {0}")]
    ClusterCidr(#[from] stdx::cidr::InvalidCidr),
}

/// All parts of the table, each sorted by name.
static PARTS: &[&[Flag<Flags>]] = &[FLAGS];

static FLAGS: &[Flag<Flags>] = &[
    flag("bind-address", "only decides the family of default addresses [0.0.0.0]", |flags: &mut Flags, value| {
        let address: std::net::IpAddr = parsed(value)?;
        if address.is_ipv6() && !flags.given.contains(&"healthz-bind-address") {
            flags.configuration.healthz_address = bind_address("", "::", 10256);
        }
        Ok(())
    }),
    on_off!("bind-address-hard-fail", "exit if a port cannot be bound [false]", configuration.bind_hard_fail),
    on_off!("cleanup", "delete all rules of this proxy and exit [false]", cleanup),
    field!("cluster-cidr", "ranges of the cluster's pods, one per IP family", text, cluster_cidr),
    file!("config", "a file with a KubeProxyConfiguration, instead of most flags", config),
    flag("config-sync-period", "accepted; watches need no refresh", |_, value| Ok(duration(value).map(drop)?)),
    on_off!(
        "confirm-endpoints",
        "confirm applied endpoints to kubelets by an annotation of the Node [true]",
        configuration.confirm_endpoints
    ),
    flag("conntrack-max-per-core", "tracked connections per CPU; 0 leaves the limit [32768]", |flags, value| {
        conntrack(flags).max_per_core = parsed(value)?;
        Ok(())
    }),
    flag("conntrack-min", "least number of tracked connections [131072]", |flags, value| {
        conntrack(flags).min = parsed(value)?;
        Ok(())
    }),
    flag("conntrack-tcp-be-liberal", "accept TCP packets outside of the window [false]", |flags, value| {
        conntrack(flags).tcp_be_liberal = boolean(value)?;
        Ok(())
    }),
    tracked!("conntrack-tcp-timeout-close-wait", "timeout of half-closed TCP connections [1h]", tcp_close_wait),
    tracked!("conntrack-tcp-timeout-established", "timeout of TCP connections; 0 leaves it [24h]", tcp_established),
    tracked!("conntrack-udp-timeout", "timeout of UDP without a reply; 0 leaves it [0]", udp),
    tracked!("conntrack-udp-timeout-stream", "timeout of UDP with replies; 0 leaves it [0]", udp_stream),
    field!(
        "detect-local-mode",
        "how traffic of pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix [ClusterCIDR]",
        text,
        detect_local_mode
    ),
    feature_gates!(GATES),
    flag("healthz-bind-address", "where health is served; empty for nowhere [0.0.0.0:10256]", |flags, value| {
        flags.configuration.healthz_address = address(value, 10256)?;
        Ok(())
    }),
    unfinished("healthz-port", "use --healthz-bind-address"),
    field!("hostname-override", "the name of the Node [the machine's name]", text, hostname_override),
    unfinished("init-only", "the proxy needs its privileges while it runs"),
    on_off!(
        "iptables-localhost-nodeports",
        "serve node ports at 127.0.0.1 too, in the mode iptables [true]",
        configuration.localhost_node_ports
    ),
    flag("iptables-masquerade-bit", "the bit of marks that requests masquerading [14]", |flags, value| {
        let bit: u8 = parsed(value)?;
        if bit > 31 {
            return Err("it must be within the range [0, 31]".into());
        }
        flags.configuration.masquerade_bit = bit;
        Ok(())
    }),
    flag("iptables-min-sync-period", "least time between two syncs [1s; 5ms with nftables]", |flags, value| {
        flags.configuration.min_sync_period = Some(duration(value)?).filter(|period: &Duration| !period.is_zero());
        Ok(())
    }),
    flag("iptables-sync-period", "how often iptables rules are verified [5s]", |flags, value| {
        flags.configuration.verify_period =
            Some(duration(value)?).filter(|period: &Duration| !period.is_zero()).ok_or("it must be greater than 0")?;
        Ok(())
    }),
    unfinished("ipvs-exclude-cidrs", NO_IPVS),
    unfinished("ipvs-min-sync-period", NO_IPVS),
    unfinished("ipvs-scheduler", NO_IPVS),
    unfinished("ipvs-strict-arp", NO_IPVS),
    unfinished("ipvs-sync-period", NO_IPVS),
    unfinished("ipvs-tcp-timeout", NO_IPVS),
    unfinished("ipvs-tcpfin-timeout", NO_IPVS),
    unfinished("ipvs-udp-timeout", NO_IPVS),
    flag("kube-api-burst", "burst of requests, with --kube-api-qps", |flags: &mut Flags, value| {
        flags.kube_api_burst = Some(parsed(value)?);
        Ok(())
    }),
    flag("kube-api-content-type", "only application/json and upstream's default", |_, value| match value {
        "" | "application/json" | "application/vnd.kubernetes.protobuf" => Ok(()),
        _ => Err(format!("unknown content type {value:?}").into()),
    }),
    flag("kube-api-qps", "requests per second [no limit]", |flags: &mut Flags, value| {
        flags.kube_api_qps = Some(parsed(value)?).filter(|qps: &f64| *qps > 0.0);
        Ok(())
    }),
    file!("kubeconfig", "a kubeconfig of the API server", kubeconfig),
    field!("logging-format", "text or json [text]", log_format, log_format),
    on_off!("masquerade-all", "masquerade all traffic to cluster IPs [false]", configuration.masquerade_all),
    unfinished("master", "set the API server in the kubeconfig"),
    flag("metrics-bind-address", "where metrics are served; empty for nowhere [127.0.0.1:10249]", |flags, value| {
        flags.configuration.metrics_address = address(value, 10249)?;
        Ok(())
    }),
    unfinished("metrics-port", "use --metrics-bind-address"),
    flag(
        "nodeport-addresses",
        "where node ports are served: CIDRs, primary, localhost, all [primary; all with iptables]",
        |flags: &mut Flags, value| {
            let read = |text: &String| {
                NodePortAddress::parse(text).ok_or_else(|| ProxyFlagError::NodePortAddress(text.clone()))
            };
            let addresses: Vec<NodePortAddress> = list(value).iter().map(read).collect::<Result<_, _>>()?;
            flags.configuration.node_port_addresses = Some(addresses).filter(|addresses| !addresses.is_empty());
            Ok(())
        },
    ),
    flag("oom-score-adj", "the process's score for the OOM killer [unchanged]", |flags: &mut Flags, value| {
        let score: i32 = parsed(value)?;
        if !(-1000..=1000).contains(&score) {
            return Err("it must be within the range [-1000, 1000]".into());
        }
        flags.configuration.oom_score_adj = Some(score);
        Ok(())
    }),
    field!("pod-bridge-interface", "the bridge of BridgeInterface", text, pod_bridge_interface),
    field!("pod-interface-name-prefix", "the prefix of InterfaceNamePrefix", text, pod_interface_name_prefix),
    fixed!(switch, "profiling", "false", crate::component::flags::NO_PROFILES),
    flag("proxy-mode", "nftables, iptables or userspace [what the kernel supports]", |flags: &mut Flags, value| {
        flags.configuration.mode = match value {
            "" => None,
            "ipvs" => return Err(NO_IPVS.into()),
            name => Some(Mode::parse(name).ok_or_else(|| ProxyFlagError::Mode(name.to_string()))?),
        };
        Ok(())
    }),
    unfinished("show-hidden-metrics-for-version", NO_METRICS),
    flag(
        "table",
        "the name of the proxy's tables; each cluster on a machine needs its own",
        |flags: &mut Flags, value| {
            flags.configuration.table = table_name(value)?;
            Ok(())
        },
    ),
    field!("v", "how much is logged [0]", log_level, log_level),
    unfinished("write-config-to", "defaults are in --help"),
];

fn address(value: &str, port: u16) -> Result<Option<std::net::SocketAddr>, ProxyFlagError> {
    if value.is_empty() {
        return Ok(None);
    }
    bind_address(value, value, port).map(Some).ok_or_else(|| ProxyFlagError::Address(value.to_string()))
}

fn table_name(value: &str) -> Result<String, ProxyFlagError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid = value.starts_with(|first: char| first.is_ascii_lowercase()) && value.bytes().all(is_plain);
    if is_valid && value.len() <= 64 {
        return Ok(value.to_string());
    }
    Err(ProxyFlagError::TableName(value.to_string()))
}

/// Parses the flags of kube-proxy.
pub fn parse(arguments: &[String]) -> Result<Flags> {
    let (mut flags, given) = crate::flags::parse_noting(PARTS, arguments)?;
    flags.given = given;
    Ok(flags)
}

/// The help text.
pub fn help() -> String {
    crate::flags::help(super::NAME, "The service proxy alone, with upstream's flags", PARTS)
}

/// The mode of local traffic that the flags describe.
pub(crate) fn local_mode(flags: &Flags) -> Result<LocalMode, ProxyFlagError> {
    let named = |name: &str, flag: &'static str| match name {
        "" => Err(ProxyFlagError::LocalModeNeeds { mode: flags.detect_local_mode.clone(), flag }),
        name => Ok(name.to_string()),
    };
    match flags.detect_local_mode.as_str() {
        "" | "ClusterCIDR" => {
            let ranges = list(&flags.cluster_cidr).iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            Ok(LocalMode::ClusterCidr(ranges))
        }
        "NodeCIDR" => Ok(LocalMode::NodeCidr),
        "BridgeInterface" => named(&flags.pod_bridge_interface, "pod-bridge-interface").map(LocalMode::BridgeInterface),
        "InterfaceNamePrefix" => {
            named(&flags.pod_interface_name_prefix, "pod-interface-name-prefix").map(LocalMode::InterfaceNamePrefix)
        }
        other => Err(ProxyFlagError::LocalMode(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::testing;

    fn read(arguments: &[&str]) -> std::result::Result<Flags, String> {
        testing::read(parse, arguments)
    }

    #[test]
    fn accepts_the_flags_of_kubeadm() {
        let flags = read(&["--config=/var/lib/kube-proxy/config.conf", "--hostname-override=node-1"]).expect("flags");
        assert_eq!(flags.config, Some("/var/lib/kube-proxy/config.conf".into()));
        assert_eq!(flags.hostname_override, "node-1");
        assert!(flags.given.iter().all(|name| BESIDE_CONFIG.contains(name)));
        let flags =
            read(&["--proxy-mode=iptables", "--cluster-cidr=10.0.0.0/8", "--nodeport-addresses=primary,localhost"]);
        let flags = flags.expect("flags");
        assert_eq!(flags.configuration.mode, Some(Mode::Iptables));
        assert_eq!(flags.configuration.node_port_addresses.as_ref().map(Vec::len), Some(2));
        assert!(matches!(local_mode(&flags), Ok(LocalMode::ClusterCidr(ranges)) if ranges.len() == 1));
    }

    #[test]
    fn rejects_other_flags_by_name() {
        let cases = [
            ("--no-such-flag=1", "unknown flag: --no-such-flag"),
            ("--proxy-mode=ipvs", "invalid flag --proxy-mode: the mode ipvs is not supported"),
            ("--proxy-mode=x", "unknown mode"),
            ("--ipvs-scheduler=rr", "invalid flag --ipvs-scheduler"),
            ("--profiling", "invalid flag --profiling"),
            ("--init-only", "invalid flag --init-only"),
            ("--feature-gates=X=true", "unrecognized feature gate: X"),
            ("--oom-score-adj=2000", "within the range"),
            ("--healthz-bind-address=x", "must be IP or IP:port"),
            ("--table=A b", "must begin with a letter"),
        ];
        testing::check_refused(parse, &cases);
    }

    #[test]
    fn flag_table_is_sorted_and_printed() {
        testing::check_sorted(PARTS);
        assert!(help().contains("--proxy-mode") && BESIDE_CONFIG.is_sorted());
    }
}
