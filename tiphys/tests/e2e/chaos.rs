//! The whole binary with fake nodes, killed repeatedly at moments from a seed. After each start the cluster must reach
//! its desired state: no pod too many, no completion lost or counted twice.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;

use crate::support::{Client, Server, request};

const ROUNDS: u64 = 5;
const REPLICAS: u64 = 8;
const COMPLETIONS: i64 = 10;
const DEADLINE: Duration = Duration::from_secs(90);

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

struct World {
    server: Server,
    client: Client,
    random: u64,
}

impl World {
    async fn new() -> World {
        let server = Server::start_with(&["--fake-nodes", "3"]);
        let client = server.client().await;
        World { server, client, random: 4 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    async fn get(&mut self, path: &str) -> Tree {
        let (_, body) = self.client.call("GET", path, "").await.expect("an answer");
        api::json::decode(&body).expect("JSON")
    }

    async fn post(&mut self, path: &str, body: &str) {
        let (code, answer) = self.client.call("POST", path, body).await.expect("an answer");
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    }

    async fn patch(&mut self, path: &str, body: &str) {
        let mut patch = request("PATCH", path, body);
        patch.headers_mut().insert("content-type", "application/strategic-merge-patch+json".parse().expect("a value"));
        let response = self.client.send(patch).await.expect("an answer");
        assert_eq!(response.status(), 200);
        http_body_util::BodyExt::collect(response.into_body()).await.expect("a body");
    }

    /// Kills the process at a random moment of the next half second, and restarts it.
    async fn kill(&mut self) {
        let moment = Duration::from_millis(self.below(500));
        tokio::time::sleep(moment).await;
        self.server.signal("-KILL");
        self.server.wait();
        let dir = Arc::clone(&self.server.dir);
        self.server = Server::start_again(dir, 0, &["--fake-nodes", "3"]);
        self.client = self.server.client().await;
    }

    async fn until(&mut self, what: &str, path: &str, holds: impl Fn(&Tree) -> bool) -> Tree {
        let look = async || {
            let tree = self.get(path).await;
            if holds(&tree) { Ok(tree) } else { Err(summary(&tree)) }
        };
        stdx::wait::until_ok_await(what, DEADLINE, look).await
    }
}

fn summary(list: &Tree) -> String {
    let line = |object: &Tree| {
        let status = String::from_utf8_lossy(&api::json::encode(object.at("status"), None)).into_owned();
        format!("{} {status}", object.str("metadata.name"))
    };
    match list.list("items") {
        [] => line(list),
        items => items.iter().map(line).collect::<Vec<_>>().join("\n"),
    }
}

fn deployment(image: u64) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},"spec":{{"replicas":{REPLICAS},"selector":{{"matchLabels":{{"app":"web"}}}},"template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"web","image":"web:{image}"}}]}}}}}}}}"#
    )
}

fn job(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}"}},"spec":{{"completions":{COMPLETIONS},"parallelism":3,"completionMode":"Indexed","template":{{"metadata":{{"annotations":{{"tiphys.io/fake-exit-code":"0"}}}},"spec":{{"restartPolicy":"Never","containers":[{{"name":"work","image":"work:1"}}]}}}}}}}}"#
    )
}

fn settled(image: u64) -> impl Fn(&Tree) -> bool {
    let image = format!("web:{image}");
    move |list| {
        let pods = list.list("items");
        let good =
            |pod: &Tree| pod.list("spec.containers")[0].str("image") == image && pod.str("status.phase") == "Running";
        pods.len() as u64 == REPLICAS && pods.iter().all(good)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_outlive_kills() {
    let mut world = World::new().await;
    world
        .until("the account", "/api/v1/namespaces/default/serviceaccounts", |list| !list.list("items").is_empty())
        .await;
    world.post(DEPLOYMENTS, &deployment(0)).await;
    for image in 1..=ROUNDS {
        world.kill().await;
        let template = format!(
            r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"web","image":"web:{image}"}}]}}}}}}}}"#
        );
        world.patch(&format!("{DEPLOYMENTS}/web"), &template).await;
        world.kill().await;
        world.until("the pods", &format!("{PODS}?labelSelector=app%3Dweb"), settled(image)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_kills() {
    let mut world = World::new().await;
    world
        .until("the account", "/api/v1/namespaces/default/serviceaccounts", |list| !list.list("items").is_empty())
        .await;
    for round in 0..ROUNDS {
        let name = format!("work-{round}");
        world.post(JOBS, &job(&name)).await;
        world.kill().await;
        let complete = |condition: &Tree| condition.str("type") == "Complete" && condition.str("status") == "True";
        let over = |job: &Tree| job.list("status.conditions").iter().any(complete);
        let job = world.until("the Job", &format!("{JOBS}/{name}"), over).await;
        assert_eq!(job.int("status.succeeded"), Some(COMPLETIONS), "{}", summary(&job));
        assert_eq!(job.str("status.completedIndexes"), format!("0-{}", COMPLETIONS - 1));
        assert_eq!(job.int("status.failed").unwrap_or(0), 0);
        let pods = world.get(&format!("{PODS}?labelSelector=job-name%3D{name}")).await;
        let counted = pods.list("items").iter().all(|pod| pod.list("metadata.finalizers").is_empty());
        assert!(counted, "{}", summary(&pods));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_of_namespaces_outlive_kills() {
    let mut world = World::new().await;
    for round in 0..ROUNDS {
        let path = format!("/api/v1/namespaces/full-{round}");
        let namespace = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"full-{round}"}}}}"#);
        world.post("/api/v1/namespaces", &namespace).await;
        for number in 0..50 {
            let map = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number}"}}}}"#);
            world.post(&format!("{path}/configmaps"), &map).await;
        }
        world.post(&format!("/apis/apps/v1/namespaces/full-{round}/deployments"), &deployment(0)).await;
        let (code, _) = world.client.call("DELETE", &path, "").await.expect("an answer");
        assert_eq!(code, 200);
        world.kill().await;
        world.until("the namespace is gone", &path, |namespace| namespace.int("code") == Some(404)).await;
        let left = world.get(&format!("{path}/configmaps")).await;
        assert!(left.list("items").is_empty(), "{}", summary(&left));
    }
}
