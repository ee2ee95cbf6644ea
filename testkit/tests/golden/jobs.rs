//! Jobs and CronJobs.

use api::Tree;
use testkit::Cluster;

use super::{Transcript, holds};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
const TEMPLATE: &str = r#""template":{"spec":{"restartPolicy":"Never","automountServiceAccountToken":false,
    "containers":[{"name":"c","image":"app:1"}]}}"#;

async fn start() -> (Cluster, Transcript) {
    let cluster = Cluster::start_whole().await;
    let story = Transcript::new(&cluster.client);
    story.see(ACCOUNT, |account| account.str("metadata.name") == "default").await;
    (cluster, story)
}

/// Creates a Job; its uid in labels is replaced with its name.
async fn make(story: &mut Transcript, name: &str, spec: &str) -> String {
    let metadata = format!(r#"{{"name":"{name}"}}"#);
    let job = format!(r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{metadata},"spec":{{{spec}{TEMPLATE}}}}}"#);
    story.make(JOBS, &job).await;
    let path = format!("{JOBS}/{name}");
    let created = story.see(&path, |job| job.str("metadata.name") == name).await;
    story.call(created.str("metadata.uid"), &format!("uid of {name}"));
    path
}

/// The pods of a Job in the order of their names, once there are so many.
async fn pods(story: &Transcript, job: &str, count: usize) -> Vec<Tree> {
    let path = format!("{PODS}?labelSelector=job-name%3D{job}");
    story.see(&path, |pods| pods.list("items").len() == count).await.list("items").to_vec()
}

