use api::list;

use super::*;

fn volume(name: &str, mode: &str) -> Arc<Tree> {
    let csi = tree! { "driver" => "d", "volumeHandle" => name };
    Arc::new(tree! {
        "metadata" => tree! { "name" => name },
        "spec" => tree! { "csi" => csi, "accessModes" => list![mode] },
    })
}

fn pod(namespace: &str, name: &str) -> Arc<Tree> {
    Arc::new(tree! { "metadata" => tree! { "namespace" => namespace, "name" => name } })
}

fn desired(name: &str, mode: &str) -> DesiredAttachment {
    DesiredAttachment { volume: volume(name, mode), pods: vec![pod("n", "p")], elsewhere: Vec::new() }
}

fn attachment(name: &str, attached: bool) -> Arc<Tree> {
    Arc::new(tree! {
        "metadata" => tree! { "name" => attachment_name(&volume(name, ""), "node") },
        "spec" => tree! { "source" => tree! { "persistentVolumeName" => name } },
        "status" => tree! { "attached" => attached },
    })
}

fn node(ready: &str, in_use: &[&str], attached: &[&str]) -> Tree {
    let in_use: Vec<Tree> = in_use.iter().map(|name| format!("kubernetes.io/csi/d^{name}").into()).collect();
    let attached: Vec<Tree> =
        attached.iter().map(|name| tree! { "name" => format!("kubernetes.io/csi/d^{name}") }).collect();
    tree! {
        "status" => tree! {
            "conditions" => list![tree! { "type" => "Ready", "status" => ready }],
            "volumesInUse" => in_use,
            "volumesAttached" => attached,
        },
    }
}

fn planned(node: Option<&Tree>, desired: &[DesiredAttachment], attachments: &[Arc<Tree>], idle: i64) -> Plan {
    let idle_since = attachments.iter().map(|other| (other.str("metadata.name").to_string(), 1000 - idle)).collect();
    plan(&ObservedState {
        node_name: "node",
        node,
        desired,
        attachments,
        volumes: &|name| Some(volume(name, "ReadWriteOnce")),
        idle_since: &idle_since,
        now: 1000,
    })
}

#[test]
fn names_match_upstream() {
    // sha256 of "vold" and "node" concatenated.
    let name = attachment_name(&volume("vol", ""), "node");
    assert_eq!(name.len(), 68);
    assert_eq!(name, attachment_name(&volume("vol", "x"), "node"));
    assert_ne!(name, attachment_name(&volume("vol", ""), "other"));
    assert_eq!(unique_name(&volume("v", "")).as_deref(), Some("kubernetes.io/csi/d^v"));
}

#[test]
fn attaches_a_volume_once() {
    let node = node("True", &[], &[]);
    let want = [desired("v", "ReadWriteOnce")];
    let made = planned(Some(&node), &want, &[], 0);
    assert_eq!(made.create[0].str("spec.attacher"), "d");
    assert_eq!(made.create[0].str("spec.source.persistentVolumeName"), "v");
    let waiting = planned(Some(&node), &want, &[attachment("v", false)], 0);
    assert_eq!((waiting.create.len(), waiting.attached), (0, None));
    let done = planned(Some(&node), &want, &[attachment("v", true)], 0);
    assert_eq!(done.attached.as_ref().map(Vec::len), Some(1));
    assert_eq!(done.events[0].1.message, "AttachVolume.Attach succeeded for volume \"v\" ");
    let reported = super::tests::node("True", &["v"], &["v"]);
    assert_eq!(planned(Some(&reported), &want, &[attachment("v", true)], 0), Plan::default());
}

#[test]
fn reports_multi_attach_errors() {
    let node = node("True", &[], &[]);
    let check = |mode: &str, users: Vec<Arc<Tree>>, want: Option<&str>| {
        let desired = DesiredAttachment { elsewhere: vec![("other".to_string(), users)], ..desired("v", mode) };
        let plan = planned(Some(&node), &[desired], &[], 0);
        assert_eq!(plan.events.first().map(|(_, event)| event.message.as_str()), want);
        assert_eq!(plan.create.is_empty(), want.is_some());
    };
    check("ReadWriteMany", vec![], None);
    let alone = "Multi-Attach error for volume \"v\" Volume is already exclusively attached to one node and can't be \
                 attached to another";
    check("ReadWriteOnce", vec![], Some(alone));
    let used = "Multi-Attach error for volume \"v\" Volume is already used by pod(s) q";
    check("ReadWriteOnce", vec![pod("n", "q")], Some(used));
    let far = "Multi-Attach error for volume \"v\" Volume is already used by 1 pod(s) in different namespaces";
    check("ReadWriteOncePod", vec![pod("m", "q")], Some(far));
}

#[test]
fn detaches_after_unmount() {
    let check = |node: Option<&Tree>, idle: i64, want: (usize, Option<i64>)| {
        let plan = planned(node, &[], &[attachment("v", true)], idle);
        assert_eq!((plan.delete.len(), plan.again_seconds), want);
    };
    check(Some(&node("True", &[], &["v"])), 0, (1, None));
    check(Some(&node("True", &["v"], &["v"])), 0, (0, Some(360)));
    check(Some(&node("True", &["v"], &["v"])), 400, (0, None));
    check(Some(&node("Unknown", &["v"], &["v"])), 100, (0, Some(260)));
    check(Some(&node("Unknown", &["v"], &["v"])), 360, (1, None));
    check(None, 100, (0, Some(260)));
    check(None, 360, (1, None));
    let mut lost = node("Unknown", &["v"], &["v"]);
    lost.child("spec").set("taints", list![tree! { "key" => OUT_OF_SERVICE, "effect" => "NoExecute" }]);
    check(Some(&lost), 0, (1, None));
}

#[test]
fn updates_node_status_before_detach() {
    let node = node("True", &[], &["v", "w"]);
    let plan =
        planned(Some(&node), &[desired("w", "ReadWriteOnce")], &[attachment("v", true), attachment("w", true)], 0);
    assert_eq!(plan.delete.len(), 1);
    let attached: Vec<String> = plan.attached.iter().flatten().map(|volume| volume.str("name").to_string()).collect();
    assert_eq!(attached, ["kubernetes.io/csi/d^w"]);
}

#[test]
fn reports_attach_failures_to_pods() {
    let mut failed = (*attachment("v", false)).clone();
    failed.child("status").set("attachError", tree! { "message" => "no room" });
    let plan = planned(Some(&node("True", &[], &[])), &[desired("v", "ReadWriteOnce")], &[Arc::new(failed)], 0);
    assert_eq!(plan.events[0].1.message, "AttachVolume.Attach failed for volume \"v\" : no room");
}
