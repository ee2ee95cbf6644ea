//! Builds the pods of a job, and selects the pods to delete first.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Tree, tree};

use super::failure_policy::failure_action;
use super::view::{FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED, Job, index_failures};
use crate::support::conditions;
use crate::support::pods::{from_template, is_ready};

const INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// The maximum length of a generateName before the server's suffix.
const MAX_PREFIX: usize = 58;

/// The pod for an index, or without one; it continues the failure count of the pod it replaces.
pub(super) fn build(job: &Tree, index: Option<usize>, replaced: Option<&Tree>) -> Tree {
    let mut pod = from_template(job.at("spec.template"), job);
    let finalizers = pod.child("metadata").list_entry("finalizers");
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some(FINALIZER)) {
        finalizers.push(Tree::from(FINALIZER));
    }
    if let Some(index) = index {
        mark(&mut pod, job, index, replaced);
    }
    pod
}

fn mark(pod: &mut Tree, job: &Tree, index: usize, replaced: Option<&Tree>) {
    let name = job.str("metadata.name");
    for list in ["initContainers", "containers"] {
        pod.child("spec").list_mut(list).iter_mut().for_each(set_index_env);
    }
    pod.child("metadata").set("generateName", prefix(name, index));
    pod.child("metadata.annotations").set(INDEX, index.to_string());
    pod.child("metadata.labels").set(INDEX, index.to_string());
    pod.child("spec").set("hostname", format!("{name}-{index}"));
    if Job(job).limit_per_index().is_some() {
        let (counted, ignored) = failures_so_far(job, replaced);
        pod.child("metadata.annotations").set(INDEX_FAILURES, counted.to_string());
        if ignored > 0 {
            pod.child("metadata.annotations").set(INDEX_IGNORED, ignored.to_string());
        }
    }
}

fn prefix(name: &str, index: usize) -> String {
    let tail = format!("-{index}-");
    let kept = name.len().min(MAX_PREFIX.saturating_sub(tail.len()));
    format!("{}{tail}", &name[..kept])
}

fn failures_so_far(job: &Tree, replaced: Option<&Tree>) -> (i64, i64) {
    let Some(pod) = replaced else { return (0, 0) };
    let (counted, ignored) = index_failures(pod);
    if failure_action(job, pod).counts() { (counted + 1, ignored) } else { (counted, ignored + 1) }
}

fn set_index_env(container: &mut Tree) {
    let env = container.list_entry("env");
    if env.iter().any(|variable| variable.str("name") == INDEX_ENV) {
        return;
    }
    let path = format!("metadata.labels['{INDEX}']");
    let source = tree! { "fieldRef" => tree! { "apiVersion" => "v1", "fieldPath" => path } };
    env.push(tree! { "name" => INDEX_ENV, "valueFrom" => source });
}

/// At least `count` of the active pods: duplicates of an index first, then the pods with the least progress.
pub(crate) fn surplus(job: Job<'_>, active: &[Arc<Tree>], count: usize) -> Vec<Arc<Tree>> {
    let mut ranked = active.to_vec();
    ranked.sort_by_cached_key(|pod| progress(pod));
    let (mut gone, left) = if job.is_indexed() { split(job, ranked) } else { (Vec::new(), ranked) };
    let more = count.saturating_sub(gone.len());
    gone.extend(left.into_iter().take(more));
    gone
}

/// Keeps the pod with the most progress for each index.
fn split(job: Job<'_>, ranked: Vec<Arc<Tree>>) -> (Vec<Arc<Tree>>, Vec<Arc<Tree>>) {
    let mut seen = BTreeSet::new();
    let mut kept = |pod: &Arc<Tree>| job.index(pod).is_some_and(|index| seen.insert(index));
    let (mut left, mut gone): (Vec<_>, Vec<_>) = ranked.into_iter().rev().partition(|pod| kept(pod));
    left.reverse();
    gone.reverse();
    (gone, left)
}

