//! A pod's resolver: by its policy, the cluster's, the host's or its own.

use std::net::IpAddr;

use api::Tree;

use crate::model::pod;

/// The limits of resolvers.
const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCHES: usize = 2048;

/// The content of a resolv.conf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolver {
    pub(crate) servers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

impl Resolver {
    /// Parses a resolv.conf; unknown lines are ignored.
    pub(crate) fn parse(text: &str) -> Resolver {
        let mut resolver = Resolver::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace().map(str::to_string);
            match words.next().as_deref() {
                Some("nameserver") => resolver.servers.extend(words.next()),
                // The last line counts.
                Some("search") => resolver.searches = words.map(search).collect(),
                Some("options") => resolver.options = words.collect(),
                _ => {}
            }
        }
        resolver
    }

    /// For a node without a resolv.conf: the loopback address of each family of the node, as upstream does.
    pub(crate) fn own(addresses: &[IpAddr]) -> Resolver {
        let itself = |address: &IpAddr| if address.is_ipv6() { "::1" } else { "127.0.0.1" };
        let mut servers: Vec<String> = addresses.iter().map(|address| itself(address).to_string()).collect();
        if servers.is_empty() {
            servers.push("127.0.0.1".to_string());
        }
        Resolver { servers, searches: vec![".".to_string()], options: Vec::new() }
    }

    pub(crate) fn to_cri(&self) -> cri::DNSConfig {
        let Resolver { servers, searches, options } = self.clone();
        cri::DNSConfig { servers, searches, options }
    }
}

/// A name counts once, with or without a trailing dot; the root is a name too.
fn search(name: String) -> String {
    if name == "." { name } else { name.trim_end_matches('.').to_string() }
}

/// The node's DNS servers.
pub(crate) enum Host {
    File(Resolver),
    /// No file is configured.
    Nowhere(Vec<IpAddr>),
}

impl Host {
    fn searches(&self) -> &[String] {
        match self {
            Host::File(resolver) => &resolver.searches,
            Host::Nowhere(_) => &[],
        }
    }

    fn resolver(&self) -> Resolver {
        match self {
            Host::File(resolver) => resolver.clone(),
            Host::Nowhere(addresses) => Resolver::own(addresses),
        }
    }
}

/// A warning in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// The pod uses the cluster's DNS, but the node has no servers for it.
    NoCluster,
    Forming(String),
}

pub(crate) const NO_CLUSTER: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";

/// The cluster's own.
pub(crate) struct Cluster<'a> {
    pub(crate) servers: &'a [IpAddr],
    pub(crate) domain: &'a str,
}

/// A pod's resolver, and warnings about it.
pub(crate) fn pod_resolver(pod: &Tree, cluster: &Cluster<'_>, host: &Host) -> (Resolver, Vec<Warning>) {
    let mut warnings = Vec::new();
    let policy = pod.str("spec.dnsPolicy");
    let wants_cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" | "" => !pod.bool("spec.hostNetwork"),
        _ => false,
    };
    let mut resolver = match policy {
        "None" => Resolver::default(),
        _ if wants_cluster && !cluster.servers.is_empty() => cluster_resolver(pod, cluster, host),
        _ => {
            warnings.extend(wants_cluster.then_some(Warning::NoCluster));
            host.resolver()
        }
    };
    add_dns_config(pod, &mut resolver);
    warnings.extend(limit(&mut resolver).into_iter().map(Warning::Forming));
    (resolver, warnings)
}

fn cluster_resolver(pod: &Tree, cluster: &Cluster<'_>, host: &Host) -> Resolver {
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        let (namespace, domain) = (pod::namespace(pod), cluster.domain);
        searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_string()];
    }
    searches.extend(host.searches().iter().cloned());
    let servers = cluster.servers.iter().map(IpAddr::to_string).collect();
    Resolver { servers, searches: unique(searches), options: vec!["ndots:5".to_string()] }
}

/// `dnsConfig` of the pod is added.
fn add_dns_config(pod: &Tree, resolver: &mut Resolver) {
    let own = pod.at("spec.dnsConfig");
    let texts = |key: &str| own.list(key).iter().filter_map(Tree::as_str).map(str::to_string).collect::<Vec<_>>();
    resolver.servers.extend(texts("nameservers"));
    resolver.searches.extend(texts("searches"));
    resolver.servers = unique(std::mem::take(&mut resolver.servers));
    resolver.searches = unique(std::mem::take(&mut resolver.searches));
    for option in own.list("options") {
        let name = option.str("name");
        let text = match option.get("value").and_then(Tree::as_str) {
            Some(value) => format!("{name}:{value}"),
            None => name.to_string(),
        };
        // An option of the pod replaces one of the same name.
        resolver.options.retain(|known| known.split(':').next() != Some(name));
        resolver.options.push(text);
    }
}

fn unique(names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

fn limit(resolver: &mut Resolver) -> Vec<String> {
    let mut warnings = Vec::new();
    if resolver.servers.len() > MOST_SERVERS {
        resolver.servers.truncate(MOST_SERVERS);
        let line = resolver.servers.join(" ");
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {line}"
        ));
    }
    let (before, mut length) = (resolver.searches.len(), 0);
    resolver.searches.truncate(MOST_SEARCHES);
    resolver.searches.retain(|name| {
        length += name.len() + 1;
        length <= LONGEST_SEARCHES + 1
    });
    if resolver.searches.len() < before {
        let line = resolver.searches.join(" ");
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {line}"
        ));
    }
    warnings
}
