//! How a pod calls itself.

use api::Tree;

use crate::model::pod;

/// The longest name that the kernel accepts.
const LONGEST: usize = 63;

/// The name inside of the pod, and the domain it is in, or "".
pub(crate) fn of(pod: &Tree, cluster_domain: &str) -> (String, String) {
    // `hostnameOverride` has no domain.
    let instead = pod.str("spec.hostnameOverride");
    if !instead.is_empty() {
        return (instead.to_string(), String::new());
    }
    let desired = pod.str("spec.hostname");
    let name = if desired.is_empty() { shortened(pod::name(pod)) } else { desired.to_string() };
    let subdomain = pod.str("spec.subdomain");
    let domain = match subdomain {
        "" => String::new(),
        subdomain => format!("{subdomain}.{}.svc.{cluster_domain}", pod::namespace(pod)),
    };
    (name, domain)
}

fn shortened(name: &str) -> String {
    let cut = name.get(..LONGEST).unwrap_or(name);
    cut.trim_end_matches(['-', '.']).to_string()
}

/// A name that the kernel does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {0} is too long (64 characters is the max, \
     {length} characters requested)",
    length = .0.len()
)]
pub(crate) struct FqdnTooLong(String);

/// The hostname in the kernel.
pub(crate) fn for_kernel(pod: &Tree, cluster_domain: &str) -> Result<String, FqdnTooLong> {
    let (name, domain) = of(pod, cluster_domain);
    if !pod.bool("spec.setHostnameAsFQDN") || domain.is_empty() {
        return Ok(name);
    }
    let full = format!("{name}.{domain}");
    if full.len() > 64 {
        return Err(FqdnTooLong(full));
    }
    Ok(full)
}

/// The pod's /etc/hosts: its own names, and those of hostAliases.
pub(crate) fn hosts(pod: &Tree, addresses: &[String], cluster_domain: &str) -> String {
    let mut text =
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                    fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_string();
    let (name, domain) = of(pod, cluster_domain);
    for address in addresses {
        match domain.as_str() {
            "" => text.push_str(&format!("{address}\t{name}\n")),
            domain => text.push_str(&format!("{address}\t{name}.{domain}\t{name}\n")),
        }
    }
    text + &aliases(pod)
}

/// The host's own names, and those of hostAliases, for a pod on the host's network.
pub(crate) fn host_network_hosts(pod: &Tree, host: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{host}{}", aliases(pod))
}

fn aliases(pod: &Tree) -> String {
    let aliases = pod.list("spec.hostAliases");
    if aliases.is_empty() {
        return String::new();
    }
    let names = |alias: &Tree| {
        let names: Vec<&str> = alias.list("hostnames").iter().filter_map(Tree::as_str).collect();
        format!("{}\t{}\n", alias.str("ip"), names.join("\t"))
    };
    let lines: String = aliases.iter().map(names).collect();
    format!("\n# Entries added by HostAliases.\n{lines}")
}
