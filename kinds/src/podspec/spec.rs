//! Validation of a pod spec as a whole.

use std::collections::HashMap;

use api::Tree;
use api::field::{Errors, Path};

use super::small_set::SmallSet;
use super::volume::{self, Pod};
use super::{affinity, check, container, dns, resources, security, selector, toleration};

/// The fields of the spec that container validation needs.
pub(crate) struct PodContext<'a> {
    /// Valid volumes that can be mounted, by name.
    volumes: HashMap<&'a str, &'a Tree>,
    /// Names of the pod's resource claims.
    pub claims: Vec<&'a str>,
    pub grace_period: Option<i64>,
    pub restart_policy: &'a str,
    pub os: &'a Tree,
    /// Whether the pod uses the host's user namespace.
    pub host_users: bool,
}

impl<'a> PodContext<'a> {
    pub(crate) fn volume(&self, name: &str) -> Option<&'a Tree> {
        self.volumes.get(name).copied()
    }
}

pub(crate) fn validate(spec: &Tree, pod: Pod<'_>, path: &Path<'_>, errors: &mut Errors) {
    if !spec.has("terminationGracePeriodSeconds") {
        errors.required(&path.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::validate(spec.list("volumes"), pod, &path.field("volumes"), errors);
    let claims = spec.list("resourceClaims").iter().map(|claim| claim.str("name")).filter(|name| !name.is_empty());
    let scope = PodContext {
        volumes: volumes.into_iter().map(|volume| (volume.str("name"), volume)).collect(),
        claims: claims.collect(),
        grace_period: spec.int("terminationGracePeriodSeconds"),
        restart_policy: spec.str("restartPolicy"),
        os: spec.at("os"),
        host_users: spec.at("hostUsers").as_bool().unwrap_or(true),
    };
    validate_resource_claims(spec.list("resourceClaims"), &path.field("resourceClaims"), errors);
    container::validate_containers(spec, &scope, &path.field("containers"), errors);
    container::validate_init_containers(spec, &scope, &path.field("initContainers"), errors);
    container::validate_ephemeral_containers(spec, &scope, &path.field("ephemeralContainers"), errors);
    resources::validate_pod_level(spec, &scope.claims, &path.field("resources"), errors);
    validate_host_network(spec, pod.is_pod, &path.field("containers"), errors);
    validate_policies(spec, path, errors);
    validate_placement(spec, path, errors);
    validate_names(spec, path, errors);
    validate_rest(spec, path, errors);
}

fn validate_policies(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let dns = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check::required_one_of(spec, "dnsPolicy", dns, path, errors);
    selector::validate_labels(spec.map("nodeSelector"), &path.field("nodeSelector"), errors);
    security::validate_pod(spec, path, errors);
    security::validate_shared_processes(spec, path, errors);
}

fn validate_placement(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    affinity::validate(spec.at("affinity"), &path.field("affinity"), errors);
    dns::validate_config(spec, &path.field("dnsConfig"), errors);
    let gates = path.field("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        check::qualified_name(gate.str("conditionType"), &gates.index(index).field("conditionType"), errors);
    }
    validate_scheduling_gates(spec.list("schedulingGates"), &path.field("schedulingGates"), errors);
    let spread = path.field("topologySpreadConstraints");
    affinity::validate_topology_spread(spec.list("topologySpreadConstraints"), &spread, errors);
    security::validate_host_process(spec, path, errors);
    validate_host_users(spec, path, errors);
}

fn validate_scheduling_gates(gates: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.index(index);
        let name = gate.str("name");
        check::qualified_name(name, &path, errors);
        if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
    }
}

/// A user namespace is incompatible with other host namespaces.
fn validate_host_users(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if spec.at("hostUsers").as_bool() != Some(false) {
        return;
    }
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.bool(key) {
            errors.forbidden(&path.field(shown), "when `pod.Spec.HostUsers` is false");
        }
    }
}

fn validate_names(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let set = |key: &str| spec.get(key).and_then(Tree::as_str).filter(|text| !text.is_empty());
    for key in ["serviceAccountName", "nodeName"] {
        if let Some(name) = set(key) {
            check::dns_subdomain(name, &path.field(key), errors);
        }
    }
    check::in_range(spec, "activeDeadlineSeconds", (1, i64::from(i32::MAX)), path, errors);
    for key in ["hostname", "subdomain"] {
        if let Some(name) = set(key) {
            check::dns_label(name, &path.field(key), errors);
        }
    }
    if let Some(name) = set("hostnameOverride") {
        validate_hostname_override(spec, name, path, errors);
    }
}

