//! Conversion of HorizontalPodAutoscaler between autoscaling/v1 and v2. v1 only has a CPU target; other metrics,
//! their status, conditions and behavior are stored in annotations, whose JSON has the field names and order that
//! other clients and versions expect.

use api::{Map, Tree, json, tree};

use super::horizontal_pod_autoscaler::{KIND, default_metrics};
use crate::checks::shown_text;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// From v1 to v2, the stored form.
pub(super) fn to_v2(mut autoscaler: Tree) -> Tree {
    let read = take_annotations(&mut autoscaler);
    set_version(&mut autoscaler, "autoscaling/v2");
    let spec = autoscaler.child("spec");
    let mut metrics: Vec<Tree> = read(METRICS).list_items().iter().map(spec_to_v2).collect();
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        let target = tree! { "type" => "Utilization", "averageUtilization" => percent };
        metrics.push(tree! { "type" => "Resource", "resource" => tree! { "name" => "cpu", "target" => target } });
    }
    spec.set("metrics", if metrics.is_empty() { default_metrics() } else { Tree::List(metrics) });
    if let behavior @ Tree::Map(_) = with_lower_keys(read(BEHAVIOR)) {
        spec.set("behavior", behavior);
    }
    status_to_v2(&mut autoscaler, &read);
    autoscaler
}

fn status_to_v2(autoscaler: &mut Tree, read: &impl Fn(&str) -> Tree) {
    let Some(status @ Tree::Map(_)) = autoscaler.get_mut("status") else { return };
    let mut metrics: Vec<Tree> = read(CURRENT_METRICS).list_items().iter().map(status_metric_to_v2).collect();
    if let Some(percent) = status.remove("currentCPUUtilizationPercentage")
        && metrics.is_empty()
    {
        let current = tree! { "averageUtilization" => percent };
        metrics.push(tree! { "type" => "Resource", "resource" => tree! { "name" => "cpu", "current" => current } });
    }
    if !metrics.is_empty() {
        status.set("currentMetrics", metrics);
    }
    if let conditions @ Tree::List(_) = read(CONDITIONS) {
        status.set("conditions", conditions);
    }
}

/// From v2, the stored form, to v1.
pub(super) fn from_v2(mut autoscaler: Tree) -> Tree {
    // Only this conversion may write these keys.
    let _ = take_annotations(&mut autoscaler);
    set_version(&mut autoscaler, "autoscaling/v1");
    let mut annotations = Vec::new();
    let spec = autoscaler.child("spec");
    let metrics = spec.remove("metrics").unwrap_or_default();
    if let Some(percent) = cpu_percent(&metrics, "target") {
        spec.set("targetCPUUtilizationPercentage", percent);
    }
    let others = metrics.list_items().iter().filter(|metric| !is_cpu_percent(metric)).map(spec_from_v2).collect();
    annotations.push((METRICS, array(others)));
    if let Some(behavior @ Tree::Map(_)) = spec.remove("behavior") {
        annotations.push((BEHAVIOR, behavior_text(&behavior)));
    }
    if let Some(status @ Tree::Map(_)) = autoscaler.get_mut("status") {
        status_from_v2(status, &mut annotations);
    }
    for (key, text) in annotations.into_iter().filter(|(_, text)| !text.is_empty()) {
        autoscaler.child("metadata.annotations").set(key, text);
    }
    autoscaler
}

fn status_from_v2(status: &mut Tree, annotations: &mut Vec<(&'static str, String)>) {
    let metrics = status.remove("currentMetrics").unwrap_or_default();
    if let Some(percent) = cpu_percent(&metrics, "current") {
        status.set("currentCPUUtilizationPercentage", percent);
    }
    annotations.push((CURRENT_METRICS, array(metrics.list_items().iter().map(status_metric_from_v2).collect())));
    let conditions = status.remove("conditions").unwrap_or_default();
    let keys = ["type", "status", "lastTransitionTime", "reason", "message"];
    let texts = conditions
        .list_items()
        .iter()
        .map(|condition| object(keys.into_iter().map(|key| (key, text_of(condition.at(key)))).collect()));
    annotations.push((CONDITIONS, array(texts.collect())));
    // v1 always contains it; v2 omits zero.
    status.set_default("currentReplicas", 0);
}

/// Removes the four annotations; the result reads their values.
fn take_annotations(autoscaler: &mut Tree) -> impl Fn(&str) -> Tree + use<> {
    let mut taken = Map::new();
    if let Some(Tree::Map(annotations)) = autoscaler.at_mut("metadata.annotations") {
        for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
            if let Some(value) = annotations.remove(key) {
                taken.insert(key, value);
            }
        }
        if annotations.is_empty() {
            autoscaler.remove_at("metadata.annotations");
        }
    }
    // Invalid JSON is dropped silently, as upstream does.
    move |key| json::decode(taken.str(key).as_bytes()).unwrap_or_default()
}

