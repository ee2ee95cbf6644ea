//! `run` with the flags that documents from before 1.18 use.

use crate::support::{User, Web, json};

/// What a dry run prints, without a server.
fn printed(flags: &str, path: &str) -> String {
    let user = User::new();
    user.kubeconfig("http://127.0.0.1:1", "");
    let outcome = user.run(&format!("run web --image=nginx {flags} --dry-run=client -o jsonpath={path}"));
    assert_eq!(outcome.code, Some(0), "{flags}: {outcome:?}");
    outcome.out
}

#[test]
fn generators_and_restart_policies_choose_the_kind() {
    let check = |flags: &str, want: &str| assert_eq!(printed(flags, "{.apiVersion}/{.kind}"), want, "{flags}");
    check("", "v1/Pod");
    check("--restart=Always", "v1/Pod");
    check("--restart=OnFailure", "v1/Pod");
    check("--restart=Never", "v1/Pod");
    check("--generator=run-pod/v1", "v1/Pod");
    check("--generator=deployment/apps.v1", "apps/v1/Deployment");
    check("--generator=deployment/apps.v1beta1", "apps/v1/Deployment");
    check("--generator=deployment/v1beta1", "apps/v1/Deployment");
    check("--generator=job/v1", "batch/v1/Job");
    check("--generator=cronjob/v1beta1 --schedule=@daily", "batch/v1/CronJob");
    check("--generator=run/v1", "v1/ReplicationController");
    check("--replicas=3", "apps/v1/Deployment");
    check("--replicas=1 --restart=Always", "apps/v1/Deployment");
    check("--replicas=1 --restart=OnFailure", "batch/v1/Job");
    check("--replicas=1 --restart=Never", "v1/Pod");
    check("--schedule=@hourly --restart=OnFailure", "batch/v1/CronJob");
}

#[test]
fn objects_have_what_the_flags_say() {
    let check = |flags: &str, path: &str, want: &str| assert_eq!(printed(flags, path), want, "{flags}");
    check("--replicas=3", "{.spec.replicas}{.spec.selector.matchLabels}", "3{\"run\":\"web\"}");
    check("--replicas=2 --labels=a=b", "{.spec.template.metadata.labels}", "{\"a\":\"b\"}");
    check(
        "--schedule=@daily",
        "{.spec.schedule}{.spec.jobTemplate.spec.template.spec.restartPolicy}",
        "@dailyOnFailure",
    );
    check("--replicas=1 --restart=OnFailure", "{.spec.template.spec.restartPolicy}", "OnFailure");
    let resources = "{.spec.containers[0].resources}";
    check(
        "--limits=cpu=200m,memory=512Mi --requests=cpu=100m",
        resources,
        r#"{"limits":{"cpu":"200m","memory":"512Mi"},"requests":{"cpu":"100m"}}"#,
    );
    check("--privileged", "{.spec.containers[0].securityContext}", r#"{"privileged":true}"#);
    check("--annotations=a=b --annotations=c=d,e", "{.metadata.annotations}", r#"{"a":"b","c":"d,e"}"#);
    check("--generator=run/v1 --replicas=2", "{.spec.selector}{.spec.replicas}", "{\"run\":\"web\"}2");
    let overrides = r#"--override-type=json --overrides=[{"op":"add","path":"/spec/hostname","value":"h"}]"#;
    check(overrides, "{.spec.hostname}", "h");
    let cause = printed("--record", "{.metadata.annotations.kubernetes\\.io/change-cause}");
    assert!(cause.starts_with("kubectl run web --image=nginx --record=true --dry-run=client"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_and_its_service_are_created_with_a_warning() {
    let server = Web::start(|head| {
        let body = head.split_once("\r\n\r\n").map_or("{}", |(_, body)| body).to_string();
        json(&body)
    })
    .await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    let outcome = user.run("run web --image=nginx --replicas=3 --port=80 --expose");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "service/web created\ndeployment.apps/web created\n"));
    assert!(outcome.err.contains("kubectl since 1.18 creates a Pod here"), "{}", outcome.err);
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[0].starts_with("POST /apis/apps/v1/namespaces/default/deployments?"), "{}", requests[0]);
    assert!(requests[0].contains("\"replicas\":3") && requests[0].contains("\"containerPort\":80"), "{}", requests[0]);
    assert!(requests[1].starts_with("POST /api/v1/namespaces/default/services?"), "{}", requests[1]);
    assert!(requests[1].contains("\"selector\":{\"run\":\"web\"}"), "{}", requests[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_command_line_sends_no_request() {
    let server = Web::start(|_| json("{}")).await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    user.fails("run web --image=Not/An/Image", "Invalid image name \"Not/An/Image\": invalid reference format");
    user.fails("run web --image=a:b:c", "Invalid image name");
    user.fails("run web --image=nginx --generator=nope", "generator \"nope\" not found");
    user.fails("run web --image=nginx --generator=cronjob/v1", "--schedule is required for a cron job");
    user.fails("run web --image=nginx --replicas=-1", "--replicas must not be negative");
    user.fails("run web --image=nginx --limits=cpu", "");
    user.fails("run web --image=nginx -f x", "--filename has no meaning for run");
    user.fails("run web --image=nginx --rm", "--rm should only be used for attached containers");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[test]
fn the_bare_dry_run_is_deprecated() {
    let user = User::new();
    user.kubeconfig("http://127.0.0.1:1", "");
    let outcome = user.run("run web --image=nginx --dry-run");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "pod/web created (dry run)\n"), "{outcome:?}");
    assert!(outcome.err.contains("--dry-run is deprecated and can be replaced with --dry-run=client"), "{outcome:?}");
    let outcome = user.run("run web --image=nginx --record --dry-run=client -o name");
    assert_eq!(outcome.err, "Flag --record has been deprecated, --record will be removed in the future\n");
}