const MAX_HOSTNAME: usize = 64;

fn validate_hostname_override(spec: &Tree, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("hostnameOverride");
    if name.len() > MAX_HOSTNAME {
        errors.too_long(&at, MAX_HOSTNAME);
    }
    check::dns_subdomain(name, &at, errors);
    if spec.bool("setHostnameAsFQDN") {
        errors.forbidden(&path.field("setHostnameAsFQDN"), "may not be specified when hostnameOverride is set");
    }
    if spec.bool("hostNetwork") {
        errors.forbidden(&path.field("hostNetwork"), "may not be specified when hostnameOverride is set");
    }
}

fn validate_rest(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    toleration::validate(spec.list("tolerations"), &path.field("tolerations"), errors);
    dns::validate_host_aliases(spec.list("hostAliases"), &path.field("hostAliases"), errors);
    for key in ["priorityClassName", "runtimeClassName"] {
        if let Some(name) = spec.get(key).and_then(Tree::as_str)
            && (key == "runtimeClassName" || !name.is_empty())
        {
            check::dns_subdomain(name, &path.field(key), errors);
        }
    }
    if spec.has("preemptionPolicy") {
        check::required_one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
    }
    validate_overhead(spec, &path.field("overhead"), errors);
    security::validate_os(spec, path, errors);
}

/// Overhead is validated like the limits of a container.
fn validate_overhead(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let limits = path.field("limits");
    for (name, value) in spec.map("overhead").iter() {
        resources::validate_container_name(name, &limits.key(name), errors);
        resources::validate_quantity(name, value, &limits.key(name), errors);
    }
}

/// With the host network, container ports are host ports. Templates may omit that.
fn validate_host_network(spec: &Tree, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    if !spec.bool("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (number, port) in container.list("ports").iter().enumerate() {
            let host_port = port.int("hostPort").unwrap_or(0);
            if (is_pod || host_port != 0) && host_port != port.int("containerPort").unwrap_or(0) {
                let at = path.index(index);
                let at = at.field("ports");
                let at = at.index(number);
                let text = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&at.field("hostPort"), host_port, text);
            }
        }
    }
}

