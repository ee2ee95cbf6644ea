//! Finds pods that exceed their limits of local storage. Pure.

use api::Tree;
use api::quantity::Quantity;

use super::message::quantity;
use super::rank::{Layout, Usage};
use crate::model::pod;
use crate::resources::disk::DiskUsage;

/// A limit that a pod exceeds: its signal, and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExceededLimit {
    pub(crate) signal: &'static str,
    pub(crate) message: String,
}

const STORAGE: &str = "ephemeral-storage";

/// Whether the pod has a limit that has to be measured.
pub(crate) fn is_limited(pod: &Tree) -> bool {
    let limits = |spec: &Tree| spec.map("resources.limits").contains(STORAGE);
    pod.list("spec.volumes").iter().any(|volume| size_limit(volume).is_some())
        || pod::LISTS[..2].iter().flat_map(|list| pod.list(list)).any(limits)
}

pub(crate) fn excess(pod: &Tree, usage: &Usage, layout: Layout) -> Option<ExceededLimit> {
    check_volumes(pod, usage).or_else(|| check_pod(pod, usage)).or_else(|| check_containers(pod, usage, layout))
}

fn size_limit(volume: &Tree) -> Option<Quantity> {
    let limit = quantity(volume.get("emptyDir")?.get("sizeLimit")?);
    (limit.value() > 0).then_some(limit)
}

fn check_volumes(pod: &Tree, usage: &Usage) -> Option<ExceededLimit> {
    let over = |volume: &Tree| {
        let (name, limit) = (volume.str("name"), size_limit(volume)?);
        let (_, used) = usage.volumes.iter().find(|(other, _)| other == name)?;
        is_over(used.bytes, &limit).then(|| ExceededLimit {
            signal: "emptydirfs.limit",
            message: format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "),
        })
    };
    pod.list("spec.volumes").iter().find_map(over)
}

fn check_pod(pod: &Tree, usage: &Usage) -> Option<ExceededLimit> {
    let limit = pod_limit(pod)?;
    is_over(total(pod, usage).bytes, &limit).then(|| ExceededLimit {
        signal: "ephemeralpodfs.limit",
        message: format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "),
    })
}

/// All that the pod has on the node's disk.
pub(crate) fn total(pod: &Tree, usage: &Usage) -> DiskUsage {
    let mut sum = usage.files;
    for container in &usage.containers {
        sum += container.root.unwrap_or_default();
        sum += container.logs.unwrap_or_default();
    }
    let counts = |name: &str| pod::volume(pod, name).is_some_and(pod::is_ephemeral);
    for (_, used) in usage.volumes.iter().filter(|(name, _)| counts(name)) {
        sum += *used;
    }
    sum
}

/// The limit of its containers together; None if none of them has a limit.
fn pod_limit(pod: &Tree) -> Option<Quantity> {
    let limit = |spec: &Tree| spec.map("resources.limits").get(STORAGE).map(quantity);
    let mut sum: Option<Quantity> = None;
    let (first, last) = (pod.list("spec.containers"), pod.list("spec.initContainers"));
    for limit in first.iter().chain(last.iter().filter(|spec| pod::is_sidecar(spec))).filter_map(limit) {
        match &mut sum {
            Some(sum) => *sum += &limit,
            None => sum = Some(limit),
        }
    }
    let before = last.iter().filter(|spec| !pod::is_sidecar(spec)).filter_map(limit);
    sum.into_iter().chain(before).reduce(|most, other| if other.value() > most.value() { other } else { most })
}

fn check_containers(pod: &Tree, usage: &Usage, layout: Layout) -> Option<ExceededLimit> {
    let over = |container: &super::rank::ContainerUsage| {
        let spec = pod.list("spec.containers").iter().find(|spec| spec.str("name") == container.name)?;
        let limit = quantity(spec.map("resources.limits").get(STORAGE)?);
        let root = container.root.filter(|_| layout == Layout::One).unwrap_or_default();
        let used = root.bytes + container.logs.unwrap_or_default().bytes;
        let name = &container.name;
        (!limit.is_zero() && is_over(used, &limit)).then(|| ExceededLimit {
            signal: "ephemeralcontainerfs.limit",
            message: format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "),
        })
    };
    usage.containers.iter().find_map(over)
}

fn is_over(used: u64, limit: &Quantity) -> bool {
    i64::try_from(used).unwrap_or(i64::MAX) > limit.value()
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::super::rank::ContainerUsage;
    use super::*;

    fn check(spec: &str, (root, logs, volume): (u64, u64, u64), want: Option<&str>) {
        let pod = json::decode(format!(r#"{{"spec":{spec}}}"#).as_bytes()).expect("JSON");
        let used = |bytes| DiskUsage { bytes, inodes: 1 };
        let containers = vec![ContainerUsage {
            name: "c".to_string(),
            memory: None,
            root: Some(used(root)),
            logs: Some(used(logs)),
        }];
        let volumes = vec![("v".to_string(), used(volume))];
        let usage = Usage { containers, volumes, files: used(100), ..Usage::default() };
        let got = excess(&pod, &usage, Layout::One);
        assert_eq!(got.as_ref().map(|excess| excess.message.as_str()), want, "{spec}");
        assert!(is_limited(&pod) || want.is_none(), "{spec}");
    }

    #[test]
    fn compares_usage_with_each_limit() {
        let volume = |limit: &str| format!(r#"{{"volumes":[{{"name":"v","emptyDir":{{"sizeLimit":{limit}}}}}]}}"#);
        let over = Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Ki\". ");
        check(&volume(r#""1Ki""#), (0, 0, 1024), None);
        check(&volume(r#""1Ki""#), (0, 0, 1025), over);
        check(&volume(r#""0""#), (0, 0, 1025), None);
        check(r#"{"volumes":[{"name":"v","emptyDir":{}}]}"#, (0, 0, 1 << 40), None);

        let limited = |limit: &str, volumes: &str| {
            format!(
                r#"{{"volumes":[{volumes}],"containers":[
                {{"name":"c","resources":{{"limits":{{"ephemeral-storage":"{limit}"}}}}}},
                {{"name":"d","resources":{{"limits":{{"ephemeral-storage":"1Ki"}}}}}}]}}"#
            )
        };
        let empty_dir = r#"{"name":"v","emptyDir":{}}"#;
        let all = Some("Pod ephemeral local storage usage exceeds the total limit of containers 3Ki. ");
        check(&limited("2Ki", empty_dir), (0, 0, 2972), None);
        check(&limited("2Ki", empty_dir), (0, 0, 2973), all);
        check(&limited("2Ki", r#"{"name":"v","emptyDir":{"medium":"Memory"}}"#), (0, 0, 1 << 30), None);
        let one = Some("Container c exceeded its local ephemeral storage limit \"2Ki\". ");
        check(&limited("2Ki", empty_dir), (2000, 48, 0), None);
        check(&limited("2Ki", empty_dir), (2000, 49, 0), one);
    }

    #[test]
    fn pods_without_limits_are_not_measured() {
        let pod = json::decode(br#"{"spec":{"containers":[{"name":"c"}],"volumes":[{"name":"v","emptyDir":{}}]}}"#);
        assert!(!is_limited(&pod.expect("JSON")));
    }
}
