//! The objects and events of workloads, step by step.

use api::{Str, Tree, list, tree};
use testkit::{Client, Cluster};

use crate::golden::Transcript;

use super::{APPS, PODS, becomes, create, items, name, patch, play_node, wait_event, workload};

fn has(object: &Tree, counts: &[(&str, i64)]) -> bool {
    counts.iter().all(|(field, count)| object.at("status").int(field).unwrap_or_default() == *count)
}

fn reason(object: &Tree, condition: &str) -> Str {
    let mut conditions = object.list("status.conditions").iter();
    conditions.find(|one| one.str("type") == condition).map_or(Str::default(), |one| Str::new(one.str("reason")))
}

async fn sets_by_revision(client: &Client) -> Vec<Tree> {
    let mut sets = items(client, &format!("{APPS}/replicasets")).await;
    sets.sort_by_key(|set| set.map("metadata.annotations").str("deployment.kubernetes.io/revision").to_string());
    sets
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_matches_upstream() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let mut story = Transcript::new(&client);
    let (path, sets) = (format!("{APPS}/deployments/web"), format!("{APPS}/replicasets"));
    create(
        &client,
        &format!("{APPS}/deployments"),
        &workload("apps/v1", "Deployment", "web", tree! { "replicas" => 3 }),
    )
    .await;
    let created = story.see(&path, |web| reason(web, "Progressing") == "ReplicaSetUpdated").await;
    let first = sets_by_revision(&client).await;
    story.call_label(&first[0], "pod-template-hash", "first");
    story.tell("deployment", &[created], &["metadata", "status"]);
    let set = story.see(&format!("{sets}/{}", name(&first[0])), |set| has(set, &[("replicas", 3)])).await;
    story.tell("replica set", &[set], &[]);
    let pod = items(&client, PODS).await.remove(0);
    story.tell("pod", &[pod], &["metadata"]);
    let available = becomes(&client, &path, |web| reason(web, "Progressing") == "NewReplicaSetAvailable").await;
    story.tell("available", &[available], &["status"]);
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    let rolling = story.see(&path, |web| has(web, &[("updatedReplicas", 1), ("replicas", 4)])).await;
    let both = sets_by_revision(&client).await;
    story.call_label(&both[1], "pod-template-hash", "second");
    story.tell("rolling", &[rolling], &["metadata", "status"]);
    story.tell("sets", &both, &["metadata", "status"]);
    let is_complete = |web: &Tree| {
        has(web, &[("replicas", 3), ("updatedReplicas", 3), ("terminatingReplicas", 0)])
            && reason(web, "Progressing") == "NewReplicaSetAvailable"
    };
    let complete = becomes(&client, &path, is_complete).await;
    story.tell("complete", &[complete], &["status"]);
    patch(&client, &format!("{path}/scale"), r#"{"spec":{"replicas":5}}"#).await;
    let scaled = story.see(&path, |web| has(web, &[("replicas", 5)])).await;
    story.tell("scaled", &[scaled], &["status"]);
    patch(&client, &path, r#"{"spec":{"paused":true}}"#).await;
    let paused = story.see(&path, |web| reason(web, "Progressing") == "DeploymentPaused").await;
    story.tell("paused", &[paused], &["status"]);
    wait_event(&client, "web", "ScalingReplicaSet", "from 3 to 5").await;
    let newest = name(&both[1]);
    super::until("the last pods are told of", async || {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{newest}");
        items(&client, &path).await.len() >= 5
    })
    .await;
    story.tell_events(&["web"]).await;
    story.compare("deployment.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_matches_upstream() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let mut story = Transcript::new(&client);
    let requests = tree! { "requests" => tree! { "storage" => "1Gi" } };
    // Of a class without a provisioner, so that the claim stays as it was created.
    let spec =
        tree! { "accessModes" => list!["ReadWriteOnce"], "resources" => requests, "storageClassName" => "missing" };
    let claim = tree! { "metadata" => tree! { "name" => "data" }, "spec" => spec };
    let spec = tree! { "replicas" => 2, "serviceName" => "db", "volumeClaimTemplates" => list![claim] };
    let path = format!("{APPS}/statefulsets/db");
    create(&client, &format!("{APPS}/statefulsets"), &workload("apps/v1", "StatefulSet", "db", spec)).await;
    let waiting = story.see(&path, |db| has(db, &[("replicas", 1)])).await;
    story.tell("waiting for the first", &[waiting], &["status"]);
    let pod = client.get(&format!("{PODS}/db-0")).await.tree();
    story.tell("first pod", &[pod], &["metadata", "spec"]);
    let claims = items(&client, "/api/v1/namespaces/default/persistentvolumeclaims").await;
    story.tell("claim", &claims, &["metadata", "spec"]);
    let ready = becomes(&client, &path, |db| has(db, &[("availableReplicas", 2)])).await;
    story.tell("ready", &[ready], &["status"]);
    story.tell("revision", &items(&client, &format!("{APPS}/controllerrevisions")).await, &[]);
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    let updating = story.see(&path, |db| has(db, &[("currentReplicas", 1)])).await;
    story.tell("update starts at the last", &[updating], &["status"]);
    let updated = becomes(&client, &path, |db| has(db, &[("updatedReplicas", 2), ("availableReplicas", 2)])).await;
    story.tell("updated", &[updated], &["status"]);
    patch(&client, &format!("{path}/scale"), r#"{"spec":{"replicas":0}}"#).await;
    let down = becomes(&client, &path, |db| has(db, &[("replicas", 0), ("observedGeneration", 3)])).await;
    story.tell("scaled to nothing", &[down], &["status"]);
    wait_event(&client, "db", "SuccessfulDelete", "Delete Pod db-0").await;
    story.tell_events(&["db"]).await;
    story.compare("statefulset.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_set_matches_upstream() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let mut story = Transcript::new(&client);
    super::add_node(&client, "a").await;
    super::add_node(&client, "b").await;
    let path = format!("{APPS}/daemonsets/agent");
    create(&client, &format!("{APPS}/daemonsets"), &workload("apps/v1", "DaemonSet", "agent", tree! {})).await;
    let created = story.see(&path, |agent| has(agent, &[("currentNumberScheduled", 2)])).await;
    let revisions = items(&client, &format!("{APPS}/controllerrevisions")).await;
    story.call_label(&revisions[0], "controller-revision-hash", "first");
    story.tell("daemon set", &[created], &["metadata", "status"]);
    story.tell("revision", &revisions, &[]);
    let pods = items(&client, PODS).await;
    let on_a = pods.into_iter().find(|pod| super::node_of(pod) == "a").expect("a pod");
    story.tell("pod", &[on_a], &["metadata", "spec"]);
    let ready = becomes(&client, &path, |agent| has(agent, &[("numberAvailable", 2)])).await;
    story.tell("ready", &[ready], &["status"]);
    patch(&client, "/api/v1/nodes/a", r#"{"metadata":{"labels":{"disk":"fast"}}}"#).await;
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"nodeSelector":{"disk":"fast"}}}}}"#).await;
    let moving = story.see(&path, |agent| has(agent, &[("numberMisscheduled", 1)])).await;
    story.tell("other nodes", &[moving], &["status"]);
    play_node(&client).await;
    let updated = becomes(&client, &path, |agent| {
        has(agent, &[("updatedNumberScheduled", 1), ("numberAvailable", 1), ("numberMisscheduled", 0)])
    })
    .await;
    story.tell("updated", &[updated], &["status"]);
    wait_event(&client, "agent", "SuccessfulDelete", "Deleted pod: agent-").await;
    story.tell_events(&["agent"]).await;
    story.compare("daemonset.yaml");
    cluster.stop().await;
}