fn set_version(autoscaler: &mut Tree, version: &str) {
    if autoscaler.has("apiVersion") {
        autoscaler.set("apiVersion", version);
    }
}

trait Items {
    fn list_items(&self) -> &[Tree];
}

impl Items for Tree {
    fn list_items(&self) -> &[Tree] {
        self.as_list().unwrap_or(&[])
    }
}

/// The percentage of the first CPU metric, in `target` or `current`.
fn cpu_percent(metrics: &Tree, key: &str) -> Option<i64> {
    let is_cpu = |metric: &&Tree| metric.str("type") == "Resource" && metric.str("resource.name") == "cpu";
    metrics.list_items().iter().find(is_cpu)?.at("resource").at(key).int("averageUtilization")
}

fn is_cpu_percent(metric: &Tree) -> bool {
    metric.str("type") == "Resource"
        && metric.str("resource.name") == "cpu"
        && metric.at("resource.target").has("averageUtilization")
}

/// The JSON text of a value; empty if it is not set, so that it is omitted.
fn text_of(value: &Tree) -> String {
    if value.is_null() { String::new() } else { String::from_utf8_lossy(&json::encode(value, None)).into_owned() }
}

fn object(fields: Vec<(&str, String)>) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| format!("\"{key}\":{text}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// Empty if there are none: then there is no annotation.
fn array(items: Vec<String>) -> String {
    if items.is_empty() { String::new() } else { format!("[{}]", items.join(",")) }
}

fn selector_text(selector: &Tree) -> String {
    if selector.is_null() { String::new() } else { shown_text(&KIND, "spec.metrics.pods.metric.selector", selector) }
}

fn reference_text(reference: &Tree) -> String {
    object(["kind", "name", "apiVersion"].into_iter().map(|key| (key, text_of(reference.at(key)))).collect())
}

/// A quantity that v1 always contains.
fn quantity_text(value: &Tree) -> String {
    if value.is_null() { "\"0\"".to_string() } else { text_of(value) }
}

fn source_key(metric: &Tree) -> &'static str {
    match metric.str("type") {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => "external",
    }
}

fn spec_from_v2(metric: &Tree) -> String {
    let key = source_key(metric);
    let (source, target) = (metric.at(key), metric.at(key).at("target"));
    let (name, selector) = (text_of(source.at("metric.name")), selector_text(source.at("metric.selector")));
    let fields = match key {
        "object" => vec![
            ("target", reference_text(source.at("describedObject"))),
            ("metricName", name),
            ("targetValue", quantity_text(target.at("value"))),
            ("selector", selector),
            ("averageValue", text_of(target.at("averageValue"))),
        ],
        "pods" => vec![
            ("metricName", name),
            ("targetAverageValue", quantity_text(target.at("averageValue"))),
            ("selector", selector),
        ],
        "external" => vec![
            ("metricName", name),
            ("metricSelector", selector),
            ("targetValue", text_of(target.at("value"))),
            ("targetAverageValue", text_of(target.at("averageValue"))),
        ],
        _ => vec![
            ("name", text_of(source.at("name"))),
            ("targetAverageUtilization", text_of(target.at("averageUtilization"))),
            ("targetAverageValue", text_of(target.at("averageValue"))),
            ("container", text_of(source.at("container"))),
        ],
    };
    object(vec![("type", text_of(metric.at("type"))), (key, object(fields))])
}

