//! Limits of connections, graceful termination, and audit logs that cannot be written.

use server::audit::{Delivery, Format, Mode, Settings};
use testkit::client::DEADLINE;
use testkit::{Cluster, Storage};

use super::{audited_with, events};
use crate::until;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn limited(change: impl FnOnce(&mut server::request::limits::Limits)) -> Cluster {
    let mut config = server::Config::default();
    change(&mut config.limits);
    Cluster::start_with(Storage::Embedded, config, async |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn goaway_follows_the_response() {
    let mut cluster = limited(|limits| limits.goaway_chance = 1.0).await;
    let (mut sender, connection) = cluster.client.http2().await;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(testkit::client::get(MAPS)).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    drop(answer);
    let ended = tokio::time::timeout(DEADLINE, connection).await.expect("it ends in time").expect("no panic");
    assert!(ended.is_ok(), "it ends without an error: {ended:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_streams_per_connection() {
    let mut cluster = limited(|limits| limits.http2_max_streams = 2).await;
    let (mut sender, connection) = cluster.client.http2().await;
    tokio::spawn(connection);
    let mut watches = Vec::new();
    for _ in 0..2 {
        sender.ready().await.expect("a stream is free");
        let request = testkit::client::get(&format!("{MAPS}?watch=1"));
        watches.push(sender.send_request(request).await.expect("a watch"));
    }
    let third = tokio::spawn(sender.send_request(testkit::client::get(MAPS)));
    for _ in 0..20 {
        assert_eq!(cluster.client.get(MAPS).await.code, 200, "another connection has streams of its own");
    }
    assert!(!third.is_finished(), "there is no stream for it");
    watches.pop();
    let answer = tokio::time::timeout(DEADLINE, third).await.expect("in time").expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 200);
    drop((answer, watches));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn not_ready_before_rejecting_requests() {
    let mut cluster = limited(|limits| limits.shutdown_delay = std::time::Duration::from_secs(3600)).await;
    let client = cluster.client.clone();
    assert_eq!(client.get("/readyz").await.code, 200);
    let look = async {
        until("it is not ready", async || client.get("/readyz").await.code == 500).await;
        let told = client.get("/readyz").await.text();
        assert!(told.ends_with("[-]shutdown failed: reason withheld\nreadyz check failed\n"), "{told}");
        assert_eq!(client.get("/readyz?exclude=shutdown").await.text(), "ok");
        assert_eq!(client.get("/livez").await.code, 200);
        assert_eq!(client.get(MAPS).await.code, 200, "requests are served as before");
    };
    tokio::select! {
        biased;
        () = look => {}
        () = cluster.stop() => panic!("an hour is not over yet"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_check_has_a_path_and_can_be_left_out() {
    let mut cluster = limited(|_| ()).await;
    let client = &cluster.client;
    let told = client.get("/readyz?verbose&exclude=etcd&exclude=nope").await.text();
    for line in [
        "[+]ping ok\n",
        "[+]etcd excluded: ok\n",
        "[+]poststarthook/rbac/bootstrap-roles ok\n",
        "warn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    for (path, want) in [
        ("/livez/etcd", "ok"),
        ("/readyz/poststarthook/bootstrap-controller", "ok"),
        ("/livez/shutdown", "404 page not found\n"),
        ("/healthz/nope", "404 page not found\n"),
    ] {
        assert_eq!(client.get(path).await.text(), want, "{path}");
    }
    let root = client.get("/").await.text();
    assert!(root.contains("\"/livez/etcd\"") && !root.contains("\"/livez/shutdown\""), "{root}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_logs_on_full_disks_reject_requests() {
    let dir = tempfile::tempdir().expect("a directory");
    for (mode, code) in [(Mode::BlockingStrict, 500), (Mode::Blocking, 200)] {
        let delivery = Delivery { mode, ..Delivery::for_log() };
        let full = Settings { log_path: Some("/dev/full".into()), log: delivery, ..Settings::default() };
        let mut cluster = audited_with(dir.path(), full).await;
        let reply = cluster.client.get(MAPS).await;
        assert_eq!(reply.code, code, "{mode:?}");
        let lost = async || {
            let metrics = cluster.client.get("/metrics").await;
            String::from_utf8_lossy(&metrics.bytes).contains("apiserver_audit_error_total{plugin=\"log\"}")
        };
        if mode == Mode::Blocking {
            until("what is lost is counted", lost).await;
            let metrics = String::from_utf8_lossy(&cluster.client.get("/metrics").await.bytes).into_owned();
            assert!(metrics.contains("apiserver_audit_level_total{level=\"RequestResponse\"} "), "{metrics}");
            assert!(metrics.contains("apiserver_audit_requests_rejected_total 0"), "{metrics}");
        } else {
            let metrics = String::from_utf8(cluster.server().metrics.text()).expect("text");
            // The server's own loops have no more seats than other clients.
            let rejected =
                metrics.lines().find_map(|line| line.strip_prefix("apiserver_audit_requests_rejected_total "));
            assert!(rejected.is_some_and(|count| count != "0"), "{metrics}");
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_audit_format_is_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("audit.log");
    let legacy = Settings { log_path: Some(log.clone()), format: Format::Legacy, ..Settings::default() };
    let mut cluster = audited_with(dir.path(), legacy).await;
    assert_eq!(cluster.client.get(&format!("{MAPS}?limit=5")).await.code, 200);
    let uri = format!("uri=\"{MAPS}?limit=5\"");
    let told = |stage: &str, response: &str| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let is = |line: &str| {
            let words =
                ["AUDIT: id=", "method=\"list\"", "as=\"<self>\"", "namespace=\"default\"", &uri, stage, response];
            words.iter().all(|word| line.contains(word))
        };
        text.lines().filter(|line| is(line)).count() == 1
    };
    until("its end is told", async || told("stage=\"ResponseComplete\"", "response=\"200\"")).await;
    assert!(told("stage=\"RequestReceived\"", "response=\"<deferred>\""));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_are_audited_with_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { log_path: Some(dir.path().join("audit.log")), ..Settings::default() };
    let mut cluster = audited_with(dir.path(), settings).await;
    let reply = cluster.client.raw("GET", MAPS, &[("impersonate-user", "nobody")], Vec::new()).await;
    assert_eq!(reply.code, 403);
    let refused = |event: &api::Tree| {
        let notes = event.map("annotations");
        event.str("impersonatedUser.username") == "nobody"
            && event.int("responseStatus.code") == Some(403)
            && notes.str("authorization.k8s.io/decision") == "forbid"
            && notes.contains("authorization.k8s.io/reason")
    };
    events(dir.path(), refused).await;
    cluster.stop().await;
}

/// The rest of the list is then read as it is, by the token of the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_page_expires_on_every_engine() {
    for kept in [Storage::Embedded, Storage::Etcd] {
        let interval = std::time::Duration::from_millis(200);
        let config = server::Config { compaction_interval: interval, ..server::Config::default() };
        let mut cluster = Cluster::start_with(kept, config, async |_| {}).await;
        let client = &cluster.client;
        for name in ["a", "b", "c"] {
            let map = api::tree! { "metadata" => api::tree! { "name" => name } };
            assert_eq!(client.post(MAPS, &map).await.code, 201);
        }
        let first = client.get(&format!("{MAPS}?limit=1")).await.tree();
        let token = first.str("metadata.continue").to_string();
        assert_eq!(client.post(MAPS, &api::tree! { "metadata" => api::tree! { "name" => "b2" } }).await.code, 201);
        let page = format!("{MAPS}?limit=5&continue={token}");
        until("the page expires", async || client.get(&page).await.code == 410).await;
        let gone = client.get(&page).await.tree();
        assert_eq!(gone.str("reason"), "Expired");
        let token = gone.str("metadata.continue").to_string();
        let rest = client.get(&format!("{MAPS}?limit=5&continue={token}")).await.tree();
        let names: Vec<&str> = rest.list("items").iter().map(|item| item.str("metadata.name")).collect();
        assert_eq!(names, ["b", "b2", "c"]);
        cluster.stop().await;
    }
}
