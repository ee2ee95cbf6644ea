//! What a client is told about a spec that is right but odd.

use api::field::{Path, go_quote};
use api::{Tree, validation};

use super::seen::Seen;
use super::{annotations, for_each_container, resources};

/// Ports are compared each with each; more of them than this are not compared at all.
const MAX_COMPARED_PORTS: usize = 256;
/// Nobody reads more, and headers have room for less.
const MAX_WARNINGS: usize = 100;

/// Warnings for a PodTemplateSpec at this path.
pub fn warnings(template: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut out = Vec::new();
    collect(template, path, true, &mut out);
    out.truncate(MAX_WARNINGS);
    out
}

/// Warnings for a pod.
pub fn pod_warnings(pod: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    let messages = validation::dns1123_label(pod.str("metadata.name"));
    if !messages.is_empty() {
        let start = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior;";
        out.push(format!("{start} a DNS label is recommended: [{}]", messages.join(" ")));
    }
    collect(pod, &Path::nil(), false, &mut out);
    out.truncate(MAX_WARNINGS);
    out
}

/// A pod and a template have their metadata and spec at the same places.
fn collect(object: &Tree, path: &Path<'_>, is_template: bool, out: &mut Vec<String>) {
    let spec = object.at("spec");
    let at = path.field("spec");
    placement(spec, &at, out);
    deprecated_annotations(object, &path.field("metadata.annotations"), out);
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        deprecated_sources(volume, &at.field("volumes").index(index), out);
    }
    token_paths(spec, &at, out);
    host_aliases(spec, &at.field("hostAliases"), out);
    pull_secrets(spec, &at.field("imagePullSecrets"), out);
    fractions(spec.at("overhead"), &at.field("overhead"), out);
    security_annotations(object, path, is_template, out);
    for_each_container(spec, &at, &mut |container, path| {
        let at = path.field("resources");
        for (name, path) in [("limits", at.field("limits")), ("requests", at.field("requests"))] {
            fractions(container.at("resources").at(name), &path, out);
        }
        duplicate_variables(container, &path.field("env"), out);
    });
    overlapping_ports(spec, &at, out);
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let path = at.field("terminationGracePeriodSeconds");
        out.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    null_selectors(spec.at("affinity"), &at.field("affinity"), out);
    dns_addresses(spec, &at, out);
}

/// Labels of nodes that have newer names.
fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn placement(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    for key in spec.map("nodeSelector").keys() {
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{}: {text}", path.field("nodeSelector").key(key)));
        }
    }
    let affinity = spec.at("affinity.nodeAffinity");
    let at = path.field("affinity.nodeAffinity");
    let required = at.field(REQUIRED);
    for (index, term) in affinity.at(REQUIRED).list("nodeSelectorTerms").iter().enumerate() {
        node_term(term, &required.field("nodeSelectorTerms").index(index), out);
    }
    let preferred = at.field(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
        node_term(term.at("preference"), &preferred.index(index).field("preference"), out);
    }
    let spread = path.field("topologySpreadConstraints");
    for (index, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let at = spread.index(index);
        let key = constraint.str("topologyKey");
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{}: {key} is {text}", at.field("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            out.push(format!("{}: {NULL_SELECTOR}", at.field("labelSelector")));
        }
    }
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn node_term(term: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let expressions = path.field("matchExpressions");
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let key = expression.str("key");
        if let Some(text) = deprecated_label(key) {
            out.push(format!("{}: {key} is {text}", expressions.index(index).field("key")));
        }
    }
}

fn null_selectors(affinity: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = path.field(kind);
        let required = path.field(REQUIRED);
        for (index, term) in affinity.at(kind).list(REQUIRED).iter().enumerate() {
            if !term.has("labelSelector") {
                out.push(format!("{}: {NULL_SELECTOR}", required.index(index).field("labelSelector")));
            }
        }
        let preferred = path.field(PREFERRED);
        for (index, term) in affinity.at(kind).list(PREFERRED).iter().enumerate() {
            if !term.at("podAffinityTerm").has("labelSelector") {
                let at = preferred.index(index);
                out.push(format!("{}: {NULL_SELECTOR}", at.field("podAffinityTerm.labelSelector")));
            }
        }
    }
}

const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

fn deprecated_annotations(object: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let own = object.map("metadata.annotations");
    for (key, text) in ANNOTATIONS.iter().filter(|(key, _)| own.contains(key)) {
        out.push(format!("{}: {text}", path.key(key)));
    }
}

