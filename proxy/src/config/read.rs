//! Reads a KubeProxyConfiguration of `kubeproxy.config.k8s.io/v1alpha1`. All errors are reported at once, each with its
//! field.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::Tree;
use network::cidr::IpNet;

use super::fields::Section;
use super::{Configuration, Conntrack, GATES, LocalMode, Mode, NodePortAddress};

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";
const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;
const NO_IPVS: &str = "the mode ipvs is not supported";
const NO_WINDOWS: &str = "Windows is not supported";

/// A configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The proxy's own configuration.
    pub configuration: Configuration,
    /// The connection to the API server.
    pub client_connection: ClientConnection,
    /// The log format; empty if it is not set.
    pub log_format: String,
    /// The log verbosity.
    pub verbosity: Option<i64>,
}

/// The connection to the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientConnection {
    /// A file; empty if it is not set.
    pub kubeconfig: String,
    /// Requests per second; None for no limit.
    pub qps: Option<f64>,
    /// Requests at once.
    pub burst: Option<u32>,
}

/// Reads a file. Errors are `FIELD: problem`.
pub fn read(text: &[u8]) -> Result<Document, Vec<String>> {
    let tree = api::yaml::decode(text).map_err(|error| vec![error.to_string()])?;
    let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
    if kind != KIND || version != API_VERSION {
        return Err(vec![format!("it must be a {KIND} of {API_VERSION}, not a {kind:?} of {version:?}")]);
    }
    let mut root = Section::new(&tree, "");
    root.text("apiVersion");
    root.text("kind");
    let document = document(&mut root, &tree);
    let errors = root.errors();
    if errors.is_empty() { Ok(document) } else { Err(errors) }
}

fn document(root: &mut Section<'_>, tree: &Tree) -> Document {
    let mut configuration = Configuration::default();
    feature_gates(root, tree);
    let client_connection = client_connection(root);
    let (log_format, verbosity) = logging(root);
    configuration.node_name = root.text("hostnameOverride").trim().to_lowercase();
    addresses(root, &mut configuration);
    root.unsupported(&["enableProfiling"], "profiling is not supported");
    root.unsupported(&["showHiddenMetricsForVersion"], "metrics cannot be filtered");
    root.unsupported(&["portRange"], "it has no effect");
    root.unsupported(&["windowsRunAsService"], NO_WINDOWS);
    configuration.mode = mode(root);
    backends(root, &mut configuration);
    configuration.local_mode = local_mode(root);
    configuration.node_port_addresses = node_port_addresses(root);
    configuration.oom_score_adj = root.int("oomScoreAdj", -1000, 1000).and_then(|score| i32::try_from(score).ok());
    configuration.conntrack = Some(conntrack(root));
    root.duration("configSyncPeriod");
    Document { configuration, client_connection, log_format, verbosity }
}

fn feature_gates(root: &mut Section<'_>, tree: &Tree) {
    root.section("featureGates");
    for (name, value) in tree.map("featureGates").iter() {
        let Some(requested) = value.as_bool() else {
            root.error("featureGates", "must be true or false");
            continue;
        };
        if let Err(error) = client::gates::check(GATES, name, requested) {
            root.error("featureGates", &error.to_string());
        }
    }
}

fn client_connection(root: &mut Section<'_>) -> ClientConnection {
    let mut section = root.section("clientConnection");
    section.text("acceptContentTypes");
    section.text("contentType");
    let connection = ClientConnection {
        kubeconfig: section.text("kubeconfig").to_string(),
        qps: section.number("qps").filter(|qps| *qps > 0.0),
        burst: section.int("burst", 0, i64::from(u32::MAX)).and_then(|burst| u32::try_from(burst).ok()),
    };
    root.finish(section);
    connection
}

fn logging(root: &mut Section<'_>) -> (String, Option<i64>) {
    let mut section = root.section("logging");
    let format = section.text("format").to_string();
    if !matches!(format.as_str(), "" | "text" | "json") {
        section.error("format", "must be text or json");
    }
    let verbosity = section.int("verbosity", 0, 10);
    // Buffers and flushes of another logger.
    section.section("options");
    section.field("flushFrequency", "must be a duration", |_| Some(()));
    root.finish(section);
    (format, verbosity)
}

