//! The usage of an object, by quota name.

use std::collections::BTreeMap;

use super::CountedKind;
use crate::podspec::total::pod_total;
use crate::resources::{is_extended, read};
use api::quantity::{Format, Quantity};
use api::{Map, Tree};

/// Used amounts by resource name.
pub type Usage = BTreeMap<String, Quantity>;

/// The total usage of an object.
pub fn compute_usage<'a>(kind: impl Into<CountedKind<'a>>, object: &Tree) -> Usage {
    let kind = kind.into();
    let mut usage = Usage::new();
    let counted =
        if kind.group.is_empty() { kind.plural.to_string() } else { format!("{}.{}", kind.plural, kind.group) };
    usage.insert(format!("count/{counted}"), one());
    match (kind.group, kind.kind) {
        ("", "Pod") => pod(object, &mut usage),
        ("", "Service") => service(object.at("spec"), &mut usage),
        ("", "PersistentVolumeClaim") => claim(object, &mut usage),
        ("resource.k8s.io", "ResourceClaim") => devices(object.list("spec.devices.requests"), &mut usage),
        ("", "ConfigMap" | "Secret" | "ReplicationController" | "ResourceQuota") => {
            usage.insert(kind.plural.to_string(), one());
        }
        _ => {}
    }
    usage
}

fn count(number: usize) -> Quantity {
    Quantity::new(i64::try_from(number).unwrap_or(i64::MAX), Format::DecimalSI)
}

fn one() -> Quantity {
    count(1)
}

/// A finished pod only counts as an object.
fn pod(pod: &Tree, usage: &mut Usage) {
    if matches!(pod.str("status.phase"), "Failed" | "Succeeded") {
        return;
    }
    usage.insert("pods".to_string(), one());
    let spec = pod.at("spec");
    let with_overhead = |key: &str| {
        let mut total = pod_total(pod, key);
        for (name, value) in spec
            .map("overhead")
            .iter()
            .filter(|(name, _)| key == "requests" || total.contains(name))
            .collect::<Vec<_>>()
        {
            let mut sum = total.get(name).map(read).unwrap_or_default();
            sum += &read(value);
            total.insert(name, sum.to_string());
        }
        total
    };
    compute(&with_overhead("requests"), &with_overhead("limits"), usage);
}