/// Sources, the name shown for them, and what became of them.
const SOURCES: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

fn deprecated_sources(volume: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    for (_, shown, text) in SOURCES.iter().filter(|(key, _, _)| volume.has(key)) {
        out.push(format!("{}: {text}", path.field(shown)));
    }
}

/// Other files of projected volumes that have the name of a token.
fn token_paths(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let volumes = spec.list("volumes");
    let tokens: Seen<&str> = volumes
        .iter()
        .flat_map(|volume| volume.list("projected.sources"))
        .filter(|source| source.has("serviceAccountToken"))
        .map(|source| source.str("serviceAccountToken.path"))
        .collect();
    let list = path.field("volumes");
    for (index, volume) in volumes.iter().enumerate() {
        let at = list.index(index);
        let at = at.field("projected.sources");
        for source in volume.list("projected.sources") {
            for (key, shown) in [("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")] {
                let at = at.field(shown);
                for (index, item) in source.at(key).list("items").iter().enumerate() {
                    note_token_path(item.str("path"), &tokens, &at.index(index), out);
                }
            }
            if source.has("clusterTrustBundle") {
                let file = source.str("clusterTrustBundle.path");
                note_token_path(file, &tokens, &at.field("ClusterTrustBundle"), out);
            }
        }
    }
}

fn note_token_path(file: &str, tokens: &Seen<&str>, path: &Path<'_>, out: &mut Vec<String>) {
    if tokens.contains(&file) {
        out.push(format!("{path}: has duplicated path with ServiceAccountToken {}", go_quote(file)));
    }
}

fn host_aliases(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let mut seen = Seen::new();
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let ip = alias.str("ip");
        if !seen.insert(ip) {
            out.push(format!("{}: duplicate ip {}", path.index(index).field("ip"), go_quote(ip)));
        }
    }
}

fn pull_secrets(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let secrets = spec.list("imagePullSecrets");
    let mut seen = Seen::new();
    for (index, secret) in secrets.iter().enumerate() {
        let name = secret.str("name");
        if !seen.insert(name) {
            out.push(format!("{}: duplicate name {}", path.index(index).field("name"), go_quote(name)));
        }
    }
    for (index, _) in secrets.iter().enumerate().filter(|(_, secret)| secret.str("name").is_empty()) {
        out.push(format!("{}: invalid empty name \"\"", path.index(index).field("name")));
    }
}

/// Bytes come whole.
fn fractions(list: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let Some(value) = list.get(name) else { continue };
        // Only these texts can stand for a fraction; the rest need no parsing.
        let text = value.as_str().unwrap_or("");
        if text.ends_with('m') && resources::read(value).milli_value() % 1000 != 0 {
            let quoted = go_quote(text);
            out.push(format!("{}: fractional byte value {quoted} is invalid, must be an integer", path.key(name)));
        }
    }
}

/// Annotations without the field that took their place.
fn security_annotations(object: &Tree, path: &Path<'_>, is_template: bool, out: &mut Vec<String>) {
    let own = object.map("metadata.annotations");
    if !annotations::has_profiles(own) {
        return;
    }
    let at = path.field("metadata.annotations");
    let seccomp = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let context = object.at("spec.securityContext");
    if own.contains(annotations::SECCOMP_POD) && !context.has("seccompProfile") {
        out.push(format!("{}: {seccomp}", at.key(annotations::SECCOMP_POD)));
    }
    for_each_container(object.at("spec"), path, &mut |container, _| {
        let field = |key: &str| container.at("securityContext").has(key);
        let key = format!("{}{}", annotations::SECCOMP_CONTAINER, container.str("name"));
        if own.contains(&key) && !field("seccompProfile") {
            out.push(format!("{}: {seccomp}", at.key(&key)));
        }
        let key = format!("{}{}", annotations::APP_ARMOR, container.str("name"));
        // A pod has the field from its annotation by now.
        if is_template && own.contains(&key) && !field("appArmorProfile") && !context.has("appArmorProfile") {
            let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            out.push(format!("{}: {text}", at.key(&key)));
        }
    });
}

/// A variable that is set twice is lost by apply, unless the second is made from the first.
fn duplicate_variables(container: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let mut seen = Seen::new();
    for (index, variable) in container.list("env").iter().enumerate() {
        let name = variable.str("name");
        if seen.insert(name) {
            continue;
        }
        let (value, reference) = (variable.str("value"), format!("$({name})"));
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            let text = "which may be dropped when using apply";
            out.push(format!("{}: hides previous definition of {}, {text}", path.index(index), go_quote(name)));
        }
    }
}

