//! Exclusive resources that pods request.

use std::collections::BTreeMap;

use api::Tree;

use crate::model::pod;
use crate::model::resources::{Class, amount, class, milli};
use crate::model::resources::{is_extended, is_huge_pages};

/// Containers that get resources: all except ephemeral ones, in the order in which they start.
pub(crate) fn containers(pod: &Tree) -> impl Iterator<Item = &Tree> {
    pod::LISTS[..2].iter().flat_map(|list| pod.list(list))
}

/// An init container that completes before the main containers start.
pub(crate) fn is_passing(pod: &Tree, spec: &Tree) -> bool {
    let name = spec.str("name");
    pod.list(pod::LISTS[0]).iter().any(|init| init.str("name") == name && !pod::is_sidecar(init))
}

/// With pod-level resources, containers have no exclusive resources.
fn is_pinned(pod: &Tree) -> bool {
    class(pod) == Class::Guaranteed && !pod.at("spec").has("resources")
}

fn requested<'a>(spec: &'a Tree, name: &str) -> &'a Tree {
    let resources = spec.at("resources");
    let amount = resources.at("requests").get(name);
    amount.or_else(|| resources.at("limits").get(name)).unwrap_or(const { &Tree::Null })
}

/// How many exclusive CPUs a container requests.
pub(crate) fn cpus(pod: &Tree, spec: &Tree) -> usize {
    let milli = milli(requested(spec, "cpu"));
    if !is_pinned(pod) || milli % 1000 != 0 {
        return 0;
    }
    usize::try_from(milli / 1000).unwrap_or(0)
}

pub(crate) fn any_cpus(pod: &Tree) -> bool {
    containers(pod).any(|spec| cpus(pod, spec) > 0)
}

/// The memory that a container requests, by kind.
pub(crate) fn memory(pod: &Tree, spec: &Tree) -> BTreeMap<String, u64> {
    if !is_pinned(pod) {
        return BTreeMap::new();
    }
    let requests = spec.at("resources").map("requests");
    let kinds = requests.iter().filter(|(name, _)| *name == "memory" || is_huge_pages(name));
    kinds.map(|(name, value)| (name.to_string(), u64::try_from(amount(value)).unwrap_or(0))).collect()
}

/// The devices that a container requests: their requests equal their limits.
pub(crate) fn devices(spec: &Tree) -> BTreeMap<String, usize> {
    let limits = spec.at("resources").map("limits").iter();
    let devices = limits.filter(|(name, _)| is_extended(name));
    let devices = devices.map(|(name, value)| (name.to_string(), usize::try_from(amount(value)).unwrap_or(0)));
    devices.filter(|(_, count)| *count > 0).collect()
}

/// The largest amount that a pod's containers have at the same time.
pub(crate) fn at_once(pod: &Tree, of: impl Fn(&Tree) -> u64) -> u64 {
    let (mut preparing, mut beside) = (0, 0);
    for spec in pod.list(pod::LISTS[0]) {
        match pod::is_sidecar(spec) {
            true => beside += of(spec),
            false => preparing = preparing.max(beside + of(spec)),
        }
    }
    let main: u64 = pod.list(pod::LISTS[1]).iter().map(of).sum();
    preparing.max(beside + main)
}

/// The same by name.
pub(crate) fn at_once_by_name(pod: &Tree, of: impl Fn(&Tree) -> BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let names = containers(pod).flat_map(|spec| of(spec).into_keys()).collect::<std::collections::BTreeSet<_>>();
    let sum = |name: String| {
        let most = at_once(pod, |spec| of(spec).get(&name).copied().unwrap_or(0));
        (name, most)
    };
    names.into_iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Tree {
        api::yaml::decode(format!("{{metadata: {{uid: u}}, spec: {text}}}").as_bytes()).expect("a pod")
    }

    #[test]
    fn counts_whole_cores_of_guaranteed_pods_only() {
        let limits = |cpu: &str| {
            format!(
                "{{containers: [{{name: c, resources: {{limits: {{cpu: {cpu}, memory: 1Gi}}, requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}"
            )
        };
        let of = |text: &str| {
            let pod = pod(text);
            let spec = &pod.list("spec.containers")[0];
            (cpus(&pod, spec), memory(&pod, spec).get("memory").copied())
        };
        assert_eq!(of(&limits("2")), (2, Some(1 << 30)));
        assert_eq!(of(&limits("2000m")), (2, Some(1 << 30)));
        assert_eq!(of(&limits("1500m")), (0, Some(1 << 30)));
        let burstable = "{containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]}";
        assert_eq!(of(burstable), (0, None));
        let whole =
            "{resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2, memory: 1Gi}}, containers: [{name: c}]}";
        assert_eq!(of(whole), (0, None), "resources of the pod as a whole");
    }

    #[test]
    fn init_containers_count_as_much_as_they_add() {
        let init = |list: &str| {
            let pod =
                pod(&format!("{{initContainers: [{list}], containers: [{{name: c, many: 2}}, {{name: d, many: 1}}]}}"));
            at_once(&pod, |spec| spec.int("many").unwrap_or(0).unsigned_abs())
        };
        let cases = [
            ("", 3),
            ("{name: a, many: 2}", 3),
            ("{name: a, many: 5}", 5),
            ("{name: a, many: 5}, {name: b, many: 4}", 5),
            ("{name: a, many: 1, restartPolicy: Always}", 4),
            ("{name: a, many: 1, restartPolicy: Always}, {name: b, many: 4}", 5),
        ];
        for (list, want) in cases {
            assert_eq!(init(list), want, "{list}");
        }
    }

    #[test]
    fn extended_resources_are_devices() {
        let pod = pod(
            "{containers: [{name: c, resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi, a.b/gpu: 2, a.b/none: 0}}}]}",
        );
        assert_eq!(devices(&pod.list("spec.containers")[0]), BTreeMap::from([("a.b/gpu".to_string(), 2)]));
    }
}
