//! Allocations of small clusters, as tables.

use api::{Str, Tree, json};

use super::*;
use crate::{AllocatedState, Allocation, DeviceClass, ResourceSlice, TaintRule};

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Two nodes with graphics cards, network cards everywhere, a card with partitions, and one that is shared.
const SLICES: &[&str] = &[
    r#"{"metadata":{"name":"n1-gpus"},"spec":{"driver":"gpu.x","pool":{"name":"n1","generation":1,
        "resourceSliceCount":1},"nodeName":"n1","devices":[
        {"name":"g0","attributes":{"model":{"string":"a"},"numa":{"int":0}},"capacity":{"memory":{"value":"10Gi"}}},
        {"name":"g1","attributes":{"model":{"string":"a"},"numa":{"int":1}},"capacity":{"memory":{"value":"20Gi"}}},
        {"name":"g2","attributes":{"model":{"string":"b"},"numa":{"int":1}},"capacity":{"memory":{"value":"40Gi"}}}]}}"#,
    r#"{"metadata":{"name":"fab-1"},"spec":{"driver":"net.x","pool":{"name":"fab","generation":1,
        "resourceSliceCount":2},"allNodes":true,"devices":[{"name":"d0"}]}}"#,
    r#"{"metadata":{"name":"fab-2"},"spec":{"driver":"net.x","pool":{"name":"fab","generation":1,
        "resourceSliceCount":2},"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[
        {"key":"rack","operator":"In","values":["r1"]}]}]},"devices":[{"name":"d1"}]}}"#,
    r#"{"metadata":{"name":"part-c"},"spec":{"driver":"part.x","pool":{"name":"part","generation":1,
        "resourceSliceCount":2},"nodeName":"n1","sharedCounters":[{"name":"card","counters":
        {"memory":{"value":"10Gi"}}}]}}"#,
    r#"{"metadata":{"name":"part-d"},"spec":{"driver":"part.x","pool":{"name":"part","generation":1,
        "resourceSliceCount":2},"nodeName":"n1","devices":[
        {"name":"whole","consumesCounters":[{"counterSet":"card","counters":{"memory":{"value":"10Gi"}}}]},
        {"name":"half0","consumesCounters":[{"counterSet":"card","counters":{"memory":{"value":"5Gi"}}}]},
        {"name":"half1","consumesCounters":[{"counterSet":"card","counters":{"memory":{"value":"5Gi"}}}]}]}}"#,
    r#"{"metadata":{"name":"nic"},"spec":{"driver":"nic.x","pool":{"name":"nic","generation":1,
        "resourceSliceCount":1},"nodeName":"n1","devices":[{"name":"eth0","allowMultipleAllocations":true,
        "capacity":{"bandwidth":{"value":"10G","requestPolicy":{"default":"1G",
        "validRange":{"min":"1G","step":"1G","max":"8G"}}}}}]}}"#,
];

/// A slice that has two devices of one name.
const INVALID: &str = r#"{"metadata":{"name":"twice"},"spec":{"driver":"bad.x","pool":{"name":"bad","generation":1,
        "resourceSliceCount":1},"nodeName":"n1","devices":[{"name":"b"},{"name":"b"}]}}"#;

struct Cluster {
    inventory: Inventory,
    allocated: AllocatedState,
    selectors: Selectors,
    node: Node,
}

impl Cluster {
    fn new() -> Cluster {
        let mut inventory = Inventory::default();
        SLICES.iter().for_each(|slice| inventory.put_slice(ResourceSlice::read(&read(slice))));
        for name in ["gpu", "net", "part", "nic", "bad"] {
            let config =
                if name == "gpu" { r#"[{"opaque":{"driver":"gpu.x","parameters":{"of":"class"}}}]"# } else { "[]" };
            let class = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"config":{config},
                    "selectors":[{{"cel":{{"expression":"device.driver == '{name}.x'"}}}}]}}}}"#
            );
            inventory.put_class(DeviceClass::read(&read(&class)));
        }
        let node = read(r#"{"metadata":{"name":"n1","labels":{"rack":"r1"}}}"#);
        let (allocated, selectors) = (AllocatedState::default(), Selectors::default());
        Cluster { inventory, allocated, selectors, node: Node::read(&node) }
    }

    fn allocate(&self, claims: &[&str]) -> Result<Option<Vec<ClaimAllocation>>, AllocationError> {
        let claim = |(index, devices): (usize, &&str)| {
            let text =
                format!(r#"{{"metadata":{{"namespace":"a","name":"c{index}"}},"spec":{{"devices":{devices}}}}}"#);
            Arc::new(Claim::read(&read(&text)))
        };
        let claims: Vec<Arc<Claim>> = claims.iter().enumerate().map(claim).collect();
        let none = AllocatedState::default();
        let allocated = Allocated { claims: &self.allocated, pending: &none };
        let allocator = Allocator { inventory: &self.inventory, allocated, selectors: &self.selectors };
        allocator.allocate(&self.node, &claims)
    }

    /// Allocates and keeps the devices.
    fn take(&mut self, claim: &str) -> Option<String> {
        let found = self.allocate(&[claim]).expect("a claim without errors")?;
        found.iter().for_each(|one| self.allocated.add(&one.to_allocation()));
        Some(shown(&found))
    }
}

