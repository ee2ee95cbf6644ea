//! Prepare functions of pods.

use api::{Tree, list, tree};

use super::conditions;
use crate::kind::{Context, bump_generation, keep_old};
use crate::podspec::{self, annotations, qos};
use crate::prepare;

pub(super) fn set_defaults(pod: &mut Tree) {
    podspec::set_pod_defaults(pod);
    podspec::drop_init_container_annotations(pod);
    sync_pod_ips(pod);
}

/// The first address is stored in two fields. The older one takes precedence, since older clients only write that.
fn sync_pod_ips(pod: &mut Tree) {
    let Some(status) = pod.get_mut("status") else { return };
    let old = status.str("podIP").to_string();
    let first = status.list("podIPs").first().map(|address| address.str("ip").to_string());
    match first {
        Some(first) if old.is_empty() => status.set("podIP", first),
        Some(first) if first != old => status.set("podIPs", list![tree! { "ip" => old }]),
        None if !old.is_empty() => status.set("podIPs", list![tree! { "ip" => old }]),
        _ => {}
    }
}

pub(super) fn create(pod: &mut Tree, context: &Context<'_>) {
    prepare::first_generation(pod);
    podspec::set_pod_level_resources(pod.child("spec"));
    let class = qos::class(pod.at("spec"));
    pod.set("status", tree! { "phase" => "Pending", "qosClass" => class });
    podspec::drop_disabled(pod.child("spec"), &Tree::Null);
    if !pod.list("spec.schedulingGates").is_empty() {
        let text = "Scheduling is blocked due to non-empty scheduling gates";
        conditions::set(pod, "PodScheduled", "False", "SchedulingGated", text, context.now);
    }
    apply_label_keys(pod);
    app_armor_from_annotations(pod);
}

pub(super) fn update(pod: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(pod, old, "status");
    podspec::set_pod_level_resources(pod.child("spec"));
    podspec::drop_disabled(pod.child("spec"), old.at("spec"));
    bump_generation(pod, old, &["spec"]);
}

const TERMS: &[(&str, &str)] = &[
    ("podAffinity.requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAffinity.preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
    ("podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
];

/// Label keys in selectors are resolved to the pod's current label values.
fn apply_label_keys(pod: &mut Tree) {
    let Some(labels) = pod.at("metadata.labels").as_map().cloned() else { return };
    let labels = Tree::Map(labels);
    if let Some(affinity) = pod.at_mut("spec.affinity") {
        for (list, inner) in TERMS {
            for term in affinity.list_mut(list) {
                let term = if inner.is_empty() { Some(term) } else { term.get_mut(inner) };
                if let Some(term) = term {
                    apply_keys(term, "matchLabelKeys", "In", &labels);
                    apply_keys(term, "mismatchLabelKeys", "NotIn", &labels);
                }
            }
        }
    }
    for constraint in pod.list_mut("spec.topologySpreadConstraints") {
        apply_keys(constraint, "matchLabelKeys", "In", &labels);
    }
}

fn apply_keys(term: &mut Tree, list: &str, operator: &str, labels: &Tree) {
    let keys: Vec<Tree> = term.list(list).to_vec();
    let Some(selector) = term.get_mut("labelSelector") else { return };
    for key in keys.iter().filter_map(Tree::as_str) {
        if let Some(value) = labels.get(key) {
            let expression = tree! { "key" => key, "operator" => operator, "values" => list![value.clone()] };
            selector.list_entry("matchExpressions").push(expression);
        }
    }
}

/// An AppArmor annotation sets the field that replaces it.
fn app_armor_from_annotations(pod: &mut Tree) {
    if pod.map("metadata.annotations").is_empty() || pod.str("spec.os.name") == "windows" {
        return;
    }
    let own = pod.map("metadata.annotations").clone();
    let of_pod = pod.at("spec.securityContext.appArmorProfile").clone();
    for list in ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"] {
        for container in pod.list_mut(list) {
            let key = format!("{}{}", annotations::APP_ARMOR, container.str("name"));
            let Some(profile) = own.get(&key).and_then(Tree::as_str).and_then(profile_of) else { continue };
            if container.at("securityContext.appArmorProfile").is_null() && profile != of_pod {
                container.child("securityContext").set("appArmorProfile", profile);
            }
        }
    }
}

/// Invalid profiles stay in the annotation and are rejected by validation.
fn profile_of(annotation: &str) -> Option<Tree> {
    annotations::app_armor_profile(annotation)
        .filter(|profile| profile.str("localhostProfile").trim() == profile.str("localhostProfile"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::User;

    fn created(mut pod: Tree) -> Tree {
        let user = User::default();
        set_defaults(&mut pod);
        create(&mut pod, &Context { now: 0, user: &user });
        pod
    }

    #[test]
    fn new_pods_have_a_fresh_status() {
        let container = || list![tree! { "name" => "c", "image" => "a" }];
        let spec = tree! { "containers" => container(), "schedulingGates" => list![tree! { "name" => "g" }] };
        let pod = created(tree! { "metadata" => tree! {}, "spec" => spec, "status" => tree! { "phase" => "Running" } });
        assert_eq!(pod.str("status.phase"), "Pending");
        assert_eq!(pod.str("status.qosClass"), "BestEffort");
        assert_eq!(pod.int("metadata.generation"), Some(1));
        let condition = conditions::find(&pod, "PodScheduled").expect("a condition");
        assert_eq!(condition.str("reason"), "SchedulingGated");
        assert_eq!(condition.str("lastTransitionTime"), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn resolves_label_keys() {
        let term =
            tree! { "labelSelector" => tree! {}, "topologyKey" => "t", "matchLabelKeys" => list!["app", "none"] };
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = tree! { "podAffinity" => tree! { required => list![term] } };
        let pod = created(tree! {
            "metadata" => tree! { "labels" => tree! { "app" => "x" } },
            "spec" => tree! { "containers" => list![], "affinity" => affinity },
        });
        let term = &pod.at("spec.affinity.podAffinity").list(required)[0];
        let expected = list![tree! { "key" => "app", "operator" => "In", "values" => list!["x"] }];
        assert_eq!(term.at("labelSelector.matchExpressions"), &expected);
    }

    #[test]
    fn pod_ip_fields_agree() {
        let check = |status: Tree, ip: &str| {
            let mut pod = tree! { "status" => status.clone() };
            sync_pod_ips(&mut pod);
            assert_eq!(pod.str("status.podIP"), ip, "{status:?}");
            assert_eq!(pod.list("status.podIPs")[0].str("ip"), ip, "{status:?}");
        };
        check(tree! { "podIP" => "10.0.0.1" }, "10.0.0.1");
        check(tree! { "podIPs" => list![tree! { "ip" => "10.0.0.2" }] }, "10.0.0.2");
        check(tree! { "podIP" => "10.0.0.1", "podIPs" => list![tree! { "ip" => "10.0.0.2" }] }, "10.0.0.1");
    }
}
