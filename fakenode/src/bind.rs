//! Which node a waiting pod goes to: the next one in turn that it may go to. No resources are counted; this
//! stands in for a scheduler and does not try to be one.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use api::selector::{Operator, Requirement};

use crate::node;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Whether a pod waits for a node that we give.
pub fn waits(pod: &Tree) -> bool {
    pod.str("spec.nodeName").is_empty()
        && pod.str("spec.schedulerName") == "default-scheduler"
        && pod.list("spec.schedulingGates").is_empty()
        && !pod.at("metadata").has("deletionTimestamp")
        && !matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

/// The nodes by their numbers, and whose turn it is.
#[derive(Default)]
pub struct Nodes {
    nodes: BTreeMap<u32, Arc<Tree>>,
    turn: u32,
}

impl Nodes {
    pub fn follow(&mut self, name: &str, object: Option<Arc<Tree>>) {
        let Some(number) = node::number(name) else { return };
        match object {
            Some(object) => drop(self.nodes.insert(number, object)),
            None => drop(self.nodes.remove(&number)),
        }
    }

    pub fn get(&self, number: u32) -> Option<&Arc<Tree>> {
        self.nodes.get(&number)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The next node that the pod fits and that `has_room`; the turn goes on behind it.
    pub fn choose(&mut self, pod: &Tree, mut has_room: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some(name) = pinned(pod) {
            let number = node::number(name)?;
            return self.nodes.get(&number).filter(|node| fits(pod, node)).map(|_| number).filter(|at| has_room(*at));
        }
        let (before, after) = (self.nodes.range(..self.turn), self.nodes.range(self.turn..));
        let found = after.chain(before).find(|(number, node)| fits(pod, node) && has_room(**number))?;
        let number = *found.0;
        self.turn = number + 1;
        Some(number)
    }
}

/// The one node that a pod can go to, as those of a DaemonSet say it.
fn pinned(pod: &Tree) -> Option<&str> {
    let [term] = required(pod) else { return None };
    let [field] = term.list("matchFields") else { return None };
    let [value] = field.list("values") else { return None };
    (field.str("key") == "metadata.name" && field.str("operator") == "In").then(|| value.as_str())?
}

fn required(pod: &Tree) -> &[Tree] {
    pod.list("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
}

fn fits(pod: &Tree, node: &Tree) -> bool {
    let labels = node.map("metadata.labels");
    let selected = pod.map("spec.nodeSelector").iter().all(|(key, value)| labels.get(key) == Some(value));
    let terms = required(pod);
    let wanted = terms.is_empty() || terms.iter().any(|term| term_matches(term, node));
    selected && wanted && !node::is_down(node) && taints(node).all(|taint| is_tolerated(pod, taint))
}

fn term_matches(term: &Tree, node: &Tree) -> bool {
    let (labels, fields) = (term.list("matchExpressions"), term.list("matchFields"));
    let label = |key: &str| node.map("metadata.labels").get(key).and_then(Tree::as_str);
    let field = |key: &str| (key == "metadata.name").then(|| node.str("metadata.name"));
    // A term that asks for nothing selects nothing.
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|one| requires(one, label(one.str("key"))))
        && fields.iter().all(|one| requires(one, field(one.str("key"))))
}

fn requires(expression: &Tree, value: Option<&str>) -> bool {
    let operator = match expression.str("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return false,
    };
    let values = expression.list("values").iter().filter_map(Tree::as_str).map(Into::into).collect();
    Requirement::new(expression.str("key"), operator, values).is_ok_and(|requirement| requirement.matches(value))
}

/// What keeps pods away. A node that says that it is ready is: the taint of its first moments goes as soon
/// as the controller of nodes has looked, if there is one.
fn taints(node: &Tree) -> impl Iterator<Item = &Tree> {
    let ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
    let ready = node.list("status.conditions").iter().any(ready);
    let keeps_away = |taint: &&Tree| matches!(taint.str("effect"), "NoSchedule" | "NoExecute");
    node.list("spec.taints").iter().filter(keeps_away).filter(move |taint| !ready || taint.str("key") != NOT_READY)
}

fn is_tolerated(pod: &Tree, taint: &Tree) -> bool {
    pod.list("spec.tolerations").iter().any(|toleration| {
        let any = |key: &str| toleration.str(key).is_empty();
        let same = |key: &str| toleration.str(key) == taint.str(key);
        let exists = toleration.str("operator") == "Exists";
        (any("effect") || same("effect"))
            && (same("key") || any("key") && exists)
            && (exists || toleration.str("value") == taint.str("value"))
    })
}

#[cfg(test)]
mod tests {
    use api::{json, list, tree};

    use super::*;

    fn fleet(nodes: &[&str]) -> Nodes {
        let mut fleet = Nodes::default();
        for (number, text) in nodes.iter().enumerate() {
            let mut object = json::decode(text.as_bytes()).expect("JSON");
            let name = node::name(number as u32);
            object.child("metadata").set("name", name.as_str());
            fleet.follow(&name, Some(Arc::new(object)));
        }
        fleet
    }

    fn pod(spec: &str) -> Tree {
        tree! { "spec" => json::decode(spec.as_bytes()).expect("JSON") }
    }

    #[test]
    fn nodes_take_turns() {
        let mut fleet = fleet(&["{}", "{}", "{}"]);
        let pod = pod("{}");
        let turns: Vec<_> = (0..5).map(|_| fleet.choose(&pod, |_| true)).collect();
        assert_eq!(turns, [Some(0), Some(1), Some(2), Some(0), Some(1)]);
        assert_eq!(fleet.choose(&pod, |number| number == 1), Some(1), "the others are full");
        assert_eq!(fleet.choose(&pod, |_| false), None);
        fleet.follow("fake-2", None);
        assert_eq!(fleet.choose(&pod, |_| true), Some(0));
    }

    #[test]
    fn a_pod_goes_only_where_it_may() {
        let nodes = [
            r#"{"metadata":{"labels":{"disk":"ssd","size":"3"}}}"#,
            r#"{"spec":{"unschedulable":true,"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}"#,
            r#"{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]},
                "status":{"conditions":[{"type":"Ready","status":"True"}]}}"#,
            r#"{"metadata":{"annotations":{"tiphys.io/fake-down":"true"}}}"#,
            r#"{"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]}}"#,
        ];
        let affinity = |term: &str| {
            format!(
                r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
                   {{"nodeSelectorTerms":[{term}]}}}}}}}}"#
            )
        };
        let name = |name: &str| {
            affinity(&format!(r#"{{"matchFields":[{{"key":"metadata.name","operator":"In","values":["{name}"]}}]}}"#))
        };
        let expression = |text: &str| affinity(&format!(r#"{{"matchExpressions":[{text}]}}"#));
        let tolerant = |mut pod: Tree| {
            pod.child("spec").set("tolerations", list![tree! { "operator" => "Exists" }]);
            pod
        };
        let cases = [
            (pod("{}"), "0 2"),
            (pod(r#"{"nodeSelector":{"disk":"ssd"}}"#), "0"),
            (pod(r#"{"nodeSelector":{"disk":"tape"}}"#), ""),
            (pod(&expression(r#"{"key":"disk","operator":"DoesNotExist"}"#)), "2"),
            (pod(&expression(r#"{"key":"size","operator":"Gt","values":["2"]}"#)), "0"),
            (pod(&affinity("{}")), ""),
            (pod(&name("fake-2")), "2"),
            (pod(&name("fake-1")), ""),
            (tolerant(pod(&name("fake-1"))), "1"),
            (pod(&name("other")), ""),
            (tolerant(pod("{}")), "0 1 2 4"),
            (
                pod(
                    r#"{"tolerations":[{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute"}]}"#,
                ),
                "0 2 4",
            ),
        ];
        for (pod, want) in cases {
            let mut fleet = fleet(&nodes);
            let mut found = std::collections::BTreeSet::new();
            for _ in 0..nodes.len() * 2 {
                found.extend(fleet.choose(&pod, |_| true));
            }
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), want, "{pod:?}");
        }
    }

    #[test]
    fn only_pods_of_the_usual_scheduler_wait_for_us() {
        let waiting = r#"{"schedulerName":"default-scheduler"}"#;
        assert!(waits(&pod(waiting)));
        for other in [
            r#"{"schedulerName":"mine"}"#,
            r#"{"schedulerName":"default-scheduler","nodeName":"a"}"#,
            r#"{"schedulerName":"default-scheduler","schedulingGates":[{"name":"a"}]}"#,
        ] {
            assert!(!waits(&pod(other)), "{other}");
        }
    }
}