/// `request=device request=device; …` by claim
fn shown(allocations: &[ClaimAllocation]) -> String {
    let device = |one: &DeviceAllocation| format!("{}={}", one.request, one.id.device);
    let claim = |one: &ClaimAllocation| one.devices.iter().map(device).collect::<Vec<_>>().join(" ");
    allocations.iter().map(claim).collect::<Vec<_>>().join("; ")
}

fn exactly(name: &str, class: &str, more: &str) -> String {
    format!(r#"{{"name":"{name}","exactly":{{"deviceClassName":"{class}"{more}}}}}"#)
}

fn requests(requests: &[String], more: &str) -> String {
    format!(r#"{{"requests":[{}]{more}}}"#, requests.join(","))
}

fn one(class: &str, more: &str) -> String {
    requests(&[exactly("r", class, more)], "")
}

#[test]
fn requests_get_the_first_devices_that_do() {
    let check = |claims: &[String], want: Option<&str>| {
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        let found = Cluster::new().allocate(&claims).expect("no errors");
        assert_eq!(found.as_deref().map(shown).as_deref(), want, "{claims:?}");
    };
    let selected = |expression: &str| format!(r#","selectors":[{{"cel":{{"expression":"{expression}"}}}}]"#);
    check(&[one("gpu", "")], Some("r=g0"));
    check(&[one("gpu", r#","count":2"#)], Some("r=g0 r=g1"));
    check(&[one("gpu", r#","count":4"#)], None);
    check(&[one("gpu", r#","allocationMode":"All""#)], Some("r=g0 r=g1 r=g2"));
    check(&[one("gpu", r#","count":2"#), one("gpu", "")], Some("r=g0 r=g1; r=g2"));
    check(&[one("gpu", r#","count":2"#), one("gpu", r#","count":2"#)], None);
    check(&[one("gpu", &selected("device.attributes['gpu.x'].model == 'b'"))], Some("r=g2"));
    check(&[one("gpu", &selected("device.attributes['gpu.x'].model == 'z'"))], None);
    check(&[one("net", r#","count":2"#)], Some("r=d0 r=d1"));
}

#[test]
fn alternatives_are_tried_in_order() {
    let alternative = |name: &str, more: &str| format!(r#"{{"name":"{name}","deviceClassName":"gpu"{more}}}"#);
    let check = |alternatives: &[String], others: &[String], want: Option<&str>| {
        let list = format!(r#"{{"name":"r","firstAvailable":[{}]}}"#, alternatives.join(","));
        let all: Vec<String> = [list].into_iter().chain(others.iter().cloned()).collect();
        let found = Cluster::new().allocate(&[&requests(&all, "")]).expect("no errors");
        assert_eq!(found.as_deref().map(shown).as_deref(), want, "{all:?}");
    };
    let (big, mid, small) = (r#","count":9"#, r#","count":2"#, "");
    check(&[alternative("big", big), alternative("mid", mid)], &[], Some("r/mid=g0 r/mid=g1"));
    let other = [exactly("o", "gpu", r#","count":2"#)];
    check(&[alternative("mid", mid), alternative("small", small)], &other, Some("r/small=g0 o=g1 o=g2"));
    check(&[alternative("big", big)], &[], None);
    let huge = r#","count":33"#;
    check(&[alternative("huge", huge), alternative("small", small)], &[], Some("r/small=g0"));
}

#[test]
fn constraints_hold_between_the_devices_of_a_claim() {
    let check = |count: &str, constraint: &str, want: Option<&str>| {
        let claim = requests(&[exactly("r", "gpu", count)], &format!(r#","constraints":[{constraint}]"#));
        let found = Cluster::new().allocate(&[&claim]).expect("no errors");
        assert_eq!(found.as_deref().map(shown).as_deref(), want, "{claim}");
    };
    let two = r#","count":2"#;
    check(two, r#"{"matchAttribute":"gpu.x/numa"}"#, Some("r=g1 r=g2"));
    check(two, r#"{"distinctAttribute":"gpu.x/model"}"#, Some("r=g0 r=g2"));
    check(r#","count":3"#, r#"{"matchAttribute":"gpu.x/model"}"#, None);
    check(two, r#"{"matchAttribute":"gpu.x/unknown"}"#, None);
    check(two, r#"{"requests":["other"],"matchAttribute":"gpu.x/unknown"}"#, Some("r=g0 r=g1"));
    let all = requests(
        &[exactly("r", "gpu", r#","allocationMode":"All""#)],
        r#","constraints":[{"matchAttribute":"gpu.x/model"}]"#,
    );
    let error = Cluster::new().allocate(&[&all]).expect_err("all devices do not match");
    assert_eq!(
        error.to_string(),
        "claim a/c0, request r: cannot add device gpu.x/n1/g2 because a claim constraint would not be satisfied"
    );
}

#[test]
fn devices_in_use_are_not_allocated_again() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.take(&one("gpu", r#","count":2"#)).as_deref(), Some("r=g0 r=g1"));
    assert_eq!(cluster.take(&one("gpu", "")).as_deref(), Some("r=g2"));
    assert_eq!(cluster.take(&one("gpu", "")), None);
    assert_eq!(cluster.take(&one("gpu", r#","allocationMode":"All""#)), None);
    let admin = one("gpu", r#","allocationMode":"All","adminAccess":true"#);
    assert_eq!(cluster.take(&admin).as_deref(), Some("r=g0 r=g1 r=g2"));
}

#[test]
fn partitions_share_the_counters_of_their_card() {
    let half = r#","selectors":[{"cel":{"expression":"true"}}]"#;
    let mut cluster = Cluster::new();
    assert_eq!(cluster.take(&one("part", r#","count":2"#)).as_deref(), Some("r=half0 r=half1"));
    assert_eq!(cluster.take(&one("part", half)), None);
    let mut cluster = Cluster::new();
    assert_eq!(cluster.take(&one("part", half)).as_deref(), Some("r=whole"));
    assert_eq!(cluster.take(&one("part", half)), None);
}

#[test]
fn shares_of_a_device_consume_its_capacity() {
    let of = |amount: &str| one("nic", &format!(r#","capacity":{{"requests":{{"bandwidth":"{amount}"}}}}"#));
    let mut cluster = Cluster::new();
    let found = cluster.allocate(&[&of("2500M")]).expect("no errors").expect("enough");
    let result = found[0].to_tree(|| Str::new("id"));
    let result = &result.list("devices.results")[0];
    assert_eq!((result.str("shareID"), result.str("consumedCapacity.bandwidth")), ("id", "3G"));
    assert_eq!(cluster.take(&of("2500M")).as_deref(), Some("r=eth0"));
    assert_eq!(cluster.take(&one("nic", "")).as_deref(), Some("r=eth0"));
    assert_eq!(cluster.take(&of("7G")), None);
    assert_eq!(cluster.take(&of("9G")), None);
    assert_eq!(cluster.take(&of("6G")).as_deref(), Some("r=eth0"));
    assert_eq!(cluster.take(&one("nic", "")), None);
    let two = requests(&[exactly("a", "nic", ""), exactly("b", "nic", "")], "");
    assert_eq!(Cluster::new().take(&two).as_deref(), Some("a=eth0 b=eth0"));
}

#[test]
fn tainted_devices_need_tolerations() {
    let rule = r#"{"metadata":{"name":"t"},"spec":{"deviceSelector":{"driver":"gpu.x","device":"g0"},
        "taint":{"key":"bad","effect":"NoSchedule"}}}"#;
    let mut cluster = Cluster::new();
    cluster.inventory.put_rule(TaintRule::read(&read(rule)));
    assert_eq!(cluster.take(&one("gpu", "")).as_deref(), Some("r=g1"));
    let tolerant = one("gpu", r#","tolerations":[{"key":"bad","operator":"Exists"}]"#);
    assert_eq!(cluster.take(&tolerant).as_deref(), Some("r=g0"));
}

#[test]
fn a_newer_generation_replaces_a_pool() {
    let newer = r#"{"metadata":{"name":"fab-9"},"spec":{"driver":"net.x","pool":{"name":"fab","generation":2,
        "resourceSliceCount":1},"allNodes":true,"devices":[{"name":"d9"}]}}"#;
    let mut cluster = Cluster::new();
    cluster.inventory.put_slice(ResourceSlice::read(&read(newer)));
    assert_eq!(cluster.take(&one("net", "")).as_deref(), Some("r=d9"));
    cluster.inventory.remove_slice("fab-9");
    assert_eq!(cluster.take(&one("net", "")).as_deref(), Some("r=d0"));
    cluster.inventory.remove_slice("fab-1");
    assert_eq!(cluster.take(&one("net", "")), None, "the pool is incomplete");
}

#[test]
fn allocations_say_where_and_how_devices_are_used() {
    let check = |claim: &str, want: &str| {
        let found = Cluster::new().allocate(&[claim]).expect("no errors").expect("enough");
        let mut found = found[0].to_tree(Str::default);
        found.child("devices").remove("results");
        assert_eq!(found, read(want), "{claim}");
    };
    let config =
        |requests: &str, of: &str| format!(r#"{{{requests}"opaque":{{"driver":"gpu.x","parameters":"{of}"}}}}"#);
    let node = r#""nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In",
        "values":["n1"]}]}]}"#;
    let class = r#"{"source":"FromClass","opaque":{"driver":"gpu.x","parameters":{"of":"class"}}}"#;
    let of_b = config(r#""requests":["b"],"#, "b");
    let two = requests(
        &[exactly("a", "gpu", ""), exactly("b", "gpu", "")],
        &format!(r#","config":[{},{of_b}]"#, config("", "all")),
    );
    let claim = |requests: &str, of: &str| {
        format!(r#"{{"source":"FromClaim",{requests}"opaque":{{"driver":"gpu.x","parameters":"{of}"}}}}"#)
    };
    let of_b = claim(r#""requests":["b"],"#, "b");
    check(&two, &format!(r#"{{"devices":{{"config":[{class},{},{of_b}]}},{node}}}"#, claim("", "all")));
    check(&one("net", ""), r#"{"devices":{}}"#);
    check(
        &one("net", r#","count":2"#),
        r#"{"devices":{},"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[
            {"key":"rack","operator":"In","values":["r1"]}]}]}}"#,
    );
}

#[test]
fn errors_name_the_claim_or_the_class() {
    let check = |claim: &str, want: &str| {
        let error = Cluster::new().allocate(&[claim]).expect_err(claim).to_string();
        assert!(error.starts_with(want), "{claim}: {error}");
    };
    let selected = |expression: &str| format!(r#","selectors":[{{"cel":{{"expression":"{expression}"}}}}]"#);
    check(
        &one("gpu", &selected("device.attributes['gpu.x'].nope == 1")),
        "claim a/c0: selector #0 on device gpu.x/n1/g0: CEL runtime error: no such key: nope. consider using CEL",
    );
    check(&one("nope", ""), "claim a/c0, request r: could not retrieve device class nope");
    check(&one("gpu", r#","count":33"#), "claim a/c0: number of requested devices 33 exceeds the claim limit of 32");
    let mut cluster = Cluster::new();
    cluster.inventory.put_slice(ResourceSlice::read(&read(INVALID)));
    let error = cluster.allocate(&[&one("bad", "")]).expect_err("an invalid pool").to_string();
    assert_eq!(error, "invalid resource pools were encountered");
    let all = one("gpu", r#","allocationMode":"All""#);
    let error = cluster.allocate(&[&all]).expect_err("an invalid pool").to_string();
    let start = "claim a/c0, request r: asks for all devices, but resource pool bad.x/bad is currently";
    assert_eq!(error, format!("{start} invalid"));
    cluster.inventory.remove_slice("twice");
    cluster.inventory.remove_slice("fab-2");
    let error = cluster.allocate(&[&all]).expect_err("an incomplete pool").to_string();
    assert_eq!(error, format!("{} being updated", start.replace("bad.x/bad", "net.x/fab")));
}

#[test]
fn a_search_that_takes_too_long_is_given_up() {
    let devices: Vec<String> =
        (0..60).map(|at| format!(r#"{{"name":"d{at}","attributes":{{"n":{{"int":{at}}}}}}}"#)).collect();
    let slice = format!(
        r#"{{"metadata":{{"name":"many"}},"spec":{{"driver":"many.x","pool":{{"name":"many","generation":1,
            "resourceSliceCount":1}},"nodeName":"n1","devices":[{}]}}}}"#,
        devices.join(",")
    );
    let mut cluster = Cluster::new();
    cluster.inventory.put_slice(ResourceSlice::read(&read(&slice)));
    cluster.inventory.put_class(DeviceClass::read(&read(r#"{"metadata":{"name":"many"}}"#)));
    let wanted = requests(&[exactly("a", "many", r#","count":16"#), exactly("b", "part", r#","count":3"#)], "");
    let error = cluster.allocate(&[&wanted]).expect_err("there are too many combinations").to_string();
    assert_eq!(error, "node n1: timed out trying to allocate devices");
}

#[test]
fn what_is_written_reads_the_same() {
    let claim = requests(&[exactly("a", "gpu", ""), exactly("b", "nic", "")], "");
    let found = Cluster::new().allocate(&[&claim]).expect("no errors").expect("enough");
    let written = Allocation::read(&found[0].to_tree(Str::default));
    assert_eq!(written.devices, found[0].to_allocation().devices);
    assert!(written.nodes.is_some_and(|nodes| nodes.terms.len() == 1));
}
