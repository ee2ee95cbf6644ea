//! The CRI configuration of a container.

use std::collections::BTreeMap;

use api::{Tree, json};

pub(crate) use super::security::Security;
use super::{resources, sandbox, security};
use crate::model::env::{self, Variable};
use crate::model::expand::expand;
use crate::model::pod;
use crate::model::state::keys;
use crate::pod::plan;

/// Inputs of the configuration besides the pod and the container.
pub(crate) struct Inputs<'a> {
    pub(crate) restarts: i64,
    pub(crate) image: cri::ImageSpec,
    pub(crate) env: &'a [Variable],
    pub(crate) mounts: Vec<cri::Mount>,
    pub(crate) devices: Vec<cri::Device>,
    pub(crate) cdi_devices: Vec<cri::CDIDevice>,
    pub(crate) annotations: Vec<(String, String)>,
    pub(crate) limits: resources::Limits,
    pub(crate) security: Security<'a>,
    /// Of the CPU and memory managers.
    pub(crate) cpuset: (String, String),
}

pub(crate) fn config(pod: &Tree, spec: &Tree, given: Inputs<'_>) -> cri::ContainerConfig {
    let known = |name: &str| given.env.iter().rev().find(|(key, _)| key == name).map(env::text);
    let words = |key: &str| -> Vec<String> {
        spec.list(key).iter().filter_map(Tree::as_str).map(|word| expand(word, known)).collect()
    };
    let mut linux = resources::of_container(pod, spec, given.limits);
    (linux.cpuset_cpus, linux.cpuset_mems) = given.cpuset;
    let attempt = u32::try_from(given.restarts).unwrap_or(0);
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: spec.str("name").to_string(), attempt }),
        image: Some(given.image),
        command: words("command"),
        args: words("args"),
        working_dir: spec.str("workingDir").to_string(),
        envs: given.env.iter().map(variable).collect(),
        mounts: given.mounts,
        devices: given.devices,
        labels: labels(pod, spec),
        annotations: annotations(pod, spec, given.restarts).into_iter().chain(given.annotations).collect(),
        log_path: format!("{}/{}.log", spec.str("name"), given.restarts),
        stdin: spec.bool("stdin"),
        stdin_once: spec.bool("stdinOnce"),
        tty: spec.bool("tty"),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(linux),
            security_context: Some(security::of_container(pod, spec, &given.security)),
        }),
        windows: None,
        cdi_devices: given.cdi_devices,
        stop_signal: stop_signal(spec.str("lifecycle.stopSignal")),
    }
}

fn variable((key, value): &Variable) -> cri::KeyValue {
    cri::KeyValue { key: key.clone(), value: value.clone() }
}

fn labels(pod: &Tree, spec: &Tree) -> BTreeMap<String, String> {
    let name = (keys::CONTAINER_NAME.to_string(), spec.str("name").to_string());
    sandbox::own_labels(pod).into_iter().chain([name]).collect()
}

/// Values that the kubelet needs for a container after the pod's object was deleted.
fn annotations(pod: &Tree, spec: &Tree, restarts: i64) -> Vec<(String, String)> {
    let mut annotations = vec![
        (keys::HASH, plan::hash(spec)),
        (keys::RESTARTS, restarts.to_string()),
        (keys::MESSAGE_PATH, spec.str("terminationMessagePath").to_string()),
        (keys::MESSAGE_POLICY, spec.str("terminationMessagePolicy").to_string()),
    ];
    let grace = pod.int("spec.terminationGracePeriodSeconds");
    annotations.extend(grace.map(|seconds| (keys::GRACE, seconds.to_string())));
    let grace = pod.int("metadata.deletionGracePeriodSeconds");
    annotations.extend(grace.map(|seconds| (keys::DELETION_GRACE, seconds.to_string())));
    let as_json = |tree: &Tree| String::from_utf8_lossy(&json::encode(tree, None)).into_owned();
    annotations.extend(spec.at("lifecycle").get("preStop").map(|hook| (keys::PRE_STOP, as_json(hook))));
    annotations.extend(spec.get("ports").map(|ports| (keys::PORTS, as_json(ports))));
    annotations.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The number of a signal by its name in the API: `SIGUSR1`, `SIGRTMIN+3`.
fn stop_signal(name: &str) -> i32 {
    let wanted = name.to_ascii_lowercase().replace('+', "plus").replace('-', "minus");
    (1..=65)
        .filter_map(|number| cri::Signal::try_from(number).ok())
        .find(|signal| format!("{signal:?}").to_ascii_lowercase() == wanted)
        .map_or(0, i32::from)
}

/// The name in the API of a signal number of the runtime.
pub(crate) fn signal_name(number: i32) -> Option<String> {
    let signal = cri::Signal::try_from(number).ok().filter(|signal| *signal != cri::Signal::RuntimeDefault)?;
    Some(format!("{signal:?}").to_ascii_uppercase().replace("PLUS", "+").replace("MINUS", "-"))
}

/// The container whose processes are visible to an ephemeral container.
pub(crate) fn target<'a>(spec: &'a Tree, pod: &Tree) -> Option<&'a str> {
    let name = spec.str("targetContainerName");
    (!name.is_empty() && pod::container(pod, name).is_some()).then_some(name)
}
