//! Mutating policies at requests.

use super::*;

fn mutations(group: &str, resource: &str, reinvocation: &str, mutations: &[(&str, &str)]) -> String {
    let mutation = |(kind, text): &(&str, &str)| {
        let field = if *kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
        format!(r#"{{"patchType":"{kind}","{field}":{{"expression":"{text}"}}}}"#)
    };
    let list: Vec<String> = mutations.iter().map(mutation).collect();
    format!(r#"{},"reinvocationPolicy":"{reinvocation}","mutations":[{}]"#, rules(group, resource), list.join(","))
}

#[tokio::test]
async fn mutations_change_objects_in_order() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let spec = mutations(
        "",
        "configmaps",
        "Never",
        &[
            (
                "ApplyConfiguration",
                "Object{metadata: Object.metadata{labels: {'added': 'yes'}}, data: {'from': object.metadata.name}}",
            ),
            (
                "JSONPatch",
                "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: object.data.from + '2'}]",
            ),
        ],
    );
    bind(client, "Mutating", "p", &spec, "").await;
    let created = client.post(CONFIG_MAPS, &config_map("a", r#"{"k":"v"}"#)).await;
    assert_eq!(created.code, 201, "{}", created.text());
    assert_eq!(created.tree().at("data"), &read(r#"{"from":"a","k":"v"}"#));
    assert_eq!(created.tree().at("metadata.labels"), &read(r#"{"a.b/c":"a2","added":"yes"}"#));
    // A policy owns no fields.
    let fields = created.tree().list("metadata.managedFields")[0].at("fieldsV1").clone();
    assert!(fields.at("f:data").has("f:k") && !fields.at("f:data").has("f:from"), "{fields:?}");
    let metrics = client.get("/metrics").await.text();
    let line =
        "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"p\",policy_binding=\"p\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    cluster.stop().await;
}

#[tokio::test]
async fn failures_count_as_the_failure_policy_says() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let spec = mutations("", "configmaps", "Never", &[("ApplyConfiguration", "Object{data: {'x': object.data.nope}}")]);
    bind(client, "Mutating", "open", &format!(r#"{spec},"failurePolicy":"Ignore""#), "").await;
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("a", "{}")).await.0, 201);
    bind(client, "Mutating", "closed", &spec, "").await;
    let reply = client.post(CONFIG_MAPS, &config_map("a", "{}")).await;
    let status = reply.tree();
    assert_eq!((reply.code, status.str("reason")), (403, "Invalid"));
    assert_eq!(
        status.str("message"),
        "policy 'closed' with binding 'closed' denied request: expression 'Object{data: {'x': object.data.nope}}' resulted in error: no such key: data"
    );
    assert_eq!(status.list("details.causes").len(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn policies_are_reinvoked_if_needed() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let saw = |own: &str, other: &str| {
        format!(
            "Object{{data: {{'{own}': has(object.data) && '{other}' in object.data ? 'saw {other}' : 'no {other}'}}}}"
        )
    };
    let (first, second) = (saw("a", "b"), saw("b", "a"));
    bind(client, "Mutating", "a", &mutations("", "configmaps", "IfNeeded", &[("ApplyConfiguration", &first)]), "")
        .await;
    bind(client, "Mutating", "b", &mutations("", "configmaps", "Never", &[("ApplyConfiguration", &second)]), "").await;
    let created = client.post(CONFIG_MAPS, &config_map("c", "{}")).await;
    assert_eq!(created.tree().at("data"), &read(r#"{"a":"saw b","b":"saw a"}"#), "{}", created.text());
    cluster.stop().await;
}

#[tokio::test]
async fn custom_resources_are_mutated_with_params() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    define_limits(client).await;
    assert_eq!(client.post(CONFIG_MAPS, &config_map("defaults", r#"{"max":"7"}"#)).await.code, 201);
    let spec = mutations(
        "stable.example.com",
        "limits",
        "Never",
        &[(
            "ApplyConfiguration",
            "Object{spec: Object.spec{max: int(params.data.max), tags: {'from': params.metadata.name}}}",
        )],
    );
    let kind = r#","paramKind":{"apiVersion":"v1","kind":"ConfigMap"}"#;
    let reference = r#","paramRef":{"name":"defaults","namespace":"default","parameterNotFoundAction":"Deny"}"#;
    bind(client, "Mutating", "p", &format!("{spec}{kind}"), reference).await;
    let created = client.post(LIMITS, &limit("a", r#"{"max":1,"tags":{"own":"x"}}"#)).await;
    assert_eq!(
        created.tree().at("spec"),
        &read(r#"{"max":7,"tags":{"from":"defaults","own":"x"}}"#),
        "{}",
        created.text()
    );
    // A list without keys would be replaced as a whole.
    let atomic = [("ApplyConfiguration", "Object{spec: Object.spec{names: ['a']}}")];
    bind(client, "Mutating", "atomic", &mutations("stable.example.com", "limits", "Never", &atomic), "").await;
    let (code, message) = attempt(client, LIMITS, &limit("b", "{}")).await;
    let want =
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.names";
    assert!(code == 403 && message.ends_with(want), "{message}");
    cluster.stop().await;
}
