//! The newest kubectl against the scheduler of a cluster with fake nodes: placement, reasons of pending pods, and
//! `tiphys why`.

use std::process::Command;

use crate::kubectl::Kubectl;
use crate::support::BINARY;
use crate::workloads::{World, eventually, until};

/// Creates a pod with more fields in its spec; without containers, it gets a plain one.
pub fn create(kubectl: &Kubectl<'_>, name: &str, labels: &str, spec: &str) {
    let plain = if spec.contains("\"containers\"") { "" } else { r#","containers":[{"name":"c","image":"c:1"}]"# };
    let pod = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{{labels}}}}},
            "spec":{{"terminationGracePeriodSeconds":0{plain}{spec}}}}}"#
    );
    kubectl.run_with(&["create", "-f", "-"], &pod);
}

fn node_of(kubectl: &Kubectl<'_>, pod: &str, want: &str) {
    until(kubectl, &format!("get pod {pod} -o jsonpath={{.spec.nodeName}}"), want);
}

/// Waits until a pod is reported as unschedulable; returns the message.
pub fn refusal(kubectl: &Kubectl<'_>, pod: &str) -> String {
    let path = r#"jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}"#;
    eventually(kubectl, &["get", "pod", pod, "-o", path], |text| text.contains("nodes are available"))
}

pub fn why(world: &World, arguments: &[&str]) -> String {
    let kubeconfig = world.server.kubeconfig();
    let output = Command::new(BINARY).arg("why").args(arguments).arg("--kubeconfig").arg(kubeconfig).output();
    let output = output.expect("the binary starts");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn pods_are_scheduled_where_they_request() {
    let world = World::new();
    let kubectl = world.kubectl("placing");
    kubectl.run("label node fake-1 disk=ssd");
    create(&kubectl, "selected", "", r#","nodeSelector":{"disk":"ssd"}"#);
    node_of(&kubectl, "selected", "fake-1");
    let terms = r#"[{"matchExpressions":[{"key":"disk","operator":"DoesNotExist"}]}]"#;
    kubectl.run("taint node fake-0 dedicated=db:NoSchedule");
    create(
        &kubectl,
        "affine",
        "",
        &format!(
            r#","affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}"#
        ),
    );
    node_of(&kubectl, "affine", "fake-2");
    let tolerates = r#""tolerations":[{"key":"dedicated","operator":"Exists"}]"#;
    create(&kubectl, "tolerant", "", &format!(r#",{tolerates},"nodeSelector":{{"kubernetes.io/hostname":"fake-0"}}"#));
    node_of(&kubectl, "tolerant", "fake-0");
    // A host port can be used once on a node.
    let port = r#","hostNetwork":true,"nodeSelector":{"disk":"ssd"},"containers":[{"name":"c","image":"c:1","ports":[{"containerPort":80,"hostPort":80}]}]"#;
    create(&kubectl, "port", "", port);
    node_of(&kubectl, "port", "fake-1");
    create(&kubectl, "port-again", "", port);
    let message = refusal(&kubectl, "port-again");
    assert!(
        message.starts_with("0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, "),
        "{message}"
    );
    // Spread apart, as far as there are nodes.
    kubectl.run("taint node fake-0 dedicated-");
    let apart = r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"apart"}}}]}}"#;
    for name in ["apart-0", "apart-1", "apart-2"] {
        create(&kubectl, name, r#""app":"apart""#, apart);
    }
    let all = |text: &str| ["fake-0", "fake-1", "fake-2"].iter().all(|node| text.contains(node));
    eventually(&kubectl, &["get", "pods", "-l", "app=apart", "-o", "jsonpath={.items[*].spec.nodeName}"], all);
    let spread = r#","topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"spread"}}}]"#;
    for name in ["spread-0", "spread-1", "spread-2"] {
        create(&kubectl, name, r#""app":"spread""#, spread);
    }
    eventually(&kubectl, &["get", "pods", "-l", "app=spread", "-o", "jsonpath={.items[*].spec.nodeName}"], all);
}

#[test]
fn pending_pods_are_explained_and_preemption_works() {
    let world = World::new();
    let kubectl = world.kubectl("waiting");
    kubectl.run("cordon fake-1");
    kubectl.run("cordon fake-2");
    let cpu = |count: u32| {
        format!(r#","containers":[{{"name":"c","image":"c:1","resources":{{"requests":{{"cpu":"{count}"}}}}}}]"#)
    };
    create(&kubectl, "first", "", &cpu(40));
    node_of(&kubectl, "first", "fake-0");
    create(&kubectl, "second", "", &cpu(40));
    let message = refusal(&kubectl, "second");
    assert!(
        message.starts_with("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable."),
        "{message}"
    );
    eventually(&kubectl, &["describe", "pod", "second"], |text| {
        text.contains("FailedScheduling") && text.contains(&message)
    });
    let explanation = why(&world, &["pod", "second", "-n", "waiting"]);
    for line in
        ["fake-0   NodeResourcesFit    Insufficient cpu\n", "fake-1   NodeUnschedulable   node(s) were unschedulable\n"]
    {
        assert!(explanation.contains(line), "{explanation}");
    }
    assert!(why(&world, &["node", "second"]).contains("`pod NAME` is expected"));
    assert_eq!(why(&world, &["pod", "none", "-n", "waiting"]), "error: pods \"none\" not found\n");
    let manifest = world.server.dir.path().join("deployment.yaml");
    std::fs::write(&manifest, kubectl.run("create deployment web --image=web:1 --dry-run=client -o yaml"))
        .expect("a file");
    let explanation = why(&world, &["--if", manifest.to_str().expect("text"), "-n", "waiting"]);
    assert_eq!(explanation, "the pod would be scheduled to node fake-0\n");

    kubectl.run("create priorityclass high --value=1000");
    create(&kubectl, "important", "", &format!(r#","priorityClassName":"high"{}"#, cpu(40)));
    node_of(&kubectl, "important", "fake-0");
    let events =
        ["get", "events", "--field-selector=reason=Preempted", "-o", "jsonpath={.items[*].involvedObject.name}"];
    eventually(&kubectl, &events, |text| text.trim() == "first");
    // Free resources on another node wake the pending pod.
    kubectl.run("uncordon fake-1");
    node_of(&kubectl, "second", "fake-1");
    assert!(why(&world, &["pod/second", "-n", "waiting"]).contains("the pod is on node fake-1"));
}

#[test]
fn gates_and_other_schedulers_are_respected() {
    let world = World::new();
    let kubectl = world.kubectl("gates");
    create(&kubectl, "gated", "", r#","schedulingGates":[{"name":"example.com/wait"}]"#);
    let reason = r#"get pod gated -o jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}"#;
    until(&kubectl, reason, "SchedulingGated");
    kubectl.run_with(&["patch", "pod", "gated", "--type=merge", "-p", r#"{"spec":{"schedulingGates":null}}"#], "");
    eventually(&kubectl, &["get", "pod", "gated", "-o", "jsonpath={.spec.nodeName}"], |text| text.starts_with("fake-"));
    create(&kubectl, "foreign", "", r#","schedulerName":"mine""#);
    // A pod that was created later is bound already.
    create(&kubectl, "ours", "", "");
    eventually(&kubectl, &["get", "pod", "ours", "-o", "jsonpath={.spec.nodeName}"], |text| text.starts_with("fake-"));
    assert_eq!(kubectl.run("get pod foreign -o jsonpath={.spec.nodeName}"), "");
}
