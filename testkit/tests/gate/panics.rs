//! A handler that panics: the client gets a Status, the audit log the stage Panic, and the server continues.

use std::sync::Arc;

use api::{Tree, list, tree};
use server::audit::{Audit, Settings};
use server::registry::admission::Setup;
use server::registry::admission::initial_resources::{Usage, UsageQuery};
use testkit::{Cluster, Storage};

use super::{POLICY, events};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MESSAGE: &str = "This request caused apiserver to panic. Look in the logs for details.";

/// Past usage whose lookup panics inside the handler.
struct PanickingUsage;

impl Usage for PanickingUsage {
    fn percentile(&self, question: &UsageQuery<'_>) -> Option<(i64, u64)> {
        panic!("the test's own: {}", question.image)
    }
}

fn pod() -> Tree {
    let container = tree! { "name" => "c", "image" => "i:1" };
    tree! {
        "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "name" => "p" },
        "spec" => tree! { "containers" => list![container] },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_become_500_and_are_audited() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("policy.yaml"), POLICY).expect("a policy");
    let settings = Settings {
        policy_file: Some(dir.path().join("policy.yaml")),
        log_path: Some(dir.path().join("audit.log")),
        ..Settings::default()
    };
    let audit = Audit::open(&settings).expect("a good policy").map(Arc::new);
    let setup = Setup::new(&["InitialResources".to_string()], &[], None).expect("plugins");
    let admission = Arc::new(setup.with_usage(Arc::new(PanickingUsage)));
    let config = server::Config { audit, admission, ..server::Config::default() };
    let mut cluster = Cluster::start_with(Storage::Embedded, config, async |_| {}).await;

    let reply = cluster.client.post(PODS, &pod()).await;
    assert_eq!((reply.code, reply.tree().str("reason")), (500, "InternalError"));
    assert_eq!(reply.tree().str("message"), MESSAGE);
    let all = events(dir.path(), |event| event.str("stage") == "Panic").await;
    let of_pod: Vec<&Tree> = all.iter().filter(|event| event.str("objectRef.resource") == "pods").collect();
    let stages: Vec<&str> = of_pod.iter().map(|event| event.str("stage")).collect();
    assert_eq!(stages, ["RequestReceived", "Panic"], "and no ResponseComplete");
    assert_eq!(of_pod[1].int("responseStatus.code"), Some(500));
    assert_eq!(of_pod[1].str("responseStatus.message"), MESSAGE);
    assert_eq!(cluster.client.get(PODS).await.code, 200, "the server goes on");
    cluster.stop().await;
}
