//! Network policies, disruption budgets and autoscalers.

use api::Tree;
use api::quote::go_quote;

use super::values::{format_selector, int, is_set, joined, long_time, or_none, text, text_or};
use super::writer::{Writer, put};

fn head(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
}

pub(super) fn network_policy(w: &mut Writer, object: &Tree) {
    head(w, object);
    let created = object.str("metadata.creationTimestamp").replace('T', " ").replace('Z', " +0000 UTC");
    w.field("Created on", created);
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    let spec = object.at("spec");
    w.write(0, "Spec:\n");
    w.write(1, "PodSelector: ");
    match format_selector(spec.at("podSelector")).as_str() {
        "<none>" => w.write(2, "<none> (Allowing the specific traffic to all pods in this namespace)\n"),
        selector => put!(w, 2, "{selector}\n"),
    }
    let types = super::values::texts(spec, "policyTypes");
    for (kind, field, peers, source) in
        [("Ingress", "ingress", "From", "source"), ("Egress", "egress", "To", "destination")]
    {
        let lower = kind.to_lowercase();
        if !types.iter().any(|known| known == kind) {
            put!(w, 1, "Not affecting {lower} traffic\n");
            continue;
        }
        put!(w, 1, "Allowing {lower} traffic:\n");
        let rules = spec.list(field);
        if rules.is_empty() {
            put!(w, 0, "    <none> (Selected pods are isolated for {lower} connectivity)\n");
        }
        for (at, rule) in rules.iter().enumerate() {
            if at > 0 {
                w.write(0, "    ----------\n");
            }
            policy_rule(w, rule, peers, source);
        }
    }
    put!(w, 1, "Policy Types: {}\n", or_none(types.join(", ")));
}

fn policy_rule(w: &mut Writer, rule: &Tree, peers: &str, source: &str) {
    if rule.list("ports").is_empty() {
        w.write(0, "    To Port: <any> (traffic allowed to all ports)\n");
    }
    for port in rule.list("ports") {
        let (number, protocol) = (text_or(port, "port", "<nil>"), text_or(port, "protocol", "TCP"));
        if is_set(port, "endPort") {
            put!(w, 0, "    To Port Range: {number}-{}/{protocol}\n", int(port, "endPort"));
        } else {
            put!(w, 0, "    To Port: {number}/{protocol}\n");
        }
    }
    let list = rule.list(&peers.to_lowercase());
    if list.is_empty() {
        put!(w, 0, "    {peers}: <any> (traffic not restricted by {source})\n");
    }
    for peer in list {
        put!(w, 0, "    {peers}:\n");
        for (title, field) in [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")] {
            if is_set(peer, field) {
                put!(w, 1, "    {title}: {}\n", format_selector(peer.at(field)));
            }
        }
        if is_set(peer, "ipBlock") && !is_set(peer, "namespaceSelector") && !is_set(peer, "podSelector") {
            w.write(1, "    IPBlock:\n");
            put!(w, 2, "    CIDR: {}\n", peer.str("ipBlock.cidr"));
            put!(w, 2, "    Except: {}\n", joined(peer, "ipBlock.except", ", "));
        }
    }
}

pub(super) fn disruption_budget(w: &mut Writer, object: &Tree) {
    head(w, object);
    if is_set(object, "spec.minAvailable") {
        w.field("Min available", text(object, "spec.minAvailable"));
    } else if is_set(object, "spec.maxUnavailable") {
        w.field("Max unavailable", text(object, "spec.maxUnavailable"));
    }
    let selector = object.at("spec.selector");
    w.field("Selector", if selector.is_null() { "<unset>".to_string() } else { format_selector(selector) });
    w.write(0, "Status:\n");
    for (title, field) in [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ] {
        put!(w, 2, "{title}:\t{}\n", int(object.at("status"), field));
    }
}

