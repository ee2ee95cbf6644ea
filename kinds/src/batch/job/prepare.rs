//! Defaults of a Job, and its generated selector and labels.

use api::{Tree, tree};

use crate::kind::Context;
use crate::{podspec, workload};

pub(super) const JOB_NAME: &str = "batch.kubernetes.io/job-name";
pub(super) const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
pub(super) const LEGACY_JOB_NAME: &str = "job-name";
pub(super) const LEGACY_CONTROLLER_UID: &str = "controller-uid";

const BACKOFF_LIMIT: i64 = 6;

pub(super) fn set_defaults(job: &mut Tree) {
    let spec = job.child("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1);
    }
    spec.set_default("parallelism", 1);
    let per_index = spec.has("backoffLimitPerIndex");
    spec.set_default("backoffLimit", if per_index { i64::from(i32::MAX) } else { BACKOFF_LIMIT });
    spec.set_default("completionMode", "NonIndexed");
    spec.set_default("suspend", false);
    spec.set_default("manualSelector", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.set_default("podReplacementPolicy", replacement);
    set_failure_policy_defaults(spec);
    podspec::set_template_defaults(spec.child("template"));
}

/// Also in CronJob templates.
pub(in crate::batch) fn set_failure_policy_defaults(spec: &mut Tree) {
    for rule in spec.list_mut("podFailurePolicy.rules") {
        for pattern in rule.list_mut("onPodConditions") {
            if pattern.str("status").is_empty() {
                pattern.set("status", "True");
            }
        }
    }
}

/// The object's uid must be set: the generated labels contain it.
pub(super) fn prepare_create(job: &mut Tree, context: &Context<'_>) {
    if !job.bool("spec.manualSelector") {
        generate_selector(job);
    }
    workload::prepare_create(job, context);
    label_as_template(job);
}

pub(super) fn prepare_update(job: &mut Tree, old: &Tree, context: &Context<'_>) {
    workload::prepare_update(job, old, context);
    label_as_template(job);
}

/// A Job without labels gets the labels of its template, including generated ones. This is not a default: labels of the
/// client would then look the same.
fn label_as_template(job: &mut Tree) {
    let labels = job.at("spec.template.metadata.labels");
    if job.map("metadata.labels").is_empty() && !labels.is_null() {
        let labels = labels.clone();
        job.child("metadata").set("labels", labels);
    }
}

/// Fields set by the client are kept and validated.
fn generate_selector(job: &mut Tree) {
    let (uid, name) = (job.str("metadata.uid").to_string(), job.str("metadata.name").to_string());
    let labels = job.child("spec.template.metadata.labels");
    for (key, value) in
        [(LEGACY_JOB_NAME, &name), (JOB_NAME, &name), (LEGACY_CONTROLLER_UID, &uid), (CONTROLLER_UID, &uid)]
    {
        labels.set_default(key, value);
    }
    let selector = job.child("spec.selector");
    if selector.map("matchLabels").is_empty() {
        selector.set("matchLabels", tree! {});
    }
    selector.child("matchLabels").set_default(CONTROLLER_UID, uid);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::User;

    fn prepared(spec: Tree) -> Tree {
        let user = User::default();
        let mut job = tree! { "metadata" => tree! { "name" => "j", "uid" => "u" }, "spec" => spec };
        set_defaults(&mut job);
        prepare_create(&mut job, &Context { now: 0, user: &user });
        job
    }

    #[test]
    fn jobs_select_their_pods_by_uid() {
        let job = prepared(tree! {});
        let labels =
            tree! { LEGACY_JOB_NAME => "j", JOB_NAME => "j", LEGACY_CONTROLLER_UID => "u", CONTROLLER_UID => "u" };
        assert_eq!(job.at("spec.template.metadata.labels"), &labels);
        assert_eq!(job.at("metadata.labels"), &labels);
        assert_eq!(job.at("spec.selector.matchLabels"), &tree! { CONTROLLER_UID => "u" });
        assert_eq!(job.int("spec.backoffLimit"), Some(6));
    }

    #[test]
    fn keeps_manual_selectors() {
        let job = prepared(tree! { "manualSelector" => true, "parallelism" => 3, "backoffLimitPerIndex" => 1 });
        assert!(job.at("spec.selector").is_null());
        assert!(job.at("metadata.labels").is_null());
        assert_eq!(job.int("spec.completions"), None);
        assert_eq!(job.int("spec.backoffLimit"), Some(2_147_483_647));
    }
}