fn status_metric_from_v2(metric: &Tree) -> String {
    let key = source_key(metric);
    let (source, current) = (metric.at(key), metric.at(key).at("current"));
    let (name, selector) = (text_of(source.at("metric.name")), selector_text(source.at("metric.selector")));
    let fields = match key {
        "object" => vec![
            ("target", reference_text(source.at("describedObject"))),
            ("metricName", name),
            ("currentValue", quantity_text(current.at("value"))),
            ("selector", selector),
            ("averageValue", text_of(current.at("averageValue"))),
        ],
        "pods" => vec![
            ("metricName", name),
            ("currentAverageValue", quantity_text(current.at("averageValue"))),
            ("selector", selector),
        ],
        "external" => vec![
            ("metricName", name),
            ("metricSelector", selector),
            ("currentValue", quantity_text(current.at("value"))),
            ("currentAverageValue", text_of(current.at("averageValue"))),
        ],
        _ => vec![
            ("name", text_of(source.at("name"))),
            ("currentAverageUtilization", text_of(current.at("averageUtilization"))),
            ("currentAverageValue", quantity_text(current.at("averageValue"))),
            ("container", text_of(source.at("container"))),
        ],
    };
    object(vec![("type", text_of(metric.at("type"))), (key, object(fields))])
}

fn spec_to_v2(metric: &Tree) -> Tree {
    let key = source_key(metric);
    let source = metric.at(key);
    let mut target = match key {
        "object" => {
            let average = source.has("averageValue");
            let value = source.at("targetValue").clone();
            let value = if average && value.as_str() == Some("0") { Tree::Null } else { value };
            tree! { "type" => kind_of(!average), "value" => value, "averageValue" => source.at("averageValue").clone() }
        }
        "pods" => tree! { "type" => kind_of(false), "averageValue" => source.at("targetAverageValue").clone() },
        "external" => tree! {
            "type" => kind_of(source.has("targetValue")),
            "value" => source.at("targetValue").clone(),
            "averageValue" => source.at("targetAverageValue").clone(),
        },
        _ => tree! {
            "type" => if source.has("targetAverageUtilization") { "Utilization" } else { kind_of(false) },
            "averageUtilization" => source.at("targetAverageUtilization").clone(),
            "averageValue" => source.at("targetAverageValue").clone(),
        },
    };
    drop_nulls(&mut target);
    let mut source = source_to_v2(key, source);
    source.set("target", target);
    tree! { "type" => metric.str("type"), key => source }
}

fn kind_of(value: bool) -> &'static str {
    if value { "Value" } else { "AverageValue" }
}

fn status_metric_to_v2(metric: &Tree) -> Tree {
    let key = source_key(metric);
    let source = metric.at(key);
    let average = if key == "object" { "averageValue" } else { "currentAverageValue" };
    let mut current = tree! {
        "value" => source.at("currentValue").clone(),
        "averageValue" => source.at(average).clone(),
        "averageUtilization" => source.at("currentAverageUtilization").clone(),
    };
    drop_nulls(&mut current);
    let mut source = source_to_v2(key, source);
    source.set("current", current);
    tree! { "type" => metric.str("type"), key => source }
}

/// The metric source, which spec and status share.
fn source_to_v2(key: &str, source: &Tree) -> Tree {
    let selector = if key == "external" { "metricSelector" } else { "selector" };
    let mut metric = tree! { "name" => source.str("metricName"), "selector" => source.at(selector).clone() };
    drop_nulls(&mut metric);
    match key {
        "object" => tree! { "describedObject" => source.at("target").clone(), "metric" => metric },
        "pods" | "external" => tree! { "metric" => metric },
        "containerResource" => tree! { "name" => source.str("name"), "container" => source.str("container") },
        _ => tree! { "name" => source.str("name") },
    }
}

fn drop_nulls(tree: &mut Tree) {
    if let Tree::Map(map) = tree {
        map.retain(|_, value| !value.is_null());
    }
}

