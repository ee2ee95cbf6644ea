//! The rules of plans, as input of iptables-restore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use api::Str;
use network::cidr::IpNet;

use super::names::{Jump, Names};
use crate::model::{Family, PortName, Protocol};
use crate::plan::{LocalTraffic, NodePortAddresses, NodeRules, PortPlan, Traffic};

const NAT: &str = "nat";
const FILTER: &str = "filter";

/// A change of a rule in a built-in chain.
pub(super) enum JumpChange {
    /// At the front of the chain.
    Insert(Jump),
    Delete(Jump),
}

impl JumpChange {
    fn jump(&self) -> &Jump {
        let (JumpChange::Insert(jump) | JumpChange::Delete(jump)) = self;
        jump
    }

    fn line(&self) -> String {
        let operation = match self {
            JumpChange::Insert(_) => "-I",
            JumpChange::Delete(_) => "-D",
        };
        format!("{operation} {}\n", self.jump().text())
    }
}

/// Chains with their rules, by table. The text of a rule does not contain its chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableText {
    chains: BTreeMap<(&'static str, String), Vec<String>>,
}

impl TableText {
    fn chain(&mut self, table: &'static str, name: String) -> &mut Vec<String> {
        self.chains.entry((table, name)).or_default()
    }

    pub(super) fn extend(&mut self, other: &TableText) {
        for (key, rules) in &other.chains {
            self.chains.entry(key.clone()).or_default().extend(rules.iter().cloned());
        }
    }

    pub(super) fn has(&self, table: &str, chain: &str) -> bool {
        super::program::TABLES
            .into_iter()
            .find(|known| *known == table)
            .is_some_and(|table| self.chains.contains_key(&(table, chain.to_string())))
    }

    /// The chains that are different in another text.
    pub(super) fn difference(&self, other: &TableText) -> TableText {
        let changed = self.chains.iter().filter(|(key, rules)| other.chains.get(*key) != Some(*rules));
        TableText { chains: changed.map(|(key, rules)| (key.clone(), rules.clone())).collect() }
    }

    /// The number of rules of each chain.
    pub(super) fn counts(&self) -> BTreeMap<(&'static str, String), usize> {
        self.chains.iter().map(|(key, rules)| (key.clone(), rules.len())).collect()
    }

    /// The chains of this text are replaced, and others are deleted.
    pub(super) fn restore_input(&self, deletions: &BTreeSet<(&'static str, String)>) -> String {
        self.restore_input_with(deletions, &[])
    }

    /// The same with changes of rules in built-in chains. A chain that is declared is emptied. Chains are deleted last,
    /// when no rule leads to them.
    pub(super) fn restore_input_with(
        &self,
        deletions: &BTreeSet<(&'static str, String)>,
        jumps: &[JumpChange],
    ) -> String {
        let mut text = String::new();
        for table in super::program::TABLES {
            let own: Vec<_> = self.chains.iter().filter(|((own, _), _)| *own == table).collect();
            let deleted: Vec<_> = deletions.iter().filter(|(own, _)| *own == table).collect();
            let jumps: Vec<_> = jumps.iter().filter(|change| change.jump().table == table).collect();
            if own.is_empty() && deleted.is_empty() && jumps.is_empty() {
                continue;
            }
            text.push_str(&format!("*{table}\n"));
            let names = own.iter().map(|((_, name), _)| name).chain(deleted.iter().map(|(_, name)| name));
            names.for_each(|name| text.push_str(&format!(":{name} - [0:0]\n")));
            for ((_, name), rules) in own {
                rules.iter().for_each(|rule| text.push_str(&format!("-A {name} {rule}\n")));
            }
            jumps.iter().for_each(|change| text.push_str(&change.line()));
            deleted.iter().for_each(|(_, name)| text.push_str(&format!("-X {name}\n")));
            text.push_str("COMMIT\n");
        }
        text
    }
}

/// The rules of a port: in chains of its own, and in chains that all ports share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortText {
    created: Str,
    pub(super) own: TableText,
    pub(super) shared: SharedRules,
}

/// Rules in shared chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedRules {
    services: Vec<String>,
    /// After the cluster IPs, which nothing takes precedence of.
    external: Vec<String>,
    node_ports: Vec<String>,
    filter: Vec<String>,
    /// After the rules of all ports.
    filter_last: Vec<String>,
    hairpin: Vec<String>,
}

