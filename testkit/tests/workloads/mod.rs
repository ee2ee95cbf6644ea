//! Workloads end to end: objects through the API, real controllers, and a node that the test simulates.

mod golden;

use api::{Tree, list, tree};
use testkit::{Client, Cluster};

use crate::until;

const PODS: &str = "/api/v1/namespaces/default/pods";
const APPS: &str = "/apis/apps/v1/namespaces/default";

fn template(app: &str, image: &str) -> Tree {
    let container = tree! { "name" => "c", "image" => image };
    let spec = tree! { "automountServiceAccountToken" => false, "containers" => list![container] };
    tree! { "metadata" => tree! { "labels" => tree! { "app" => app } }, "spec" => spec }
}

fn workload(api_version: &str, kind: &str, name: &str, mut spec: Tree) -> Tree {
    let labels = tree! { "app" => name };
    let selector = if kind == "ReplicationController" {
        labels
    } else {
        tree! { "matchLabels" => labels }
    };
    spec.set("selector", selector);
    spec.set("template", template(name, "app:1"));
    let metadata = tree! { "name" => name };
    tree! { "apiVersion" => api_version, "kind" => kind, "metadata" => metadata, "spec" => spec }
}

async fn create(client: &Client, path: &str, object: &Tree) -> Tree {
    let reply = client.post(path, object).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    reply.tree()
}

async fn patch(client: &Client, path: &str, body: &str) {
    let reply = client.patch(path, "strategic-merge", body).await;
    assert_eq!(reply.code, 200, "{}", reply.tree().str("message"));
}

async fn items(client: &Client, path: &str) -> Vec<Tree> {
    client.get(path).await.tree().list("items").to_vec()
}

async fn pods(client: &Client, app: &str) -> Vec<Tree> {
    items(client, &format!("{PODS}?labelSelector=app%3D{app}")).await
}

fn name(object: &Tree) -> String {
    object.str("metadata.name").to_string()
}

fn is_running(pod: &Tree) -> bool {
    pod.str("status.phase") == "Running"
}

/// The node that a daemon is tied to; others may run anywhere.
fn node_of(pod: &Tree) -> String {
    let required = pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    let field = required.list("nodeSelectorTerms").first().and_then(|term| term.list("matchFields").first());
    let name = field.and_then(|field| field.list("values").first()).and_then(Tree::as_str);
    name.unwrap_or("node").to_string()
}

/// Plays a node: runs its pods, and deletes terminating pods.
async fn play_node(client: &Client) {
    for pod in items(client, PODS).await {
        let path = format!("{PODS}/{}", name(&pod));
        if pod.at("metadata").has("deletionTimestamp") {
            client.delete(&format!("{path}?gracePeriodSeconds=0")).await;
        } else if !is_running(&pod) {
            if pod.str("spec.nodeName").is_empty() {
                let target = tree! { "kind" => "Node", "name" => node_of(&pod) };
                let metadata = tree! { "name" => name(&pod) };
                let binding =
                    tree! { "apiVersion" => "v1", "kind" => "Binding", "metadata" => metadata, "target" => target };
                client.post(&format!("{path}/binding"), &binding).await;
            }
            let ready = r#"{"type":"Ready","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}"#;
            let body = format!(r#"{{"status":{{"phase":"Running","conditions":[{ready}]}}}}"#);
            client.patch(&format!("{path}/status"), "merge", &body).await;
        }
    }
}

/// Plays the node until something holds of an object.
async fn becomes(client: &Client, path: &str, holds: impl Fn(&Tree) -> bool) -> Tree {
    let mut last = client.get(path).await.tree();
    let wait = async {
        while !holds(&last) {
            play_node(client).await;
            last = client.get(path).await.tree();
        }
    };
    let in_time = tokio::time::timeout(testkit::client::DEADLINE, wait).await.is_ok();
    assert!(in_time, "{path}: not in time: {:?}", last.at("status"));
    last
}

async fn add_node(client: &Client, name: &str) {
    let node = tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => tree! { "name" => name } };
    create(client, "/api/v1/nodes", &node).await;
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    patch(client, &format!("/api/v1/nodes/{name}/status"), ready).await;
    // New nodes are held back until they are ready; a daemon does not mind that nothing is scheduled there.
    let taint = r#"{"spec":{"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}"#;
    patch(client, &format!("/api/v1/nodes/{name}"), taint).await;
}

fn counts(object: &Tree, fields: &[&str]) -> Vec<i64> {
    fields.iter().map(|field| object.at("status").int(field).unwrap_or_default()).collect()
}

