//! Messages of evicted pods.

use api::Tree;
use api::quantity::{Format, Quantity};

use super::rank::{ContainerUsage, Usage};
use super::signal::{Measurements, Resource};
use super::threshold::Threshold;
use crate::model::pod;
use crate::model::resources::amount;

/// `due` are the thresholds that require the eviction, in their order.
pub(crate) fn message<'a>(
    resource: Resource,
    pod: &Tree,
    usage: Option<&Usage>,
    due: impl IntoIterator<Item = &'a Threshold>,
    seen: &Measurements,
) -> String {
    let mut text = format!("The node was low on resource: {}. ", resource.name());
    let mut met = due.into_iter().filter(|threshold| threshold.signal.resource() == resource);
    if let Some((threshold, left)) = met.find_map(|one| Some((one, *seen.get(&one.signal)?))) {
        let format = if matches!(resource, Resource::Inodes | Resource::Pids) { Format::DecimalSI } else { BINARY };
        let available = Quantity::new(left.available, format);
        text.push_str(&format!("Threshold quantity: {}, available: {available}. ", threshold.quantity(left)));
    }
    let Some(usage) = usage else { return text };
    let whole = pod.at("spec.resources.requests.memory");
    if resource == Resource::Memory && !whole.is_null() {
        text.push_str(&larger("Pod", pod::name(pod), usage.memory, whole, resource));
    }
    for container in &usage.containers {
        text.push_str(&container_message(pod, container, resource).unwrap_or_default());
    }
    text
}

const BINARY: Format = Format::BinarySI;

/// A container that exceeds its request. Ephemeral containers have no requests.
fn container_message(pod: &Tree, container: &ContainerUsage, resource: Resource) -> Option<String> {
    let mut specs = ["spec.containers", "spec.initContainers"].iter().flat_map(|list| pod.list(list));
    let spec = specs.find(|spec| spec.str("name") == container.name)?;
    let used = match resource {
        Resource::Memory => container.memory?,
        Resource::Storage => container.root?.bytes + container.logs?.bytes,
        Resource::Inodes | Resource::Pids => return None,
    };
    let requested = spec.map("resources.requests").get(resource.name()).unwrap_or(&Tree::Null);
    let is_more = i64::try_from(used).unwrap_or(i64::MAX) > amount(requested);
    is_more.then(|| larger("Container", &container.name, used, requested, resource))
}

fn larger(what: &str, name: &str, used: u64, requested: &Tree, resource: Resource) -> String {
    let used = Quantity::new(i64::try_from(used).unwrap_or(i64::MAX), BINARY);
    let requested = quantity(requested);
    format!("{what} {name} was using {used}, request is {requested}, has larger consumption of {}. ", resource.name())
}

pub(crate) fn quantity(value: &Tree) -> Quantity {
    let text = value.as_int().map(|number| number.to_string());
    let text = text.as_deref().or(value.as_str()).unwrap_or("0");
    Quantity::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use api::json;

    use super::super::signal::{Measurement, Signal};
    use super::super::threshold;
    use super::*;
    use crate::config::{Allocatable, Amount, Eviction};
    use crate::resources::disk::DiskUsage;

    const POD: &str = r#"{"metadata":{"name":"p"},"spec":{
        "initContainers":[{"name":"i"}],
        "containers":[{"name":"a","resources":{"requests":{"memory":"1Mi","ephemeral-storage":"1G"}}},{"name":"b"}]}}"#;

    fn thresholds(signal: &str, least: &str) -> Vec<threshold::Threshold> {
        let one = crate::config::Threshold {
            signal: signal.to_string(),
            least: Amount::parse(least).expect("an amount"),
            grace_period: Some(Duration::ZERO),
            minimum_reclaim: None,
        };
        let eviction = Eviction { thresholds: vec![one], ..Eviction::default() };
        threshold::thresholds(&eviction, &Allocatable { enforced: Vec::new(), ..Allocatable::default() })
    }

    fn usage() -> Usage {
        let used = |bytes| Some(DiskUsage { bytes, inodes: 1 });
        let container = |name: &str, memory, root| ContainerUsage {
            name: name.to_string(),
            memory: Some(memory),
            root,
            logs: used(24 << 10),
        };
        let containers = vec![
            container("a", 2 << 20, used(1000)),
            container("b", 4096, used(1 << 20)),
            container("i", 0, None),
            container("debugger", 1 << 30, used(1 << 30)),
        ];
        Usage { memory: 3 << 20, containers, ..Usage::default() }
    }

    fn check(pod: &str, signal: &str, least: &str, left: (i64, i64), want: &str) {
        let pod = json::decode(pod.as_bytes()).expect("JSON");
        let signal_of = Signal::from_name(signal).expect("a signal");
        let seen = BTreeMap::from([(signal_of, Measurement { available: left.0, capacity: left.1 })]);
        let got = message(signal_of.resource(), &pod, Some(&usage()), &thresholds(signal, least), &seen);
        assert_eq!(got, want);
    }

    #[test]
    fn message_names_the_resource_and_the_usage() {
        check(
            POD,
            "memory.available",
            "100Mi",
            (95 << 20, 1 << 30),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 95Mi. \
             Container a was using 2Mi, request is 1Mi, has larger consumption of memory. \
             Container b was using 4Ki, request is 0, has larger consumption of memory. ",
        );
        check(
            POD,
            "nodefs.available",
            "10%",
            (1 << 20, 100 << 20),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 1Mi. \
             Container b was using 1048Ki, request is 0, has larger consumption of ephemeral-storage. ",
        );
        check(
            POD,
            "nodefs.inodesFree",
            "1000",
            (999, 100_000),
            "The node was low on resource: inodes. Threshold quantity: 1k, available: 999. ",
        );
        check(
            r#"{"metadata":{"name":"p"},"spec":{"resources":{"requests":{"memory":"1Mi"}}}}"#,
            "memory.available",
            "1Gi",
            (1, 2),
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1. \
             Pod p was using 3Mi, request is 1Mi, has larger consumption of memory. ",
        );
    }

    #[test]
    fn message_omits_unknown_usage() {
        let pod = json::decode(POD.as_bytes()).expect("JSON");
        let got = message(Resource::Pids, &pod, None, &thresholds("pid.available", "10"), &Measurements::new());
        assert_eq!(got, "The node was low on resource: pids. ");
    }
}
