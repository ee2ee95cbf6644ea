//! Network policies: objects of the API reach the kernel, in a network namespace that the test creates.

mod odd_policies;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Tree, tree, yaml};
use client::{Client, DeleteOptions, Metrics, Patch, Resource};
use cluster::control_plane::in_process::{LocalClients, TransportWrapper};
use network::netlink::Rtnl;
use network::nft::{Batch, Data, Family, Nft};
use networkpolicy::{Environment, NetworkPolicyHandle, PodError, PodInfo, PodReporter};
use odd_policies::OddPolicies;
use stdx::clock::SystemClock;
use testkit::{Cluster, Storage};

const POLICIES: Resource = Resource::new("networking.k8s.io", "v1", "networkpolicies");
const PODS: Resource = Resource::core("pods");
const NAMESPACES: Resource = Resource::core("namespaces");
const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const EVENTS: Resource = Resource::core("events");
const TABLE: &str = "policy-api-test";
const NOW: DeleteOptions<'static> =
    DeleteOptions { uid: None, resource_version: None, propagation: None, grace_period_seconds: Some(0) };
/// Far longer than needed, and far shorter than the test.
const SOON: Duration = Duration::from_secs(5);

/// Runs a test on one thread in a network namespace, with an API server in it.
fn with_api(test: impl AsyncFnOnce(&Client, &LocalClients) + Send) {
    std::thread::scope(|scope| {
        let run = || {
            network::ns::unshare().expect("a namespace; this test needs root");
            let mut rtnl = Rtnl::open().expect("netlink");
            let lo = rtnl.link("lo").expect("an answer").expect("lo");
            rtnl.set_up(lo.index).expect("lo up");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut cluster = Cluster::start(Storage::Embedded).await;
                let clients = LocalClients::new(cluster.server());
                let api = administrator(&clients);
                // No controller creates the account that pods run as.
                let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
                api.create(ACCOUNTS, "default", &account).await.expect("created");
                test(&api, &clients).await;
                cluster.stop().await;
            });
        };
        let outcome = scope.spawn(run).join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn administrator(clients: &LocalClients) -> Client {
    clients.client("test", "admin".to_string(), &["system:masters"])
}

async fn start(api: &Client, table: &str, metrics: &Metrics) -> NetworkPolicyHandle {
    let environment = Environment {
        client: api.clone(),
        table: table.to_string(),
        node_name: "here".to_string(),
        cleanup_on_stop: false,
        metrics: metrics.clone(),
        clock: Arc::new(SystemClock),
    };
    networkpolicy::start(environment).await.expect("started")
}

fn object(text: &str) -> Tree {
    yaml::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn create_policy(api: &Client, name: &str, spec: &str) {
    let policy = object(&format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: {name}}}, spec: {spec}}}"
    ));
    api.create(POLICIES, "default", &policy).await.expect("created");
}

/// A pod on a node, without an address.
async fn create_pod(api: &Client, name: &str, node: &str, labels: &str) -> Arc<Tree> {
    let pod = object(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {labels}}},
          spec: {{nodeName: {node}, containers: [{{name: c, image: i, ports: [{{name: http, containerPort: 8080}}]}}]}}}}"
    ));
    Arc::new(api.create(PODS, "default", &pod).await.expect("created"))
}

async fn set_address(api: &Client, name: &str, ip: &str) {
    let status = object(&format!("{{status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}]}}}}"));
    api.patch(PODS, "default", name, "status", Patch::Merge(&status)).await.expect("patched");
}

async fn report(agent: &PodReporter, pod: &Tree, ip: &str) -> Result<(), PodError> {
    agent.pod_network_ready(PodInfo::read(pod, vec![ip.parse().expect("an address")])).await
}

fn has_table() -> bool {
    Nft::open().and_then(|mut nft| nft.has_table(Family::Inet, TABLE)).expect("an answer")
}

/// The IPv4 addresses in a set or map; empty if it does not exist.
fn addresses(set: &str) -> Vec<String> {
    let elements = Nft::open().and_then(|mut nft| nft.elements(Family::Inet, TABLE, set)).expect("an answer");
    let text = |key: &[u8]| key.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    let mut found: Vec<String> = elements.iter().map(|element| text(&element.key)).collect();
    found.sort();
    found
}

