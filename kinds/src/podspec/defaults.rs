//! Defaults of pod specs. Pods have a few more than templates: defaults added here appear in every object with a
//! template.

use api::quantity::{Format, Quantity};
use api::{Str, Tree};

use super::image;
use super::resources::{self, aggregate};

/// Defaults of a PodTemplateSpec.
pub(crate) fn set_template_defaults(template: &mut Tree) {
    super::drop_init_container_annotations(template);
    if let Some(spec) = template.get_mut("spec") {
        set_spec_defaults(spec);
    }
}

/// Defaults of pods besides those of the spec.
pub fn set_pod_defaults(pod: &mut Tree) {
    let Some(spec) = pod.get_mut("spec") else { return };
    set_spec_defaults(spec);
    // Negative periods were once allowed; templates keep them, so that they do not look changed.
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.set("terminationGracePeriodSeconds", 1);
    }
    for containers in ["containers", "initContainers"] {
        spec.list_mut(containers).iter_mut().for_each(requests_from_limits);
    }
    spec.set_default("enableServiceLinks", true);
    if spec.bool("hostNetwork") {
        for containers in ["containers", "initContainers"] {
            spec.list_mut(containers).iter_mut().for_each(host_ports_from_container_ports);
        }
    }
}

pub(crate) fn set_spec_defaults(spec: &mut Tree) {
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "schedulerName", "default-scheduler");
    agree_on_service_account(spec);
    spec.set_default("terminationGracePeriodSeconds", 30);
    spec.set_default("securityContext", Tree::map_new());
    spec.list_mut("volumes").iter_mut().for_each(set_volume_defaults);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        spec.list_mut(containers).iter_mut().for_each(set_container_defaults);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_up(overhead);
    }
    round_up_lists(spec.get_mut("resources"));
}

/// The service account has two fields; the newer one takes precedence.
fn agree_on_service_account(spec: &mut Tree) {
    let (new, old) = (spec.str("serviceAccountName"), spec.str("serviceAccount"));
    if new == old {
        return;
    }
    let name = Str::new(if new.is_empty() { old } else { new });
    spec.set("serviceAccountName", name.clone());
    spec.set("serviceAccount", name);
}

/// Sets a text if it is missing or empty, which Go does not distinguish.
fn default_text(tree: &mut Tree, key: &str, value: &'static str) {
    if tree.get(key).and_then(Tree::as_str).unwrap_or("").is_empty() {
        tree.set(key, Str::const_new(value));
    }
}

fn default_number(tree: &mut Tree, key: &str, value: i64) {
    if tree.get(key).and_then(Tree::as_int).unwrap_or(0) == 0 {
        tree.set(key, value);
    }
}