/// Requests and limits by quota name.
pub fn compute(requests: &Map, limits: &Map, usage: &mut Usage) {
    for (name, value) in requests.iter() {
        let value = read(value);
        let plain = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if plain {
            usage.insert(name.to_string(), value.clone());
        }
        if plain || is_extended(name) {
            usage.insert(format!("requests.{name}"), value);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(value) = limits.get(name) {
            usage.insert(format!("limits.{name}"), read(value));
        }
    }
}

fn service(spec: &Tree, usage: &mut Usage) {
    let ports = spec.list("ports").len();
    let allocates = spec.at("allocateLoadBalancerNodePorts").as_bool() != Some(false);
    let asked = spec.list("ports").iter().filter(|port| port.int("nodePort").is_some_and(|port| port != 0)).count();
    let (balancers, node_ports) = match spec.str("type") {
        "NodePort" => (0, ports),
        "LoadBalancer" if allocates => (1, ports),
        "LoadBalancer" => (1, asked),
        _ => (0, 0),
    };
    usage.insert("services".to_string(), one());
    usage.insert("services.loadbalancers".to_string(), count(balancers));
    usage.insert("services.nodeports".to_string(), count(node_ports));
}

fn claim(claim: &Tree, usage: &mut Usage) {
    usage.insert("persistentvolumeclaims".to_string(), one());
    let annotation = claim.map("metadata.annotations").str("volume.beta.kubernetes.io/storage-class");
    let class = if annotation.is_empty() { claim.str("spec.storageClassName") } else { annotation };
    let storage = claim.map("spec.resources.requests").get("storage").map(read);
    if !class.is_empty() {
        usage.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one());
    }
    if let Some(storage) = storage {
        if !class.is_empty() {
            usage.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".to_string(), storage);
    }
}

/// The maximum number of devices of a claim.
const MOST_DEVICES: i64 = 32;

/// The devices that a claim may get, by class; of alternative requests the largest.
fn devices(requests: &[Tree], usage: &mut Usage) {
    for request in requests {
        let ways = request.list("firstAvailable").iter().chain(request.get("exactly"));
        let mut largest: BTreeMap<&str, i64> = BTreeMap::new();
        for way in ways {
            let most = largest.entry(way.str("deviceClassName")).or_default();
            *most = (*most).max(requested_devices(way));
        }
        for (class, number) in largest {
            *usage.entry(format!("{class}{}", super::DEVICES)).or_default() +=
                &Quantity::new(number, Format::DecimalSI);
        }
    }
}

fn requested_devices(way: &Tree) -> i64 {
    match way.str("allocationMode") {
        "All" => MOST_DEVICES,
        _ => way.int("count").unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    fn check(kind: &crate::Kind, object: &str, want: &str) {
        let text: Vec<String> = compute_usage(kind, &decode(object.as_bytes()).expect("json"))
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(text.join(" "), want);
    }

    #[test]
    fn claims_count_possible_devices() {
        let check = |requests: &str, want: &str| {
            let claim = format!(r#"{{"spec":{{"devices":{{"requests":[{requests}]}}}}}}"#);
            let counted = "count/resourceclaims.resource.k8s.io=1";
            let want = format!("{counted} {want}");
            self::check(&crate::resource::resource_claim::KIND, &claim, want.trim());
        };
        let of = |class: &str, rest: &str| format!(r#"{{"deviceClassName":"{class}"{rest}}}"#);
        let exactly = |class: &str, rest: &str| format!(r#"{{"exactly":{}}}"#, of(class, rest));
        check("", "");
        check(&exactly("gpu", ""), "gpu.deviceclass.resource.k8s.io/devices=1");
        let twice = [exactly("gpu", r#","count":3"#), exactly("gpu", r#","allocationMode":"ExactCount","count":2"#)];
        check(&twice.join(","), "gpu.deviceclass.resource.k8s.io/devices=5");
        check(&exactly("gpu", r#","allocationMode":"All""#), "gpu.deviceclass.resource.k8s.io/devices=32");
        let ways = [of("gpu", r#","count":2"#), of("gpu", r#","count":4"#), of("nic", "")].join(",");
        let want = "gpu.deviceclass.resource.k8s.io/devices=4 nic.deviceclass.resource.k8s.io/devices=1";
        check(&format!(r#"{{"firstAvailable":[{ways}]}}"#), want);
    }

    #[test]
    fn computes_usage_of_objects() {
        check(
            &crate::core::pod::KIND,
            r#"{"spec":{"overhead":{"cpu":"10m"},"containers":[{"resources":{"requests":{"cpu":"100m","example.com/gpu":"1"},"limits":{"memory":"1Gi"}}}]}}"#,
            "count/pods=1 cpu=110m limits.memory=1Gi pods=1 requests.cpu=110m requests.example.com/gpu=1",
        );
        check(&crate::core::pod::KIND, r#"{"spec":{},"status":{"phase":"Failed"}}"#, "count/pods=1");
        check(
            &crate::core::service::KIND,
            r#"{"spec":{"type":"LoadBalancer","ports":[{},{}]}}"#,
            "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2",
        );
        check(
            &crate::core::persistent_volume_claim::KIND,
            r#"{"spec":{"storageClassName":"fast","resources":{"requests":{"storage":"1Gi"}}}}"#,
            "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi",
        );
        check(&crate::core::config_map::KIND, "{}", "configmaps=1 count/configmaps=1");
        check(&crate::apps::deployment::KIND, "{}", "count/deployments.apps=1");
    }
}