/// The chain that an address leads to.
fn chain_of(map: &str, ip: [u8; 4]) -> Option<String> {
    let elements = Nft::open().and_then(|mut nft| nft.elements(Family::Inet, TABLE, map)).expect("an answer");
    elements.into_iter().find(|element| element.key == ip).and_then(|element| match element.data {
        Data::Goto(chain) => Some(chain),
        _ => None,
    })
}

async fn shows(set: &str, expected: &[&str]) {
    super::until(&format!("{set}: {expected:?}"), async || addresses(set) == expected).await;
}

#[test]
fn objects_reach_the_kernel() {
    with_api(async |api, _| {
        let metrics = Metrics::default();
        let running = start(api, TABLE, &metrics).await;
        running.synced().await;
        let agent = running.pod_reporter();
        // Without policies nothing is waited for, and there is no table.
        let web = create_pod(api, "web", "here", "{app: web}").await;
        let started = Instant::now();
        report(&agent, &web, "10.9.0.1").await.expect("ready");
        assert!(started.elapsed() < SOON && !has_table());

        // A policy isolates the pods of this node, whether the API shows their addresses or not.
        create_policy(api, "deny", "{podSelector: {}, policyTypes: [Ingress]}").await;
        shows("ingress4", &["10.9.0.1"]).await;
        set_address(api, "web", "10.9.0.1").await;
        create_pod(api, "far", "there", "{app: far}").await;
        set_address(api, "far", "10.9.1.1").await;
        create_pod(api, "near", "here", "{app: near}").await;
        set_address(api, "near", "10.9.0.2").await;
        shows("ingress4", &["10.9.0.1", "10.9.0.2"]).await;

        // A pod that is reported is isolated when the call returns, long before the API shows its address.
        let late = create_pod(api, "late", "here", "{app: late}").await;
        report(&agent, &late, "10.9.0.3").await.expect("ready");
        assert_eq!(addresses("ingress4"), ["10.9.0.1", "10.9.0.2", "10.9.0.3"]);

        // Peers on all nodes, by labels of pods and namespaces.
        let spec = "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [
            {from: [{podSelector: {matchLabels: {app: far}}}]},
            {from: [{namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: near}}}]}]}";
        create_policy(api, "peers", spec).await;
        shows("ingress/default/peers/0/pods4", &["10.9.1.1"]).await;
        assert_eq!(addresses("ingress/default/peers/1/pods4"), Vec::<String>::new());
        let labels = tree! { "metadata" => tree! { "labels" => tree! { "team" => "red" } } };
        api.patch(NAMESPACES, "", "default", "", Patch::Merge(&labels)).await.expect("patched");
        shows("ingress/default/peers/1/pods4", &["10.9.0.2"]).await;
        // Labels that the API changes, also of a pod that was reported.
        let labels = tree! { "metadata" => tree! { "labels" => tree! { "app" => "far" } } };
        api.patch(PODS, "default", "late", "", Patch::Merge(&labels)).await.expect("patched");
        shows("ingress/default/peers/0/pods4", &["10.9.0.3", "10.9.1.1"]).await;
        // A finished pod, and a deleted pod.
        let failed = object("{status: {phase: Failed}}");
        api.patch(PODS, "default", "far", "status", Patch::Merge(&failed)).await.expect("patched");
        shows("ingress/default/peers/0/pods4", &["10.9.0.3"]).await;
        api.delete(PODS, "default", "near", NOW).await.expect("deleted");
        shows("ingress4", &["10.9.0.1", "10.9.0.3"]).await;

        // An address that was another pod's is the new pod's at once.
        assert_ne!(chain_of("ingress4", [10, 9, 0, 1]), chain_of("ingress4", [10, 9, 0, 3]));
        let heir = create_pod(api, "heir", "here", "{app: heir}").await;
        report(&agent, &heir, "10.9.0.1").await.expect("ready");
        assert_eq!(chain_of("ingress4", [10, 9, 0, 1]), chain_of("ingress4", [10, 9, 0, 3]));
        assert_eq!(addresses("ingress4"), ["10.9.0.1", "10.9.0.3"]);
        // A pod whose network is deleted.
        agent.pod_network_removed(late.str("metadata.uid"));
        shows("ingress4", &["10.9.0.1"]).await;

        // Another process deletes the rules.
        let mut nft = Nft::open().expect("nftables");
        let mut batch = Batch::new(Family::Inet, TABLE);
        batch.delete_table();
        batch.commit(&mut nft, "delete the table").expect("deleted");
        let deleted = Instant::now();
        shows("ingress4", &["10.9.0.1"]).await;
        assert!(deleted.elapsed() < SOON, "repaired after {:?}", deleted.elapsed());
        assert!(metrics.render().contains("tiphys_networkpolicy_repairs_total 1"), "{}", metrics.render());

        // Rules stay when it stops, and are replaced when it starts again.
        running.stop().await;
        assert_eq!(report(&agent, &heir, "10.9.0.4").await, Err(PodError::Stopped));
        assert_eq!(addresses("ingress4"), ["10.9.0.1"]);
        api.delete(POLICIES, "default", "peers", NOW).await.expect("deleted");
        let running = start(api, TABLE, &Metrics::default()).await;
        running.synced().await;
        assert_eq!(addresses("ingress4"), ["10.9.0.1"]);
        assert_eq!(addresses("ingress/default/peers/0/pods4"), Vec::<String>::new());
        // Without policies there is no table.
        api.delete(POLICIES, "default", "deny", NOW).await.expect("deleted");
        super::until("the table is deleted", async || !has_table()).await;
        running.stop().await;
        networkpolicy::cleanup(TABLE).expect("cleaned up");
    });
}

