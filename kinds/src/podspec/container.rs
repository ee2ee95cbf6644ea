//! Containers, init containers and ephemeral containers.

use api::Tree;
use api::field::{Errors, Path, Value};

use super::resources::Level;
use super::resources::aggregate::is_restartable;
use super::small_set::SmallSet;
use super::spec::PodContext;
use super::{check, env, mounts, probe, resources, security};

pub(crate) fn validate_containers(spec: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let containers = spec.list("containers");
    if containers.is_empty() {
        return errors.required(path, "");
    }
    let mut names = SmallSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        validate_common(container, scope, &path, errors);
        let name = container.str("name");
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        probe::validate_lifecycle_and_probes(container, scope.grace_period, scope.os, &path, errors);
        validate_restart_policy(container, &path, errors);
    }
    validate_host_ports(containers, path, errors);
}

const WITHOUT_RESTART: &str = "may not be set for init containers without restartPolicy=Always";

pub(crate) fn validate_init_containers(spec: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut names = names_of(spec.list("containers"));
    for (index, init) in spec.list("initContainers").iter().enumerate() {
        let list = path;
        let path = path.index(index);
        validate_common(init, scope, &path, errors);
        validate_restart_policy(init, &path, errors);
        let name = init.str("name");
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        // Init containers run one by one, so each may use the host ports of another. The error has the first index of
        // the list, since upstream validates a list of one.
        validate_host_ports(std::slice::from_ref(init), list, errors);
        if is_restartable(init) {
            probe::validate_lifecycle_and_probes(init, scope.grace_period, scope.os, &path, errors);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if init.has(key) {
                errors.forbidden(&path.field(key), WITHOUT_RESTART);
            }
        }
    }
}

fn names_of(containers: &[Tree]) -> SmallSet<&str> {
    containers.iter().map(|container| container.str("name")).collect()
}

/// Fields that ephemeral containers must not have, in field order.
const NOT_FOR_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

const EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub(crate) fn validate_ephemeral_containers(spec: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let list = spec.list("ephemeralContainers");
    if list.is_empty() {
        return;
    }
    let others = || spec.list("containers").iter().chain(spec.list("initContainers")).map(|other| other.str("name"));
    let targets: SmallSet<&str> = others().collect();
    let mut names: SmallSet<&str> = others().collect();
    for (index, container) in list.iter().enumerate() {
        let path = path.index(index);
        validate_common(container, scope, &path, errors);
        validate_for_pod(container, &path, errors);
        let name = container.str("name");
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        let target = container.str("targetContainerName");
        if !target.is_empty() && !targets.contains(&target) {
            errors.not_found(&path.field("targetContainerName"), target);
        }
        for key in NOT_FOR_EPHEMERAL {
            if is_set(container.at(key)) {
                errors.forbidden(&path.field(key), EPHEMERAL);
            }
        }
        validate_no_sub_paths(container, &path.field("volumeMounts"), errors);
    }
}

/// An empty struct is equivalent to none.
fn is_set(value: &Tree) -> bool {
    match value {
        Tree::Null => false,
        Tree::Map(map) => !map.is_empty(),
        _ => true,
    }
}

/// Subpath mounts exist until the pod ends, so ephemeral containers must not have them.
fn validate_no_sub_paths(container: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        for key in ["subPath", "subPathExpr"] {
            if !mount.str(key).is_empty() {
                errors.forbidden(&path.index(index).field(key), EPHEMERAL);
            }
        }
    }
}

/// Rules for containers of pods, not of templates.
pub(crate) fn validate_for_pod(container: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let image = container.str("image");
    if image.trim().len() != image.len() {
        errors.invalid(&path.field("image"), image, "must not have leading or trailing whitespace");
    }
}