/// A port of a container that was seen, with the text of its path.
struct Port<'a> {
    port: &'a Tree,
    path: String,
}

fn overlapping_ports(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    // Most pods have one port or none: nothing to compare and no path to write.
    let ports = lists.iter().flat_map(|list| spec.list(list)).map(|container| container.list("ports").len());
    let compared = (2..=MAX_COMPARED_PORTS).contains(&ports.sum::<usize>());
    let mut seen: Vec<Port<'_>> = Vec::new();
    for list in lists {
        for (index, container) in spec.list(list).iter().enumerate() {
            for (number, port) in container.list("ports").iter().enumerate() {
                let has_ip = !port.str("hostIP").is_empty();
                if !compared && !has_ip {
                    continue;
                }
                let here = path.field(list);
                let here = here.index(index);
                let here = here.field("ports");
                let here = here.index(number).to_string();
                if has_ip && port.int("hostPort").unwrap_or(0) == 0 {
                    out.push(format!("{here}: hostIP set without hostPort: {}", go_port(port)));
                }
                if compared {
                    compare_ports(port, &here, &seen, out);
                    seen.push(Port { port, path: here });
                }
            }
        }
    }
}

fn compare_ports(port: &Tree, here: &str, seen: &[Port<'_>], out: &mut Vec<String>) {
    let number = |port: &Tree, key: &str| port.int(key).unwrap_or(0);
    let same = |other: &&Port<'_>| {
        number(other.port, "containerPort") == number(port, "containerPort")
            && other.port.str("protocol") == port.str("protocol")
    };
    for other in seen.iter().filter(same) {
        let (host, other_host) = (number(port, "hostPort"), number(other.port, "hostPort"));
        let (ip, other_ip) = (port.str("hostIP"), other.port.str("hostIP"));
        let word = if host == other_host && ip == other_ip {
            "duplicate"
        } else if host == 0 || other_host == 0 {
            "overlapping"
        } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
            "dangerously ambiguous"
        } else {
            continue;
        };
        out.push(format!("{here}: {word} port definition with {}", other.path));
    }
}

/// A port as Go prints a struct.
fn go_port(port: &Tree) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        port.str("name"),
        port.int("hostPort").unwrap_or(0),
        port.int("containerPort").unwrap_or(0),
        port.str("protocol"),
        port.str("hostIP")
    )
}

/// Addresses in forms that other programs read differently.
fn dns_addresses(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let servers = path.field("dnsConfig.nameservers");
    for (index, server) in spec.list("dnsConfig.nameservers").iter().enumerate() {
        address(server.as_str().unwrap_or(""), &servers.index(index), out);
    }
    let aliases = path.field("hostAliases");
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        address(alias.str("ip"), &aliases.index(index).field("ip"), out);
    }
}

fn address(text: &str, path: &Path<'_>, out: &mut Vec<String>) {
    // The usual form is checked without writing the path.
    if text.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_ipv4()) {
        return;
    }
    out.extend(validation::ip_warning(&path.to_string(), text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn check(spec: Tree, expected: &[&str]) {
        let pod = tree! { "metadata" => tree! { "name" => "p" }, "spec" => spec };
        assert_eq!(pod_warnings(&pod), expected, "{pod:?}");
    }

    #[test]
    fn odd_specs_are_told_of() {
        check(tree! { "containers" => list![tree! { "name" => "c" }] }, &[]);
        check(
            tree! { "volumes" => list![tree! { "rbd" => tree! {} }] },
            &["spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+"],
        );
        let limits = tree! { "limits" => tree! { "memory" => "1001m", "cpu" => "1m" } };
        check(
            tree! { "containers" => list![tree! { "resources" => limits }] },
            &[
                "spec.containers[0].resources.limits[memory]: fractional byte value \"1001m\" is invalid, must be an integer",
            ],
        );
        let ports = list![
            tree! { "containerPort" => 80, "protocol" => "TCP" },
            tree! { "containerPort" => 80, "protocol" => "TCP" }
        ];
        check(
            tree! { "containers" => list![tree! { "ports" => ports }] },
            &["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"],
        );
        let env = list![tree! { "name" => "A", "value" => "1" }, tree! { "name" => "A", "value" => "2" }];
        check(
            tree! { "containers" => list![tree! { "env" => env }] },
            &["spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply"],
        );
    }
}
