//! Races between many pods, and changes during a decision.

use super::*;

async fn bound(client: &Client) -> Vec<String> {
    let list = client.get(PODS).await.tree();
    let bound = list.list("items").iter().filter(|pod| is_bound(200, pod));
    bound.map(|pod| pod.str("metadata.name").to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_many_racing_pods_is_bound() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "1")]).await;
    let client = &cluster.client;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let client = client.clone();
        tasks.spawn(async move { create(&client, &pod(&format!("p{number}"), "10m")).await });
    }
    let paths: Vec<String> = tasks.join_all().await;
    for path in &paths {
        client.until(path, |_, pod| is_bound(200, pod) || condition(pod, "PodScheduled").is_some()).await;
    }
    let first = bound(client).await;
    assert_eq!(first.len(), 1, "{first:?}");
    let reply = client.delete(&format!("{PODS}/{}?gracePeriodSeconds=0", first[0])).await;
    assert_eq!(reply.code, 200);
    let is_bound = async || !bound(client).await.is_empty();
    stdx::wait::until_await("a bound pod", testkit::client::DEADLINE, is_bound).await;
    let second = bound(client).await;
    assert_eq!(second.len(), 1, "{second:?}");
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_bound_by_others_are_not_bound_twice() {
    let cluster = start(&["default-scheduler"], &[("one", "1", "10")]).await;
    let client = &cluster.client;
    let mut own = pod("own", "1");
    own.child("spec").set("schedulerName", "by-hand");
    let path = create(client, &own).await;
    let binding = tree! {
        "metadata" => tree! { "name" => "own" },
        "target" => tree! { "kind" => "Node", "name" => "one" },
    };
    assert_eq!(client.post(&format!("{path}/binding"), &binding).await.code, 201);
    let late = create(client, &pod("late", "1")).await;
    let waits = client.until(&late, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    assert!(!is_bound(200, &waits), "{waits:?}");
    client.delete(&format!("{path}?gracePeriodSeconds=0")).await;
    client.until(&late, is_bound).await;
}
