//! Validating policies at requests.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn failed_validations_are_refused_with_their_message_and_reason() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let spec = format!(
        r#"{},"variables":[{{"name":"k","expression":"object.data.k"}}],
        "matchConditions":[{{"name":"only","expression":"object.metadata.name != 'skip'"}}],
        "validations":[
            {{"expression":"variables.k != 'plain'"}},
            {{"expression":"variables.k != 'fixed'","message":"a message"}},
            {{"expression":"variables.k != 'computed'","messageExpression":"'k is ' + variables.k","reason":"Forbidden"}},
            {{"expression":"variables.k != 'broken'","messageExpression":"'' + object.nope","message":"fallback","reason":"RequestEntityTooLarge"}},
            {{"expression":"variables.k != 'secret' || authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"}},
            {{"expression":"namespaceObject.metadata.name == request.namespace && oldObject == null"}}]"#,
        rules("", "configmaps")
    );
    bind(client, "Validating", "p", &spec, DENY).await;
    let denied = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ";
    let cases = [
        ("fine", 201, ""),
        ("secret", 201, ""),
        ("plain", 422, "failed expression: variables.k != 'plain'"),
        ("fixed", 422, "a message"),
        ("computed", 403, "k is computed"),
        ("broken", 413, "fallback"),
    ];
    for (value, code, message) in cases {
        let want = if message.is_empty() { String::new() } else { format!("{denied}{message}") };
        let got = attempt(client, CONFIG_MAPS, &config_map("c", &format!(r#"{{"k":"{value}"}}"#))).await;
        assert_eq!(got, (code, want), "{value}");
    }
    // An error counts as a failure, and a false match condition means that the policy does not apply.
    let (code, message) = attempt(client, CONFIG_MAPS, &config_map("c", "{}")).await;
    assert_eq!(code, 422);
    assert!(message.ends_with("composited variable \"k\" fails to evaluate: no such key: data"), "{message}");
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("skip", "{}")).await.0, 201);
    let reply = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("c", r#"{"k":"fixed"}"#)).await;
    let status = reply.tree();
    assert_eq!(status.str("reason"), "Invalid");
    let causes = status.list("details.causes");
    assert_eq!(
        causes.first().map_or("", |cause| cause.str("message")),
        "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: a message"
    );
    let metrics = client.get("/metrics").await.text();
    let line = "apiserver_validating_admission_policy_check_total{enforcement_action=\"deny\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"p\"}";
    assert!(metrics.contains(line), "{metrics}");
    cluster.stop().await;
}

#[tokio::test]
async fn actions_and_failure_policies_differ() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let spec = |failure: &str, expression: &str| {
        let rules = rules("", "configmaps");
        format!(r#"{rules},"failurePolicy":"{failure}","validations":[{{"expression":"{expression}","message":"no"}}]"#)
    };
    bind(
        client,
        "Validating",
        "warns",
        &spec("Fail", "object.metadata.name != 'w'"),
        r#","validationActions":["Warn","Audit"]"#,
    )
    .await;
    bind(client, "Validating", "ignores", &spec("Ignore", "object.data.x == 'y'"), DENY).await;
    let reply = client.post(CONFIG_MAPS, &config_map("w", r#"{"x":"y"}"#)).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    let warning = reply.headers.get("warning").and_then(|value| value.to_str().ok());
    let want = "299 - \"Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns': no\"";
    assert_eq!(warning, Some(want));
    let refused = client.post(CONFIG_MAPS, &config_map("w", r#"{"x":"z"}"#)).await;
    let warning = refused.headers.get("warning").and_then(|value| value.to_str().ok());
    assert_eq!((refused.code, warning), (422, Some(want)), "a refusal has warnings, too");
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("error", "{}")).await.0, 201, "an error is ignored");
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("false", r#"{"x":"z"}"#)).await.0, 422);
    // Policies cannot keep policies from being changed.
    let all = r#""matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]},"validations":[{"expression":"false"}]"#;
    bind(client, "Validating", "closed", all, DENY).await;
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("other", "{}")).await.0, 422);
    let review = read(r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#);
    assert_eq!(client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.code, 201);
    assert_eq!(client.delete(&format!("{GROUP}/validatingadmissionpolicybindings/closed")).await.code, 200);
    assert_eq!(attempt(client, CONFIG_MAPS, &config_map("other", r#"{"x":"y"}"#)).await.0, 201);
    cluster.stop().await;
}

#[tokio::test]
async fn bindings_find_their_params() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    define_limits(client).await;
    assert_eq!(client.post(LIMITS, &limit("small", r#"{"max":1}"#)).await.code, 201);
    let mut large = limit("large", r#"{"max":3}"#);
    large.set("metadata", read(r#"{"name":"large","labels":{"size":"large"}}"#));
    assert_eq!(client.post(LIMITS, &large).await.code, 201);
    let spec = format!(
        r#"{},"paramKind":{{"apiVersion":"stable.example.com/v1","kind":"Limit"}},
        "validations":[{{"expression":"params == null || object.data.size() <= params.spec.max","messageExpression":"'at most ' + string(params.spec.max)"}}]"#,
        rules("", "configmaps")
    );
    let reference = |reference: &str| format!(r#"{DENY},"paramRef":{reference}"#);
    let two = config_map("c", r#"{"a":"1","b":"2"}"#);
    let four = config_map("c", r#"{"a":"1","b":"2","c":"3","d":"4"}"#);
    let denied = |message: &str| {
        let prefix = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ";
        (422, format!("{prefix}{message}"))
    };
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    let cases = [
        (r#"{"name":"small","parameterNotFoundAction":"Deny"}"#, &two, denied("at most 1")),
        (
            r#"{"selector":{"matchLabels":{"size":"large"}},"parameterNotFoundAction":"Deny"}"#,
            &two,
            (201, String::new()),
        ),
        (
            r#"{"selector":{"matchLabels":{"size":"large"}},"parameterNotFoundAction":"Deny"}"#,
            &four,
            denied("at most 3"),
        ),
        (r#"{"selector":{},"parameterNotFoundAction":"Deny"}"#, &two, denied("at most 1")),
        (r#"{"name":"none","parameterNotFoundAction":"Deny"}"#, &two, denied(missing)),
        (r#"{"name":"none","parameterNotFoundAction":"Allow"}"#, &four, (201, String::new())),
    ];
    for (param_ref, object, want) in cases {
        bind(client, "Validating", "p", &spec, &reference(param_ref)).await;
        assert_eq!(attempt(client, CONFIG_MAPS, object).await, want, "{param_ref}");
        for kind in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
            assert_eq!(client.delete(&format!("{GROUP}/{kind}/p")).await.code, 200);
        }
    }
    let unknown = spec.replace("\"Limit\"", "\"Nope\"");
    bind(client, "Validating", "q", &unknown, &reference(r#"{"name":"x","parameterNotFoundAction":"Deny"}"#)).await;
    let (code, message) = attempt(client, CONFIG_MAPS, &two).await;
    let want = "ValidatingAdmissionPolicy 'q' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'stable.example.com/v1, Kind=Nope'";
    assert!(code == 422 && message.ends_with(want), "{message}");
    cluster.stop().await;
}

#[tokio::test]
async fn custom_resources_are_validated() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    define_limits(client).await;
    let spec = format!(
        r#"{},"validations":[{{"expression":"object.spec.max < 5 && object.kind == 'Limit'","message":"too large"}}]"#,
        rules("stable.example.com", "limits")
    );
    bind(client, "Validating", "p", &spec, DENY).await;
    assert_eq!(attempt(client, LIMITS, &limit("a", r#"{"max":4}"#)).await.0, 201);
    let (code, message) = attempt(client, LIMITS, &limit("a", r#"{"max":5}"#)).await;
    assert!(code == 422 && message.ends_with("denied request: too large"), "{message}");
    cluster.stop().await;
}

#[tokio::test]
async fn other_versions_of_a_resource_match_too() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let spec = r#""matchConstraints":{"matchPolicy":"MATCH","resourceRules":[{"operations":["CREATE"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["horizontalpodautoscalers"]}],
        "excludeResourceRules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"resourceNames":["spared"]}]},
        "validations":[{"expression":"object.spec.targetCPUUtilizationPercentage > 50","messageExpression":"object.apiVersion + ' ' + request.requestKind.version"}]"#;
    let scaler = |name: &str| {
        read(&format!(
            r#"{{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{{"name":"{name}"}},"spec":{{"maxReplicas":3,
                "scaleTargetRef":{{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}},
                "metrics":[{{"type":"Resource","resource":{{"name":"cpu","target":{{"type":"Utilization","averageUtilization":40}}}}}}]}}}}"#
        ))
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    bind(client, "Validating", "exact", &spec.replace("MATCH", "Exact"), DENY).await;
    assert_eq!(attempt(client, path, &scaler("a")).await.0, 201);
    bind(client, "Validating", "equivalent", &spec.replace("MATCH", "Equivalent"), DENY).await;
    let (code, message) = attempt(client, path, &scaler("a")).await;
    assert!(code == 422 && message.ends_with("denied request: autoscaling/v1 v2"), "{message}");
    assert_eq!(attempt(client, path, &scaler("spared")).await.0, 201, "it is excluded by its name");
    cluster.stop().await;
}

#[tokio::test]
async fn expensive_policies_run_out_of_budget() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let loops = "lists.range(300).all(a, lists.range(300).all(b, a + b >= 0))".replace('"', "\\\"");
    let one = format!(r#"{{"expression":"{loops}"}}"#);
    let spec =
        |count: usize| format!(r#"{},"validations":[{}]"#, rules("", "configmaps"), vec![one.clone(); count].join(","));
    bind(client, "Validating", "p", &spec(1), DENY).await;
    let (code, first) = attempt(client, CONFIG_MAPS, &config_map("c", "{}")).await;
    assert!(code == 201 || first.contains("cost limit exceeded"), "{first}");
    let reply = client.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p")).await;
    assert_eq!(reply.code, 200);
    bind(client, "Validating", "q", &spec(30), DENY).await;
    let (code, message) = attempt(client, CONFIG_MAPS, &config_map("c", "{}")).await;
    let want = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(code == 422 && message.ends_with(want), "{message}");
    cluster.stop().await;
}