/// A pod whose rules the kernel refuses must not be started.
#[test]
fn a_pod_without_its_rules_is_not_ready() {
    with_api(async |api, _| {
        let running = start(api, &"too-long-a-name".repeat(30), &Metrics::default()).await;
        running.synced().await;
        let pod = create_pod(api, "web", "here", "{app: web}").await;
        report(&running.pod_reporter(), &pod, "10.9.0.1").await.expect("no policy needs rules");
        create_policy(api, "deny", "{podSelector: {}}").await;
        let refused =
            async || matches!(report(&running.pod_reporter(), &pod, "10.9.0.1").await, Err(PodError::NotApplied(_)));
        super::until("it is refused", refused).await;
        // When nothing isolates it any more, it can start.
        api.delete(POLICIES, "default", "deny", NOW).await.expect("deleted");
        let ready = async || report(&running.pod_reporter(), &pod, "10.9.0.1").await.is_ok();
        super::until("it is ready", ready).await;
        running.stop().await;
    });
}

/// A policy that is partly invalid, from a server that validates less, is reported at the object.
#[test]
fn invalid_policies_are_reported() {
    with_api(async |api, clients| {
        let policy = object(
            "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: odd, namespace: default, uid: u,
              resourceVersion: '5'}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]}}",
        );
        let around: TransportWrapper = Arc::new(move |inner| Arc::new(OddPolicies { inner, policy: policy.clone() }));
        let odd = LocalClients { around, ..clients.clone() };
        let running = start(&administrator(&odd), TABLE, &Metrics::default()).await;
        running.synced().await;
        let found = async || {
            let events = api.list(EVENTS, "default", "").await.expect("a list");
            let is_report = |event: &Tree| {
                event.str("reason") == "InvalidNetworkPolicy"
                    && event.str("message").contains("invalid CIDR address: nonsense")
            };
            events.list("items").iter().any(is_report)
        };
        super::until("an event", found).await;
        // The policy isolates nevertheless.
        let pod = create_pod(api, "web", "here", "{app: web}").await;
        report(&running.pod_reporter(), &pod, "10.9.0.1").await.expect("ready");
        assert_eq!(addresses("ingress4"), ["10.9.0.1"]);
        running.stop().await;
        networkpolicy::cleanup(TABLE).expect("cleaned up");
    });
}
