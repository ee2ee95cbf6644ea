//! Pod.

pub mod binding;
mod cells;
mod conditions;
pub mod ephemeral_containers;
pub mod eviction;
mod prepare;
pub mod resize;
mod status;
mod update;
mod validate;

use api::{Str, Tree};

use crate::kind::{Kind, Lifecycle, Selectable, StatusRules, Subresource, Verb, column, selectable};
use crate::podspec;

/// Pod.
pub static KIND: Kind = Kind {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource { name: "attach", gvk: Some(("", "v1", "PodAttachOptions")), verbs: &[Verb::Create, Verb::Get] },
        Subresource { name: "binding", gvk: Some(("", "v1", "Binding")), verbs: &[Verb::Create] },
        Subresource { name: "ephemeralcontainers", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "eviction", gvk: Some(("policy", "v1", "Eviction")), verbs: &[Verb::Create] },
        Subresource { name: "exec", gvk: Some(("", "v1", "PodExecOptions")), verbs: &[Verb::Create, Verb::Get] },
        Subresource { name: "log", gvk: None, verbs: &[Verb::Get] },
        Subresource {
            name: "portforward",
            gvk: Some(("", "v1", "PodPortForwardOptions")),
            verbs: &[Verb::Create, Verb::Get],
        },
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "PodProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "resize", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Ready", "string", "", 0),
        column("Status", "string", "", 0),
        column("Restarts", "string", "", 0),
        column("Age", "string", "", 0),
        column("IP", "string", "", 1),
        column("Node", "string", "", 1),
        column("Nominated Node", "string", "", 1),
        column("Readiness Gates", "string", "", 1),
    ],
    selectable: &[
        selectable("spec.nodeName"),
        selectable("spec.restartPolicy"),
        selectable("spec.schedulerName"),
        selectable("spec.serviceAccountName"),
        Selectable { name: "spec.hostNetwork", get: host_network },
        selectable("status.phase"),
        Selectable { name: "status.podIP", get: first_address },
        Selectable { name: "status.podIPs", get: |_, _| Str::const_new("") },
        selectable("status.nominatedNodeName"),
    ],
    set_defaults: prepare::set_defaults,
    prepare_create: prepare::create,
    prepare_update: prepare::update,
    validate: validate::create,
    validate_update: update::validate,
    warnings,
    status_warnings,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: status::prepare,
        validate: status::validate,
        reset: &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
    }),
    cells: cells::cells,
    lifecycle: Lifecycle { grace_period: Some(grace_period), ..Lifecycle::RETURNS_DELETED },
    ..Kind::namespaced("", "v1", "Pod", "pods", "pod")
};

/// The grace period of a pod in seconds: the client's, otherwise the pod's own, and zero if nothing runs.
fn grace_period(pod: &Tree, requested: Option<i64>) -> i64 {
    let own = pod.int("spec.terminationGracePeriodSeconds").unwrap_or(30);
    let seconds = requested.unwrap_or(own);
    let is_finished = matches!(pod.str("status.phase"), "Failed" | "Succeeded");
    if pod.str("spec.nodeName").is_empty() || is_finished {
        return 0;
    }
    // A negative period means the shortest that is not immediate.
    if seconds < 0 { 1 } else { seconds }
}

/// Upstream only warns on create, since pods are rarely updated manually. Warns about non-canonical addresses.
fn status_warnings(pod: &Tree) -> Vec<String> {
    let of = |list: &'static str| {
        let addresses = pod.at("status").list(list).iter().enumerate();
        addresses.flat_map(move |(index, address)| {
            api::validation::ip_warning(&format!("status.{list}[{index}].ip"), address.str("ip"))
        })
    };
    of("podIPs").chain(of("hostIPs")).collect()
}

fn warnings(pod: &Tree, old: Option<&Tree>) -> Vec<String> {
    if old.is_some() { Vec::new() } else { podspec::pod_warnings(pod) }
}

fn host_network(pod: &Tree, path: &'static str) -> Str {
    Str::const_new(if pod.bool(path) { "true" } else { "false" })
}

