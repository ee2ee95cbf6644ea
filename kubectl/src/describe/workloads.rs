//! Controllers of pods.

use api::{Tree, time};

use super::pod;
use super::storage;
use super::values::{
    bool_or_unset, controller, format_labels, format_selector, int, is_set, long_time, or_none, seconds_of,
    selector_text, text, text_or, texts,
};
use super::writer::{Writer, put};

fn head(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
}

fn metadata(w: &mut Writer, object: &Tree) {
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
}

fn controlled(w: &mut Writer, object: &Tree) {
    if let Some(controller) = controller(object) {
        w.field("Controlled By", controller);
    }
}

/// How many pods of a controller are in each phase.
pub(super) fn pods_status(object: &Tree, pods: &[Tree]) -> String {
    let uid = object.str("metadata.uid");
    let is_owned = |pod: &&Tree| {
        let mut owners = pod.list("metadata.ownerReferences").iter();
        owners.any(|owner| owner.bool("controller") && owner.str("uid") == uid)
    };
    let owned: Vec<&Tree> = pods.iter().filter(is_owned).collect();
    let count = |phase: &str| owned.iter().filter(|pod| pod.str("status.phase") == phase).count();
    format!(
        "{} Running / {} Waiting / {} Succeeded / {} Failed",
        count("Running"),
        count("Pending"),
        count("Succeeded"),
        count("Failed")
    )
}

fn conditions(w: &mut Writer, object: &Tree) {
    let conditions = object.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    w.write(0, "Conditions:\n  Type\tStatus\tReason\n");
    w.write(1, "----\t------\t------\n");
    for condition in conditions {
        let (kind, status, reason) = (condition.str("type"), condition.str("status"), condition.str("reason"));
        put!(w, 1, "{kind} \t{status}\t{reason}\n");
    }
}

fn replicas(w: &mut Writer, object: &Tree) {
    let (current, desired) = (int(object, "status.replicas"), int(object, "spec.replicas"));
    w.field("Replicas", format!("{current} current / {desired} desired"));
}

pub(super) fn replication_controller(w: &mut Writer, object: &Tree, pods: &[Tree]) {
    head(w, object);
    w.field("Selector", format_labels(object.map("spec.selector")));
    metadata(w, object);
    replicas(w, object);
    w.field("Pods Status", pods_status(object, pods));
    pod::template(w, object.at("spec.template"));
    conditions(w, object);
}

pub(super) fn replica_set(w: &mut Writer, object: &Tree, pods: &[Tree]) {
    head(w, object);
    w.field("Selector", format_selector(object.at("spec.selector")));
    metadata(w, object);
    controlled(w, object);
    replicas(w, object);
    w.field("Pods Status", pods_status(object, pods));
    pod::template(w, object.at("spec.template"));
    conditions(w, object);
}

pub(super) fn daemon_set(w: &mut Writer, object: &Tree, pods: &[Tree]) {
    head(w, object);
    w.field("Selector", selector_text(object.at("spec.selector")));
    w.field("Node-Selector", format_labels(object.map("spec.template.spec.nodeSelector")));
    metadata(w, object);
    for (title, field) in [
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        put!(w, 0, "{title}: {}\n", int(object.at("status"), field));
    }
    w.field("Pods Status", pods_status(object, pods));
    pod::template(w, object.at("spec.template"));
}

pub(super) fn stateful_set(w: &mut Writer, object: &Tree, pods: &[Tree]) {
    head(w, object);
    w.field("CreationTimestamp", long_time(object.str("metadata.creationTimestamp")));
    w.field("Selector", selector_text(object.at("spec.selector")));
    metadata(w, object);
    let (desired, total) = (int(object, "spec.replicas"), int(object, "status.replicas"));
    w.field("Replicas", format!("{desired} desired | {total} total"));
    let strategy = object.at("spec.updateStrategy");
    w.field("Update Strategy", strategy.str("type"));
    if is_set(strategy, "rollingUpdate.partition") {
        put!(w, 1, "Partition:\t{}\n", int(strategy, "rollingUpdate.partition"));
        if is_set(strategy, "rollingUpdate.maxUnavailable") {
            put!(w, 1, "MaxUnavailable:\t{}\n", text(strategy, "rollingUpdate.maxUnavailable"));
        }
    }
    w.field("Pods Status", pods_status(object, pods));
    pod::template(w, object.at("spec.template"));
    storage::claim_templates(w, object.list("spec.volumeClaimTemplates"));
}

/// The replica sets of a deployment: those of older templates, and the one of the current template.
pub(super) fn deployment(w: &mut Writer, object: &Tree, sets: &[Tree]) {
    head(w, object);
    w.field("CreationTimestamp", long_time(object.str("metadata.creationTimestamp")));
    metadata(w, object);
    w.field("Selector", selector_text(object.at("spec.selector")));
    let status = |field: &str| int(object.at("status"), field);
    w.field(
        "Replicas",
        format!(
            "{} desired | {} updated | {} total | {} available | {} unavailable",
            int(object, "spec.replicas"),
            status("updatedReplicas"),
            status("replicas"),
            status("availableReplicas"),
            status("unavailableReplicas")
        ),
    );
    w.field("StrategyType", object.str("spec.strategy.type"));
    w.field("MinReadySeconds", int(object, "spec.minReadySeconds"));
    let rolling = object.at("spec.strategy.rollingUpdate");
    if !rolling.is_null() {
        let (unavailable, surge) = (text(rolling, "maxUnavailable"), text(rolling, "maxSurge"));
        w.field("RollingUpdateStrategy", format!("{unavailable} max unavailable, {surge} max surge"));
    }
    pod::template(w, object.at("spec.template"));
    conditions(w, object);
    let (old, new) = split_sets(object, sets);
    if !old.is_empty() || new.is_some() {
        w.field("OldReplicaSets", set_names(&old));
        w.field("NewReplicaSet", set_names(&new.into_iter().collect::<Vec<_>>()));
    }
}