impl PortText {
    pub(super) fn chains(&self) -> BTreeSet<(&'static str, String)> {
        self.own.chains.keys().cloned().collect()
    }
}

/// Values that the rules of all ports share.
pub(super) struct Shared<'a> {
    pub(super) names: &'a Names,
    pub(super) rules: &'a NodeRules,
    pub(super) mark: u32,
    pub(super) localhost_node_ports: bool,
}

impl Shared<'_> {
    /// The chains that all ports share.
    pub(super) fn frame(&self, ports: &BTreeMap<PortName, PortText>) -> TableText {
        let mut text = TableText::default();
        let (mark, chain) = (self.mark, |name: &str| self.names.shared(name));
        text.chain(NAT, chain("MARK-MASQ")).push(format!("-j MARK --or-mark {mark:#x}"));
        text.chain(NAT, chain("POSTROUTING")).extend([
            format!("-m conntrack --ctstate DNAT -j {}", chain("HAIRPIN")),
            format!("-m mark ! --mark {mark:#x}/{mark:#x} -j RETURN"),
            format!("-j MARK --xor-mark {mark:#x}"),
            "-j MASQUERADE --random-fully".to_string(),
        ]);
        // The first rule counts: that of the oldest Service, and then that of the first name.
        let mut oldest: Vec<&PortText> = ports.values().collect();
        oldest.sort_by(|a, b| a.created.cmp(&b.created));
        let of = |rules: fn(&SharedRules) -> &Vec<String>| -> Vec<String> {
            oldest.iter().flat_map(|port| rules(&port.shared).iter().cloned()).collect()
        };
        let mut services = of(|rules| &rules.services);
        services.extend(of(|rules| &rules.external));
        let to_node_port = |condition: String| format!("{condition} -j {}", chain("NODEPORTS"));
        services.extend(self.node_port_conditions().into_iter().map(to_node_port));
        *text.chain(NAT, chain("SERVICES")) = services;
        *text.chain(NAT, chain("NODEPORTS")) = of(|rules| &rules.node_ports);
        *text.chain(NAT, chain("HAIRPIN")) = of(|rules| &rules.hairpin);
        let mut filter = self.protect_loopback();
        filter.extend(of(|rules| &rules.filter));
        filter.extend(of(|rules| &rules.filter_last));
        // An address that this node serves itself, as a node-local DNS does, does not leave it.
        filter.extend(
            self.rules.service_cidrs.iter().map(|cidr| format!("-d {cidr} -m addrtype ! --dst-type LOCAL -j DROP")),
        );
        *text.chain(FILTER, chain("FILTER")) = filter;
        text
    }

    /// Node ports on loopback need a sysctl with which other machines could reach services on loopback.
    fn protect_loopback(&self) -> Vec<String> {
        let condition = "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT";
        let is_needed = self.rules.family == Family::V4 && self.localhost_node_ports;
        if is_needed { vec![format!("{condition} -j DROP")] } else { Vec::new() }
    }

    /// Matches packets to addresses at which node ports are served.
    fn node_port_conditions(&self) -> Vec<String> {
        let is_v4 = self.rules.family == Family::V4;
        match &self.rules.node_ports {
            NodePortAddresses::All => {
                let loopback = match (is_v4, self.localhost_node_ports) {
                    (true, true) => "",
                    (true, false) => "! -d 127.0.0.0/8 ",
                    (false, _) => "! -d ::1/128 ",
                };
                vec![format!("{loopback}-m addrtype --dst-type LOCAL")]
            }
            NodePortAddresses::Only(addresses) => {
                let is_served = |address: &&IpAddr| !address.is_loopback() || (is_v4 && self.localhost_node_ports);
                addresses.iter().filter(is_served).map(|address| format!("-d {}", host(*address))).collect()
            }
        }
    }

    /// The rules of a port.
    pub(super) fn port(&self, name: &PortName, plan: &PortPlan) -> PortText {
        let mut text =
            PortText { created: plan.created.clone(), own: TableText::default(), shared: SharedRules::default() };
        let port = Port { shared: self, name, plan };
        port.put_internal(&mut text);
        port.put_external(&mut text);
        port.put_endpoints(&mut text.own);
        let hairpin = |address: &IpAddr| format!("-s {0} -d {0} -j MASQUERADE --random-fully", host(*address));
        text.shared.hairpin = plan.hairpin.iter().map(hairpin).collect();
        text
    }

    /// Matches packets of pods on this node, or all others; None if they cannot be recognised.
    fn pod_source(&self, is_pod: bool) -> Option<String> {
        let not = if is_pod { "" } else { "! " };
        match &self.rules.local_traffic {
            LocalTraffic::Unknown => None,
            LocalTraffic::Sources(ranges) => ranges.first().map(|range| format!("{not}-s {range}")),
            LocalTraffic::Interface(name) => Some(format!("{not}-i {name}")),
            LocalTraffic::InterfacePrefix(prefix) => Some(format!("{not}-i {prefix}+")),
        }
    }
}

