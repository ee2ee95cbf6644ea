//! The status of a node as users see it, from recorded facts.

use std::net::IpAddr;

use api::time::Timestamp;
use api::{Tree, tree};

use super::status_input::{Handler, Health, Image, Machine, Network, Reports, Runtime, StatusInput};
use super::{is_newer, lease, register, runtime, status};
use crate::config::{Config, Taint};

const NOW: Timestamp = Timestamp { seconds: 1_000_000, nanos: 0 };
const LATER: Timestamp = Timestamp { seconds: 1_000_060, nanos: 0 };

fn config() -> Config {
    Config { node_name: "n1".to_string(), hostname: "host-1".to_string(), ..Config::default() }
}

fn input() -> StatusInput {
    StatusInput {
        machine: Machine {
            machine_id: "m".to_string(),
            system_uuid: "s".to_string(),
            boot_id: "b".to_string(),
            kernel_version: "6.1.0".to_string(),
            os_image: "Debian GNU/Linux 12 (bookworm)".to_string(),
            architecture: "amd64".to_string(),
            cores: 2,
            memory_bytes: 4 << 30,
            swap_bytes: 0,
            huge_pages: vec![(2 << 20, 0)],
            storage_bytes: Some(10 << 30),
        },
        addresses: Some(vec![IpAddr::from([10, 0, 0, 5])]),
        runtime: Runtime {
            version: "tiphys://0.1.0".to_string(),
            health: Health::Ready,
            network: Network::Ready,
            handlers: vec![Handler { name: String::new(), recursive_read_only_mounts: true, user_namespaces: true }],
            supplemental_groups_policy: Some(true),
        },
        images: vec![Image { names: vec!["a@sha256:1".to_string(), "a:1".to_string()], size_bytes: 70 }],
        reports: Reports::default(),
    }
}

fn json(tree: &Tree) -> String {
    String::from_utf8(api::json::encode_pretty(tree, None)).expect("text")
}

fn node(config: &Config, input: &StatusInput) -> (Tree, Vec<String>) {
    let mut node = register::object(config, input);
    let reported = status::status(config, input, &node, NOW);
    node.set("status", reported.status);
    (node, reported.events.into_iter().map(|event| event.message).collect())
}

#[test]
fn registers_the_node_like_upstream() {
    let mut config = config();
    config.node_labels = vec![("disk".to_string(), "fast".to_string())];
    config.register_with_taints =
        vec![Taint { key: "a".to_string(), value: String::new(), effect: "NoSchedule".to_string() }];
    let (node, events) = node(&config, &input());
    let golden = include_str!("testdata/node.json");
    assert_eq!(json(&node).trim(), golden.trim());
    let want = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
    assert_eq!(events, want.map(|reason| format!("Node n1 status is now: {reason}")));
}

fn ready(status: &Tree) -> (String, String) {
    let conditions = status.list("conditions");
    let ready = conditions.iter().find(|condition| condition.str("type") == "Ready").expect("a condition");
    (ready.str("reason").to_string(), ready.str("message").to_string())
}

#[test]
fn reports_why_the_node_is_not_ready() {
    let down = "container runtime is down";
    let early = "container runtime status check may not have completed yet";
    let network = "NetworkReady=false reason:NetworkPluginNotReady message:no network";
    type Change = fn(&mut StatusInput);
    let cases: [(Change, String); 7] = [
        (|input| input.runtime.health = Health::Down, down.to_string()),
        (|input| input.runtime = Runtime::default(), format!("[{early}, network state unknown]")),
        (
            |input| {
                let why = "NetworkReady=false reason:NetworkPluginNotReady message:no network";
                input.runtime.network = Network::NotReady(why.to_string());
            },
            format!("container runtime network not ready: {network}"),
        ),
        (
            |input| input.runtime.health = Health::NotReady("RuntimeReady=false reason:X message:y".to_string()),
            "container runtime not ready: RuntimeReady=false reason:X message:y".to_string(),
        ),
        (
            |input| input.machine.storage_bytes = None,
            "missing node capacity for resources: ephemeral-storage".to_string(),
        ),
        (|input| input.reports.shutting_down = true, "node is shutting down".to_string()),
        (
            |input| {
                input.reports.runtime_silence =
                    Some("PLEG is not healthy: pleg was last seen active 3m0s ago".to_string())
            },
            "PLEG is not healthy: pleg was last seen active 3m0s ago".to_string(),
        ),
    ];
    for (change, want) in cases {
        let mut input = input();
        change(&mut input);
        let status = status::status(&config(), &input, &tree! {}, NOW).status;
        assert_eq!(ready(&status), ("KubeletNotReady".to_string(), want));
    }
}

