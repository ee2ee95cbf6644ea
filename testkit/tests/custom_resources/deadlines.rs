//! Expressions that take long end with their request.

use std::time::{Duration, Instant};

use super::*;

/// Evaluations take about this many iterations of a loop each.
const NUMBERS: usize = 300;

/// A schema whose ten rules visit all pairs of numbers.
fn slow_schema() -> String {
    let rule = |n: usize| format!(r#"{{"rule":"self.numbers.all(x, self.numbers.all(y, x + y >= -{n}))"}}"#);
    let rules: Vec<String> = (0..10).map(rule).collect();
    format!(
        r#"{{"type":"object","properties":{{"size":{{"type":"string"}},"replicas":{{"type":"integer"}},
            "numbers":{{"type":"array","maxItems":{NUMBERS},"items":{{"type":"integer"}}}}}},
            "x-kubernetes-validations":[{}]}}"#,
        rules.join(",")
    )
}

/// A policy that denies everything in the end, and that would allow everything if it failed.
fn slow_policy() -> Tree {
    let all = |n: usize| {
        let n = NUMBERS + n;
        format!(r#"{{"expression":"lists.range({n}).all(x, lists.range({NUMBERS}).all(y, x + y >= 0))"}}"#)
    };
    let validations: Vec<String> = (0..10).map(all).collect();
    read(&format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"slow"}},
            "spec":{{"failurePolicy":"Ignore","matchConstraints":{{"resourceRules":[{{"operations":["CREATE"],
                "apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}}]}},
            "validations":[{},{{"expression":"false"}}]}}}}"#,
        validations.join(",")
    ))
}

const SLOW_BINDING: &str = r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",
    "metadata":{"name":"slow"},"spec":{"policyName":"slow","validationActions":["Deny"]}}"#;

/// Creates an object with a timeout that is a small part of the time that its expressions need.
async fn expect_timeout(client: &Client, path: &str, object: &Tree, expected: u16) {
    let began = Instant::now();
    let reply = client.post(&format!("{path}?dryRun=All"), object).await;
    let full = began.elapsed();
    assert_eq!(reply.code, expected, "{}", reply.text());
    let timeout = (full / 10).max(Duration::from_millis(1)).as_millis();
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        let began = Instant::now();
        let reply = client.post(&format!("{path}?timeout={timeout}ms"), object).await;
        fastest = fastest.min(began.elapsed());
        assert_eq!(reply.code, 504, "{timeout} of {full:?}: {}", reply.text());
        assert_eq!(reply.tree().str("message"), "Timeout: request did not complete within the allotted timeout");
    }
    assert!(fastest < full / 2, "evaluation continues after {timeout} ms: {fastest:?} of {full:?}");
    let found = client.get(&format!("{path}/{}", object.str("metadata.name"))).await;
    assert_eq!(found.code, 404, "nothing may be stored without a decision");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_rules_end_at_the_deadline() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    define(client, &definition(&slow_schema())).await;
    let spec = format!(r#"{{"size":"small","numbers":[{}]}}"#, vec!["1"; NUMBERS].join(","));
    expect_timeout(client, WIDGETS, &widget("a", &spec), 201).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_fail_open_are_not_skipped_by_a_deadline() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let reply = client.post(&format!("{POLICIES}ies"), &slow_policy()).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    assert_eq!(client.post(&format!("{POLICIES}ybindings"), &read(SLOW_BINDING)).await.code, 201);
    let object = read(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
    expect_timeout(client, "/api/v1/namespaces/default/configmaps", &object, 422).await;
    cluster.stop().await;
}
