//! Jobs and CronJobs.

use super::*;

fn job(name: &str, spec: &str) -> String {
    let template = r#""template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"app:1"}]}}"#;
    format!(r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}"}},"spec":{{{spec}{template}}}}}"#)
}

fn ended(phase: &str, code: i64) -> String {
    let state = format!(
        r#"{{"terminated":{{"exitCode":{code},"startedAt":"2024-01-01T00:00:00Z","finishedAt":"2024-01-01T00:00:05Z"}}}}"#
    );
    let container =
        format!(r#"{{"name":"c","ready":false,"restartCount":0,"image":"a","imageID":"x","state":{state}}}"#);
    format!(r#"{{"phase":"{phase}","containerStatuses":[{container}]}}"#)
}

async fn pods_of(client: &Client, job: &str, count: usize) -> Vec<Tree> {
    let path = format!("{PODS}?labelSelector=job-name%3D{job}");
    until_count(client, &path, count, |pod| pod.str("status.phase") == "Pending").await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_and_count_pods_once() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    make(client, JOBS, &job("one", "")).await;
    let path = format!("{JOBS}/one");
    let pods = pods_of(client, "one", 1).await;
    assert_eq!(pods[0].list("metadata.finalizers")[0].as_str(), Some("batch.kubernetes.io/job-tracking"));
    let running = until(client, &path, |job| job.int("status.active") == Some(1)).await;
    let status = running.at("status");
    assert_eq!((status.int("terminating"), status.int("ready")), (Some(0), Some(0)));
    assert!(status.has("startTime") && status.map("uncountedTerminatedPods").is_empty());
    set_status(client, &format!("{PODS}/{}", name(&pods[0])), &ended("Succeeded", 0)).await;
    let job = until(client, &path, |job| job.at("status").has("completionTime")).await;
    assert_eq!(conditions(&job), "SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached");
    assert_eq!(job.int("status.succeeded"), Some(1));
    assert!(!job.at("status").has("active"));
    let pod = client.get(&format!("{PODS}/{}", name(&pods[0]))).await.tree();
    assert!(pod.list("metadata.finalizers").is_empty());
    until_event(client, "one", "SuccessfulCreate Completed").await;
    let metrics = client.get("/metrics").await.text();
    for line in [
        r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",reason="CompletionsReached",result="succeeded"} 1"#,
        r#"job_controller_job_pods_finished_total{completion_mode="NonIndexed",result="succeeded"} 1"#,
        r#"job_controller_job_pods_creation_total{reason="new",status="succeeded"} 1"#,
        r#"job_controller_terminated_pods_tracking_finalizer_total{event="add"} 1"#,
        r#"root_ca_cert_publisher_sync_total{code="200"}"#,
        r#"workqueue_adds_total{name="job-controller"}"#,
        "apiserver_request_total",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let patch = r#"{"spec":{"ttlSecondsAfterFinished":0}}"#;
    assert_eq!(client.patch(&path, "merge", patch).await.code, 200);
    until(client, &path, |job| job.int("code") == Some(404) || job.at("metadata").has("deletionTimestamp")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_fail_by_limit_and_deadline() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    make(client, JOBS, &job("bad", r#""backoffLimit":0,"#)).await;
    let pods = pods_of(client, "bad", 1).await;
    set_status(client, &format!("{PODS}/{}", name(&pods[0])), &ended("Failed", 1)).await;
    let failed = until(client, &format!("{JOBS}/bad"), |job| conditions(job).contains("Failed=")).await;
    assert_eq!(conditions(&failed), "FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded");
    assert_eq!(failed.int("status.failed"), Some(1));
    until_event(client, "bad", "SuccessfulCreate BackoffLimitExceeded").await;

    make(client, JOBS, &job("late", r#""activeDeadlineSeconds":1,"#)).await;
    let late = until(client, &format!("{JOBS}/late"), |job| conditions(job).contains("Failed=")).await;
    assert_eq!(conditions(&late), "FailureTarget=DeadlineExceeded Failed=DeadlineExceeded");
    assert_eq!((late.int("status.failed"), late.int("status.terminating")), (Some(1), Some(0)));
    until_event(client, "late", "SuccessfulCreate SuccessfulDelete DeadlineExceeded").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_suspension_and_adoption() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    let spec = r#""completionMode":"Indexed","completions":3,"parallelism":3,"suspend":true,"#;
    make(client, JOBS, &job("idx", spec)).await;
    let path = format!("{JOBS}/idx");
    until(client, &path, |job| conditions(job) == "Suspended=JobSuspended").await;
    assert_eq!(client.patch(&path, "merge", r#"{"spec":{"suspend":false}}"#).await.code, 200);
    let pods = pods_of(client, "idx", 3).await;
    let mut hosts: Vec<&str> = pods.iter().map(|pod| pod.str("spec.hostname")).collect();
    hosts.sort();
    assert_eq!(hosts, ["idx-0", "idx-1", "idx-2"]);
    // An orphan is adopted again, with the finalizer that keeps its count.
    let orphaned = format!("{PODS}/{}", name(&pods[0]));
    client.patch(&orphaned, "merge", r#"{"metadata":{"ownerReferences":null}}"#).await;
    until(client, &orphaned, |pod| {
        pod.list("metadata.ownerReferences").len() == 1 && pod.list("metadata.finalizers").len() == 1
    })
    .await;
    for pod in &pods {
        set_status(client, &format!("{PODS}/{}", name(pod)), &ended("Succeeded", 0)).await;
    }
    let job = until(client, &path, |job| job.at("status").has("completionTime")).await;
    assert_eq!(job.str("status.completedIndexes"), "0-2");
    assert_eq!(job.int("status.succeeded"), Some(3));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_deleted_with_their_job() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    make(client, JOBS, &job("gone", r#""parallelism":2,"completions":2,"#)).await;
    let pods = pods_of(client, "gone", 2).await;
    let orphan = r#"?propagationPolicy=Orphan"#;
    client.delete(&format!("{JOBS}/gone{orphan}")).await;
    for pod in &pods {
        // Orphaned pods have no owner that would count them.
        let path = format!("{PODS}/{}", name(pod));
        until(client, &path, |pod| pod.int("code") == Some(404) || pod.list("metadata.finalizers").is_empty()).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_jobs_start_jobs_and_keep_the_history() {
    let mut cluster = whole().await;
    let client = &cluster.client;
    // Without time zones on the machine, only UTC is available.
    let has_zones = std::path::Path::new("/usr/share/zoneinfo/Asia/Kolkata").exists();
    let (zone, offset) = if has_zones { ("Asia/Kolkata", "+05:30") } else { ("UTC", "Z") };
    let template = r#"{"metadata":{"labels":{"cj":"tick"}},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"app:1"}]}}}}"#;
    let spec = format!(
        r#"{{"schedule":"@every 1s","timeZone":"{zone}","successfulJobsHistoryLimit":0,"jobTemplate":{template}}}"#
    );
    let json = format!(r#"{{"apiVersion":"batch/v1","kind":"CronJob","metadata":{{"name":"tick"}},"spec":{spec}}}"#);
    make(client, "/apis/batch/v1/namespaces/default/cronjobs", &json).await;
    let path = "/apis/batch/v1/namespaces/default/cronjobs/tick";
    let cron = until(client, path, |cron| cron.list("status.active").len() == 1).await;
    assert!(cron.at("status").has("lastScheduleTime"));
    // No more starts: the remaining jobs can be checked.
    client.patch(path, "merge", r#"{"spec":{"suspend":true}}"#).await;
    let active = cron.list("status.active")[0].str("name").to_string();
    let job = client.get(&format!("{JOBS}/{active}")).await.tree();
    let scheduled = job.map("metadata.annotations").str("batch.kubernetes.io/cronjob-scheduled-timestamp").to_string();
    assert!(scheduled.ends_with(offset), "{scheduled}");
    assert_eq!(job.list("metadata.ownerReferences")[0].str("kind"), "CronJob");
    for pod in pods_of(client, &active, 1).await {
        set_status(client, &format!("{PODS}/{}", name(&pod)), &ended("Succeeded", 0)).await;
    }
    let done = until(client, path, |cron| cron.at("status").has("lastSuccessfulTime")).await;
    assert!(done.list("status.active").is_empty());
    until(client, &format!("{JOBS}/{active}"), |job| job.int("code") == Some(404)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_its_own_labels_or_its_templates() {
    let mut cluster = Cluster::start(testkit::Storage::Embedded).await;
    let spec = r#"{"template":{"metadata":{"labels":{"x":"y"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"app:1"}]}}}"#;
    for (meta, count) in [(r#"{"name":"none"}"#, 5), (r#"{"name":"own","labels":{"x":"y"}}"#, 1)] {
        let json = format!(r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{meta},"spec":{spec}}}"#);
        let job = make(&cluster.client, JOBS, &json).await;
        assert_eq!(job.map("metadata.labels").len(), count, "{meta}");
        let owned = job.list("metadata.managedFields")[0].map("fieldsV1.f:metadata.f:labels");
        let names: Vec<&str> = owned.iter().map(|(key, _)| key).collect();
        assert_eq!(names, [".", "f:x"], "{meta}");
    }
    cluster.stop().await;
}
