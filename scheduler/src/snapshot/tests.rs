use api::{json, tree};

use super::*;
use podmodel::Node;

fn node(name: &str, zone: &str) -> Node {
    Node::read(
        &tree! { "metadata" => tree! { "name" => name, "labels" => tree! { "topology.kubernetes.io/zone" => zone } } },
    )
}

fn pod(uid: &str, node: &str) -> Arc<Pod> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"a","name":"{uid}","uid":"{uid}"}},"spec":{{"nodeName":"{node}","containers":
        [{{"resources":{{"requests":{{"cpu":"1"}}}},"ports":[{{"hostPort":80}}]}}]}}}}"#
    );
    Arc::new(Pod::read(&json::decode(text.as_bytes()).expect("JSON")))
}

fn taken(snapshot: &Snapshot, node: &str) -> (i64, usize, usize) {
    snapshot.find(node).map_or((-1, 0, 0), |state| (state.requested.milli_cpu, state.pods.len(), state.ports.len()))
}

fn empty() -> Snapshot {
    Snapshot::new(Arc::new(NoObjects))
}

#[test]
fn pods_are_added_and_removed_once() {
    let mut snapshot = empty();
    snapshot.put_node(node("n", "z"));
    let before = snapshot.generation();
    snapshot.assume(pod("p", "n"));
    assert!(snapshot.is_assumed("p") && snapshot.generation() > before);
    snapshot.put_pod(pod("p", "n"));
    assert!(!snapshot.is_assumed("p"));
    snapshot.forget("p");
    assert_eq!(taken(&snapshot, "n"), (1000, 1, 1), "it is confirmed");
    snapshot.remove_pod("p");
    assert_eq!(taken(&snapshot, "n"), (0, 0, 0));
    snapshot.assume(pod("q", "n"));
    snapshot.forget("q");
    assert_eq!((taken(&snapshot, "n"), snapshot.placed_count()), ((0, 0, 0), 0));
}

#[test]
fn pods_of_missing_nodes_are_kept() {
    let mut snapshot = empty();
    snapshot.put_pod(pod("p", "n"));
    snapshot.put_node(node("n", "z"));
    assert_eq!(taken(&snapshot, "n"), (1000, 1, 1));
    snapshot.remove_node("n");
    snapshot.put_pod(pod("q", "n"));
    snapshot.remove_pod("p");
    snapshot.put_node(node("n", "z"));
    assert_eq!(taken(&snapshot, "n"), (1000, 1, 1));
    assert_eq!(snapshot.slot_count(), 1, "the slot is used again");
}

#[test]
fn order_alternates_between_zones() {
    let mut snapshot = empty();
    for (name, zone) in [("a", "z1"), ("b", "z1"), ("c", "z1"), ("d", "z2"), ("e", "z2"), ("f", "z3")] {
        snapshot.put_node(node(name, zone));
    }
    snapshot.update_order();
    let names: Vec<&str> = snapshot.order().iter().filter_map(|id| Some(snapshot.node(*id)?.name())).collect();
    assert_eq!(names, ["a", "d", "f", "b", "e", "c"]);
}

#[test]
fn domains_follow_labels() {
    let mut snapshot = empty();
    snapshot.put_node(node("a", "z1"));
    let key = "topology.kubernetes.io/zone";
    snapshot.track_key(key);
    snapshot.put_node(node("b", "z1"));
    snapshot.put_node(node("c", "z2"));
    let domain = |snapshot: &Snapshot, name: &str| {
        snapshot.topology.domain(key, snapshot.find(name).expect("a node").id).map(|domain| domain.0)
    };
    assert_eq!(["a", "b", "c"].map(|name| domain(&snapshot, name)), [Some(0), Some(0), Some(1)]);
    snapshot.put_node(node("c", "z3"));
    let domains = snapshot.topology.domains(key).expect("domains");
    assert_eq!((domains.count(), domains.slot_count(), domain(&snapshot, "c")), (2, 2, Some(1)));
    snapshot.remove_node("a");
    assert_eq!(snapshot.topology.domains(key).expect("domains").nodes_in(Domain(0)), 1);
}

#[test]
fn pods_have_one_nomination() {
    let mut snapshot = empty();
    snapshot.nominate(pod("p", ""), "n");
    snapshot.nominate(pod("p", ""), "m");
    snapshot.put_node(node("m", "z"));
    assert!(snapshot.is_kept(NodeId(0)));
    assert_eq!((snapshot.nominated("n").len(), snapshot.nominated("m").len()), (0, 1));
    assert_eq!(snapshot.nominated_node("p"), Some("m"));
    snapshot.remove_nomination("p");
    assert!(!snapshot.is_kept(NodeId(0)) && snapshot.nominated("m").is_empty());
}