fn set_container_defaults(container: &mut Tree) {
    if container.str("imagePullPolicy").is_empty() {
        let policy = image::default_pull_policy(container.str("image"));
        container.set("imagePullPolicy", policy);
    }
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    container.list_mut("ports").iter_mut().for_each(|port| default_text(port, "protocol", "TCP"));
    container.list_mut("env").iter_mut().for_each(set_env_defaults);
    round_up_lists(container.get_mut("resources"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            set_probe_defaults(probe);
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(hook) = container.at_mut(hook) {
            set_handler_defaults(hook);
        }
    }
}

fn set_env_defaults(env: &mut Tree) {
    let Some(source) = env.get_mut("valueFrom") else { return };
    if let Some(reference) = source.get_mut("fieldRef") {
        default_text(reference, "apiVersion", "v1");
    }
    if let Some(file) = source.get_mut("fileKeyRef") {
        file.set_default("optional", false);
    }
}

fn set_probe_defaults(probe: &mut Tree) {
    set_handler_defaults(probe);
    default_number(probe, "timeoutSeconds", 1);
    default_number(probe, "periodSeconds", 10);
    default_number(probe, "successThreshold", 1);
    default_number(probe, "failureThreshold", 3);
}

fn set_handler_defaults(handler: &mut Tree) {
    if let Some(get) = handler.get_mut("httpGet") {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc") {
        grpc.set_default("service", Str::const_new(""));
    }
}

fn requests_from_limits(container: &mut Tree) {
    let Some(limits) = container.at("resources.limits").as_map() else { return };
    let limits = limits.clone();
    let requests = container.child("resources.requests");
    for (name, quantity) in limits.into_entries() {
        requests.set_default(&name, quantity);
    }
}

fn host_ports_from_container_ports(container: &mut Tree) {
    for port in container.list_mut("ports") {
        let number = port.int("containerPort").unwrap_or(0);
        if number != 0 {
            default_number(port, "hostPort", number);
        }
    }
}

/// Incomplete pod-level resources are completed from the containers. The client does not own the added values, since
/// they are not defaults of the version.
pub(crate) fn set_pod_level_resources(spec: &mut Tree) {
    let has = |spec: &Tree, list: &str| !spec.map(list).is_empty();
    if !spec.has("resources") {
        return;
    }
    if !has(spec, "resources.limits") && !has(spec, "resources.requests") {
        return;
    }
    let limits = aggregate::limits(spec);
    let requests = aggregate::requests(spec);
    huge_page_limits(spec, &limits);
    let limits_are_set = spec.map("resources.limits").keys().any(resources::is_pod_level);
    if has(spec, "resources.limits") {
        pod_requests(spec, &requests);
    }
    let requests_are_set = spec.map("resources.requests").keys().any(resources::is_pod_level);
    if !limits_are_set && requests_are_set {
        pod_limits(spec, &limits);
    }
}

fn huge_page_limits(spec: &mut Tree, limits: &aggregate::ResourceList) {
    for (name, quantity) in limits.iter().filter(|(name, _)| resources::is_huge_page(name)) {
        if !spec.map("resources.requests").contains(name) {
            spec.child("resources.limits").set_default(name, quantity.to_string());
        }
    }
}

fn pod_requests(spec: &mut Tree, requests: &aggregate::ResourceList) {
    let limits = spec.map("resources.limits").clone();
    let own = spec.child("resources.requests");
    for (name, quantity) in requests {
        if resources::is_pod_level(name) && resources::is_overcommit_allowed(name) {
            own.set_default(name, quantity.to_string());
        }
    }
    for (name, quantity) in limits.iter().filter(|(name, _)| resources::is_pod_level(name)) {
        own.set_default(name, quantity.clone());
    }
    drop_if_empty(spec, "requests");
}

fn pod_limits(spec: &mut Tree, limits: &aggregate::ResourceList) {
    for (name, quantity) in limits {
        let wanted = resources::is_pod_level(name) && resources::is_overcommit_allowed(name);
        if wanted && aggregate::all_containers_limit(spec, name) {
            spec.child("resources.limits").set_default(name, quantity.to_string());
        }
    }
}

fn drop_if_empty(spec: &mut Tree, list: &str) {
    if let Some(resources) = spec.get_mut("resources")
        && resources.map(list).is_empty()
    {
        resources.remove(list);
    }
}

fn round_up_lists(resources: Option<&mut Tree>) {
    let Some(resources) = resources else { return };
    for list in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(list) {
            round_up(list);
        }
    }
}

/// Resource lists have a precision of thousandths.
pub(crate) fn round_up(list: &mut Tree) {
    let Some(map) = list.as_map_mut() else { return };
    for (_, value) in map.iter_mut() {
        let Some(text) = value.as_str() else { continue };
        // Only these can have more digits; others need no parsing.
        if !(text.ends_with(['n', 'u']) || text.contains("e-")) {
            continue;
        }
        if let Ok(quantity) = Quantity::parse(text) {
            *value = Tree::from(Quantity::milli(quantity.milli_value(), Format::DecimalSI).to_string());
        }
    }
}

fn set_volume_defaults(volume: &mut Tree) {
    let Some(map) = volume.as_map() else { return };
    if !map.keys().any(|key| key != "name") {
        volume.set("emptyDir", Tree::map_new());
        return;
    }
    for (key, set) in VOLUME_DEFAULTS {
        if let Some(source) = volume.get_mut(key) {
            set(source);
        }
    }
}

type SetDefaults = fn(&mut Tree);

/// Volume sources that have defaults.
const VOLUME_DEFAULTS: &[(&str, SetDefaults)] = &[
    ("azureDisk", azure_disk),
    ("configMap", default_mode),
    ("downwardAPI", downward_api),
    ("ephemeral", ephemeral),
    ("hostPath", host_path),
    ("image", image_volume),
    ("iscsi", iscsi),
    ("projected", projected),
    ("rbd", rbd),
    ("scaleIO", scale_io),
    ("secret", default_mode),
];

const DEFAULT_MODE: i64 = 0o644;

fn default_mode(source: &mut Tree) {
    source.set_default("defaultMode", DEFAULT_MODE);
}

fn downward_api(source: &mut Tree) {
    default_mode(source);
    source.list_mut("items").iter_mut().for_each(downward_api_file);
}

fn downward_api_file(file: &mut Tree) {
    if let Some(reference) = file.get_mut("fieldRef") {
        default_text(reference, "apiVersion", "v1");
    }
}