async fn end(story: &Transcript, pod: &Tree, phase: &str, code: i64) {
    let times = r#""startedAt":"2024-01-01T00:00:00Z","finishedAt":"2024-01-01T00:00:05Z""#;
    let state = format!(r#"{{"terminated":{{"exitCode":{code},{times}}}}}"#);
    let status = format!(
        r#"{{"phase":"{phase}","containerStatuses":[{{"name":"c","image":"a","imageID":"x","state":{state}}}]}}"#
    );
    let path = format!("{PODS}/{}/status", pod.str("metadata.name"));
    story.patch(&path, &format!(r#"{{"status":{status}}}"#)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_match_upstream() {
    let (mut cluster, mut story) = start().await;
    let path = make(&mut story, "one", "").await;
    let pod = pods(&story, "one", 1).await;
    let running = story.see(&path, |job| job.int("status.active") == Some(1)).await;
    story.tell("running", &[running], &[]);
    story.tell("pod", &pod, &["metadata", "spec"]);
    end(&story, &pod[0], "Succeeded", 0).await;
    let complete = story.see(&path, |job| holds(job, "Complete", "True")).await;
    story.tell("complete", &[complete], &["status"]);
    story.tell("its pod", &pods(&story, "one", 1).await, &["metadata"]);

    let path = make(&mut story, "idx", r#""completionMode":"Indexed","completions":2,"parallelism":2,"#).await;
    let indexed = pods(&story, "idx", 2).await;
    story.tell("indexed pods", &indexed, &["metadata", "spec"]);
    for pod in &indexed {
        end(&story, pod, "Succeeded", 0).await;
    }
    let complete = story.see(&path, |job| holds(job, "Complete", "True")).await;
    story.tell("indexed", &[complete], &["status"]);

    let path = make(&mut story, "bad", r#""backoffLimit":0,"#).await;
    end(&story, &pods(&story, "bad", 1).await[0], "Failed", 1).await;
    let failed = story.see(&path, |job| holds(job, "Failed", "True")).await;
    story.tell("failed", &[failed], &["status"]);

    let path = make(&mut story, "late", r#""activeDeadlineSeconds":1,"#).await;
    let late = story.see(&path, |job| holds(job, "Failed", "True")).await;
    story.tell("too late", &[late], &["status"]);

    let path = make(&mut story, "wait", r#""suspend":true,"#).await;
    let suspended = story.see(&path, |job| holds(job, "Suspended", "True")).await;
    story.tell("suspended", &[suspended], &["status"]);
    story.patch(&path, r#"{"spec":{"suspend":false}}"#).await;
    let resumed = story.see(&path, |job| job.int("status.active") == Some(1)).await;
    story.tell("resumed", &[resumed], &["status"]);

    let reasons = [
        ("one", "Completed"),
        ("idx", "Completed"),
        ("bad", "BackoffLimitExceeded"),
        ("late", "DeadlineExceeded"),
        ("wait", "SuccessfulCreate"),
    ];
    for (name, reason) in reasons {
        story.until_event(name, reason).await;
        story.tell_events(&[name]).await;
    }
    story.compare("job.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_failure_policies_match_upstream() {
    let (mut cluster, mut story) = start().await;
    let policy = r#""podFailurePolicy":{"rules":[
        {"action":"FailIndex","onExitCodes":{"operator":"In","values":[7]}},
        {"action":"FailJob","onExitCodes":{"operator":"In","values":[42]}}]},"#;
    let spec =
        format!(r#""completionMode":"Indexed","completions":3,"parallelism":3,"backoffLimitPerIndex":1,{policy}"#);
    let path = make(&mut story, "rules", &spec).await;
    let all = pods(&story, "rules", 3).await;
    end(&story, &all[0], "Succeeded", 0).await;
    end(&story, &all[1], "Failed", 7).await;
    let is_counted = |job: &Tree| {
        job.str("status.failedIndexes") == "1"
            && job.int("status.succeeded") == Some(1)
            && job.map("status.uncountedTerminatedPods").is_empty()
    };
    let index = story.see(&path, is_counted).await;
    story.tell("an index has failed", &[index], &["status"]);
    end(&story, &all[2], "Failed", 42).await;
    let failed = story.see(&path, |job| holds(job, "Failed", "True")).await;
    // The message names the pod.
    story.call(all[2].str("metadata.name"), "pod");
    story.tell("all has failed", &[failed], &["status"]);

    let success = r#""successPolicy":{"rules":[{"succeededIndexes":"0"}]},"#;
    let spec = format!(r#""completionMode":"Indexed","completions":2,"parallelism":2,{success}"#);
    let path = make(&mut story, "leader", &spec).await;
    end(&story, &pods(&story, "leader", 2).await[0], "Succeeded", 0).await;
    let complete = story.see(&path, |job| holds(job, "Complete", "True")).await;
    story.tell("enough has succeeded", &[complete], &["status"]);
    story.until_event("rules", "PodFailurePolicy").await;
    story.until_event("leader", "Completed").await;
    story.tell_events(&["rules", "leader"]).await;
    story.compare("job_policies.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_job_matches_upstream() {
    let (mut cluster, mut story) = start().await;
    let job = format!(r#"{{"metadata":{{"labels":{{"cj":"tick"}},"annotations":{{"a":"b"}}}},"spec":{{{TEMPLATE}}}}}"#);
    let spec = format!(r#"{{"schedule":"@every 1s","jobTemplate":{job}}}"#);
    let cron = format!(r#"{{"apiVersion":"batch/v1","kind":"CronJob","metadata":{{"name":"tick"}},"spec":{spec}}}"#);
    story.make(CRON_JOBS, &cron).await;
    let path = format!("{CRON_JOBS}/tick");
    let active = story.see(&path, |cron| !cron.list("status.active").is_empty()).await;
    let name = active.list("status.active")[0].str("name").to_string();
    story.call(name.rsplit('-').next().unwrap_or_default(), "minutes");
    story.tell("cron job", &[active], &[]);
    // One is enough.
    story.patch(&path, r#"{"spec":{"suspend":true}}"#).await;
    let job = story.see(&format!("{JOBS}/{name}"), |job| job.int("status.active") == Some(1)).await;
    let annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    story.call(job.map("metadata.annotations").str(annotation), "time");
    story.call(job.str("metadata.uid"), "uid");
    story.tell("job", &[job], &["metadata", "spec"]);
    end(&story, &pods(&story, &name, 1).await[0], "Succeeded", 0).await;
    let done = story.see(&path, |cron| cron.at("status").has("lastSuccessfulTime")).await;
    story.tell("done", &[done], &["status"]);
    story.until_event("tick", "SawCompletedJob").await;
    story.until_event(&name, "Completed").await;
    story.tell_events(&["tick"]).await;
    story.compare("cronjob.yaml");
    cluster.stop().await;
}
