//! Namespaces with their quotas and limits, and priority classes.

use std::collections::BTreeSet;

use api::Tree;
use api::quantity::Quantity;

use super::values::{format_labels, int, long_time, text_or, texts};
use super::writer::{Writer, put, text_of};

/// Quotas and limits are None if the user may not list them.
pub(super) fn namespace(w: &mut Writer, object: &Tree, quotas: Option<&[Tree]>, limits: Option<&[Tree]>) {
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    w.field("Status", object.str("status.phase"));
    let conditions = object.list("status.conditions");
    if !conditions.is_empty() {
        w.write(0, "Conditions:\n");
        w.write(1, "Type\tStatus\tLastTransitionTime\tReason\tMessage\n");
        w.write(1, "----\t------\t------------------\t------\t-------\n");
    }
    for condition in conditions {
        let time = long_time(condition.str("lastTransitionTime"));
        let (kind, status) = (condition.str("type"), condition.str("status"));
        put!(w, 1, "{kind}\t{status}\t{time}\t{}\t{}\n", condition.str("reason"), condition.str("message"));
    }
    if let Some(quotas) = quotas {
        w.write(0, "\n");
        namespace_quotas(w, quotas);
    }
    if let Some(limits) = limits {
        w.write(0, "\n");
        namespace_limits(w, limits);
    }
}

fn namespace_quotas(w: &mut Writer, quotas: &[Tree]) {
    if quotas.is_empty() {
        return w.write(0, "No resource quota.\n");
    }
    let mut quotas: Vec<&Tree> = quotas.iter().collect();
    quotas.sort_by_key(|quota| quota.str("metadata.name"));
    w.write(0, "Resource Quotas\n");
    for quota in quotas {
        put!(w, 1, "Name:\t{}\n", quota.str("metadata.name"));
        scopes(w, quota, 1, "* ");
        w.write(1, "Resource\tUsed\tHard\n");
        w.write(1, "--------\t---\t---\n");
        for (name, hard) in quota.map("status.hard").iter() {
            put!(w, 1, "{name}\t{}\t{}\n", used(quota, name), text_of(hard));
        }
    }
}

fn used(quota: &Tree, name: &str) -> String {
    quota.map("status.used").get(name).map_or_else(|| "0".to_string(), text_of)
}

fn scopes(w: &mut Writer, quota: &Tree, level: usize, bullet: &str) {
    let mut scopes = texts(quota, "spec.scopes");
    if scopes.is_empty() {
        return;
    }
    scopes.sort();
    put!(w, level, "Scopes:\t{}\n", scopes.join(", "));
    for help in scopes.iter().map(|scope| scope_help(scope)).filter(|help| !help.is_empty()) {
        put!(w, level, "{bullet}{help}\n");
    }
}

fn scope_help(scope: &str) -> &'static str {
    match scope {
        "Terminating" => {
            "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
        }
        "NotTerminating" => {
            "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
        }
        "BestEffort" => {
            "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
        }
        "NotBestEffort" => {
            "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
        }
        _ => "",
    }
}

pub(super) fn quota(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    scopes(w, object, 0, " * ");
    w.write(0, "Resource\tUsed\tHard\n");
    w.write(0, "--------\t----\t----\n");
    for (name, hard) in object.map("status.hard").iter() {
        let (used, hard) = (used(object, name), text_of(hard));
        put!(w, 0, "{name}\t{}\t{hard}\n", in_format(&used, &hard));
    }
}

/// A quantity in the format of another one.
fn in_format(text: &str, other: &str) -> String {
    match (Quantity::parse(text), Quantity::parse(other)) {
        (Ok(own), Ok(other)) if own.format() != other.format() => {
            Quantity::new(own.value(), other.format()).to_string()
        }
        _ => text.to_string(),
    }
}

fn namespace_limits(w: &mut Writer, ranges: &[Tree]) {
    if ranges.is_empty() {
        return w.write(0, "No LimitRange resource.\n");
    }
    w.write(0, "Resource Limits\n Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    w.write(0, " ----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    ranges.iter().for_each(|range| limits(w, range, " "));
}

pub(super) fn limit_range(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    w.write(0, "Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    w.write(0, "----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    limits(w, object, "");
}

fn limits(w: &mut Writer, range: &Tree, before: &str) {
    const FIELDS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];
    for item in range.list("spec.limits") {
        let names: BTreeSet<&str> = FIELDS.iter().flat_map(|field| item.map(field).keys()).collect();
        for name in names {
            let value = |field: &&str| item.map(field).get(name).map_or_else(|| "-".to_string(), text_of);
            let values: Vec<String> = FIELDS.iter().map(value).collect();
            put!(w, 0, "{before}{}\t{name}\t{}\n", item.str("type"), values.join("\t"));
        }
    }
}

pub(super) fn priority_class(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Value", int(object, "value"));
    w.field("GlobalDefault", object.bool("globalDefault"));
    w.field("PreemptionPolicy", text_or(object, "preemptionPolicy", ""));
    w.field("Description", object.str("description"));
    w.field("Annotations", format_labels(object.map("metadata.annotations")));
}