/// `bindAddress` only decides the family of the other two addresses.
fn addresses(root: &mut Section<'_>, configuration: &mut Configuration) {
    let parse = |value: &Tree| match value.as_str()? {
        "" => Some(IpAddr::from([0, 0, 0, 0])),
        text => text.parse::<IpAddr>().ok(),
    };
    let bind: Option<IpAddr> = root.field("bindAddress", "not a valid textual representation of an IP address", parse);
    let is_v6 = bind.is_some_and(|address| address.is_ipv6());
    let (any, local) = if is_v6 { ("::", "::1") } else { ("0.0.0.0", "127.0.0.1") };
    let read = |value: &Tree, default: &str, port: u16| bind_address(value.as_str()?, default, port);
    let problem = "must be IP or IP:port";
    let healthz = root.field("healthzBindAddress", problem, |value| read(value, any, HEALTHZ_PORT));
    configuration.healthz_address = healthz.or_else(|| bind_address("", any, HEALTHZ_PORT));
    let metrics = root.field("metricsBindAddress", problem, |value| read(value, local, METRICS_PORT));
    configuration.metrics_address = metrics.or_else(|| bind_address("", local, METRICS_PORT));
    configuration.bind_hard_fail = root.flag("bindAddressHardFail").unwrap_or(false);
}

/// An address with an optional port.
pub fn bind_address(text: &str, default: &str, port: u16) -> Option<SocketAddr> {
    let text = if text.is_empty() { default } else { text };
    let with_port = |address: IpAddr| SocketAddr::new(address, port);
    text.parse::<SocketAddr>().ok().or_else(|| text.parse().ok().map(with_port))
}

fn mode(root: &mut Section<'_>) -> Option<Mode> {
    let read = |value: &Tree| match value.as_str()? {
        "" => Some(None),
        name => Mode::parse(name).map(Some),
    };
    let problem = "must be nftables, iptables, userspace or blank (blank means the best-available proxy)";
    root.field("mode", problem, read).flatten()
}

/// The section of the mode in use counts; without a mode, that of nftables.
fn backends(root: &mut Section<'_>, configuration: &mut Configuration) {
    let is_iptables = configuration.mode == Some(Mode::Iptables);
    for (name, counts) in [("iptables", is_iptables), ("nftables", !is_iptables)] {
        let mut section = root.section(name);
        let bit = section.int("masqueradeBit", 0, 31).and_then(|bit| u8::try_from(bit).ok());
        let all = section.flag("masqueradeAll").unwrap_or(false);
        let least = section.duration("minSyncPeriod").filter(|period| !period.is_zero());
        let period = section.duration("syncPeriod").filter(|period| !period.is_zero());
        if let (Some(least), Some(period)) = (least, period)
            && least > period
        {
            section.error("minSyncPeriod", "must not be greater than syncPeriod");
        }
        if name == "iptables" {
            let localhost = section.flag("localhostNodePorts").unwrap_or(true);
            configuration.localhost_node_ports = localhost;
        }
        root.finish(section);
        configuration.masquerade_all |= all;
        if counts {
            configuration.masquerade_bit = bit.unwrap_or(configuration.masquerade_bit);
            configuration.min_sync_period = least;
            configuration.verify_period = period.unwrap_or(configuration.verify_period);
        }
    }
    let mut ipvs = root.section("ipvs");
    ipvs.unsupported(
        &[
            "syncPeriod",
            "minSyncPeriod",
            "scheduler",
            "excludeCIDRs",
            "strictARP",
            "tcpTimeout",
            "tcpFinTimeout",
            "udpTimeout",
        ],
        NO_IPVS,
    );
    root.finish(ipvs);
    let mut windows = root.section("winkernel");
    windows.unsupported(
        &["networkName", "sourceVip", "enableDSR", "rootHnsEndpointName", "forwardHealthCheckVip"],
        NO_WINDOWS,
    );
    root.finish(windows);
}