fn projected(source: &mut Tree) {
    default_mode(source);
    for source in source.list_mut("sources") {
        source.list_mut("downwardAPI.items").iter_mut().for_each(downward_api_file);
        if let Some(token) = source.get_mut("serviceAccountToken") {
            token.set_default("expirationSeconds", 3600);
        }
    }
}

fn ephemeral(source: &mut Tree) {
    if let Some(spec) = source.at_mut("volumeClaimTemplate.spec") {
        spec.set_default("volumeMode", Str::const_new("Filesystem"));
        round_up_lists(spec.get_mut("resources"));
    }
}

fn host_path(source: &mut Tree) {
    source.set_default("type", Str::const_new(""));
}

fn image_volume(source: &mut Tree) {
    if source.str("pullPolicy").is_empty() {
        let policy = image::default_pull_policy(source.str("reference"));
        source.set("pullPolicy", policy);
    }
}

pub(crate) fn iscsi(source: &mut Tree) {
    default_text(source, "iscsiInterface", "default");
}

pub(crate) fn rbd(source: &mut Tree) {
    default_text(source, "pool", "rbd");
    default_text(source, "user", "admin");
    default_text(source, "keyring", "/etc/ceph/keyring");
}

pub(crate) fn scale_io(source: &mut Tree) {
    default_text(source, "storageMode", "ThinProvisioned");
    default_text(source, "fsType", "xfs");
}

pub(crate) fn azure_disk(source: &mut Tree) {
    source.set_default("cachingMode", Str::const_new("ReadWrite"));
    source.set_default("fsType", Str::const_new("ext4"));
    source.set_default("kind", Str::const_new("Shared"));
    source.set_default("readOnly", false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{json, tree};

    fn check(set: fn(&mut Tree), spec: &str, path: &str, expected: &str) {
        let mut object = tree! { "spec" => json::decode(spec.as_bytes()).expect(spec) };
        set(&mut object);
        let value = object.at("spec").at(path);
        let text = String::from_utf8(json::encode(value, None)).expect("UTF-8");
        assert_eq!(text, expected, "{spec} {path}");
    }

    #[test]
    fn pods_have_more_defaults_than_templates() {
        let pod = set_pod_defaults;
        check(pod, "{}", "enableServiceLinks", "true");
        check(set_template_defaults, "{}", "enableServiceLinks", "null");
        check(pod, r#"{"terminationGracePeriodSeconds":-1}"#, "terminationGracePeriodSeconds", "1");
        check(set_template_defaults, r#"{"terminationGracePeriodSeconds":-1}"#, "terminationGracePeriodSeconds", "-1");
        check(pod, "{}", "securityContext", "{}");
        check(pod, r#"{"serviceAccount":"a"}"#, "serviceAccountName", r#""a""#);
        check(pod, r#"{"serviceAccountName":"a","serviceAccount":"b"}"#, "serviceAccount", r#""a""#);
    }

    #[test]
    fn requests_follow_limits() {
        let container =
            r#"{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m"}}}]}"#;
        let expected = r#"{"cpu":"100m","memory":"1Gi"}"#;
        let mut pod = tree! { "spec" => json::decode(container.as_bytes()).expect(container) };
        set_pod_defaults(&mut pod);
        let requests = pod.list("spec.containers")[0].at("resources.requests");
        assert_eq!(json::encode(requests, None), expected.as_bytes());
        check(
            |pod| set_pod_level_resources(pod.child("spec")),
            r#"{"resources":{"limits":{"cpu":"2","memory":"1Gi"}},"containers":[{"resources":{"requests":{"cpu":"500m"}}},{"resources":{"requests":{"cpu":"500m"}}}]}"#,
            "resources.requests",
            r#"{"cpu":"1","memory":"1Gi"}"#,
        );
    }

    #[test]
    fn sets_volume_and_quantity_defaults() {
        let mut volumes = tree! { "spec" => json::decode(br#"{"volumes":[{"name":"a"},{"name":"b","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}},{"name":"c","image":{"reference":"x:1"}}]}"#).expect("JSON") };
        set_template_defaults(&mut volumes);
        let list = volumes.list("spec.volumes");
        assert!(list[0].has("emptyDir"));
        assert_eq!(list[1].int("projected.defaultMode"), Some(420));
        assert_eq!(list[1].list("projected.sources")[0].int("serviceAccountToken.expirationSeconds"), Some(3600));
        assert_eq!(list[2].str("image.pullPolicy"), "IfNotPresent");
        check(set_template_defaults, r#"{"overhead":{"cpu":"1500u"}}"#, "overhead.cpu", r#""2m""#);
    }
}