/// Upstream writes the behavior of its internal type with Go's field names.
fn behavior_text(behavior: &Tree) -> String {
    let null = |text: String| if text.is_empty() { "null".to_string() } else { text };
    let policy = |policy: &Tree| {
        let keys = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];
        object(keys.into_iter().map(|(name, key)| (name, text_of(policy.at(key)))).collect())
    };
    let rules = |rules: &Tree| {
        if rules.is_null() {
            return "null".to_string();
        }
        object(vec![
            ("StabilizationWindowSeconds", null(text_of(rules.at("stabilizationWindowSeconds")))),
            ("SelectPolicy", null(text_of(rules.at("selectPolicy")))),
            ("Policies", null(array(rules.list("policies").iter().map(policy).collect()))),
            ("Tolerance", null(text_of(rules.at("tolerance")))),
        ])
    };
    object(vec![("ScaleUp", rules(behavior.at("scaleUp"))), ("ScaleDown", rules(behavior.at("scaleDown")))])
}

/// Go field names converted to JSON names, unset fields omitted.
fn with_lower_keys(tree: Tree) -> Tree {
    match tree {
        Tree::Map(map) => {
            let entries = map.into_entries().into_iter().filter(|(_, value)| !value.is_null());
            let lower = |key: &str| {
                let mut chars = key.chars();
                chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
            };
            let entries = entries.map(|(key, value)| (lower(&key).into(), with_lower_keys(value))).collect();
            Tree::Map(Map::from_entries(entries, |_| {}))
        }
        Tree::List(items) => Tree::List(items.into_iter().map(with_lower_keys).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn rich() -> Tree {
        let target = tree! { "type" => "Utilization", "averageUtilization" => 60 };
        let average = |value: &str| tree! { "type" => "AverageValue", "averageValue" => value };
        let policy = tree! { "type" => "Pods", "value" => 1, "periodSeconds" => 30 };
        let selector = tree! { "matchLabels" => tree! { "a" => "b" } };
        let metrics = list![
            tree! { "type" => "Pods", "pods" => tree! { "metric" => tree! { "name" => "rps" }, "target" => average("100") } },
            tree! { "type" => "Object", "object" => tree! {
                "describedObject" => tree! { "apiVersion" => "v1", "kind" => "Service", "name" => "s" },
                "metric" => tree! { "name" => "q" },
                "target" => tree! { "type" => "Value", "value" => "10k" },
            } },
            tree! { "type" => "External", "external" => tree! {
                "metric" => tree! { "name" => "e", "selector" => selector }, "target" => average("30m"),
            } },
            tree! { "type" => "ContainerResource", "containerResource" => tree! {
                "name" => "memory", "container" => "c", "target" => average("1Gi"),
            } },
            tree! { "type" => "Resource", "resource" => tree! { "name" => "cpu", "target" => target } },
        ];
        let down = tree! { "selectPolicy" => "Max", "policies" => list![policy] };
        tree! {
            "apiVersion" => "autoscaling/v2",
            "metadata" => tree! { "name" => "rich" },
            "spec" => tree! { "maxReplicas" => 4, "metrics" => metrics, "behavior" => tree! { "scaleDown" => down } },
        }
    }

    #[test]
    fn other_metrics_are_stored_in_annotations() {
        let v1 = from_v2(rich());
        assert_eq!(v1.int("spec.targetCPUUtilizationPercentage"), Some(60));
        let annotations = v1.map("metadata.annotations");
        assert_eq!(
            annotations.str(METRICS),
            r#"[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"100"}},{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"q","targetValue":"10k"}},{"type":"External","external":{"metricName":"e","metricSelector":{"matchLabels":{"a":"b"}},"targetAverageValue":"30m"}},{"type":"ContainerResource","containerResource":{"name":"memory","targetAverageValue":"1Gi","container":"c"}}]"#
        );
        assert_eq!(
            annotations.str(BEHAVIOR),
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":30}],"Tolerance":null}}"#
        );
    }

    #[test]
    fn conversion_round_trips() {
        assert_eq!(to_v2(from_v2(rich())), rich());
    }

    #[test]
    fn default_target_is_cpu() {
        let v2 = to_v2(tree! { "spec" => tree! { "maxReplicas" => 3 } });
        assert_eq!(v2.at("spec.metrics"), &default_metrics());
    }
}