#[test]
fn writes_only_changes() {
    let (config, mut input) = (config(), input());
    let (seen, _) = node(&config, &input);
    let again = status::status(&config, &input, &seen, LATER);
    assert!(!status::has_changed(seen.at("status"), &again.status), "only heartbeats");
    assert!(again.events.is_empty());
    input.reports.memory_pressure = true;
    input.machine.huge_pages = Vec::new();
    input.addresses = Some(vec![IpAddr::from([10, 0, 0, 6])]);
    input.images.clear();
    input.machine.boot_id = "c".to_string();
    let next = status::status(&config, &input, &seen, LATER);
    assert!(status::has_changed(seen.at("status"), &next.status));
    let events: Vec<&str> = next.events.iter().map(|event| event.reason).collect();
    assert_eq!(events, ["Rebooted", "NodeHasInsufficientMemory"]);
    let patch = status::patch(seen.at("status"), &next.status);
    let fields: Vec<&str> = patch.map("status").keys().collect();
    assert_eq!(fields, ["addresses", "allocatable", "capacity", "conditions", "images", "nodeInfo"]);
    assert_eq!(patch.at("status.capacity"), &tree! { "hugepages-2Mi" => Tree::Null });
    assert!(patch.at("status.images").is_null());
    assert_eq!(patch.list("status.addresses")[0].str("$patch"), "replace");
    let memory = &next.status.list("conditions")[0];
    assert_eq!(memory.str("lastTransitionTime"), api::time::format_seconds(LATER.seconds).as_str());
    let disk = &next.status.list("conditions")[1];
    assert_eq!(disk.str("lastTransitionTime"), api::time::format_seconds(NOW.seconds).as_str());
}