fn validate_resource_claims(claims: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = claim.str("name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        } else {
            check::dns_label(name, &path.field("name"), errors);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|key| claim.has(key)).count() {
            0 => {
                let text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&path, crate::internal::shown(claim, "PodResourceClaim"), text);
            }
            1 => {}
            _ => {
                let text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&path, crate::internal::shown(claim, "PodResourceClaim"), text);
            }
        }
        for key in sources {
            if let Some(name) = claim.get(key).and_then(Tree::as_str) {
                check::dns_subdomain(name, &path.field(key), errors);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{json, tree};

    /// A valid container, for specs with errors elsewhere.
    const CONTAINER: &str = r#"{"name":"c","image":"a"}"#;

    /// Validates a pod spec with defaults. `fields` are JSON fields of the spec besides its containers.
    fn check(container: &str, fields: &str, expected: &[&str]) {
        let comma = if fields.is_empty() { "" } else { "," };
        let text = format!(r#"{{"containers":[{container}]{comma}{fields}}}"#);
        let mut pod = tree! { "spec" => json::decode(text.as_bytes()).expect(&text) };
        super::super::set_pod_defaults(&mut pod);
        let mut errors = Errors::new();
        validate(pod.at("spec"), Pod { is_pod: true, name: "p" }, &Path::root("spec"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{text}");
    }

    #[test]
    fn validates_containers() {
        let with =
            |field: &str, expected: &[&str]| check(&format!(r#"{{"name":"c","image":"a",{field}}}"#), "", expected);
        with(r#""stdin":true"#, &[]);
        with(
            r#""imagePullPolicy":"Sometimes""#,
            &[
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        );
        with(
            r#""ports":[{"containerPort":1,"hostPort":5},{"containerPort":2,"hostPort":5}]"#,
            &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\""],
        );
        with(
            r#""env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.bad"}}}]"#,
            &[
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.bad\": error converting fieldPath: field label not supported: metadata.bad",
            ],
        );
        with(r#""env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['app']"}}}]"#, &[]);
        with(
            r#""envFrom":[{}]"#,
            &["spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"],
        );
        with(
            r#""livenessProbe":{"httpGet":{"port":0},"tcpSocket":{"port":1}}"#,
            &[
                "spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ],
        );
        with(
            r#""lifecycle":{"preStop":{"sleep":{"seconds":31}}}"#,
            &[
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        );
        with(
            r#""volumeMounts":[{"name":"nope","mountPath":"/a"}]"#,
            &["spec.containers[0].volumeMounts[0].name: Not found: \"nope\""],
        );
        with(
            r#""restartPolicyRules":[{"action":"Restart"}]"#,
            &[
                "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
        );
    }

    #[test]
    fn container_names_are_unique() {
        check(
            CONTAINER,
            r#""initContainers":[{"name":"c","image":"x"}]"#,
            &["spec.initContainers[0].name: Duplicate value: \"c\""],
        );
        check(
            CONTAINER,
            r#""initContainers":[{"name":"i","image":"x","readinessProbe":{"tcpSocket":{"port":1}}}]"#,
            &[
                "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        );
        let sidecar = r#""initContainers":[{"name":"i","image":"x","restartPolicy":"Always","readinessProbe":{"tcpSocket":{"port":1}}}]"#;
        check(CONTAINER, sidecar, &[]);
    }

    #[test]
    fn volumes_need_one_source() {
        let with = |volumes: &str, expected: &[&str]| check(CONTAINER, &format!(r#""volumes":[{volumes}]"#), expected);
        with(r#"{"name":"v"}"#, &[]);
        with(
            r#"{"name":"v","emptyDir":{},"hostPath":{"path":"/"}}"#,
            &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        );
        with(
            r#"{"name":"v","secret":{"defaultMode":512}}"#,
            &[
                "spec.volumes[0].secret.secretName: Required value",
                "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            ],
        );
        with(
            r#"{"name":"v","configMap":{"name":"x","items":[{"key":"k","path":"../a"}]}}"#,
            &["spec.volumes[0].configMap.items[0].path: Invalid value: \"../a\": must not contain '..'"],
        );
        with(
            r#"{"name":"v","projected":{"sources":[{"configMap":{"name":"x","items":[{"key":"k","path":"a"}]}},{"secret":{"name":"s","items":[{"key":"k","path":"a"}]}}]}}"#,
            &["spec.volumes[0].projected: Invalid value: \"s\": conflicting duplicate paths"],
        );
        with(
            r#"{"name":"v","iscsi":{"targetPortal":"t","iqn":"iqn.2001-4.x","lun":300}}"#,
            &[
                "spec.volumes[0].iscsi.iqn: Invalid value: \"iqn.2001-4.x\": must be valid format",
                "spec.volumes[0].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
            ],
        );
    }

    #[test]
    fn validates_scheduling_and_policies() {
        let with = |fields: &str, expected: &[&str]| check(CONTAINER, fields, expected);
        with(
            r#""restartPolicy":"Sometimes""#,
            &[
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        );
        with(
            r#""dnsPolicy":"None""#,
            &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        );
        with(
            r#""tolerations":[{"key":"a","operator":"Exists","value":"b"}]"#,
            &["spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"],
        );
        with(
            r#""affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}"#,
            &[
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
            ],
        );
        with(
            r#""topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"DoNotSchedule"},{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"DoNotSchedule"}]"#,
            &[
                "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{k, DoNotSchedule}\"",
            ],
        );
        with(
            r#""hostPID":true,"shareProcessNamespace":true"#,
            &[
                "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            ],
        );
        with(
            r#""hostNetwork":true,"securityContext":{"sysctls":[{"name":"net.core.somaxconn","value":"1"}]}"#,
            &[
                "spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true",
            ],
        );
        with(
            r#""os":{"name":"linux"},"securityContext":{"windowsOptions":{}}"#,
            &["spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"],
        );
        with(
            r#""resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"storage":"1"}}"#,
            &[
                "spec.resources.requests[storage]: Unsupported value: \"storage\": supported values: \"cpu\", \"memory\"",
            ],
        );
    }
}
