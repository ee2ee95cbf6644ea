//! A ServiceCIDR is kept until no address depends on it.

use std::sync::Arc;

use api::validation::parse_ip;
use api::{Tree, list, time, tree};
use client::{Key, key_of};
use stdx::cidr::IpNet;

use crate::support::finalizers;
use crate::support::networks::networks;
use crate::support::volumes::is_deleting;

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Until then an allocator that has not observed the deletion may still allocate an address.
const GRACE_SECONDS: i64 = 10;

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    AddFinalizer,
    RemoveFinalizer,
    Wait {
        seconds: i64,
    },
    /// The condition `Ready` to apply.
    SetReady(Tree),
}

/// `ranges` are all ServiceCIDRs, `addresses` all IPAddresses of services.
pub(super) fn plan(range: &Tree, ranges: &[Arc<Tree>], addresses: &[Arc<Tree>], now: i64) -> Plan {
    let has_finalizer = finalizers::has(range, FINALIZER);
    if !is_deleting(range) {
        return match has_finalizer {
            false => Plan::AddFinalizer,
            true => set_ready(range, ("True", "", "Kubernetes Service CIDR is ready"), now),
        };
    }
    if !has_finalizer {
        return Plan::Keep;
    }
    if is_needed(range, ranges, addresses) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                       ServiceCIDR";
        return set_ready(range, ("False", "Terminating", message), now);
    }
    let since = time::parse(range.str("metadata.deletionTimestamp")).map_or(now, |time| time.seconds);
    match since + GRACE_SECONDS - now {
        seconds if seconds > 0 => Plan::Wait { seconds },
        _ => Plan::RemoveFinalizer,
    }
}

/// ServiceCIDRs being deleted, each of which may wait for an address.
pub(super) fn waiting(ranges: &[Arc<Tree>]) -> impl Iterator<Item = Key> {
    ranges.iter().filter(|range| is_deleting(range)).map(|range| key_of(range))
}

fn set_ready(range: &Tree, (status, reason, message): (&str, &str, &str), now: i64) -> Plan {
    let conditions = range.list("status.conditions").iter();
    let there = conditions.filter(|condition| condition.str("type") == "Ready").any(|ready| {
        // The server sets the condition of its own range, with its own message.
        ready.str("status") == status && (status == "True" || ready.str("message") == message)
    });
    if there {
        return Plan::Keep;
    }
    let mut condition = tree! {
        "type" => "Ready",
        "status" => status,
        "message" => message,
        "lastTransitionTime" => time::format_seconds(now),
    };
    if !reason.is_empty() {
        condition.set("reason", reason);
    }
    Plan::SetReady(tree! {
        "apiVersion" => "networking.k8s.io/v1",
        "kind" => "ServiceCIDR",
        "metadata" => tree! { "name" => range.str("metadata.name") },
        "status" => tree! { "conditions" => list![condition] },
    })
}

/// Whether an address is in no other range.
fn is_needed(range: &Tree, ranges: &[Arc<Tree>], addresses: &[Arc<Tree>]) -> bool {
    let others: Vec<IpNet> = ranges
        .iter()
        .filter(|other| other.str("metadata.name") != range.str("metadata.name"))
        .flat_map(|other| networks(other))
        .collect();
    let own = networks(range);
    let is_managed = |address: &&Arc<Tree>| {
        address.map("metadata.labels").str("ipaddress.kubernetes.io/managed-by") == "ipallocator.k8s.io"
    };
    let mut ips = addresses.iter().filter(is_managed).filter_map(|address| parse_ip(address.str("metadata.name")));
    ips.any(|ip| own.iter().any(|network| network.contains(ip)) && !others.iter().any(|network| network.contains(ip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, cidr: &str) -> Tree {
        tree! {
            "metadata" => tree! { "name" => name, "finalizers" => list![FINALIZER] },
            "spec" => tree! { "cidrs" => list![cidr] },
        }
    }

    fn going(name: &str, cidr: &str) -> Tree {
        let mut range = range(name, cidr);
        range.child("metadata").set("deletionTimestamp", "1970-01-01T00:01:40Z");
        range
    }

    fn address(name: &str) -> Arc<Tree> {
        let labels = tree! { "ipaddress.kubernetes.io/managed-by" => "ipallocator.k8s.io" };
        Arc::new(tree! { "metadata" => tree! { "name" => name, "labels" => labels } })
    }

    fn check(range: &Tree, others: &[Tree], addresses: &[&str], now: i64, want: &str) {
        let mut ranges: Vec<Arc<Tree>> = others.iter().cloned().map(Arc::new).collect();
        ranges.push(Arc::new(range.clone()));
        let addresses: Vec<Arc<Tree>> = addresses.iter().map(|name| address(name)).collect();
        let got = match plan(range, &ranges, &addresses, now) {
            Plan::SetReady(updated) => updated.list("status.conditions")[0].str("status").to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(got, want);
    }

    #[test]
    fn ranges_are_ready_and_protected() {
        let mut bare = range("a", "10.0.0.0/24");
        bare.child("metadata").remove("finalizers");
        check(&bare, &[], &[], 0, "AddFinalizer");
        check(&range("a", "10.0.0.0/24"), &[], &[], 0, "True");
        let mut ready = range("a", "10.0.0.0/24");
        let condition = tree! { "type" => "Ready", "status" => "True", "message" => "anything" };
        ready.set("status", tree! { "conditions" => list![condition] });
        check(&ready, &[], &[], 0, "Keep");
    }

    #[test]
    fn deletes_unused_ranges() {
        let range = going("a", "10.0.0.0/24");
        check(&range, &[], &["10.0.0.7"], 200, "False");
        check(&range, &[], &["10.0.1.7", "fd00::1"], 200, "RemoveFinalizer");
        check(&range, &[], &[], 103, "Wait { seconds: 7 }");
        let wider = super::tests::range("b", "10.0.0.0/16");
        check(&range, std::slice::from_ref(&wider), &["10.0.0.7"], 200, "RemoveFinalizer");
        check(&going("c", "fd00::/64"), &[wider], &["fd00::1"], 200, "False");
    }
}
