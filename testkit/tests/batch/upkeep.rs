//! Disruption budgets, quotas, and the pod garbage collector.

use super::*;

fn pod(name: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"c","image":"a"}}]{more}}}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_follow_their_pods() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = r#"{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}"#;
    let json = format!(
        r#"{{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{{"name":"web"}},"spec":{spec}}}"#
    );
    make(client, budgets, &json).await;
    let path = format!("{budgets}/web");
    until(client, &path, |budget| budget.int("status.observedGeneration") == Some(1)).await;
    let ready = r#"{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}"#;
    for name in ["a", "b"] {
        make(client, PODS, &pod(name, "")).await;
        set_status(client, &format!("{PODS}/{name}"), ready).await;
    }
    let budget = until(client, &path, |budget| budget.int("status.disruptionsAllowed") == Some(1)).await;
    let status = budget.at("status");
    assert_eq!((status.int("currentHealthy"), status.int("desiredHealthy")), (Some(2), Some(1)));
    assert_eq!(status.int("expectedPods"), Some(2));
    assert_eq!(conditions(&budget), "DisruptionAllowed=SufficientPods");
    client.delete(&format!("{PODS}/a")).await;
    until(client, &path, |budget| budget.int("status.disruptionsAllowed") == Some(0)).await;
    // Nothing controls the pods, so that a share of them cannot be known.
    client.patch(&path, "merge", r#"{"spec":{"minAvailable":"50%"}}"#).await;
    until(client, &path, |budget| budget.int("status.expectedPods") == Some(0)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_an_out_of_service_node_are_deleted() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    let taint = r#"{"key":"node.kubernetes.io/out-of-service","value":"x","effect":"NoExecute"}"#;
    let node =
        format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"down"}},"spec":{{"taints":[{taint}]}}}}"#);
    make(client, "/api/v1/nodes", &node).await;
    let tolerates = r#","nodeName":"down","tolerations":[{"operator":"Exists"}]"#;
    make(client, PODS, &pod("stuck", tolerates)).await;
    client.delete(&format!("{PODS}/stuck")).await;
    until(client, &format!("{PODS}/stuck"), |pod| pod.int("code") == Some(404)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_are_recounted_after_deletions() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    for name in ["a", "b"] {
        make(client, PODS, &pod(name, "")).await;
    }
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = r#"{"pods":"10","configmaps":"10","count/deployments.apps":"2","count/things.example.com":"2"}"#;
    let json =
        format!(r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"name":"q"}},"spec":{{"hard":{hard}}}}}"#);
    make(client, quotas, &json).await;
    let path = format!("{quotas}/q");
    let used = |quota: &Tree, name: &str| quota.map("status.used").str(name).to_string();
    let counted = until(client, &path, |quota| used(quota, "pods") == "2").await;
    assert_eq!(counted.at("status.hard"), counted.at("spec.hard"));
    assert_eq!((used(&counted, "configmaps").as_str(), used(&counted, "count/deployments.apps").as_str()), ("1", "0"));
    assert_eq!(used(&counted, "count/things.example.com"), "", "the resource is not served");
    make(
        client,
        "/api/v1/namespaces/default/configmaps",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#,
    )
    .await;
    until(client, &path, |quota| used(quota, "configmaps") == "2").await;
    client.delete("/api/v1/namespaces/default/configmaps/m").await;
    until(client, &path, |quota| used(quota, "configmaps") == "1").await;
    set_status(client, &format!("{PODS}/a"), r#"{"phase":"Succeeded"}"#).await;
    until(client, &path, |quota| used(quota, "pods") == "1").await;
    client.delete(&format!("{PODS}/b")).await;
    until(client, &path, |quota| used(quota, "pods") == "0").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_limited_by_their_class() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let spec = format!(r#"{{"hard":{{"{DEVICES}":"2"}}}}"#);
    let quota = format!(r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"name":"q"}},"spec":{spec}}}"#);
    make(client, quotas, &quota).await;
    let path = format!("{quotas}/q");
    let is_used = |quota: &Tree, want: &str| quota.map("status.used").str(DEVICES) == want;
    until(client, &path, |quota| is_used(quota, "0")).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str, count: u32| {
        let request = format!(r#"{{"name":"r","exactly":{{"deviceClassName":"gpu","count":{count}}}}}"#);
        let spec = format!(r#"{{"devices":{{"requests":[{request}]}}}}"#);
        let metadata = format!(r#"{{"name":"{name}"}}"#);
        let text = format!(
            r#"{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{metadata},"spec":{spec}}}"#
        );
        api::json::decode(text.as_bytes()).expect("JSON")
    };
    assert_eq!(client.post(claims, &claim("a", 2)).await.code, 201);
    until(client, &path, |quota| is_used(quota, "2")).await;
    let refused = client.post(claims, &claim("b", 1)).await;
    let why = format!("exceeded quota: q, requested: {DEVICES}=1, used: {DEVICES}=2, limited: {DEVICES}=2");
    assert_eq!(refused.code, 403);
    assert!(refused.tree().str("message").ends_with(&why), "{}", refused.tree().str("message"));
    client.delete(&format!("{claims}/a")).await;
    until(client, &path, |quota| is_used(quota, "0")).await;
    assert_eq!(client.post(claims, &claim("b", 1)).await.code, 201);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_report_missing_metrics_and_keep_bounds() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    let template = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"a"}]}}"#;
    let spec = format!(r#"{{"replicas":4,"selector":{{"matchLabels":{{"app":"web"}}}},"template":{template}}}"#);
    let json = format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"}},"spec":{spec}}}"#);
    make(client, "/apis/apps/v1/namespaces/default/deployments", &json).await;
    let deployment = "/apis/apps/v1/namespaces/default/deployments/web";
    // Without other writes: a rescale that conflicts is first reported as a failure.
    until(client, deployment, |deployment| deployment.int("status.unavailableReplicas") == Some(4)).await;
    let target = r#"{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}"#;
    let metric =
        r#"{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}"#;
    let spec = format!(r#"{{"scaleTargetRef":{target},"minReplicas":1,"maxReplicas":3,"metrics":[{metric}]}}"#);
    let json = format!(
        r#"{{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{{"name":"hpa"}},"spec":{spec}}}"#
    );
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    make(client, autoscalers, &json).await;
    until(client, deployment, |deployment| deployment.int("spec.replicas") == Some(3)).await;
    let path = format!("{autoscalers}/hpa");
    let scaled = until(client, &path, |hpa| hpa.at("status").has("lastScaleTime")).await;
    assert_eq!(conditions(&scaled), "AbleToScale=SucceededRescale");
    assert_eq!(scaled.int("status.desiredReplicas"), Some(3));
    // A change of the spec is looked at before the period is over.
    client.patch(&path, "merge", r#"{"spec":{"maxReplicas":9}}"#).await;
    let is_active = |condition: &&Tree| condition.str("type") == "ScalingActive";
    let failed = until(client, &path, |hpa| hpa.list("status.conditions").iter().any(|one| is_active(&one))).await;
    let active = failed.list("status.conditions").iter().find(is_active).expect("the condition");
    let slept = failed.list("status.conditions").iter().find(|one| one.str("type") == "ScaledToZero");
    assert_eq!(slept.map(|one| (one.str("status"), one.str("reason"))), Some(("False", "NotScaledToZero")));
    let said = (active.str("type"), active.str("status"), active.str("reason"));
    assert_eq!(said, ("ScalingActive", "False", "FailedGetResourceMetric"));
    assert!(active.str("message").ends_with("(get pods.metrics.k8s.io)"), "{}", active.str("message"));
    until_event(client, "hpa", "SuccessfulRescale FailedGetResourceMetric FailedComputeMetricsReplicas").await;
    cluster.stop().await;
}