pub(super) fn autoscaler(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    w.field("CreationTimestamp", long_time(object.str("metadata.creationTimestamp")));
    let (spec, status) = (object.at("spec"), object.at("status"));
    let target = spec.at("scaleTargetRef");
    w.field("Reference", format!("{}/{}", target.str("kind"), target.str("name")));
    w.field("Metrics", "( current / target )");
    for (at, metric) in spec.list("metrics").iter().enumerate() {
        metric_line(w, metric, status.list("currentMetrics").get(at).unwrap_or(&Tree::Null));
    }
    w.field("Min replicas", text_or(spec, "minReplicas", "<unset>"));
    w.field("Max replicas", int(spec, "maxReplicas"));
    if is_set(spec, "behavior") {
        w.write(0, "Behavior:\n");
        behavior(w, "Scale Up", spec.at("behavior.scaleUp"));
        behavior(w, "Scale Down", spec.at("behavior.scaleDown"));
    }
    let (current, desired) = (int(status, "currentReplicas"), int(status, "desiredReplicas"));
    w.field(&format!("{} pods", target.str("kind")), format!("{current} current / {desired} desired"));
    let conditions = status.list("conditions");
    if !conditions.is_empty() {
        w.write(0, "Conditions:\n");
        w.write(1, "Type\tStatus\tReason\tMessage\n");
        w.write(1, "----\t------\t------\t-------\n");
    }
    for condition in conditions {
        let (kind, status) = (condition.str("type"), condition.str("status"));
        put!(w, 1, "{kind}\t{status}\t{}\t{}\n", condition.str("reason"), condition.str("message"));
    }
}

fn metric_line(w: &mut Writer, metric: &Tree, current: &Tree) {
    let current_of = |field: &str, value: &str| text_or(current, &format!("{field}.current.{value}"), "<unknown>");
    match metric.str("type") {
        "External" => {
            let (name, target) = (go_quote(metric.str("external.metric.name")), metric.at("external.target"));
            let (kind, value) =
                if is_set(target, "averageValue") { ("average value", "averageValue") } else { ("value", "value") };
            put!(
                w,
                1,
                "{name} (target {kind}):\t{} / {}\n",
                current_of("external", value),
                text_or(target, value, "0")
            );
        }
        "Pods" => {
            let (name, target) = (go_quote(metric.str("pods.metric.name")), text(metric, "pods.target.averageValue"));
            put!(w, 1, "{name} on pods:\t{} / {target}\n", current_of("pods", "averageValue"));
        }
        "Object" => {
            let (object, target) = (metric.at("object.describedObject"), metric.at("object.target"));
            let is_average = target.str("type") == "AverageValue";
            let (kind, value) = if is_average { ("average value", "averageValue") } else { ("value", "value") };
            let name = metric.str("object.metric.name");
            put!(w, 1, "\"{name}\" on {}/{} ", object.str("kind"), object.str("name"));
            put!(w, 0, "(target {kind}):\t{} / {}\n", current_of("object", value), text(target, value));
        }
        "Resource" => {
            put!(w, 1, "resource {} on pods", metric.str("resource.name"));
            resource_metric(w, metric.at("resource.target"), current.at("resource.current"));
        }
        "ContainerResource" => {
            let source = metric.at("containerResource");
            put!(w, 1, "resource {} of container \"{}\" on pods", source.str("name"), source.str("container"));
            resource_metric(w, source.at("target"), current.at("containerResource.current"));
        }
        other => put!(w, 1, "<unknown metric type {}>\n", go_quote(other)),
    }
}

fn resource_metric(w: &mut Writer, target: &Tree, current: &Tree) {
    if is_set(target, "averageValue") {
        let current = text_or(current, "averageValue", "<unknown>");
        return put!(w, 0, ":\t{current} / {}\n", text(target, "averageValue"));
    }
    let shown = if is_set(current, "averageUtilization") {
        format!("{}% ({})", int(current, "averageUtilization"), text_or(current, "averageValue", "0"))
    } else {
        "<unknown>".to_string()
    };
    let target = match target.int("averageUtilization") {
        Some(percent) => format!("{percent}%"),
        None => "<auto>".to_string(),
    };
    put!(w, 1, "(as a percentage of request):\t{shown} / {target}\n");
}

fn behavior(w: &mut Writer, direction: &str, rules: &Tree) {
    if rules.is_null() {
        return;
    }
    put!(w, 1, "{direction}:\n");
    if is_set(rules, "stabilizationWindowSeconds") {
        put!(w, 2, "Stabilization Window: {} seconds\n", int(rules, "stabilizationWindowSeconds"));
    }
    if rules.list("policies").is_empty() {
        return;
    }
    put!(w, 2, "Select Policy: {}\n", text_or(rules, "selectPolicy", "Max"));
    w.write(2, "Policies:\n");
    for policy in rules.list("policies") {
        let (value, period) = (int(policy, "value"), int(policy, "periodSeconds"));
        put!(w, 3, "- Type: {}\tValue: {value}\tPeriod: {period} seconds\n", policy.str("type"));
    }
}
