//! The server's own Lease, which shows that it is alive.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time, tree};

use super::{MANAGER, Object, edit};
use crate::Server;
use crate::common::identity::{hostname, name};

const NAMESPACE: &str = "kube-system";
const LEASE_SECONDS: i64 = 3600;
/// Rare compared with the hour of the lease: each renewal is a write.
const RENEW_SECONDS: i64 = 600;

pub(super) fn lease(now: i64) -> Object {
    let hostname = hostname();
    let name = name(&hostname);
    let labels = tree! { "apiserver.kubernetes.io/identity" => "kube-apiserver", "kubernetes.io/hostname" => hostname };
    let spec = tree! {
        "holderIdentity" => format!("{name}_{}", crate::common::ids::uid()), "leaseDurationSeconds" => LEASE_SECONDS,
        "renewTime" => micro_time(now),
    };
    Object {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        manager: MANAGER,
        tree: tree! {
            "kind" => "Lease", "apiVersion" => "coordination.k8s.io/v1",
            "metadata" => tree! { "name" => name, "namespace" => NAMESPACE, "labels" => labels }, "spec" => spec,
        },
    }
}

fn micro_time(seconds: i64) -> api::Str {
    time::format_micros(time::Timestamp { seconds, nanos: 0 })
}

/// Renews the lease until the server drains.
pub(super) async fn keep(server: Arc<Server>) {
    let name = name(&hostname());
    let mut closing = server.closing.subscribe();
    loop {
        let now = server.now();
        let stored = server.registry.storage.object("leases", &format!("{NAMESPACE}/{name}")).unwrap_or_default();
        let left = seconds_left(&stored, now);
        if left == 0 {
            renew(&server, &name, now).await;
        }
        let pause = Duration::from_secs(left.max(1).unsigned_abs());
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How long the lease needs no renewal; it is due if the clock was set back.
fn seconds_left(lease: &Tree, now: i64) -> i64 {
    let renewed = time::parse_micro(lease.str("spec.renewTime")).map_or(0, |time| time.seconds);
    let age = now - renewed;
    if (0..RENEW_SECONDS).contains(&age) { RENEW_SECONDS - age } else { 0 }
}

async fn renew(server: &Server, name: &str, now: i64) {
    let set = |lease: &mut Tree| lease.child("spec").set("renewTime", micro_time(now));
    if let Err(status) = edit(server, ("coordination.k8s.io", "v1", "leases", NAMESPACE), name, set).await {
        tracing::warn!(message = %status.message, "failed to renew server lease");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_renewed_when_it_is_due() {
        let lease = lease(1000).tree;
        let cases = [(1000, 600), (1599, 1), (1600, 0), (999, 0)];
        for (now, want) in cases {
            assert_eq!(seconds_left(&lease, now), want, "at {now}");
        }
    }
}
