//! Disruption budgets, quotas, and the tokens of service accounts.

use api::Tree;
use testkit::Cluster;

use super::Transcript;

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";

async fn start() -> (Cluster, Transcript) {
    let cluster = Cluster::start_whole().await;
    let story = Transcript::new(&cluster.client);
    story.see(ACCOUNT, |account| !account.has("code")).await;
    (cluster, story)
}

async fn make_pod(story: &Transcript, name: &str) {
    let metadata = format!(r#"{{"name":"{name}","labels":{{"app":"web"}}}}"#);
    let spec = r#"{"containers":[{"name":"c","image":"a"}]}"#;
    story.make(PODS, &format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{spec}}}"#)).await;
    let ready = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    story.patch(&format!("{PODS}/{name}/status"), ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disruption_budget_matches_upstream() {
    let (mut cluster, mut story) = start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let path = format!("{budgets}/web");
    let spec = r#"{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}"#;
    let metadata = r#"{"name":"web"}"#;
    let budget =
        format!(r#"{{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{metadata},"spec":{spec}}}"#);
    story.make(budgets, &budget).await;
    let empty = story.see(&path, |budget| budget.int("status.observedGeneration") == Some(1)).await;
    story.tell("without pods", &[empty], &[]);
    make_pod(&story, "a").await;
    make_pod(&story, "b").await;
    let allowed = |count: i64| move |budget: &Tree| budget.int("status.disruptionsAllowed") == Some(count);
    let enough = story.see(&path, allowed(1)).await;
    story.tell("enough", &[enough], &["status"]);
    assert_eq!(cluster.client.delete(&format!("{PODS}/a")).await.code, 200);
    let few = story.see(&path, allowed(0)).await;
    story.tell("just enough", &[few], &["status"]);
    // Nothing controls the pods, so that a share of them cannot be known.
    story.patch(&path, r#"{"spec":{"minAvailable":"50%"}}"#).await;
    let unknown = story.see(&path, |budget| budget.int("status.observedGeneration") == Some(2)).await;
    story.tell("a share of an unknown total", &[unknown], &["status"]);
    story.until_event("web", "UnmanagedPods").await;
    story.tell_events(&["web"]).await;
    story.compare("budget.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_matches_upstream() {
    let (mut cluster, mut story) = start().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    make_pod(&story, "a").await;
    let hard = r#"{"pods":"100","secrets":"10","services":"20","services.nodeports":"1","requests.storage":"5Gi",
        "count/deployments.apps":"3","limits.cpu":"2"}"#;
    let quota = |name: &str, spec: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"name":"{name}"}},"spec":{spec}}}"#)
    };
    story.make(quotas, &quota("q", &format!(r#"{{"hard":{hard}}}"#))).await;
    let counted = story.see(&format!("{quotas}/q"), |quota| quota.map("status.used").str("pods") == "1").await;
    story.tell("counted", &[counted], &[]);
    let spec = r#"{"hard":{"pods":"5"},"scopes":["BestEffort","NotTerminating"]}"#;
    story.make(quotas, &quota("scoped", spec)).await;
    let scoped = story.see(&format!("{quotas}/scoped"), |quota| quota.map("status.used").str("pods") == "1").await;
    story.tell("scoped", &[scoped], &[]);
    story.patch(&format!("{PODS}/a/status"), r#"{"status":{"phase":"Succeeded"}}"#).await;
    let freed = story.see(&format!("{quotas}/q"), |quota| quota.map("status.used").str("pods") == "0").await;
    story.tell("freed", &[freed], &["status"]);
    story.compare("quota.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_token_matches_upstream() {
    let (mut cluster, mut story) = start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let account = story.see(ACCOUNT, |account| !account.has("code")).await;
    story.call(account.str("metadata.uid"), "uid");
    story.tell("account", &[account], &["metadata"]);
    let secret = r#"{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",
        "metadata":{"name":"tok","annotations":{"kubernetes.io/service-account.name":"default"}}}"#;
    story.make(secrets, secret).await;
    let path = format!("{secrets}/tok");
    let filled = story.see(&path, |secret| !secret.str("data.token").is_empty()).await;
    for key in ["token", "ca.crt"] {
        story.call(filled.map("data").str(key), key);
    }
    story.tell("token", &[filled], &["metadata", "data"]);
    // Deleting the account invalidates its token.
    assert_eq!(cluster.client.delete(ACCOUNT).await.code, 200);
    story.see(&path, |secret| secret.int("code") == Some(404)).await;
    story.compare("account.yaml");
    cluster.stop().await;
}
