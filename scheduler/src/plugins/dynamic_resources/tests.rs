use api::{Tree, json, list, tree};
use podmodel::Pod;

use super::*;
use crate::framework::Reason;
use crate::testing::{FixedObjects, ObjectBuilder, node, pod};

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn claim(name: &str, devices: &str, status: &str) -> Tree {
    read(&format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"{name}","resourceVersion":"5"}},
            "spec":{{"devices":{devices}}},"status":{status}}}"#
    ))
}

fn of_class(class: &str) -> String {
    format!(r#"{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"{class}"}}}}]}}"#)
}

fn user_of(name: &str, claim: &str) -> ObjectBuilder {
    pod(name).with("spec.resourceClaims", list![tree! { "name" => "c", "resourceClaimName" => claim }])
}

/// Nodes `a` with two devices and `b` with one.
fn world(claims: &[Tree]) -> Snapshot {
    let mut objects = FixedObjects::default();
    for (node, devices) in [("a", r#"[{"name":"d0"},{"name":"d1"}]"#), ("b", r#"[{"name":"d0"}]"#)] {
        let slice = format!(
            r#"{{"metadata":{{"name":"{node}"}},"spec":{{"driver":"x","nodeName":"{node}","pool":{{"name":"{node}",
                "generation":1,"resourceSliceCount":1}},"devices":{devices}}}}}"#
        );
        objects.put(Kind::ResourceSlice, read(&slice));
    }
    let class = r#"{"metadata":{"name":"gpu"},"spec":{"extendedResourceName":"example.com/gpu"}}"#;
    objects.put(Kind::DeviceClass, read(class));
    claims.iter().for_each(|claim| objects.put(Kind::ResourceClaim, claim.clone()));
    let mut snapshot = Snapshot::new(Arc::new(objects));
    snapshot.put_node(node("a").node());
    snapshot.put_node(node("b").node());
    snapshot
}

fn plugin() -> DynamicResources {
    DynamicResources::new(Arc::new(DeviceState::new()), BINDING_TIMEOUT)
}

/// Reserves the devices of a pod on a node; why not otherwise.
fn take(plugin: &DynamicResources, snapshot: &Snapshot, pod: &Arc<Pod>, node: &str) -> Result<(), Reason> {
    let cycle = Cycle { snapshot, pod };
    let text = |rejection: Rejection| rejection.reasons[0].clone();
    let slot = match plugin.pre_filter(cycle) {
        PreFilter::Check(slot) => slot,
        PreFilter::Refuse(rejection) => return Err(text(rejection)),
        _ => panic!("the pod has claims"),
    };
    let state = snapshot.find(node).expect("the node is there");
    plugin.filter(cycle, &slot, state).map_err(text)?;
    plugin.reserve(cycle, &slot, state).map_err(text)
}

#[test]
fn devices_are_reserved_once_for_all_profiles() {
    let claims: Vec<Tree> = ["c1", "c2", "c3"].iter().map(|name| claim(name, &of_class("gpu"), "{}")).collect();
    let snapshot = world(&claims);
    let one = plugin();
    let other = DynamicResources::new(one.state.clone(), BINDING_TIMEOUT);
    let user = |name: &str, claim: &str| user_of(name, claim).pod();
    assert_eq!(take(&one, &snapshot, &user("p1", "c1"), "b"), Ok(()));
    assert_eq!(take(&other, &snapshot, &user("p2", "c2"), "b"), Err("cannot allocate all claims".into()));
    assert_eq!(take(&other, &snapshot, &user("p2", "c2"), "a"), Ok(()));
    let pending = "resource claim default/c1 is in the process of being allocated";
    assert_eq!(take(&other, &snapshot, &user("p3", "c1"), "a"), Err(pending.into()));
    one.unreserve(&user("p1", "c1"), "b");
    assert_eq!(take(&other, &snapshot, &user("p3", "c3"), "b"), Ok(()));
}

