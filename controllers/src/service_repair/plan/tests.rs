use api::list;

use super::*;
use crate::support::networks::networks;

fn service(name: &str, ips: &[&str]) -> Tree {
    let ips: Vec<Tree> = ips.iter().map(|ip| Tree::from(*ip)).collect();
    let first = ips.first().cloned().unwrap_or(Tree::from("None"));
    tree! {
        "metadata" => tree! { "namespace" => "n", "name" => name },
        "spec" => tree! { "type" => "ClusterIP", "clusterIP" => first, "clusterIPs" => ips },
    }
}

/// The IPAddress of a service's address.
fn address(ip: &str, service: &str) -> Tree {
    let ip = parse_ip(ip).expect("an address");
    let mut made = object(ip, &tree! { "metadata" => tree! { "namespace" => "n", "name" => service } });
    made.child("metadata").set("creationTimestamp", "1970-01-01T00:01:40Z");
    made
}

fn check_service(service: &Tree, there: &[Tree], others: &[Tree], want: &[(&str, &str, bool)]) {
    let range = tree! { "spec" => tree! { "cidrs" => list!["10.96.0.0/16", "fd00::/112"] } };
    let find = |name: &str| there.iter().find(|one| one.str("metadata.name") == name).cloned().map(Arc::new);
    let other = |_: &str, name: &str| others.iter().find(|one| one.str("metadata.name") == name).cloned().map(Arc::new);
    let known = Lookups { ranges: &networks(&range), address: &find, service: &other };
    let got = plan_service(service, &known);
    let got: Vec<(String, String, bool)> = got
        .into_iter()
        .map(|finding| {
            let event = finding.event.map_or_else(Default::default, |event| (event.reason.to_string(), event.message));
            (event.0, event.1, finding.create.is_some())
        })
        .collect();
    let want: Vec<(String, String, bool)> =
        want.iter().map(|(reason, text, makes)| (reason.to_string(), text.to_string(), *makes)).collect();
    assert_eq!(got, want);
}

#[test]
fn creates_missing_addresses() {
    let own = service("a", &["10.96.0.7", "fd00::7"]);
    let both = [address("10.96.0.7", "a"), address("fd00::7", "a")];
    check_service(&own, &both, &[], &[]);
    check_service(&service("a", &[]), &[], &[], &[]);
    let missing = "Cluster IP [IPv6]: fd00::7 is not allocated; repairing";
    check_service(&own, &both[..1], &[], &[("ClusterIPNotAllocated", missing, true)]);
    let outside = "Cluster IP [IPv4]: 10.97.0.1 is not within any configured Service CIDR; please recreate service";
    check_service(&service("a", &["10.97.0.1"]), &[], &[], &[("ClusterIPOutOfRange", outside, false)]);
    let invalid = "Cluster IP x is not a valid IP; please recreate Service";
    check_service(&service("a", &["x"]), &[], &[], &[("ClusterIPNotValid", invalid, false)]);
}

#[test]
fn repairs_or_reports_foreign_addresses() {
    let own = service("a", &["10.96.0.7"]);
    let theirs = [address("10.96.0.7", "b")];
    let wrong = "the ClusterIP [IPv4]: 10.96.0.7 for Service n/a has a wrong reference; repairing";
    check_service(&own, &theirs, &[], &[("ClusterIPNotAllocated", wrong, true)]);
    let twice = "Cluster IP [IPv4]:10.96.0.7 was assigned to multiple services; please recreate service";
    let other = service("b", &["10.96.0.7"]);
    check_service(&own, &theirs, &[other], &[("ClusterIPAlreadyAllocated", twice, false)]);
    check_service(&own, &theirs, &[service("b", &["10.96.0.8"])], &[]);
    let mut gateway = theirs[0].clone();
    gateway.child("spec.parentRef").set("resource", "gateways");
    check_service(&own, &[gateway], &[], &[("ClusterIPNotAllocated", wrong, true)]);
    let mut unmarked = address("10.96.0.7", "a");
    unmarked.child("metadata").remove("labels");
    check_service(&own, &[unmarked], &[], &[("", "", true)]);
}

#[test]
fn deletes_unreferenced_addresses() {
    let check = |address: &Tree, services: &[Tree], now: i64, want: AddressAction| {
        let find = |_: &str, name: &str| services.iter().find(|one| one.str("metadata.name") == name).cloned();
        assert_eq!(plan_address(address, &|namespace, name| find(namespace, name).map(Arc::new), now), want);
    };
    let gone = |reason: &'static str, text: &str| AddressAction::Delete(EventMessage::warning(reason, text));
    let own = address("10.96.0.7", "a");
    check(&own, &[service("a", &["10.96.0.7"])], 500, AddressAction::Keep);
    let wrong = "IPAddress: 10.96.0.7 for Service n/a has a wrong reference; cleaning up";
    check(&own, &[service("a", &["10.96.0.8"])], 500, gone("IPAddressWrongReference", wrong));
    check(&own, &[], 130, AddressAction::Wait { seconds: 31 });
    check(&own, &[], 160, AddressAction::Wait { seconds: 1 });
    let leaked = "IPAddress: 10.96.0.7 for Service n/a appears to have leaked: cleaning up";
    check(&own, &[], 161, gone("IPAddressNotAllocated", leaked));
    let mut other = own.clone();
    other.child("spec.parentRef").set("resource", "gateways");
    let modified = "IPAddress 10.96.0.7 appears to have been modified, not referencing a Service \
                    &ParentReference{Group:,Resource:gateways,Namespace:n,Name:a,}: cleaning up";
    check(&other, &[], 500, gone("IPAddressNotAllocated", modified));
    other.child("metadata").remove("labels");
    check(&other, &[], 500, AddressAction::Keep);
}