fn split_sets<'t>(deployment: &Tree, sets: &'t [Tree]) -> (Vec<&'t Tree>, Option<&'t Tree>) {
    let uid = deployment.str("metadata.uid");
    let is_owned = |set: &&Tree| {
        let mut owners = set.list("metadata.ownerReferences").iter();
        owners.any(|owner| owner.bool("controller") && owner.str("uid") == uid)
    };
    let owned: Vec<&Tree> = sets.iter().filter(is_owned).collect();
    let template = |object: &Tree| {
        let mut template = object.at("spec.template").clone();
        if let Some(labels) = template.at_mut("metadata.labels").and_then(Tree::as_map_mut) {
            labels.remove("pod-template-hash");
        }
        template
    };
    let wanted = template(deployment);
    let mut current: Vec<&Tree> = owned.iter().copied().filter(|set| template(set) == wanted).collect();
    current.sort_by_key(|set| (set.str("metadata.creationTimestamp"), set.str("metadata.name")));
    let new = current.first().copied();
    let is_new = |set: &Tree| new.is_some_and(|new| new.str("metadata.uid") == set.str("metadata.uid"));
    (owned.into_iter().filter(|set| !is_new(set)).collect(), new)
}

fn set_names(sets: &[&Tree]) -> String {
    let name = |set: &&Tree| {
        let (created, desired) = (int(set, "status.replicas"), int(set, "spec.replicas"));
        format!("{} ({created}/{desired} replicas created)", set.str("metadata.name"))
    };
    or_none(sets.iter().map(name).collect::<Vec<_>>().join(", "))
}

pub(super) fn job(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.field("Selector", selector_text(object.at("spec.selector")));
    metadata(w, object);
    controlled(w, object);
    pod::optional(w, object, &[("Parallelism", "spec.parallelism")]);
    w.field("Completions", text_or(object, "spec.completions", "<unset>"));
    pod::optional(
        w,
        object,
        &[
            ("Completion Mode", "spec.completionMode"),
            ("Suspend", "spec.suspend"),
            ("Backoff Limit", "spec.backoffLimit"),
            ("TTL Seconds After Finished", "spec.ttlSecondsAfterFinished"),
        ],
    );
    let (start, end) = (object.str("status.startTime"), object.str("status.completionTime"));
    if !start.is_empty() {
        w.field("Start Time", long_time(start));
    }
    if !end.is_empty() {
        w.field("Completed At", long_time(end));
    }
    if let (Some(start), Some(end)) = (seconds_of(start), seconds_of(end)) {
        w.field("Duration", time::human_duration(end - start));
    }
    if is_set(object, "spec.activeDeadlineSeconds") {
        w.field("Active Deadline Seconds", format!("{}s", int(object, "spec.activeDeadlineSeconds")));
    }
    let status = |field: &str| int(object.at("status"), field);
    let ready = if is_set(object, "status.ready") { format!(" ({} Ready)", status("ready")) } else { String::new() };
    let ended = format!("{} Succeeded / {} Failed", status("succeeded"), status("failed"));
    w.field("Pods Statuses", format!("{} Active{ready} / {ended}", status("active")));
    if object.str("spec.completionMode") == "Indexed" {
        w.field("Completed Indexes", cap_indexes(object.str("status.completedIndexes")));
    }
    pod::template(w, object.at("spec.template"));
}

/// Indexes up to the comma after 50 characters.
fn cap_indexes(indexes: &str) -> String {
    match indexes.get(50..).and_then(|rest| rest.find(',')) {
        Some(comma) => format!("{}...", &indexes[..=50 + comma]),
        None => or_none(indexes.to_string()),
    }
}

pub(super) fn cron_job(w: &mut Writer, object: &Tree) {
    head(w, object);
    metadata(w, object);
    let spec = object.at("spec");
    w.field("Schedule", spec.str("schedule"));
    w.field("Concurrency Policy", spec.str("concurrencyPolicy"));
    w.field("Suspend", bool_or_unset(spec, "suspend"));
    w.field("Successful Job History Limit", text_or(spec, "successfulJobsHistoryLimit", "<unset>"));
    w.field("Failed Job History Limit", text_or(spec, "failedJobsHistoryLimit", "<unset>"));
    let seconds = |path: &str| if is_set(spec, path) { format!("{}s", int(spec, path)) } else { "<unset>".to_string() };
    w.field("Starting Deadline Seconds", seconds("startingDeadlineSeconds"));
    let template = spec.at("jobTemplate.spec");
    let selector = template.at("selector");
    w.field("Selector", if selector.is_null() { "<unset>".to_string() } else { selector_text(selector) });
    w.field("Parallelism", text_or(template, "parallelism", "<unset>"));
    w.field("Completions", text_or(template, "completions", "<unset>"));
    if is_set(template, "activeDeadlineSeconds") {
        w.field("Active Deadline Seconds", format!("{}s", int(template, "activeDeadlineSeconds")));
    }
    pod::template(w, template.at("template"));
    let last = object.str("status.lastScheduleTime");
    w.field("Last Schedule Time", if last.is_empty() { "<unset>".to_string() } else { long_time(last) });
    let jobs: Vec<&str> = object.list("status.active").iter().map(|job| job.str("name")).collect();
    w.field("Active Jobs", or_none(jobs.join(", ")));
}

/// `[a b]`.
pub(super) fn go_list(tree: &Tree, path: &str) -> String {
    format!("[{}]", texts(tree, path).join(" "))
}