fn is_complete(deployment: &Tree) -> bool {
    let wanted = deployment.int("spec.replicas").unwrap_or_default();
    let all = counts(deployment, &["replicas", "updatedReplicas", "availableReplicas"]);
    all.iter().all(|count| *count == wanted)
        && deployment.int("status.observedGeneration") == deployment.int("metadata.generation")
        && !deployment.at("status").has("unavailableReplicas")
}

async fn wait_event(client: &Client, object: &str, reason: &str, text: &str) {
    until(text, async || {
        let events =
            items(client, &format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{object}"))
                .await;
        events.iter().any(|event| event.str("reason") == reason && event.str("message").contains(text))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_rolls_out_and_back() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let path = format!("{APPS}/deployments/web");
    create(
        &client,
        &format!("{APPS}/deployments"),
        &workload("apps/v1", "Deployment", "web", tree! { "replicas" => 3 }),
    )
    .await;
    let first = becomes(&client, &path, is_complete).await;
    let reason = |deployment: &Tree, kind: &str| {
        let conditions = deployment.list("status.conditions").iter();
        conditions.filter(|one| one.str("type") == kind).map(|one| one.str("reason").to_string()).collect::<String>()
    };
    assert_eq!(reason(&first, "Available"), "MinimumReplicasAvailable");
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    let second =
        becomes(&client, &path, |web| is_complete(web) && reason(web, "Progressing") == "NewReplicaSetAvailable").await;
    assert_eq!(second.map("metadata.annotations").str("deployment.kubernetes.io/revision"), "2");
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:1"}]}}}}"#).await;
    becomes(&client, &path, |web| is_complete(web) && reason(web, "Progressing") == "NewReplicaSetAvailable").await;
    let sets = items(&client, &format!("{APPS}/replicasets")).await;
    let revision = |set: &Tree| set.map("metadata.annotations").str("deployment.kubernetes.io/revision").to_string();
    let mut revisions: Vec<(String, Option<i64>)> =
        sets.iter().map(|set| (revision(set), set.int("spec.replicas"))).collect();
    revisions.sort();
    assert_eq!(revisions, [("2".to_string(), Some(0)), ("3".to_string(), Some(3))]);
    let back = sets.iter().find(|set| revision(set) == "3").expect("a set");
    assert_eq!(back.map("metadata.annotations").str("deployment.kubernetes.io/revision-history"), "1");
    wait_event(&client, "web", "ScalingReplicaSet", "from 0 to 3").await;
    wait_event(&client, &name(back), "SuccessfulCreate", "Created pod: ").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_sets_adopt_release_and_report_failures() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    for (version, kind, path) in [
        ("apps/v1", "ReplicaSet", format!("{APPS}/replicasets")),
        ("v1", "ReplicationController", "/api/v1/namespaces/default/replicationcontrollers".to_string()),
    ] {
        let app = kind.to_lowercase();
        let mut orphan = template(&app, "app:1");
        orphan.set("apiVersion", "v1");
        orphan.set("kind", "Pod");
        orphan.child("metadata").set("name", format!("{app}-orphan"));
        create(&client, PODS, &orphan).await;
        create(&client, &path, &workload(version, kind, &app, tree! { "replicas" => 2 })).await;
        let set =
            becomes(&client, &format!("{path}/{app}"), |set| set.int("status.availableReplicas") == Some(2)).await;
        let owned = pods(&client, &app).await;
        let owner = |pod: &Tree| pod.list("metadata.ownerReferences").first().map(|owner| owner.str("uid").to_string());
        assert!(owned.len() == 2 && owned.iter().all(|pod| owner(pod).as_deref() == Some(set.str("metadata.uid"))));
        // A pod whose labels no longer match is released, and replaced.
        patch(&client, &format!("{PODS}/{app}-orphan"), r#"{"metadata":{"labels":{"app":"free"}}}"#).await;
        until("it is replaced", async || pods(&client, &app).await.len() == 2).await;
        until("it is free", async || owner(&client.get(&format!("{PODS}/{app}-orphan")).await.tree()).is_none()).await;
        client.delete(&format!("{PODS}/{app}-orphan?gracePeriodSeconds=0")).await;
    }
    let quota = tree! {
        "apiVersion" => "v1", "kind" => "ResourceQuota", "metadata" => tree! { "name" => "few" },
        "spec" => tree! { "hard" => tree! { "pods" => "5" } },
    };
    create(&client, "/api/v1/namespaces/default/resourcequotas", &quota).await;
    let path = format!("{APPS}/replicasets/replicaset");
    // The quota applies once its status is set, which its own controller does.
    let used = r#"{"status":{"hard":{"pods":"5"},"used":{"pods":"4"}}}"#;
    client.patch("/api/v1/namespaces/default/resourcequotas/few/status", "merge", used).await;
    patch(&client, &path, r#"{"spec":{"replicas":9}}"#).await;
    let failed = becomes(&client, &path, |set| !set.list("status.conditions").is_empty()).await;
    let condition = &failed.list("status.conditions")[0];
    assert_eq!((condition.str("type"), condition.str("reason")), ("ReplicaFailure", "FailedCreate"));
    assert!(condition.str("message").contains("exceeded quota: few"), "{}", condition.str("message"));
    wait_event(&client, "replicaset", "FailedCreate", "Error creating: pods \"replicaset-").await;
    client.delete("/api/v1/namespaces/default/resourcequotas/few").await;
    becomes(&client, &path, |set| {
        set.int("status.availableReplicas") == Some(9) && set.list("status.conditions").is_empty()
    })
    .await;
    patch(&client, &path, r#"{"spec":{"replicas":1}}"#).await;
    becomes(&client, &path, |set| counts(set, &["replicas", "terminatingReplicas"]) == [1, 0]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_keeps_order_names_and_claims() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let claim = tree! {
        "metadata" => tree! { "name" => "data" },
        "spec" => tree! {
            "accessModes" => list!["ReadWriteOnce"],
            "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
        },
    };
    let spec = tree! {
        "replicas" => 2, "serviceName" => "db", "volumeClaimTemplates" => list![claim],
        "persistentVolumeClaimRetentionPolicy" => tree! { "whenScaled" => "Delete", "whenDeleted" => "Retain" },
    };
    create(&client, &format!("{APPS}/statefulsets"), &workload("apps/v1", "StatefulSet", "db", spec)).await;
    until("the first pod", async || client.get(&format!("{PODS}/db-0")).await.code == 200).await;
    let set = client.get(&format!("{APPS}/statefulsets/db")).await.tree();
    assert_eq!(client.get(&format!("{PODS}/db-1")).await.code, 404, "{set:?}");
    let path = format!("{APPS}/statefulsets/db");
    let set = becomes(&client, &path, |set| set.int("status.availableReplicas") == Some(2)).await;
    let first = set.str("status.currentRevision").to_string();
    assert_eq!(set.str("status.updateRevision"), first);
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    let is_updated = |set: &Tree| {
        set.str("status.currentRevision") != first && counts(set, &["updatedReplicas", "availableReplicas"]) == [2, 2]
    };
    let set = becomes(&client, &path, is_updated).await;
    let pod = client.get(&format!("{PODS}/db-1")).await.tree();
    assert_eq!(pod.map("metadata.labels").str("controller-revision-hash"), set.str("status.currentRevision"));
    let volume = pod.list("spec.volumes").iter().find(|volume| volume.str("name") == "data").expect("a volume");
    assert_eq!(volume.str("persistentVolumeClaim.claimName"), "data-db-1");
    assert_eq!(items(&client, &format!("{APPS}/controllerrevisions")).await.len(), 2);
    patch(&client, &path, r#"{"spec":{"replicas":1}}"#).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    until("its claim goes with the pod", async || {
        let claim = client.get(&format!("{claims}/data-db-1")).await;
        let owners = claim.tree().list("metadata.ownerReferences").to_vec();
        claim.code == 404 || owners.iter().any(|owner| owner.str("uid") == pod.str("metadata.uid"))
    })
    .await;
    becomes(&client, &path, |set| counts(set, &["replicas", "availableReplicas"]) == [1, 1]).await;
    let kept = client.get(&format!("{claims}/data-db-0")).await.tree();
    assert!(kept.list("metadata.ownerReferences").is_empty() && !kept.at("metadata").has("deletionTimestamp"));
    wait_event(&client, "db", "SuccessfulCreate", "Create Claim data-db-0 Pod db-0 in StatefulSet db success").await;
    wait_event(&client, "db", "SuccessfulDelete", "Delete Pod db-1 in StatefulSet db successful").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_follows_the_nodes() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    add_node(&client, "a").await;
    create(&client, &format!("{APPS}/daemonsets"), &workload("apps/v1", "DaemonSet", "agent", tree! {})).await;
    let path = format!("{APPS}/daemonsets/agent");
    let fields = ["desiredNumberScheduled", "currentNumberScheduled", "numberAvailable", "updatedNumberScheduled"];
    becomes(&client, &path, |set| counts(set, &fields) == [1, 1, 1, 1]).await;
    add_node(&client, "b").await;
    becomes(&client, &path, |set| counts(set, &fields) == [2, 2, 2, 2]).await;
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    becomes(&client, &path, |set| counts(set, &fields) == [2, 2, 2, 2] && counts(set, &["observedGeneration"]) == [2])
        .await;
    let images: Vec<String> = pods(&client, "agent")
        .await
        .iter()
        .map(|pod| pod.list("spec.containers")[0].str("image").to_string())
        .collect();
    assert_eq!(images, ["app:2", "app:2"]);
    let evict = r#"{"spec":{"taints":[{"key":"gone","effect":"NoExecute"}]}}"#;
    patch(&client, "/api/v1/nodes/b", evict).await;
    becomes(&client, &path, |set| counts(set, &fields) == [1, 1, 1, 1] && counts(set, &["numberMisscheduled"]) == [0])
        .await;
    let left: Vec<String> = pods(&client, "agent").await.iter().map(node_of).collect();
    assert_eq!(left, ["a"]);
    wait_event(&client, "agent", "SuccessfulDelete", "Deleted pod: agent-").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_set_surge_keeps_a_pod_on_every_node() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    add_node(&client, "a").await;
    add_node(&client, "b").await;
    let rolling = tree! { "maxSurge" => 1, "maxUnavailable" => 0 };
    let spec = tree! { "updateStrategy" => tree! { "type" => "RollingUpdate", "rollingUpdate" => rolling } };
    create(&client, &format!("{APPS}/daemonsets"), &workload("apps/v1", "DaemonSet", "agent", spec)).await;
    let path = format!("{APPS}/daemonsets/agent");
    let fields = ["numberAvailable", "updatedNumberScheduled", "observedGeneration"];
    becomes(&client, &path, |set| counts(set, &fields) == [2, 2, 1]).await;
    patch(&client, &path, r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"app:2"}]}}}}"#).await;
    let rolled = async {
        while counts(&client.get(&path).await.tree(), &fields) != [2, 2, 2] {
            play_node(&client).await;
            let pods = pods(&client, "agent").await;
            let serves = |node: &str| {
                let lives = |pod: &&Tree| is_running(pod) && !pod.at("metadata").has("deletionTimestamp");
                pods.iter().filter(lives).any(|pod| node_of(pod) == node)
            };
            assert!(serves("a") && serves("b"), "{pods:?}");
        }
    };
    assert!(tokio::time::timeout(testkit::client::DEADLINE, rolled).await.is_ok(), "it is not rolled in time");
    cluster.stop().await;
}

/// The name that a controller would choose exists: it counts the collision and chooses another.
#[tokio::test(flavor = "multi_thread")]
async fn skips_names_that_are_taken() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    for (kind, path, children) in [
        ("Deployment", "deployments", "replicasets"),
        ("StatefulSet", "statefulsets", "controllerrevisions"),
        ("DaemonSet", "daemonsets", "controllerrevisions"),
    ] {
        let (path, children) = (format!("{APPS}/{path}"), format!("{APPS}/{children}"));
        let spec = if kind == "DaemonSet" {
            tree! {}
        } else {
            tree! { "replicas" => 0 }
        };
        let object = workload("apps/v1", kind, "x", spec);
        let created = create(&client, &path, &object).await;
        let of_owner = async |owner: &Tree| {
            let is_its = |child: &Tree| {
                child.list("metadata.ownerReferences").iter().any(|one| one.str("uid") == owner.str("metadata.uid"))
            };
            items(&client, &children).await.into_iter().filter(is_its).map(|child| name(&child)).collect::<Vec<_>>()
        };
        until("it has a child", async || !of_owner(&created).await.is_empty()).await;
        let taken = of_owner(&created).await.remove(0);
        client.delete(&format!("{path}/x")).await;
        until("both are deleted", async || {
            client.delete(&format!("{children}/{taken}")).await;
            client.get(&format!("{children}/{taken}")).await.code == 404
                && client.get(&format!("{path}/x")).await.code == 404
        })
        .await;
        let foreign = if kind == "Deployment" {
            let mut foreign = workload("apps/v1", "ReplicaSet", "foreign", tree! { "replicas" => 0 });
            foreign.child("metadata").set("name", taken.as_str());
            foreign
        } else {
            let metadata = tree! { "name" => taken.as_str() };
            let data = tree! { "spec" => tree! { "template" => tree! { "foreign" => true } } };
            tree! {
                "apiVersion" => "apps/v1", "kind" => "ControllerRevision", "metadata" => metadata, "data" => data,
                "revision" => 1,
            }
        };
        create(&client, &children, &foreign).await;
        let again = create(&client, &path, &object).await;
        until("it has another child", async || !of_owner(&again).await.is_empty()).await;
        assert!(!of_owner(&again).await.contains(&taken), "{kind}");
        becomes(&client, &format!("{path}/x"), |object| object.int("status.collisionCount") == Some(1)).await;
        client.delete(&format!("{path}/x")).await;
    }
    cluster.stop().await;
}
