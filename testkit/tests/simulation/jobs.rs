//! Jobs under faults: no completion is lost or counted twice.

use std::collections::BTreeSet;

use api::Tree;
use client::Resource;
use testkit::sim::Simulation;

use super::{MINUTE, NAMESPACE, disturb, json, nodes_come_up};

const JOBS: Resource = Resource::new("batch", "v1", "jobs");
const COMPLETIONS: u64 = 12;

fn job(name: &str, mode: &str, code: u64, seconds: u64) -> Tree {
    json(&format!(
        r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}"}},
            "spec":{{"completions":{COMPLETIONS},"parallelism":4,"completionMode":"{mode}","backoffLimit":3,
            "podFailurePolicy":{{"rules":[
              {{"action":"Ignore","onPodConditions":[{{"type":"DisruptionTarget"}}]}},
              {{"action":"Ignore","onExitCodes":{{"operator":"In","values":[143]}}}}]}},
            "template":{{"metadata":{{"annotations":{{"tiphys.io/fake-exit-code":"{code}","tiphys.io/fake-run-seconds":"{seconds}"}}}},
            "spec":{{"restartPolicy":"Never","containers":[{{"name":"work","image":"work:1"}}]}}}}}}}}"#
    ))
}

async fn jobs(simulation: &mut Simulation) {
    nodes_come_up(simulation).await;
    let seconds = simulation.random.between(0, 40);
    let good = [job("plain", "NonIndexed", 0, seconds), job("indexed", "Indexed", 0, seconds)];
    let bad = job("bad", "NonIndexed", 7, seconds);
    for job in good.iter().chain([&bad]) {
        simulation.admin.create(JOBS, NAMESPACE, job).await.expect("a Job");
    }
    disturb(simulation, simulation.random.seconds(120, 400)).await;
    simulation.until("all Jobs are over", 40 * MINUTE, async |simulation| are_over(simulation)).await;
    simulation.pass(2 * MINUTE).await;
    check(simulation);
}

fn finished(job: &Tree, kind: &str) -> bool {
    let conditions = job.list("status.conditions");
    conditions.iter().any(|condition| condition.str("type") == kind && condition.str("status") == "True")
}

fn find(simulation: &Simulation, name: &str) -> Tree {
    let jobs = simulation.objects("jobs", NAMESPACE);
    jobs.into_iter().find(|job| job.str("metadata.name") == name).expect("the Job is there")
}

fn are_over(simulation: &Simulation) -> bool {
    finished(&find(simulation, "plain"), "Complete")
        && finished(&find(simulation, "indexed"), "Complete")
        && finished(&find(simulation, "bad"), "Failed")
}

fn check(simulation: &Simulation) {
    for name in ["plain", "indexed"] {
        let job = find(simulation, name);
        assert_eq!(job.int("status.succeeded"), Some(COMPLETIONS as i64), "{name}: {:?}", job.at("status"));
        assert_eq!(job.int("status.active").unwrap_or(0), 0, "{name}");
    }
    assert_eq!(find(simulation, "indexed").str("status.completedIndexes"), format!("0-{}", COMPLETIONS - 1));
    assert_eq!(find(simulation, "bad").int("status.succeeded").unwrap_or(0), 0);
    let pods = simulation.objects("pods", NAMESPACE);
    let held = |pod: &&Tree| !pod.list("metadata.finalizers").is_empty();
    assert_eq!(pods.iter().filter(held).count(), 0, "nothing is left to count");
    // The succeeded pods of a plain Job must not outnumber the counted ones, unless they are deleted again.
    let succeeded = |job: &str| {
        let of_job = pods.iter().filter(|pod| pod.map("metadata.labels").str("batch.kubernetes.io/job-name") == job);
        of_job.filter(|pod| pod.str("status.phase") == "Succeeded").count() as u64
    };
    assert!(succeeded("plain") <= COMPLETIONS, "{}", succeeded("plain"));
    let index =
        |pod: &Tree| pod.map("metadata.annotations").str("batch.kubernetes.io/job-completion-index").to_string();
    let indexes: BTreeSet<String> = pods
        .iter()
        .filter(|pod| pod.str("status.phase") == "Succeeded")
        .map(index)
        .filter(|index| !index.is_empty())
        .collect();
    assert!(indexes.len() as u64 <= COMPLETIONS);
}

super::in_quarters!(3, jobs);
