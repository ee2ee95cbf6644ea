//! Warnings about valid but questionable specs.

use api::field::{Path, go_quote};
use api::{Tree, validation};

mod paths;
mod ports;

pub(crate) mod labels;

use super::small_set::SmallSet;
use super::{annotations, for_each_container, resources};

/// More are not useful, and headers are limited.
const MAX_WARNINGS: usize = 100;

/// Warnings for a PodTemplateSpec at this path.
pub(crate) fn template_warnings(template: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut out = Vec::new();
    collect(template, path, true, &mut out);
    out.truncate(MAX_WARNINGS);
    out
}

/// Warnings for a pod.
pub(crate) fn pod_warnings(pod: &Tree) -> Vec<String> {
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

/// Pods and templates have metadata and spec at the same paths.
fn collect(object: &Tree, path: &Path<'_>, is_template: bool, out: &mut Vec<String>) {
    let spec = object.at("spec");
    let at = path.field("spec");
    placement(spec, &at, out);
    deprecated_annotations(object, &path.field("metadata.annotations"), out);
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        deprecated_sources(volume, &at.field("volumes").index(index), out);
    }
    paths::overlapping(spec, out);
    host_aliases(spec, &at.field("hostAliases"), out);
    pull_secrets(spec, &at.field("imagePullSecrets"), out);
    for name in BYTES {
        fraction(spec.at("overhead"), name, &at.field("overhead"), out);
    }
    pod_annotation(object, path, out);
    let has_profiles = annotations::has_profiles(object.map("metadata.annotations"));
    for_each_container(spec, &at, &mut |container, at| {
        if has_profiles {
            container_annotations(object, container, path, is_template, out);
        }
        let resources = container.at("resources");
        let at_resources = at.field("resources");
        for name in BYTES {
            fraction(resources.at("limits"), name, &at_resources.field("limits"), out);
            fraction(resources.at("requests"), name, &at_resources.field("requests"), out);
        }
        duplicate_variables(container, &at.field("env"), out);
    });
    ports::overlapping(spec, &at, out);
    ports::duplicate_names(spec, &at, out);
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let path = at.field("terminationGracePeriodSeconds");
        out.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    null_selectors(spec.at("affinity"), &at.field("affinity"), out);
    dns_addresses(spec, &at, out);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn placement(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    for key in spec.map("nodeSelector").keys() {
        if let Some(text) = labels::deprecation(key) {
            out.push(format!("{}: {text}", path.field("nodeSelector").key(key)));
        }
    }
    let affinity = spec.at("affinity.nodeAffinity");
    let at = path.field("affinity.nodeAffinity");
    let required = at.field(REQUIRED);
    for (index, term) in affinity.at(REQUIRED).list("nodeSelectorTerms").iter().enumerate() {
        out.extend(labels::expression_warnings(term, &required.field("nodeSelectorTerms").index(index)));
    }
    let preferred = at.field(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
        let at = preferred.index(index);
        out.extend(labels::preference_warnings(term.at("preference"), &at.field("preference")));
    }
    let spread = path.field("topologySpreadConstraints");
    for (index, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let at = spread.index(index);
        let key = constraint.str("topologyKey");
        if let Some(text) = labels::deprecation(key) {
            out.push(format!("{}: {key} is {text}", at.field("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            out.push(format!("{}: {NULL_SELECTOR}", at.field("labelSelector")));
        }
    }
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

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

/// Sources, their printed names, and their deprecation.
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
    for (key, shown, text) in SOURCES {
        if volume.has(key) {
            out.push(format!("{}: {text}", path.field(shown)));
        }
        if *key == "glusterfs" && volume.has("ephemeral") {
            let at = path.field("ephemeral.volumeClaimTemplate.spec");
            out.extend(super::claim::spec_warnings(volume.at("ephemeral.volumeClaimTemplate.spec"), &at));
        }
    }
}

fn host_aliases(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let mut seen = SmallSet::new();
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let ip = alias.str("ip");
        if !seen.insert(ip) {
            out.push(format!("{}: duplicate ip {}", path.index(index).field("ip"), go_quote(ip)));
        }
    }
}

fn pull_secrets(spec: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let secrets = spec.list("imagePullSecrets");
    let mut seen = SmallSet::new();
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

const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

/// Bytes must be integers.
pub(crate) fn fraction(list: &Tree, name: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let Some(value) = list.get(name) else { return };
    // Only these suffixes can be fractions; others need no parsing.
    let text = value.as_str().unwrap_or("");
    if text.ends_with(['m', 'u', 'n']) && resources::read(value).milli_value() % 1000 != 0 {
        let quoted = go_quote(text);
        out.push(format!("{}: fractional byte value {quoted} is invalid, must be an integer", path.key(name)));
    }
}

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

/// A seccomp annotation of the pod without its field.
fn pod_annotation(object: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let key = annotations::SECCOMP_POD;
    if object.map("metadata.annotations").contains(key) && !object.at("spec.securityContext").has("seccompProfile") {
        out.push(format!("{}: {SECCOMP}", path.field("metadata.annotations").key(key)));
    }
}

/// The same for a container.
fn container_annotations(object: &Tree, container: &Tree, path: &Path<'_>, is_template: bool, out: &mut Vec<String>) {
    let own = object.map("metadata.annotations");
    let at = path.field("metadata.annotations");
    let field = |key: &str| container.at("securityContext").has(key);
    let key = format!("{}{}", annotations::SECCOMP_CONTAINER, container.str("name"));
    if own.contains(&key) && !field("seccompProfile") {
        out.push(format!("{}: {SECCOMP}", at.key(&key)));
    }
    let key = format!("{}{}", annotations::APP_ARMOR, container.str("name"));
    // In pods the field was already set from the annotation.
    if let Some(annotation) = own.get(&key).filter(|_| is_template && !field("appArmorProfile")) {
        let of_pod = object.at("spec.securityContext.appArmorProfile");
        let profile = annotations::app_armor_profile(annotation.as_str().unwrap_or(""));
        if of_pod.is_null() || profile.as_ref() != Some(of_pod) {
            let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
            out.push(format!("{}: {text}", at.key(&key)));
        }
    }
}

/// A variable that is set twice is lost by apply, unless the second refers to the first.
fn duplicate_variables(container: &Tree, path: &Path<'_>, out: &mut Vec<String>) {
    let mut seen = SmallSet::new();
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

/// Warnings about non-canonical addresses.
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
    // The common form is checked without building the path.
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
    fn warns_about_duplicate_port_names() {
        let port = |name: &str, number: i64| tree! { "name" => name, "containerPort" => number };
        let one = tree! { "ports" => list![port("http", 80), port("", 81), port("", 82)] };
        let other = tree! { "ports" => list![port("http", 8080)] };
        check(
            tree! { "initContainers" => list![other.clone()], "containers" => list![one, other] },
            &[
                "spec.containers[1].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]",
                "spec.containers[0].ports[0]: duplicate port name \"http\" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"http\" with spec.initContainers[0].ports[0], services and probes that select ports by name will use spec.initContainers[0].ports[0]",
            ],
        );
    }

    #[test]
    fn warns_about_deprecated_node_labels() {
        let expression = |key: &str| tree! { "key" => key, "operator" => "In", "values" => list!["a b"] };
        let term = || tree! { "matchExpressions" => list![expression("node-role.kubernetes.io/master")] };
        let affinity = tree! { "nodeAffinity" => tree! {
            REQUIRED => tree! { "nodeSelectorTerms" => list![term()] },
            PREFERRED => list![tree! { "preference" => term() }],
        } };
        let selector = tree! { "node-role.kubernetes.io/master" => "", "app.kubernetes.io/created-by" => "x" };
        let use_other = "use \"node-role.kubernetes.io/control-plane\" instead";
        let required = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]");
        let preferred = format!("spec.affinity.nodeAffinity.{PREFERRED}[0].preference");
        let want = [
            "spec.nodeSelector[app.kubernetes.io/created-by]: deprecated since v1.9".to_string(),
            format!("spec.nodeSelector[node-role.kubernetes.io/master]: {use_other}"),
            format!("{required}.matchExpressions[0].key: node-role.kubernetes.io/master is {use_other}"),
            format!("{preferred}.matchExpressions[0].key: node-role.kubernetes.io/master is {use_other}"),
            format!("{preferred}.matchExpressions[0].values[0]: a b is invalid, {}", validation::label_value("a b")[0]),
        ];
        let want: Vec<&str> = want.iter().map(String::as_str).collect();
        check(tree! { "nodeSelector" => selector, "affinity" => affinity }, &want);
    }

    #[test]
    fn warns_about_overlapping_paths() {
        let item = |path: &str| tree! { "key" => "k", "path" => path };
        let volume = |source: Tree| {
            let mut volume = source;
            volume.set("name", "v");
            tree! { "volumes" => list![volume] }
        };
        let items = list![item("a/b"), item("a"), item("a/b/"), item("ab")];
        check(
            volume(tree! { "configMap" => tree! { "name" => "c", "items" => items } }),
            &[
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a\" with \"a/b\"",
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a/b\"",
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a\"",
            ],
        );
        let token = tree! { "serviceAccountToken" => tree! { "path" => "token" } };
        let secret = tree! { "secret" => tree! { "name" => "s", "items" => list![item("token")] } };
        check(
            volume(tree! { "projected" => tree! { "sources" => list![token, tree! {}, secret] } }),
            &[
                "volume \"v\" (Projected) has no sources provided",
                "volume \"v\" (Projected): overlapping paths: \"token\" (Secret \"s\") with \"token\" (ServiceAccountToken)",
            ],
        );
        let requests = tree! { "requests" => tree! { "storage" => "1500m" } };
        let claim = tree! { "spec" => tree! { "resources" => requests } };
        check(
            volume(tree! { "ephemeral" => tree! { "volumeClaimTemplate" => claim } }),
            &[
                "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer",
            ],
        );
    }

    #[test]
    fn warns_about_questionable_specs() {
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
