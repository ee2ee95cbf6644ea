//! Jobs, CronJobs, disruption budgets and quotas on a whole cluster, through the API.

mod jobs;
mod upkeep;

use api::Tree;
use api::json::decode;
use testkit::{Client, Cluster};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Creates an object from JSON, and returns it as the server stores it.
async fn make(client: &Client, path: &str, json: &str) -> Tree {
    let object = decode(json.as_bytes()).expect("json");
    let reply = client.post(path, &object).await;
    assert_eq!(reply.code, 201, "{path}: {:?}", reply.tree());
    reply.tree()
}

/// Waits until an object satisfies a condition.
async fn until(client: &Client, path: &str, is_so: impl Fn(&Tree) -> bool) -> Tree {
    client.until(path, |_, tree| is_so(tree)).await
}

/// Waits until `count` objects satisfy a condition, and returns them.
async fn until_count(client: &Client, path: &str, count: usize, is_so: impl Fn(&Tree) -> bool) -> Vec<Tree> {
    let chosen = |list: &Tree| list.list("items").iter().filter(|item| is_so(item)).cloned().collect::<Vec<_>>();
    let list = until(client, path, |list| chosen(list).len() == count).await;
    chosen(&list)
}

async fn set_status(client: &Client, path: &str, status: &str) {
    let patch = format!(r#"{{"status":{status}}}"#);
    let reply = client.patch(&format!("{path}/status"), "strategic-merge", &patch).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
}

fn name(object: &Tree) -> &str {
    object.str("metadata.name")
}

/// `type=reason` of the conditions that hold.
fn conditions(object: &Tree) -> String {
    let holds = object.list("status.conditions").iter().filter(|condition| condition.str("status") == "True");
    holds.map(|c| format!("{}={}", c.str("type"), c.str("reason"))).collect::<Vec<_>>().join(" ")
}

/// Waits for events about an object, by their reasons in the order of their arrival.
async fn until_event(client: &Client, about: &str, want: &str) {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{about}");
    let reasons = |list: &Tree| {
        let mut events: Vec<&Tree> = list.list("items").iter().collect();
        events.sort_by_key(|event| event.str("metadata.resourceVersion").parse::<u64>().unwrap_or(0));
        events.iter().map(|event| event.str("reason")).collect::<Vec<_>>().join(" ")
    };
    until(client, &path, |list| reasons(list) == want).await;
}

async fn whole() -> Cluster {
    let cluster = Cluster::start_whole().await;
    until(&cluster.client, "/api/v1/namespaces/default/serviceaccounts/default", |account| name(account) == "default")
        .await;
    cluster
}
