use api::json::decode;

use super::super::source::Sample;
use super::*;

fn json(text: &str) -> Tree {
    decode(text.as_bytes()).expect("json")
}

fn autoscaler(spec: &str) -> Tree {
    let metrics = r#""metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]"#;
    json(&format!(r#"{{"spec":{{"minReplicas":1,"maxReplicas":5,{spec}{metrics}}},"status":{{"desiredReplicas":0}}}}"#))
}

fn scale(replicas: i64) -> Tree {
    json(&format!(r#"{{"spec":{{"replicas":{replicas}}},"status":{{"replicas":{replicas},"selector":"a=b"}}}}"#))
}

fn pods(count: usize) -> Vec<Arc<Tree>> {
    let pod = |at: usize| {
        let condition = r#"{"type":"Ready","status":"True","lastTransitionTime":"1970-01-01T00:00:00Z"}"#;
        let status = format!(r#"{{"phase":"Running","startTime":"1970-01-01T00:00:00Z","conditions":[{condition}]}}"#);
        let spec = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}"#;
        Arc::new(json(&format!(r#"{{"metadata":{{"name":"p{at}"}},"spec":{spec},"status":{status}}}"#)))
    };
    (0..count).map(pod).collect()
}

fn samples(values: &[i64]) -> MetricValues {
    let time = Timestamp { seconds: 9_990, nanos: 0 };
    let sample = |value: i64| Sample { value, time, window_seconds: 30 };
    MetricValues::Samples(values.iter().enumerate().map(|(at, value)| (format!("p{at}"), sample(*value))).collect())
}

fn run(autoscaler: &Tree, replicas: i64, readings: &[Result<MetricValues, MetricError>]) -> Plan {
    let (scale, pods, options) = (scale(replicas), pods(replicas as usize), Options::default());
    let now = Timestamp { seconds: 10_000, nanos: 0 };
    let look = Inputs { autoscaler, scale: &scale, pods: &pods, options: &options, now };
    match look.begin() {
        (_, Some(plan)) => plan,
        (status, None) => look.by_metrics(status, readings, &mut History::default()),
    }
}

/// `type=status/reason`
fn conditions_text(plan: &Plan) -> String {
    let of = |c: &Tree| format!("{}={}/{}", c.str("type"), c.str("status"), c.str("reason"));
    plan.status.list("conditions").iter().map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn reports_missing_metrics() {
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    let status = tree! { "reason" => "NotFound", "message" => "" };
    let source = SourceError::Fetch {
        api: "resource metrics API",
        resource: "pods.metrics.k8s.io".to_string(),
        source: client::Error::status(404, &status),
    };
    let plan = run(&autoscaler(""), 2, &[Err(MetricError::Resource { metric: "cpu".to_string(), source })]);
    assert_eq!(
        conditions_text(&plan),
        "AbleToScale=True/SucceededGetScale ScalingActive=False/FailedGetResourceMetric"
    );
    let message = format!("the HPA was unable to compute the replica count: {why}");
    assert_eq!(plan.status.list("conditions")[1].str("message"), message);
    assert_eq!(plan.events[0], Event::warning("FailedGetResourceMetric", why.to_string()));
    let all =
        format!("invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}");
    assert_eq!(plan.events[1], Event::warning("FailedComputeMetricsReplicas", all));
    assert_eq!((plan.status.int("currentReplicas"), plan.status.int("desiredReplicas")), (Some(2), Some(0)));
    assert_eq!(plan.scale, None);
}

#[test]
fn status_has_the_observed_generation() {
    let mut changed = autoscaler("");
    changed.set("metadata", api::tree! { "generation" => 3 });
    let plan = run(&changed, 2, &[Ok(samples(&[500, 500]))]);
    assert_eq!(plan.status.int("observedGeneration"), Some(3));
    let condition_after = |condition: &Tree| condition.int("observedGeneration") == Some(3);
    assert!(plan.status.list("conditions").iter().all(condition_after), "{:?}", plan.status);
}

#[test]
fn scales_by_metrics() {
    let plan = run(&autoscaler(""), 2, &[Ok(samples(&[1000, 1000]))]);
    assert_eq!(plan.scale, Some((4, "cpu resource utilization (percentage of request) above target".to_string())));
    assert_eq!(
        conditions_text(&plan),
        "AbleToScale=True/ReadyForNewScale ScalingActive=True/ValidMetricFound ScalingLimited=False/DesiredWithinRange"
    );
    let current = plan.status.list("currentMetrics")[0].at("resource.current").clone();
    assert_eq!((current.int("averageUtilization"), current.str("averageValue")), (Some(100), "1"));
    let plan = run(&autoscaler(""), 2, &[Ok(samples(&[500, 500]))]);
    assert_eq!((plan.scale, plan.status.int("desiredReplicas")), (None, Some(2)));
    let plan = run(&autoscaler(""), 4, &[Ok(samples(&[100; 4]))]);
    assert_eq!(plan.scale, Some((1, "All metrics below target".to_string())));
}

#[test]
fn enforces_bounds_without_metrics() {
    let check = |replicas: i64, want: Option<(i64, &str)>, condition_after: &str| {
        let plan = run(&autoscaler(""), replicas, &[]);
        assert_eq!(plan.scale, want.map(|(size, reason)| (size, reason.to_string())));
        assert_eq!(conditions_text(&plan), condition_after);
    };
    check(9, Some((5, "Current number of replicas above Spec.MaxReplicas")), "AbleToScale=True/SucceededGetScale");
    check(0, None, "AbleToScale=True/SucceededGetScale ScalingActive=False/ScalingDisabled");
}

#[test]
fn missing_metrics_prevent_scale_down() {
    let mut two = autoscaler("");
    let external =
        json(r#"{"type":"External","external":{"metric":{"name":"q"},"target":{"type":"Value","value":"10"}}}"#);
    two.child("spec").list_entry("metrics").push(external);
    let missing = || Err(MetricError::UnknownType("no".to_string()));
    assert_eq!(run(&two, 4, &[Ok(samples(&[100; 4])), missing()]).scale, None);
    let plan = run(&two, 2, &[Ok(samples(&[1000; 2])), missing()]);
    assert_eq!(plan.scale.as_ref().map(|(size, _)| *size), Some(4), "growing is safe");
    assert_eq!(plan.events[0].reason, "FailedGetExternalMetric");
    let plan = run(&two, 2, &[Ok(samples(&[100; 2])), Ok(MetricValues::Value(20_000))]);
    assert_eq!(plan.scale, Some((4, "external metric q(nil) above target".to_string())));
}

#[test]
fn scales_up_from_zero_only_if_it_scaled_to_zero() {
    let queue = r#"{"type":"External","external":{"metric":{"name":"q"},"target":{"type":"AverageValue","averageValue":"10"}}}"#;
    let with = |min: i64, asleep: &str| {
        let condition = format!(r#"{{"type":"ScaledToZero","status":"{asleep}"}}"#);
        let spec = format!(r#"{{"minReplicas":{min},"maxReplicas":5,"metrics":[{queue}]}}"#);
        json(&format!(r#"{{"spec":{spec},"status":{{"conditions":[{condition}]}}}}"#))
    };
    let check = |min: i64, asleep: &str, value: i64, want: Option<i64>| {
        let plan = run(&with(min, asleep), 0, &[Ok(MetricValues::Value(value))]);
        assert_eq!(plan.scale.map(|(size, _)| size), want, "{min} {asleep} {value}");
    };
    check(0, "True", 30_000, Some(3));
    check(0, "True", 0, None);
    check(0, "False", 30_000, None);
    // Scaling to zero may have been disabled since.
    check(2, "True", 10_000, Some(2));
    check(2, "False", 30_000, None);

    let condition_after = |min: i64, from: i64, to: i64| {
        let mut status = tree! {};
        set_scaled_conditions(&with(min, "False"), &mut status, from, to, Timestamp { seconds: 1, nanos: 0 });
        status.list("conditions")[0].str("reason").to_string()
    };
    assert_eq!(condition_after(0, 2, 0), "ScaledToZero");
    assert_eq!(
        [condition_after(0, 0, 2), condition_after(0, 3, 2), condition_after(1, 2, 0)],
        ["NotScaledToZero"; 3].map(str::to_string)
    );
}
