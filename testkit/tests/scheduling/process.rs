//! `kube-scheduler` against an API server over HTTPS.

use cluster::component::ComponentHandle;
use cluster::kube_scheduler;
use cluster::pki::CertificateAndKey;

use super::*;
use crate::machinery::manager::{free_port, kubeconfig};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";

/// A scheduler as kubeadm runs it, but on any port.
async fn scheduler(cluster: &Cluster, more: &[&str]) -> ComponentHandle {
    let config = kubeconfig(cluster, "scheduler");
    let named = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];
    let mut arguments: Vec<String> = named.iter().map(|flag| format!("--{flag}={}", config.display())).collect();
    let pki = cluster.pki();
    arguments.push(format!("--tls-cert-file={}", pki.dir().join("apiserver.crt").display()));
    arguments.push(format!("--tls-private-key-file={}", pki.dir().join("apiserver.key").display()));
    arguments.push(format!("--secure-port={}", free_port().await));
    let usual = [
        "--bind-address=127.0.0.1",
        "--leader-elect=true",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1s",
        "--leader-elect-retry-period=200ms",
    ];
    arguments.extend(usual.iter().chain(more).map(ToString::to_string));
    let flags = kube_scheduler::flags::parse(&arguments).expect("flags");
    kube_scheduler::run(flags).await.unwrap_or_else(|error| panic!("{}", error.describe()))
}

fn pair(cluster: &Cluster, file: &str) -> CertificateAndKey {
    cluster.pki().read(file).expect("a file").expect("a certificate")
}

