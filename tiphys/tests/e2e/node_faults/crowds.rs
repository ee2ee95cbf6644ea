//! Unusually many pods and containers.

use std::time::Duration;

use api::Tree;

use super::pod_path;
use super::world::{PODS, World, condition, size};

/// A generous timeout for slow machines: these are no measurements.
const LONG: Duration = Duration::from_secs(180);
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[test]
fn pod_of_a_hundred_containers_runs_and_stops() {
    let count = size(30, 100);
    let (world, up) = World::up(1, &[]);
    let container = |at: usize| {
        format!(
            "  - {{name: c{at}, image: tiphys.local/hello, imagePullPolicy: IfNotPresent, args: [sleep, '100000']}}"
        )
    };
    let containers: Vec<String> = (0..count).map(container).collect();
    let head = "apiVersion: v1\nkind: Pod\nmetadata: {name: crowd}\nspec:\n  containers:\n";
    world.create(PODS, &format!("{head}{}\n", containers.join("\n")));
    let path = pod_path("crowd");
    let pod = world.until_within(LONG, "many containers", &path, |pod| condition(pod, "Ready") == "True");
    let ids = |pod: &Tree| -> Vec<String> {
        let statuses = pod.list("status.containerStatuses").iter();
        statuses.map(|status| format!("{} {:?}", status.str("containerID"), status.int("restartCount"))).collect()
    };
    assert_eq!(ids(&pod).len(), count);
    up.kill();
    let _up = world.start_up(&[]);
    world.until_node("True");
    let again = world.until_ready("crowd");
    assert_eq!(ids(&pod), ids(&again), "no container was started again");
    world.delete(&path);
    world.until_gone("crowd");
}

/// The maximum number of pods of a node, each probed twice a second.
#[test]
fn full_node_survives_a_restart_of_its_kubelet() {
    let count = size(40, 110);
    let (world, up) = World::up(1, &[]);
    world.create(
        DEPLOYMENTS,
        &r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: full}
spec:
  replicas: COUNT
  selector: {matchLabels: {app: full}}
  template:
    metadata: {labels: {app: full}}
    spec:
      containers:
      - name: main
        image: tiphys.local/hello
        imagePullPolicy: IfNotPresent
        livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
"#
        .replace("COUNT", &count.to_string()),
    );
    let all_ready = |list: &Tree| {
        list.list("items").len() == count && list.list("items").iter().all(|pod| condition(pod, "Ready") == "True")
    };
    let before = world.until_within(LONG, "all pods", PODS, all_ready);
    up.kill();
    let _up = world.start_up(&[]);
    world.until_node("True");
    let after = world.until_within(LONG, "all pods", PODS, all_ready);
    assert_eq!(containers(&before), containers(&after), "no container was started again");
    world.delete(&format!("{DEPLOYMENTS}/full"));
    world.until_within(LONG, "no pod", PODS, |list| list.list("items").is_empty());
    let left: Vec<_> = world.cgroups().into_iter().filter(|dir| dir.to_string_lossy().contains("/pod")).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}

fn containers(list: &Tree) -> Vec<String> {
    let one = |pod: &Tree| {
        let status = &pod.list("status.containerStatuses")[0];
        let started = status.str("state.running.startedAt");
        format!("{} {} {started}", pod.str("metadata.name"), status.str("containerID"))
    };
    let mut all: Vec<String> = list.list("items").iter().map(one).collect();
    all.sort();
    all
}