struct Port<'a> {
    shared: &'a Shared<'a>,
    name: &'a PortName,
    plan: &'a PortPlan,
}

impl Port<'_> {
    fn chain(&self, kind: &str) -> String {
        self.shared.names.port(kind, self.name)
    }

    fn mark_masquerade(&self) -> String {
        format!("-j {}", self.shared.names.shared("MARK-MASQ"))
    }

    fn to(&self, address: IpAddr, port: u16) -> String {
        format!("-d {} {}", host(address), self.at(port))
    }

    fn at(&self, port: u16) -> String {
        let protocol = self.plan.protocol.name();
        format!("-p {protocol} -m {protocol} --dport {port}")
    }

    fn reject(&self) -> &'static str {
        match self.plan.protocol {
            Protocol::Tcp => "-j REJECT --reject-with tcp-reset",
            Protocol::Udp | Protocol::Sctp => "-j REJECT",
        }
    }

    fn put_internal(&self, text: &mut PortText) {
        let to = self.to(self.plan.cluster_ip, self.plan.port);
        // Ports that the Service does not have.
        text.shared.filter_last.push(format!("-d {} -j REJECT", host(self.plan.cluster_ip)));
        let chain = match self.plan.internal {
            Traffic::Cluster => self.chain("SVC"),
            Traffic::Local => self.chain("SVL"),
            Traffic::Drop => return text.shared.filter.push(format!("{to} -j DROP")),
            Traffic::Reject => return text.shared.filter.push(format!("{to} {}", self.reject())),
        };
        let condition = match self.shared.rules.masquerade_all {
            true => Some(String::new()),
            false => self.shared.pod_source(false),
        };
        if let Some(condition) = condition {
            text.shared.services.push(format!("{condition} {to} {}", self.mark_masquerade()).trim_start().to_string());
        }
        text.shared.services.push(format!("{to} -j {chain}"));
    }

    fn put_external(&self, text: &mut PortText) {
        let plan = self.plan;
        let chain = self.chain("EXT");
        let conditions = self.shared.node_port_conditions();
        let node_ports = plan.node_port.iter().flat_map(|port| {
            let at = self.at(*port);
            conditions.iter().map(move |condition| format!("{condition} {at}"))
        });
        let addresses = plan.external_ips.iter().map(|address| self.to(*address, plan.port));
        let filtered: Vec<String> = addresses.chain(node_ports).collect();
        match plan.external {
            Traffic::Reject => {
                text.shared.filter.extend(filtered.iter().map(|to| format!("{to} {}", self.reject())));
                return;
            }
            Traffic::Drop => text.shared.filter.extend(filtered.iter().map(|to| format!("{to} -j DROP"))),
            Traffic::Cluster | Traffic::Local => {}
        }
        for address in &plan.external_ips {
            let to = self.to(*address, plan.port);
            if plan.firewalled.contains(address) {
                text.shared.external.push(format!("{to} -j {}", self.chain("FW")));
                text.shared.filter.push(format!("{to} -j DROP"));
            } else {
                text.shared.external.push(format!("{to} -j {chain}"));
            }
        }
        text.shared.node_ports.extend(plan.node_port.map(|port| format!("{} -j {chain}", self.at(port))));
        if plan.external_ips.is_empty() && plan.node_port.is_none() {
            return;
        }
        *text.own.chain(NAT, chain.clone()) = self.external_rules();
        if !plan.firewalled.is_empty() {
            let rule = |source: &IpNet| format!("-s {source} -j {chain}");
            *text.own.chain(NAT, self.chain("FW")) = plan.sources.iter().map(rule).collect();
        }
    }

    fn external_rules(&self) -> Vec<String> {
        let (cluster, masquerade) = (format!("-j {}", self.chain("SVC")), self.mark_masquerade());
        if !self.plan.external_local {
            return vec![masquerade, cluster];
        }
        let from_node = "-m addrtype --src-type LOCAL";
        let mut rules: Vec<String> =
            self.shared.pod_source(true).map(|pod| format!("{pod} {cluster}")).into_iter().collect();
        rules.extend([format!("{from_node} {masquerade}"), format!("{from_node} {cluster}")]);
        if self.plan.external == Traffic::Local {
            rules.push(format!("-j {}", self.chain("SVL")));
        }
        rules
    }

    /// The chains that choose an endpoint, and with affinity those of the endpoints.
    fn put_endpoints(&self, text: &mut TableText) {
        for (kind, endpoints) in [("SVC", &self.plan.cluster), ("SVL", &self.plan.local)] {
            if endpoints.is_empty() {
                continue;
            }
            *text.chain(NAT, self.chain(kind)) = self.choice(endpoints);
            for endpoint in endpoints.iter().filter(|_| self.plan.affinity.is_some()) {
                let name = self.shared.names.endpoint(self.name, *endpoint);
                let remember = format!("-m recent --name {name} --set {}", self.translate(endpoint));
                *text.chain(NAT, name) = vec![remember];
            }
        }
    }

    /// Chooses an endpoint at random; with affinity, the one that the client had before.
    fn choice(&self, endpoints: &[SocketAddr]) -> Vec<String> {
        let name = |endpoint: &SocketAddr| self.shared.names.endpoint(self.name, *endpoint);
        let mut rules = Vec::new();
        if let Some(timeout) = self.plan.affinity {
            let recent = format!("--rcheck --seconds {} --reap", timeout.as_secs());
            let rule = |chain: String| format!("-m recent --name {chain} {recent} -j {chain}");
            rules.extend(endpoints.iter().map(name).map(rule));
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let condition = match endpoints.len() - index {
                1 => String::new(),
                left => format!("-m statistic --mode random --probability {:.10} ", 1.0 / left as f64),
            };
            rules.push(match self.plan.affinity {
                Some(_) => format!("{condition}-j {}", name(endpoint)),
                None => format!("{condition}{}", self.translate(endpoint)),
            });
        }
        rules
    }

    fn translate(&self, endpoint: &SocketAddr) -> String {
        let protocol = self.plan.protocol.name();
        format!("-p {protocol} -m {protocol} -j DNAT --to-destination {endpoint}")
    }
}

fn host(address: IpAddr) -> IpNet {
    IpNet::host(address)
}