fn first_address(pod: &Tree, _: &'static str) -> Str {
    pod.list("status.podIPs").first().map(|address| Str::new(address.str("ip"))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Context, User};
    use api::field::Errors;
    use api::{json, list};

    const RICH: &str = r#"{"metadata":{"name":"p","annotations":{"container.apparmor.security.beta.kubernetes.io/c":"x","scheduler.alpha.kubernetes.io/tolerations":"[{}]"},"labels":{"a":"b"}},
        "spec":{"initContainers":[{"name":"i","image":"a","restartPolicy":"Always"}],
        "containers":[{"name":"c","image":"a","ports":[{"containerPort":1,"hostPort":1}],"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['a']"},"resourceFieldRef":{"resource":"limits.cpu","divisor":"1m"}}}],
          "envFrom":[{"configMapRef":{"name":"x"}}],"resources":{"limits":{"cpu":"1","hugepages-2Mi":"2Mi"},"requests":{"cpu":"1"},"claims":[{"name":"x"}]},
          "volumeMounts":[{"name":"v","mountPath":"/a","subPath":"b"}],"volumeDevices":[{"name":"w","devicePath":"/d"}],
          "livenessProbe":{"httpGet":{"port":1,"httpHeaders":[{"name":"a"}]}},"lifecycle":{"preStop":{"sleep":{"seconds":1}}},
          "resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}],"restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}],
          "securityContext":{"seccompProfile":{"type":"Localhost"},"windowsOptions":{"runAsUserName":"a\\b"},"appArmorProfile":{"type":"x"},"capabilities":{"add":["CAP_SYS_ADMIN"]},"allowPrivilegeEscalation":false}}],
        "ephemeralContainers":[{"name":"e","image":"a","targetContainerName":"c"}],
        "volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"clusterTrustBundle":{"name":"a:b:c","path":"x"}},{"podCertificate":{"signerName":"a.b/c"}}]}},{"name":"w","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["x"]}}}},{"name":"d","downwardAPI":{"items":[{"path":"a"}]}}],
        "affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchExpressions":[{"key":"a"}]},"matchLabelKeys":["a"],"topologyKey":"t"}]}},
        "tolerations":[{"key":"a"}],"topologySpreadConstraints":[{"maxSkew":1,"matchLabelKeys":["a"]}],"schedulingGates":[{"name":"g"}],"resourceClaims":[{"name":"x"}],
        "resources":{"limits":{"cpu":"2"}},"overhead":{"cpu":"1"},"dnsConfig":{"nameservers":["x"],"searches":["y"]},"hostAliases":[{"ip":"x"}],"os":{"name":"windows"},"securityContext":{"sysctls":[{"name":"a"}]}},
        "status":{"phase":"Running","podIP":"x","podIPs":[{"ip":"y"}],"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}},"allocatedResourcesStatus":[{"name":"claim:x","resources":[{}]}],"user":{"linux":{"uid":-1}}}]}}"#;

    /// Replaces the node with this depth-first number by another value.
    fn replace(tree: &mut Tree, number: &mut usize, value: &Tree) -> bool {
        if *number == 0 {
            *tree = value.clone();
            return true;
        }
        *number -= 1;
        match tree {
            Tree::List(items) => items.iter_mut().any(|item| replace(item, number, value)),
            Tree::Map(map) => map.iter_mut().any(|(_, item)| replace(item, number, value)),
            _ => false,
        }
    }

    fn run_everything(mut pod: Tree, old: &Tree) {
        let user = User::default();
        let context = Context { now: 0, user: &user };
        let mut errors = Errors::new();
        prepare::set_defaults(&mut pod);
        (KIND.cells)(&pod, 0);
        warnings(&pod, None);
        // Compared with itself: diffs would dominate the measured time.
        (KIND.validate_update)(&pod, &pod, &mut errors);
        status::validate(&pod, old, &mut errors);
        resize::validate(&pod, old, &mut errors);
        ephemeral_containers::validate(&pod, old, &mut errors);
        resize::prepare(&mut pod.clone(), old, &context);
        ephemeral_containers::prepare(&mut pod.clone(), old, &context);
        status::prepare(&mut pod.clone(), old, &context);
        prepare::update(&mut pod.clone(), old, &context);
        eviction::decide(&pod, &[&pod, old], 0);
        let _ = binding::bind(&mut pod.clone(), old, 0);
        prepare::create(&mut pod, &context);
        (KIND.validate)(&pod, &mut errors);
    }

    #[test]
    fn no_pod_panics() {
        let rich = json::decode(RICH.as_bytes()).expect("JSON");
        let odd = [Tree::Null, Tree::from("é\\x"), Tree::from(i64::MIN), list![Tree::Null]];
        for value in &odd {
            for start in 0.. {
                let mut pod = rich.clone();
                if !replace(&mut pod, &mut start.clone(), value) {
                    break;
                }
                run_everything(pod, &rich);
            }
        }
    }
}
