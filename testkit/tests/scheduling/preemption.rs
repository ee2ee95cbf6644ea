//! Preemption.

use super::*;

pub async fn class(client: &Client, name: &str, value: i64) {
    let class = tree! { "metadata" => tree! { "name" => name }, "value" => value };
    assert_eq!(client.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.code, 201);
}

pub fn of_class(name: &str, cpu: &str, class: &str) -> Tree {
    let mut pod = pod(name, cpu);
    pod.child("spec").set("priorityClassName", class);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn preempts_with_grace_period() {
    let cluster = start(&["default-scheduler"], &[("one", "2", "10")]).await;
    let client = &cluster.client;
    class(client, "low", 10).await;
    class(client, "high", 100).await;
    let (a, b) = (of_class("a", "1", "low"), of_class("b", "1", "high"));
    let victim = create(client, &a).await;
    let stays = create(client, &b).await;
    for path in [&victim, &stays] {
        client.until(path, is_bound).await;
    }
    let path = create(client, &of_class("p", "1", "high")).await;
    let ends = client.until(&victim, |_, pod| pod.at("metadata").has("deletionTimestamp")).await;
    let said =
        condition(&ends, "DisruptionTarget").map(|one| (one.str("status"), one.str("reason"), one.str("message")));
    let text = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(said, Some(("True", "PreemptionByScheduler", text)));
    assert_eq!(ends.int("metadata.deletionGracePeriodSeconds"), Some(30), "it has its time");
    let waits = client.until(&path, |_, pod| pod.str("status.nominatedNodeName") == "one").await;
    assert!(!is_bound(200, &waits));
    let message = event(client, "a", "Preempted").await;
    assert_eq!(message, format!("Preempted by pod {} on node one", waits.str("metadata.uid")));
    let told = whole_event(client, "a", "Preempted").await;
    assert_eq!((told.str("action"), told.str("related.kind")), ("Preempting", "Pod"));
    assert_eq!(told.str("related.uid"), waits.str("metadata.uid"));

    // A pod of lower priority does not get the nominated node.
    let other = create(client, &of_class("q", "1", "low")).await;
    client.until(&other, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let gone = client.delete(&format!("{victim}?gracePeriodSeconds=0")).await;
    assert_eq!(gone.code, 200);
    client.until(&path, is_bound).await;
    let stays = client.get(&stays).await.tree();
    assert!(!stays.at("metadata").has("deletionTimestamp"), "no other pod was preempted");
    assert!(!is_bound(200, &client.get(&other).await.tree()));
}