#[test]
fn keeps_fields_of_other_components() {
    let (config, input) = (config(), input());
    let (mut seen, _) = node(&config, &input);
    let status = seen.child("status");
    status.child("capacity").set("example.com/dongle", "4");
    status.set("volumesAttached", api::list![tree! { "name" => "v" }]);
    status.list_entry("conditions").insert(0, tree! { "type" => "NetworkUnavailable", "status" => "False" });
    let next = status::status(&config, &input, &seen, LATER).status;
    assert_eq!(next.map("capacity").str("example.com/dongle"), "4");
    assert_eq!(next.map("allocatable").str("example.com/dongle"), "4");
    assert_eq!(next.list("conditions")[0].str("type"), "NetworkUnavailable");
    assert_eq!(next.list("conditions").len(), 5);
    assert_eq!(next.list("volumesAttached").len(), 1);
    let patch = status::patch(seen.at("status"), &next);
    let sent: Vec<&str> = patch.list("status.conditions").iter().map(|condition| condition.str("type")).collect();
    assert_eq!(sent, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"], "theirs may have changed since");
}

#[test]
fn newer_objects_win() {
    let (config, mut input) = (config(), input());
    let (second, _) = node(&config, &input);
    input.addresses = None;
    let (first, _) = node(&config, &input);
    assert!(is_newer(&first, &second) && !is_newer(&second, &second));
    let at = |revision: &str| tree! { "metadata" => tree! { "resourceVersion" => revision } };
    assert!(is_newer(&second, &at("1")) && is_newer(&at("1"), &at("2")));
    assert!(!is_newer(&at("2"), &at("1")) && !is_newer(&at("1"), &second));
}

#[test]
fn unreachable_node_becomes_ready_again() {
    let (config, input) = (config(), input());
    let (mut seen, _) = node(&config, &input);
    for condition in seen.list_mut("status.conditions") {
        condition.set("status", "Unknown");
    }
    let next = status::status(&config, &input, &seen, LATER);
    assert_eq!(next.events.last().map(|event| event.reason), Some("NodeReady"));
    assert_eq!(next.events.len(), 4);
}

#[test]
fn cloud_provider_writes_the_addresses() {
    let (mut config, input) = (config(), input());
    config.external_cloud_provider = true;
    let (made, _) = node(&config, &input);
    assert!(made.list("status.addresses").is_empty());
    assert_eq!(made.list("spec.taints")[0].str("key"), "node.cloudprovider.kubernetes.io/uninitialized");
    config.node_ips = vec![IpAddr::from([10, 0, 0, 5])];
    let (mut made, _) = node(&config, &input);
    assert_eq!(made.list("status.addresses").len(), 2, "until the provider says more");
    assert_eq!(made.map("metadata.annotations").str("alpha.kubernetes.io/provided-node-ip"), "10.0.0.5");
    made.child("status").set("addresses", api::list![tree! { "type" => "ExternalIP", "address" => "1.2.3.4" }]);
    assert_eq!(status::status(&config, &input, &made, LATER).status.list("addresses").len(), 1);
}

#[test]
fn existing_node_keeps_the_administrators_labels() {
    let (mut config, input) = (config(), input());
    config.node_labels = vec![("disk".to_string(), "slow".to_string())];
    let wanted = register::object(&config, &input);
    assert_eq!(register::reconcile(&wanted, &wanted), None);
    let labels = tree! { "kubernetes.io/hostname" => "old", "disk" => "fast", "kubernetes.io/os" => "linux",
    "kubernetes.io/arch" => "amd64", "beta.kubernetes.io/os" => "linux", "beta.kubernetes.io/arch" => "amd64" };
    let found = tree! { "metadata" => tree! { "labels" => labels } };
    let patch = register::reconcile(&wanted, &found).expect("a patch");
    let want = tree! { "metadata" => tree! {
        "labels" => tree! { "kubernetes.io/hostname" => "host-1" },
        "annotations" => tree! { "volumes.kubernetes.io/controller-managed-attach-detach" => "true" },
    } };
    assert_eq!(patch, want);
}

#[test]
fn lease_belongs_to_the_node_and_is_renewed() {
    let config = config();
    let first = lease::lease(&config, None, None, NOW);
    assert_eq!((first.str("spec.holderIdentity"), first.int("spec.leaseDurationSeconds")), ("n1", Some(40)));
    assert!(first.list("metadata.ownerReferences").is_empty(), "the node is not known yet");
    let next = lease::lease(&config, Some("u"), Some(&first), LATER);
    assert_eq!(next.list("metadata.ownerReferences")[0].str("uid"), "u");
    assert!(next.str("spec.renewTime") > first.str("spec.renewTime"));
}

#[test]
fn silent_runtime_is_down_after_a_while() {
    let ready = input().runtime;
    let health = |before: &Runtime, silent: Option<i64>| runtime::runtime(before, None, silent).health;
    assert_eq!(health(&Runtime::default(), None), Health::Unknown);
    assert_eq!(health(&ready, Some(10)), Health::Ready, "it may be busy");
    assert_eq!(health(&ready, Some(31)), Health::Down);
    let condition = |kind: &str, status: bool| cri::RuntimeCondition {
        r#type: kind.to_string(),
        status,
        reason: "R".to_string(),
        message: "m".to_string(),
    };
    let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", false)];
    let answer = cri::StatusResponse { status: Some(cri::RuntimeStatus { conditions }), ..Default::default() };
    let next = runtime::runtime(&Runtime { health: Health::Down, ..ready }, Some(answer), Some(99));
    assert_eq!(next.health, Health::Ready);
    assert_eq!(next.network, Network::NotReady("NetworkReady=false reason:R message:m".to_string()));
}