fn local_mode(root: &mut Section<'_>) -> LocalMode {
    let cidrs = root
        .field("clusterCIDR", "must be a CIDR, or two of different families", |value| cluster_cidrs(value.as_str()?))
        .unwrap_or_default();
    let mut section = root.section("detectLocal");
    let (bridge, prefix) =
        (section.text("bridgeInterface").to_string(), section.text("interfaceNamePrefix").to_string());
    let mode = root.text("detectLocalMode");
    let local = match mode {
        "NodeCIDR" => LocalMode::NodeCidr,
        "BridgeInterface" => LocalMode::BridgeInterface(bridge),
        "InterfaceNamePrefix" => LocalMode::InterfaceNamePrefix(prefix),
        _ => LocalMode::ClusterCidr(cidrs),
    };
    match &local {
        LocalMode::BridgeInterface(name) if !is_interface(name) => section.error("bridgeInterface", "must be a device"),
        LocalMode::InterfaceNamePrefix(name) if !is_interface(name) => {
            section.error("interfaceNamePrefix", "must be the beginning of a device's name");
        }
        _ => {}
    }
    root.finish(section);
    if !matches!(mode, "" | "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix") {
        root.error("detectLocalMode", "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix");
    }
    local
}

fn is_interface(name: &str) -> bool {
    (1..16).contains(&name.len()) && !name.contains(['/', ' '])
}

/// One range, or one of each family.
fn cluster_cidrs(text: &str) -> Option<Vec<IpNet>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let cidrs: Vec<IpNet> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match cidrs.as_slice() {
        [] | [_] => Some(cidrs),
        [first, second] if first.is_ipv4() != second.is_ipv4() => Some(cidrs),
        _ => None,
    }
}

fn node_port_addresses(root: &mut Section<'_>) -> Option<Vec<NodePortAddress>> {
    let texts = root.texts("nodePortAddresses");
    if texts.is_empty() {
        return None;
    }
    let mut addresses = Vec::new();
    for text in texts {
        match NodePortAddress::parse(text) {
            Some(address) => addresses.push(address),
            None => root.error(
                "nodePortAddresses",
                &format!("{text:?} must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'"),
            ),
        }
    }
    Some(addresses)
}