#[test]
fn reservations_last_until_the_claim_is_observed() {
    let plugin = plugin();
    let snapshot = world(&[claim("c1", &of_class("gpu"), "{}"), claim("c2", &of_class("gpu"), "{}")]);
    let (first, second) = (user_of("p1", "c1").pod(), user_of("p2", "c2").pod());
    assert_eq!(take(&plugin, &snapshot, &first, "b"), Ok(()));
    let written =
        pending::WrittenClaim { namespace: "default".into(), name: "c1".into(), uid: "c1".into(), version: 6 };
    plugin.state.pending.lock().written("p1", vec![written]);
    let mut snapshot = snapshot;
    snapshot.assume(Arc::new(Pod { node_name: "b".into(), ..Pod::clone(&first) }));
    assert_eq!(take(&plugin, &snapshot, &second, "b"), Err("cannot allocate all claims".into()));
    let deallocated = {
        let mut claim = claim("c1", &of_class("gpu"), "{}");
        claim.child("metadata").set("resourceVersion", "7");
        claim
    };
    snapshot.object_changed(Kind::ResourceClaim, None, Some(&deallocated));
    assert_eq!(take(&plugin, &snapshot, &second, "b"), Ok(()));
}

#[test]
fn allocated_claims_restrict_the_nodes() {
    let selector =
        r#"{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["b"]}]}]}"#;
    let allocation = format!(
        r#"{{"allocation":{{"devices":{{"results":[{{"request":"r","driver":"x","pool":"b","device":"d0"}}]}},
            "nodeSelector":{selector}}}}}"#
    );
    let snapshot = world(&[claim("c1", &of_class("gpu"), &allocation), claim("c2", &of_class("gpu"), "{}")]);
    let plugin = plugin();
    let user = user_of("p1", "c1").pod();
    let unavailable = Err("resourceclaim not available on the node".into());
    assert_eq!(take(&plugin, &snapshot, &user, "a"), unavailable);
    assert_eq!(take(&plugin, &snapshot, &user, "b"), Ok(()));
    let other = user_of("p2", "c2").pod();
    assert_eq!(take(&plugin, &snapshot, &other, "b"), Err("cannot allocate all claims".into()));
}

#[test]
fn pods_wait_for_their_claims() {
    let mut terminating = claim("gone", &of_class("gpu"), "{}");
    terminating.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
    let foreign = claim("foreign", &of_class("gpu"), "{}");
    let snapshot = world(&[terminating, foreign, claim("c", &of_class("gpu"), "{}")]);
    let template = |status: Option<&str>| {
        let claim = tree! { "name" => "c", "resourceClaimTemplateName" => "t" };
        let pod = pod("p").with("spec.resourceClaims", list![claim]);
        match status {
            Some(name) => {
                let status = tree! { "name" => "c", "resourceClaimName" => name };
                pod.with("status.resourceClaimStatuses", list![status])
            }
            None => pod,
        }
    };
    let check = |pod: &ObjectBuilder, want: Option<&str>| {
        let verdict = plugin().pre_enqueue(&snapshot, &pod.pod());
        assert_eq!(verdict.err().map(|rejection| rejection.reasons[0].to_string()).as_deref(), want);
    };
    check(&user_of("p", "c"), None);
    check(&user_of("p", "none"), Some("resourceclaim.resource.k8s.io \"none\" not found"));
    check(&user_of("p", "gone"), Some("resourceclaim \"gone\" is being deleted"));
    check(&template(None), Some("pod \"default/p\": ResourceClaim not created yet"));
    let foreign = "ResourceClaim default/foreign was not created for Pod default/p (Pod is not owner)";
    check(&template(Some("foreign")), Some(foreign));
}

