//! Schedulers as separate processes, with the newest kubectl: two elect a leader, which is killed; one with another
//! name binds its own pods.

use std::process::Command;

use crate::kubectl::Kubectl;
use crate::manager::Component;
use crate::scheduling::{create, refusal, why};
use crate::support::BINARY;
use crate::workloads::{World, eventually};

const HASTY: [&str; 3] =
    ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms"];

fn scheduler(world: &World, more: &[&str]) -> Component {
    let flags: Vec<&str> = HASTY.iter().chain(more).copied().collect();
    Component::start(&world.server, "kube-scheduler", "scheduler", &flags)
}

/// Waits until another process holds the lease.
fn holder(kubectl: &Kubectl<'_>, before: &str) -> String {
    let path = "jsonpath={.spec.holderIdentity}";
    let lease = ["get", "lease", "kube-scheduler", "-n", "kube-system", "-o", path];
    eventually(kubectl, &lease, |text| !text.is_empty() && !text.contains("NotFound") && text != before)
}

fn is_placed(kubectl: &Kubectl<'_>, pod: &str) {
    eventually(kubectl, &["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"], |text| text.starts_with("fake-"));
}

#[test]
fn standby_scheduler_takes_over_from_a_killed_leader() {
    let world = World::with(&["--disable-scheduler"]);
    let kubectl = world.kubectl("elected");
    create(&kubectl, "early", "", "");
    let explanation = why(&world, &["pod", "early", "-n", "elected"]);
    assert!(explanation.contains("no scheduler named \"default-scheduler\" is running"), "{explanation}");
    let first = scheduler(&world, &[]);
    let leader = holder(&kubectl, "");
    let _second = scheduler(&world, &[]);
    is_placed(&kubectl, "early");
    let big = r#","containers":[{"name":"c","image":"c:1","resources":{"requests":{"cpu":"4000"}}}]"#;
    create(&kubectl, "big", "", big);
    let message = refusal(&kubectl, "big");
    let explanation = why(&world, &["pod", "big", "-n", "elected"]);
    assert!(
        explanation.starts_with(&message) && explanation.contains("fake-2   NodeResourcesFit   Insufficient cpu"),
        "{explanation}"
    );
    first.signal("-KILL");
    holder(&kubectl, &leader);
    create(&kubectl, "late", "", "");
    is_placed(&kubectl, "late");
    // The new leader has evaluated the pending pod, and responds to the request.
    let kubeconfig = world.server.kubeconfig();
    let arguments = ["get", "--raw", "/tiphys/v1/why/elected/big", "--kubeconfig", kubeconfig.to_str().expect("text")];
    eventually(&kubectl, &arguments, |text| text.contains("NodeResourcesFit"));
}

#[test]
fn schedulers_of_other_names_bind_their_own_pods() {
    let world = World::new();
    let kubectl = world.kubectl("named");
    let config = world.server.dir.path().join("mine.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                leaderElection: {leaderElect: false}\nprofiles:\n- schedulerName: mine\n  plugins:\n    score:\n\
                \x20     disabled: [{name: '*'}]\n";
    std::fs::write(&config, text).expect("a file");
    let _mine =
        Component::start(&world.server, "kube-scheduler", "scheduler", &[&format!("--config={}", config.display())]);
    create(&kubectl, "mine", "", r#","schedulerName":"mine""#);
    create(&kubectl, "ours", "", "");
    create(&kubectl, "foreign", "", r#","schedulerName":"other""#);
    is_placed(&kubectl, "mine");
    is_placed(&kubectl, "ours");
    eventually(&kubectl, &["describe", "pod", "mine"], |text| {
        text.contains("Scheduled")
            && text.contains(" mine ")
            && text.contains("Successfully assigned named/mine to fake-")
    });
    assert_eq!(kubectl.run("get pod foreign -o jsonpath={.spec.nodeName}"), "");
}

#[test]
fn a_bad_configuration_names_its_field() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("bad.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                podMaxBackoffSeconds: 0\nprofiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]\n";
    std::fs::write(&config, text).expect("a file");
    let output = Command::new(BINARY)
        .args(["kube-scheduler", "--kubeconfig=/nowhere", &format!("--config={}", config.display())])
        .output()
        .expect("the binary starts");
    let explanation = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for field in ["bad.yaml: podMaxBackoffSeconds: Invalid value: 0", "profiles[0].plugins.filter.enabled[0].name"] {
        assert!(explanation.contains(field), "{explanation}");
    }
}