fn validate_common(container: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let name = container.str("name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    } else {
        check::dns_label(name, &path.field("name"), errors);
    }
    check::required(container, "image", path, errors);
    let policies = &["File", "FallbackToLogsOnError"];
    check::required_one_of(container, "terminationMessagePolicy", policies, path, errors);
    validate_ports(container.list("ports"), &path.field("ports"), errors);
    env::validate(container, scope, path, errors);
    mounts::validate(container, scope, path, errors);
    check::required_one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    let requirements = path.field("resources");
    resources::validate_requirements(container.at("resources"), Level::Container, &scope.claims, &requirements, errors);
    validate_resize_policy(container, scope.restart_policy, &path.field("resizePolicy"), errors);
    if let Some(context) = container.get("securityContext") {
        security::validate_container(context, scope.host_users, &path.field("securityContext"), errors);
    }
}

fn validate_ports(ports: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut names = SmallSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.str("name");
        if !name.is_empty() {
            validate_port_name(name, &mut names, &path.field("name"), errors);
        }
        match port.int("containerPort").unwrap_or(0) {
            0 => errors.required(&path.field("containerPort"), ""),
            number => check::port_number(number, &path.field("containerPort"), errors),
        }
        match port.int("hostPort").unwrap_or(0) {
            0 => {}
            number => check::port_number(number, &path.field("hostPort"), errors),
        }
        check::required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
    }
}

fn validate_port_name<'a>(name: &'a str, names: &mut SmallSet<&'a str>, path: &Path<'_>, errors: &mut Errors) {
    let messages = api::validation::port_name(name);
    if messages.is_empty() && !names.insert(name) {
        errors.duplicate(path, name);
    }
    errors.invalid_all(path, name, messages);
}

/// Containers that run together must not use the same host port.
fn validate_host_ports(containers: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: SmallSet<(&str, &str, i64)> = SmallSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in container.list("ports").iter().enumerate() {
            let host_port = port.int("hostPort").unwrap_or(0);
            if host_port == 0 {
                continue;
            }
            let key = (port.str("protocol"), port.str("hostIP"), host_port);
            if !seen.insert(key) {
                let at = path.index(index);
                let at = at.field("ports");
                let at = at.index(number);
                errors.duplicate(&at.field("hostPort"), format!("{}/{}/{}", key.0, key.1, key.2));
            }
        }
    }
}

/// Errors have the path of the list, as in upstream.
fn validate_resize_policy(container: &Tree, restart_policy: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, policy) in container.list("resizePolicy").iter().enumerate() {
        let (resource, restart) = (policy.str("resourceName"), policy.str("restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path.index(index), resource);
        }
        check_supported(resource, &["cpu", "memory"], path, errors);
        check_supported(restart, &["NotRequired", "RestartContainer"], path, errors);
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}

fn check_supported(value: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match value {
        "" => errors.required(path, ""),
        value if !supported.contains(&value) => errors.not_supported(path, value, supported),
        _ => {}
    }
}

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

/// Containers may have their own restart rules.
fn validate_restart_policy(container: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors);
    let rules = container.list("restartPolicyRules");
    if rules.is_empty() {
        return;
    }
    if !container.has("restartPolicy") {
        errors.required(&path.field("restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
    let path = path.field("restartPolicyRules");
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_restart_rule(rule, &path.index(index), errors);
    }
}

fn validate_restart_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_one_of(rule, "action", &["Restart", "RestartAllContainers"], path, errors);
    let exit_codes = path.field("exitCodes");
    let Some(codes) = rule.get("exitCodes") else {
        return errors.required(&exit_codes, "must be specified");
    };
    check::required_one_of(codes, "operator", &["In", "NotIn"], &exit_codes, errors);
    let values = codes.list("values");
    if values.len() > MAX_EXIT_CODES {
        errors.too_many(&exit_codes.field("values"), values.len(), MAX_EXIT_CODES);
    }
    let mut seen = SmallSet::new();
    for (index, value) in values.iter().enumerate() {
        if !seen.insert(value.as_int().unwrap_or(0)) {
            errors.duplicate(&exit_codes.field("values").index(index), Value::from(value));
        }
    }
}