fn conntrack(root: &mut Section<'_>) -> Conntrack {
    let mut section = root.section("conntrack");
    let standard = Conntrack::default();
    let mut count = |key, default| {
        let read = section.int(key, 0, i64::from(u32::MAX)).and_then(|number| u32::try_from(number).ok());
        read.unwrap_or(default)
    };
    let (max_per_core, min) = (count("maxPerCore", standard.max_per_core), count("min", standard.min));
    let mut time = |key, default: Duration| section.duration(key).unwrap_or(default);
    let conntrack = Conntrack {
        max_per_core,
        min,
        tcp_established: time("tcpEstablishedTimeout", standard.tcp_established),
        tcp_close_wait: time("tcpCloseWaitTimeout", standard.tcp_close_wait),
        udp: time("udpTimeout", standard.udp),
        udp_stream: time("udpStreamTimeout", standard.udp_stream),
        tcp_be_liberal: section.flag("tcpBeLiberal").unwrap_or(false),
    };
    root.finish(section);
    conntrack
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    /// The configuration of kubeadm's ConfigMap.
    const KUBEADM: &str = r#"
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
"#;

    #[test]
    fn accepts_kubeadms_file() {
        let document = read(format!("{HEAD}{KUBEADM}").as_bytes()).expect("a configuration");
        assert_eq!(document.client_connection.kubeconfig, "/var/lib/kube-proxy/kubeconfig.conf");
        let expected = Configuration {
            local_mode: LocalMode::ClusterCidr(vec!["10.244.0.0/16".parse().expect("a range")]),
            ..Configuration::default()
        };
        assert_eq!(document.configuration, expected);
    }

    #[test]
    fn reads_all_sections() {
        let text = "mode: iptables\nhostnameOverride: Node-1\nbindAddress: '::'\nmetricsBindAddress: '0.0.0.0'\n\
            iptables: {masqueradeBit: 3, masqueradeAll: true, minSyncPeriod: 2s, syncPeriod: 9s, localhostNodePorts: false}\n\
            detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: br0}\n\
            nodePortAddresses: [primary, 10.0.0.0/8]\nconntrack: {maxPerCore: 0, udpTimeout: 30s}\n\
            clientConnection: {qps: 7, burst: 9}\nlogging: {format: json, verbosity: 4}\nfeatureGates: {WatchListClient: false}\n";
        let document = read(format!("{HEAD}{text}").as_bytes()).expect("a configuration");
        let read = &document.configuration;
        assert_eq!((read.mode, read.node_name.as_str()), (Some(Mode::Iptables), "node-1"));
        assert_eq!((read.masquerade_bit, read.masquerade_all, read.localhost_node_ports), (3, true, false));
        assert_eq!(read.min_sync_period(Mode::Iptables), Duration::from_secs(2));
        assert_eq!(read.verify_period, Duration::from_secs(9));
        assert_eq!(read.local_mode, LocalMode::BridgeInterface("br0".to_string()));
        let texts = [read.healthz_address, read.metrics_address].map(|address| address.expect("one").to_string());
        assert_eq!(texts, ["[::]:10256", "0.0.0.0:10249"]);
        assert_eq!(read.node_port_addresses.as_ref().map(Vec::len), Some(2));
        let conntrack = read.conntrack.as_ref().expect("limits");
        assert_eq!((conntrack.max_per_core, conntrack.udp), (0, Duration::from_secs(30)));
        assert_eq!((document.client_connection.qps, document.client_connection.burst), (Some(7.0), Some(9)));
        assert_eq!((document.log_format.as_str(), document.verbosity), ("json", Some(4)));
    }

    #[test]
    fn rejects_other_fields_by_name() {
        for (text, problem) in [
            ("nonsense: 1", "nonsense: Forbidden: unknown field"),
            ("conntrack: {maximum: 1}", "conntrack.maximum: Forbidden: unknown field"),
            ("mode: ipvs", "mode: Invalid value: \"ipvs\": must be nftables, iptables, userspace or blank"),
            ("ipvs: {strictARP: true}", "ipvs.strictARP: Invalid value: true: the mode ipvs is not supported"),
            ("winkernel: {networkName: x}", "winkernel.networkName: Invalid value: \"x\": Windows is not supported"),
            ("enableProfiling: true", "enableProfiling: Invalid value: true: profiling is not supported"),
            ("clusterCIDR: 10.0.0.0", "clusterCIDR: Invalid value: \"10.0.0.0\": must be a CIDR"),
            ("clusterCIDR: 10.0.0.0/8,10.1.0.0/16", "clusterCIDR: Invalid value"),
            (
                "nftables: {masqueradeBit: 32}",
                "nftables.masqueradeBit: Invalid value: 32: must be within the range [0, 31]",
            ),
            ("nftables: {minSyncPeriod: 5s, syncPeriod: 1s}", "nftables.minSyncPeriod: Invalid value"),
            ("iptables: {syncPeriod: -1s}", "iptables.syncPeriod: Invalid value"),
            ("oomScoreAdj: 2000", "oomScoreAdj: Invalid value: 2000"),
            ("detectLocalMode: Guess", "detectLocalMode: Invalid value: \"Guess\""),
            ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: Invalid value"),
            ("nodePortAddresses: [secondary]", "nodePortAddresses: Invalid value"),
            ("healthzBindAddress: here", "healthzBindAddress: Invalid value"),
            ("featureGates: {KubeProxyIPVS: true}", "feature gate KubeProxyIPVS is off and cannot be changed"),
            ("featureGates: {X: true}", "unrecognized feature gate: X"),
            ("kind: Other", "it must be a KubeProxyConfiguration"),
        ] {
            let file = if text.starts_with("kind") { text.to_string() } else { format!("{HEAD}{text}\n") };
            let errors = read(file.as_bytes()).expect_err(text);
            assert!(errors.iter().any(|error| error.contains(problem)), "{text}: {errors:?}");
        }
        assert!(GATES.is_sorted());
    }
}