#[test]
fn classes_and_selectors_are_checked() {
    let selected = |expression: &str| {
        format!(
            r#"{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"gpu","selectors":[{{"cel":{{"expression":
                "{expression}"}}}}]}}}}]}}"#
        )
    };
    let claims =
        [claim("none", &of_class("nope"), "{}"), claim("fails", &selected("device.attributes['x'].nope == 1"), "{}")];
    let (plugin, snapshot) = (plugin(), world(&claims));
    let none = "request r: device class nope does not exist";
    assert_eq!(take(&plugin, &snapshot, &user_of("p", "none").pod(), "a"), Err(none.into()));
    let pod = user_of("p", "fails").pod();
    let cycle = Cycle { snapshot: &snapshot, pod: &pod };
    let PreFilter::Check(slot) = plugin.pre_filter(cycle) else { panic!("the pod has a claim") };
    let verdict = plugin.filter(cycle, &slot, snapshot.find("a").expect("the node is there"));
    assert!(verdict.is_err_and(|rejection| rejection.is_error), "the attempt fails");
}

#[test]
fn earlier_alternatives_score_higher() {
    let list = r#"{"requests":[{"name":"r","firstAvailable":[{"name":"two","deviceClassName":"gpu","count":2},
        {"name":"one","deviceClassName":"gpu"}]}]}"#;
    let (plugin, snapshot) = (plugin(), world(&[claim("c", list, "{}")]));
    let pod = user_of("p", "c").pod();
    let cycle = Cycle { snapshot: &snapshot, pod: &pod };
    let PreFilter::Check(slot) = plugin.pre_filter(cycle) else { panic!("the pod has a claim") };
    let nodes: Vec<&NodeState> = ["a", "b"].iter().filter_map(|name| snapshot.find(name)).collect();
    nodes.iter().for_each(|node| assert!(plugin.filter(cycle, &slot, node).is_ok()));
    let PreScore::Rate(rated) = plugin.pre_score(cycle, &slot, &[]) else { panic!("there are alternatives") };
    let scores: Vec<i64> = nodes.iter().map(|node| plugin.score(cycle, &rated, node)).collect();
    assert_eq!(scores, [8, 7]);
}

#[test]
fn classes_provide_extended_resources() {
    let (plugin, mut snapshot) = (plugin(), world(&[]));
    snapshot.put_node(node("own").with_allocatable("example.com/gpu", "1").node());
    let pod = pod("p").requests(tree! { "example.com/gpu" => "2" }).pod();
    assert_eq!(take(&plugin, &snapshot, &pod, "b"), Err("cannot allocate all claims".into()));
    assert_eq!(take(&plugin, &snapshot, &pod, "a"), Ok(()));
    let reservation = plugin.state.pending.lock().reservation("p").expect("it is reserved");
    let (allocation, extended) = reservation.extended.as_ref().expect("there is a claim for extended resources");
    assert_eq!(allocation.list("devices.results").len(), 2);
    assert_eq!(extended.mappings[0].request, "container-0-request-0");
    plugin.unreserve(&pod, "a");
    assert_eq!(take(&plugin, &snapshot, &pod, "own"), Ok(()));
    let reservation = plugin.state.pending.lock().reservation("p").expect("it is reserved");
    assert!(reservation.extended.is_none(), "the node has the resource itself");
}

#[test]
fn changes_of_claims_help_pods_that_use_them() {
    let allocated = r#"{"allocation":{"devices":{}}}"#;
    let (free, taken) = (claim("c", "{}", "{}"), claim("c", "{}", allocated));
    let (own, other) = (user_of("p", "c").pod(), user_of("p", "other").pod());
    let check = |pod: &Pod, old: Option<&Tree>, new: Option<&Tree>, want: bool| {
        let event = Event::Object { kind: Kind::ResourceClaim, old, new };
        assert_eq!(plugin().may_help(pod, &event), want);
    };
    check(&own, None, Some(&free), true);
    check(&other, None, Some(&free), false);
    check(&other, Some(&taken), Some(&free), true);
    check(&other, Some(&taken), None, true);
    check(&own, Some(&free), Some(&free), false);
    check(&own, Some(&free), Some(&taken), true);
    check(&other, Some(&free), Some(&taken), false);
}