async fn holder(client: &Client) -> String {
    client.get(LEASE).await.tree().str("spec.holderIdentity").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_election_takes_over() {
    let mut cluster = start_as(None, &[("one", "4", "10")]).await;
    let client = cluster.client.clone();
    let first = scheduler(&cluster, &[]).await;
    client.until(&create(&client, &pod("a", "1")).await, is_bound).await;
    let leader = holder(&client).await;
    let second = scheduler(&cluster, &["--leader-elect-lease-duration=60s"]).await;
    first.stop().await.expect("it ends");
    client.until(&create(&client, &pod("b", "1")).await, is_bound).await;
    assert_ne!(holder(&client).await, leader);
    // Another process has the lease now: the writes of the paused one are rejected, and it exits.
    let stolen = r#"{"spec":{"holderIdentity":"other","leaseDurationSeconds":60,"leaseTransitions":9}}"#;
    assert_eq!(client.patch(LEASE, "merge", stolen).await.code, 200);
    let path = create(&client, &pod("c", "1")).await;
    let mut second = second;
    let ended = tokio::time::timeout(testkit::client::DEADLINE, second.ended()).await.expect("in time");
    assert!(ended.expect_err("an error").describe().contains("leader election lost"));
    assert!(!is_bound(200, &client.get(&path).await.tree()), "it had no right to");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_authorizes_requests() {
    let mut cluster = start_as(None, &[("one", "1", "10")]).await;
    let client = cluster.client.clone();
    let running = scheduler(&cluster, &[]).await;
    let path = create(&client, &pod("p", "2")).await;
    client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let (address, ca) = (running.address.expect("a port"), pair(&cluster, "ca"));
    let to = |user: Option<&CertificateAndKey>| Client::as_user(address, &ca, user);
    let anonymous = to(None);
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anonymous.get(path).await.code, 200, "{path}");
    }
    for path in ["/metrics", "/metrics/resources", "/metrics/slis", "/configz", "/tiphys/v1/why/default/p"] {
        assert_eq!(anonymous.get(path).await.code, 403, "{path}");
    }
    // The CA bundle that the API server publishes verifies its certificate.
    let admin = to(Some(&pair(&cluster, "admin")));
    let metrics = admin.get("/metrics").await.text();
    for name in ["scheduler_schedule_attempts_total", "leader_election_master_status{name=\"kube-scheduler\"} 1"] {
        assert!(metrics.contains(name), "{metrics}");
    }
    let resources = admin.get("/metrics/resources").await.text();
    let line = "kube_pod_resource_request{namespace=\"default\",pod=\"p\",node=\"\",scheduler=\"default-scheduler\",\
                priority=\"0\",resource=\"cpu\",unit=\"cores\"} 2\n";
    assert!(resources.contains(line), "{resources}");
    let levels = admin.get("/metrics/slis").await.text();
    for line in [
        "kubernetes_healthcheck{name=\"sched-handler-sync\",type=\"readyz\"} 1\n",
        "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1\n",
    ] {
        assert!(levels.contains(line), "{levels}");
    }
    let config = admin.get("/configz").await.tree();
    assert_eq!(config.str("componentconfig.kind"), "KubeSchedulerConfiguration");
    assert_eq!(config.str("componentconfig.leaderElection.leaseDuration"), "2s");
    let why = admin.get("/tiphys/v1/why/default/p").await.tree();
    assert_eq!(why.list("nodes")[0].str("plugin"), "NodeResourcesFit");
    assert_eq!(admin.get("/tiphys/v1/why/default/none").await.code, 404);
    assert_eq!(admin.delete("/tiphys/v1/why/default/p").await.code, 405);
    assert_eq!(admin.get("/healthz/no-such-check").await.code, 404);
    assert_eq!(admin.post("/tiphys/v1/why/default", &pod("q", "1")).await.tree().str("node"), "one");
    // Only users who may get the pod may request an explanation: schedulers may get pods, the service proxy may not.
    let other = to(Some(&pair(&cluster, "scheduler")));
    assert_eq!(other.get("/tiphys/v1/why/default/p").await.code, 200);
    let kube_proxy = to(Some(&pair(&cluster, "kube-proxy")));
    assert_eq!(kube_proxy.get("/tiphys/v1/why/default/p").await.code, 403);
    running.stop().await.expect("it ends");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_asks_the_leader() {
    let mut cluster = start_as(None, &[("one", "1", "10")]).await;
    let client = cluster.client.clone();
    let path = create(&client, &pod("p", "2")).await;
    let reply = client.get(&format!("{WHY}/p")).await;
    assert_eq!(reply.code, 503, "{:?}", reply.tree());
    assert!(reply.tree().str("message").contains("no scheduler named \"default-scheduler\" is running"));
    let first = scheduler(&cluster, &[]).await;
    client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let second = scheduler(&cluster, &[]).await;
    let explanation = client.until(&format!("{WHY}/p"), |code, _| code == 200).await;
    assert_eq!(explanation.list("nodes")[0].str("plugin"), "NodeResourcesFit");
    assert_eq!((explanation.str("name"), explanation.str("schedulerName")), ("p", "default-scheduler"));
    let anonymous = [("impersonate-user", "stranger")];
    assert_eq!(client.raw("GET", &format!("{WHY}/p"), &anonymous, Vec::new()).await.code, 403);
    assert_eq!(client.post(WHY, &pod("q", "1")).await.tree().str("node"), "one");
    assert_eq!(client.get(&format!("{PODS}/q")).await.code, 404, "nothing is made of it");
    // The next leader publishes its address.
    first.stop().await.expect("it ends");
    client.until(&format!("{WHY}/p"), |code, explanation| code == 200 && explanation.list("nodes").len() == 1).await;
    // A process that the lease does not name is not called.
    let other = r#"{"metadata":{"annotations":{"tiphys.io/certificate":"sha256:00"}}}"#;
    second.stop().await.expect("it ends");
    let held = r#"{"spec":{"holderIdentity":"other"}}"#;
    for patch in [other, held] {
        assert_eq!(client.patch(LEASE, "merge", patch).await.code, 200);
    }
    let reply = client.get(&format!("{WHY}/p")).await;
    assert_eq!(reply.code, 503, "{:?}", reply.tree());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_unpublished_certificates() {
    let mut cluster = start_as(None, &[("one", "1", "10")]).await;
    let client = cluster.client.clone();
    let running = scheduler(&cluster, &["--leader-elect-retry-period=700ms"]).await;
    create(&client, &pod("p", "2")).await;
    client.until(&format!("{WHY}/p"), |code, explanation| code == 200 && explanation.has("nodes")).await;
    let other = r#"{"metadata":{"annotations":{"tiphys.io/certificate":"sha256:00"}}}"#;
    // The leader announces itself with each renewal, which may happen in between.
    let explained = async || {
        assert_eq!(client.patch(LEASE, "merge", other).await.code, 200);
        let reply = client.get(&format!("{WHY}/p")).await;
        if reply.code == 503 { Ok(reply.tree().str("message").to_string()) } else { Err(reply.code) }
    };
    let message = stdx::wait::until_ok_await("an error", testkit::client::DEADLINE, explained).await;
    assert!(message.contains("request to the scheduler failed"), "{message}");
    running.stop().await.expect("it ends");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_configures_profiles() {
    let mut cluster = start_as(None, &[("one", "4", "10")]).await;
    let client = cluster.client.clone();
    let file = cluster.dir().join("scheduler.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                delayCacheUntilActive: true\nleaderElection: {resourceName: mine}\n\
                profiles: [{schedulerName: mine}, {schedulerName: other}]\n";
    std::fs::write(&file, text).expect("a file");
    let role = tree! {
        "metadata" => tree! { "name" => "mine" },
        "roleRef" => tree! {
            "apiGroup" => "rbac.authorization.k8s.io", "kind" => "Role", "name" => "system::leader-locking-kube-scheduler",
        },
        "subjects" => list![tree! { "kind" => "User", "name" => "system:kube-scheduler" }],
    };
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings";
    assert_eq!(client.post(bindings, &role).await.code, 201);
    let running = scheduler(&cluster, &[&format!("--config={}", file.display())]).await;
    let mut mine = pod("mine", "1");
    mine.child("spec").set("schedulerName", "mine");
    client.until(&create(&client, &mine).await, is_bound).await;
    mine.child("metadata").set("name", "big");
    mine.child("spec").set("containers", pod("big", "9").at("spec.containers").clone());
    create(&client, &mine).await;
    client.until(&format!("{WHY}/big"), |code, told| code == 200 && told.list("nodes").len() == 1).await;
    let foreign = create(&client, &pod("foreign", "1")).await;
    assert!(!is_bound(200, &client.get(&foreign).await.tree()));
    running.stop().await.expect("it ends");
    cluster.stop().await;
}
