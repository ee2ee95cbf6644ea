//! Whether a running pod can be resized: never on this node, not now, or at once.

use std::sync::Arc;

use api::Tree;
use podmodel::{Node, Pod};

use super::{Admission, AdmittedPod, PodAdmitAttributes, Rules, predicates, refused};
use crate::model::pod;
use crate::model::problem::Problem;
use crate::model::resources::resizable;
use crate::model::resources::{Class, amount, class, milli};

pub(crate) const INFEASIBLE: &str = "Infeasible";
const DEFERRED: &str = "Deferred";

/// A pod with other desired resources.
pub(crate) struct Change<'a> {
    /// With its desired resources, and without the resources in its status.
    pub(crate) wanted: &'a Tree,
    /// With its allocated resources.
    pub(crate) allocated: &'a Tree,
    /// Burstable pods of the node may be written out in the measure of their requests.
    pub(crate) swaps: bool,
    /// Guaranteed pods have CPUs or memory for themselves.
    pub(crate) pins_cpu: bool,
    pub(crate) pins_memory: bool,
}

impl Admission {
    /// Changes the resources of an admitted pod if the node has enough. `counted` is what it uses until the resize is
    /// done.
    pub(crate) fn resize(&self, change: &Change<'_>, counted: &Tree, node: &Tree) -> Result<(), Problem> {
        let (pod, node) = (Pod::read(change.wanted), Node::read(node));
        let mut taken = self.0.lock();
        let others = taken.values().map(|other| &other.pod).filter(|other| other.uid != pod.uid).collect();
        let rules = Rules::default();
        check_resize(
            change,
            &PodAdmitAttributes { tree: change.wanted, pod: &pod, node: &node, others, rules: &rules },
        )?;
        taken.insert(pod.uid.to_string(), Arc::new(AdmittedPod::of(counted)));
        Ok(())
    }
}

fn check_resize(change: &Change<'_>, attributes: &PodAdmitAttributes<'_>) -> Result<(), Problem> {
    if pod::is_static(change.wanted) {
        return refused(INFEASIBLE, "In-place resize of static-pods is not supported");
    }
    if change.swaps && changes_swap(change) {
        return refused(INFEASIBLE, "In-place resize of containers with swap is not supported.");
    }
    let pins = [
        (change.pins_cpu, "cpu", r#"CPU Manager policy "static""#),
        (change.pins_memory, "memory", r#"Memory Manager policy "Static""#),
    ];
    if let Some((_, _, policy)) = pins.into_iter().find(|(pins, name, _)| *pins && is_pinned(change, name)) {
        return refused(INFEASIBLE, format!("Resize is infeasible for Guaranteed Pods alongside {policy}"));
    }
    for name in ["memory", "cpu"] {
        let (requested, all) = (attributes.pod.spec.requests.get(name), attributes.node.allocatable.get(name));
        if requested > all {
            let why = format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {all}");
            return refused(INFEASIBLE, why);
        }
    }
    predicates::resources(attributes).map_err(|problem| Problem { reason: DEFERRED.into(), ..problem })
}

/// Whether a Guaranteed pod changes exclusive resources: requests are limits there.
fn is_pinned(change: &Change<'_>, name: &str) -> bool {
    let request = |spec: &Tree| milli(spec.at("resources.requests").at(name));
    let moves = |spec: &Tree| pod::container(change.allocated, spec.str("name")).map(request) != Some(request(spec));
    class(change.wanted) == Class::Guaranteed && resizable(change.wanted).any(moves)
}

/// The swap limit follows the request, and cannot be changed while the container runs.
fn changes_swap(change: &Change<'_>) -> bool {
    let request = |spec: &Tree| amount(spec.at("resources.requests.memory"));
    let swaps = |spec: &Tree| request(spec) > 0 && request(spec) != amount(spec.at("resources.limits.memory"));
    let moves = |spec: &Tree| {
        let old = pod::container(change.allocated, spec.str("name")).unwrap_or(&Tree::Null);
        request(old) != request(spec)
            && crate::model::resources::resize_policy(spec, "memory") != "RestartContainer"
            && (swaps(spec) || swaps(old))
    };
    class(change.wanted) == Class::Burstable && resizable(change.wanted).any(moves)
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn read(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    fn pod(uid: &str, cpu: &str, memory: &str, more: &str) -> Tree {
        read(&format!(
            "{{metadata: {{uid: {uid}, name: {uid}{more}}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}}}]}}}}"
        ))
    }

    #[test]
    fn resize_is_infeasible_deferred_or_granted() {
        let node = read("status: {allocatable: {cpu: '4', memory: 1Gi, pods: '10'}}");
        let static_pod = ", annotations: {kubernetes.io/config.source: file}";
        let cases = [
            ("2", "10Mi", "", false, ""),
            (
                "3500m",
                "10Mi",
                "",
                false,
                "Deferred: Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000",
            ),
            (
                "5",
                "10Mi",
                "",
                false,
                "Infeasible: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000",
            ),
            (
                "5",
                "2Gi",
                "",
                false,
                "Infeasible: Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824",
            ),
            ("2", "10Mi", static_pod, false, "Infeasible: In-place resize of static-pods is not supported"),
            ("2", "10Mi", "", true, "Infeasible: In-place resize of containers with swap is not supported."),
            ("2", "5Mi", "", true, ""),
        ];
        for (cpu, memory, more, swaps, expected) in cases {
            let admission = Admission::default();
            let allocated = pod("a", "1", "5Mi", more);
            admission.take(&allocated);
            admission.take(&pod("b", "1", "5Mi", ""));
            let wanted = pod("a", cpu, memory, more);
            let change = Change { wanted: &wanted, allocated: &allocated, swaps, pins_cpu: true, pins_memory: true };
            let result = admission.resize(&change, &wanted, &node);
            let result = result.err().map(|problem| format!("{}: {}", problem.reason, problem.message));
            assert_eq!(result.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn exclusive_resources_cannot_be_resized() {
        let node = read("status: {allocatable: {cpu: '4', memory: 1Gi, pods: '10'}}");
        let full = |cpu: &str, memory: &str| {
            let amounts = format!("{{cpu: {cpu}, memory: {memory}}}");
            read(&format!(
                "{{metadata: {{uid: a}}, spec: {{containers: [{{name: c, resources: {{requests: {amounts}, limits: {amounts}}}}}]}}}}"
            ))
        };
        let cases = [
            ("2", "1Mi", true, true, "CPU Manager policy \"static\""),
            ("2", "1Mi", false, true, ""),
            ("1", "2Mi", true, true, "Memory Manager policy \"Static\""),
            ("1", "2Mi", true, false, ""),
        ];
        for (cpu, memory, pins_cpu, pins_memory, expected) in cases {
            let (wanted, allocated) = (full(cpu, memory), full("1", "1Mi"));
            let change = Change { wanted: &wanted, allocated: &allocated, swaps: false, pins_cpu, pins_memory };
            let result = Admission::default().resize(&change, &wanted, &node).err();
            let result = result.map(|problem| problem.message).unwrap_or_default();
            assert!(result.ends_with(expected) && result.is_empty() == expected.is_empty(), "{result}");
        }
    }
}