/// The progress of a pod; pods with less progress are deleted first.
fn progress(pod: &Tree) -> impl Ord + use<> {
    let phase = match pod.str("status.phase") {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let restarts = pod.list("status.containerStatuses").iter().filter_map(|status| status.int("restartCount")).max();
    let ready = is_ready(pod);
    let since = conditions::get(pod, "Ready").filter(|_| ready).map(|c| c.str("lastTransitionTime").to_string());
    (
        !pod.str("spec.nodeName").is_empty(),
        phase,
        ready,
        Reverse(since),
        Reverse(restarts.unwrap_or(0)),
        Reverse(pod.str("metadata.creationTimestamp").to_string()),
    )
}

#[cfg(test)]
mod tests {
    use api::json::{decode, encode};

    use super::*;

    fn json(text: &str) -> Tree {
        decode(text.as_bytes()).expect("json")
    }

    fn job(spec: &str) -> Tree {
        let template = r#""template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}"#;
        json(&format!(r#"{{"metadata":{{"namespace":"n","name":"j","uid":"u"}},"spec":{{{spec}{template}}}}}"#))
    }

    #[test]
    fn builds_pods_from_the_template() {
        let made = build(&job(""), None, None);
        assert_eq!(made.str("metadata.generateName"), "j-");
        assert_eq!(made.map("metadata.labels").str("a"), "b");
        assert!(super::super::view::is_tracked(&made));
        assert!(made.at("spec").list("containers")[0].at("env").is_null());
        let made = build(&job(r#""completionMode":"Indexed","completions":3,"#), Some(2), None);
        assert_eq!(made.str("metadata.generateName"), "j-2-");
        assert_eq!(made.str("spec.hostname"), "j-2");
        assert_eq!(made.map("metadata.labels").str(INDEX), "2");
        assert_eq!(made.map("metadata.annotations").str(INDEX), "2");
        let env = String::from_utf8(encode(made.at("spec").list("containers")[0].at("env"), None)).expect("text");
        assert!(env.contains("metadata.labels['batch.kubernetes.io/job-completion-index']"), "{env}");
        assert!(!made.map("metadata.annotations").contains(INDEX_FAILURES));
    }

    #[test]
    fn replacements_continue_the_failure_count() {
        let rules =
            r#""podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[9]}}]}"#;
        let job = job(&format!(r#""completionMode":"Indexed","completions":3,"backoffLimitPerIndex":1,{rules},"#));
        let failed = |code: i64| {
            let status = format!(r#"{{"containerStatuses":[{{"state":{{"terminated":{{"exitCode":{code}}}}}}}]}}"#);
            let annotations = format!(r#"{{"{INDEX_FAILURES}":"1"}}"#);
            json(&format!(r#"{{"metadata":{{"annotations":{annotations}}},"status":{status}}}"#))
        };
        let check = |replaced: Option<Tree>, want: (&str, &str)| {
            let made = build(&job, Some(0), replaced.as_ref());
            let annotations = made.map("metadata.annotations");
            assert_eq!((annotations.str(INDEX_FAILURES), annotations.str(INDEX_IGNORED)), want);
        };
        check(None, ("0", ""));
        check(Some(failed(1)), ("2", ""));
        check(Some(failed(9)), ("1", "1"));
    }

    #[test]
    fn long_names_are_truncated_for_the_index() {
        assert_eq!(prefix(&"x".repeat(63), 12).len(), MAX_PREFIX);
        assert!(prefix(&"x".repeat(63), 12).ends_with("x-12-"));
    }

    #[test]
    fn deletes_pods_with_least_progress_first() {
        let pod = |name: &str, index: &str, node: &str, phase: &str| {
            let annotations = format!(r#"{{"{INDEX}":"{index}"}}"#);
            let metadata = format!(r#"{{"name":"{name}","annotations":{annotations}}}"#);
            let spec = format!(r#"{{"nodeName":"{node}"}}"#);
            Arc::new(json(&format!(r#"{{"metadata":{metadata},"spec":{spec},"status":{{"phase":"{phase}"}}}}"#)))
        };
        let names = |pods: Vec<Arc<Tree>>| {
            pods.iter().map(|pod| pod.str("metadata.name").to_string()).collect::<Vec<_>>().join(" ")
        };
        let active =
            [pod("run", "0", "x", "Running"), pod("wait", "0", "x", "Pending"), pod("new", "1", "", "Pending")];
        let plain = job("");
        assert_eq!(names(surplus(Job(&plain), &active, 2)), "new wait");
        let indexed = job(r#""completionMode":"Indexed","completions":2,"#);
        assert_eq!(names(surplus(Job(&indexed), &active, 0)), "wait", "its index has a better one");
        assert_eq!(names(surplus(Job(&indexed), &active, 2)), "wait new");
        let beyond = [pod("far", "5", "x", "Running"), pod("none", "x", "x", "Running")];
        assert_eq!(names(surplus(Job(&indexed), &beyond, 0)), "far none");
    }
}
