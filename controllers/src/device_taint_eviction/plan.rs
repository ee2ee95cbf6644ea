//! When pods are evicted because of taints of their devices, and what rules say of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Tree, tree};
use devices::{AllocatedDevice, Claim, DeviceTaint, ResourceSlice, TaintEffect, TaintRule};

use crate::support::conditions;
use crate::support::resource_claims::{ClaimName, claim_name};

/// The eviction of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    /// In seconds since the epoch.
    pub(super) at: i64,
    /// The names of the rules that are a reason for it.
    pub(super) rules: BTreeSet<String>,
}

/// What is known of devices.
pub(super) trait Devices {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<Claim>>;
    /// The slices of the newest generation of a pool.
    fn slices(&self, driver: &str, pool: &str) -> Vec<ResourceSlice>;
    fn rules(&self) -> &[TaintRule];
}

/// When a pod has to be evicted; None if it may stay.
pub(super) fn eviction_of(pod: &Tree, devices: &impl Devices) -> Option<Eviction> {
    if pod.str("spec.nodeName").is_empty() || pod.at("metadata").has("deletionTimestamp") {
        return None;
    }
    let uid = pod.str("metadata.uid");
    let mut eviction = None;
    for pod_claim in pod.list("spec.resourceClaims") {
        let ClaimName::Known { name, is_generated } = claim_name(pod, pod_claim) else { continue };
        let Some(claim) = devices.claim(pod.str("metadata.namespace"), name) else { continue };
        let is_foreign = is_generated && claim.controller.as_deref() != Some(uid);
        if is_foreign || !claim.is_reserved_for(uid) {
            continue;
        }
        for device in claim.allocation.iter().flat_map(|allocation| &allocation.devices) {
            add_taints(&mut eviction, device, devices);
        }
    }
    eviction
}

/// Adds the taints of a device that evict, unless they are tolerated.
fn add_taints(eviction: &mut Option<Eviction>, device: &AllocatedDevice, devices: &impl Devices) {
    let id = &device.id;
    let slices = devices.slices(&id.driver, &id.pool);
    let found = slices.iter().flat_map(|slice| &slice.devices).find(|one| one.name == id.device);
    let own = found.into_iter().flat_map(|device| &device.taints).map(|taint| (taint, None));
    let rules = devices.rules().iter().filter(|rule| rule.selects(id)).map(|rule| (&rule.taint, Some(&rule.name)));
    for (taint, rule) in own.chain(rules).filter(|(taint, _)| taint.effect() == TaintEffect::NoExecute) {
        let Some(at) = evicts_at(taint, device) else { continue };
        let eviction = eviction.get_or_insert(Eviction { at, rules: BTreeSet::new() });
        eviction.at = eviction.at.min(at);
        eviction.rules.extend(rule.map(|name| name.to_string()));
    }
}

/// When a taint evicts; None if it is tolerated for ever. Only tolerations of the effect NoExecute count.
fn evicts_at(taint: &DeviceTaint, device: &AllocatedDevice) -> Option<i64> {
    let added = taint.added.map_or(0, |added| added.seconds);
    let tolerations = device.tolerations.iter().filter(|one| one.effect == "NoExecute" && one.tolerates(taint));
    let mut seconds: Option<i64> = None;
    for toleration in tolerations {
        let one = toleration.seconds?.max(0);
        seconds = Some(seconds.map_or(one, |known| known.min(one)));
    }
    Some(added.saturating_add(seconds.unwrap_or(0)))
}

/// The DisruptionTarget condition of a pod that is evicted.
pub(super) fn disruption_patch(pod: &Tree, now: i64) -> Tree {
    let condition = tree! {
        "type" => "DisruptionTarget",
        "observedGeneration" => pod.int("metadata.generation").unwrap_or_default(),
        "status" => "True",
        "lastProbeTime" => Tree::Null,
        "lastTransitionTime" => api::time::format_seconds(now),
        "reason" => "DeletionByDeviceTaintManager",
        "message" => "Device Taint manager: deleting due to NoExecute taint",
    };
    let uid = tree! { "uid" => pod.str("metadata.uid") };
    tree! { "metadata" => uid, "status" => conditions::status_patch(pod, condition) }
}

/// What a rule does, for its condition.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct RuleCounts {
    /// Devices that it selects, in slices and in allocations.
    pub(super) published: usize,
    pub(super) allocated: usize,
    pub(super) pending_pods: usize,
    pub(super) pending_namespaces: usize,
    /// Since the controller has started.
    pub(super) evicted: usize,
}

/// The condition EvictionInProgress of a rule.
pub(super) fn condition_of(rule: &Tree, counts: RuleCounts) -> Tree {
    let (status, reason, mut message) = match rule.str("spec.taint.effect") {
        "NoExecute" if counts.pending_pods > 0 => {
            let verb = if counts.pending_pods == 1 { "needs" } else { "need" };
            let pods = plural(counts.pending_pods, "pod");
            ("True", "PodsPendingEviction", format!("{pods} {verb} to be evicted in {}.", namespaces(counts)))
        }
        "NoExecute" if counts.evicted > 0 => ("False", "Completed", String::new()),
        "NoExecute" => ("False", "NotStarted", String::new()),
        "None" => {
            let (published, allocated) =
                (plural(counts.published, "published device"), plural(counts.allocated, "allocated device"));
            let message = format!(
                "{published} selected. {allocated} selected. {} would be evicted in {} if the effect was NoExecute. This \
                 information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
                plural(counts.pending_pods, "pod"),
                namespaces(counts)
            );
            ("False", "NoEffect", message)
        }
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_string()),
    };
    if counts.evicted > 0 {
        let separator = if message.is_empty() { "" } else { " " };
        message
            .push_str(&format!("{separator}{} evicted since starting the controller.", plural(counts.evicted, "pod")));
    }
    tree! {
        "type" => "EvictionInProgress",
        "status" => status,
        "reason" => reason,
        "message" => message,
        "observedGeneration" => rule.int("metadata.generation").unwrap_or_default(),
    }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn namespaces(counts: RuleCounts) -> String {
    match counts.pending_namespaces {
        1 => "1 namespace".to_string(),
        count => format!("{count} different namespaces"),
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn read(text: &str) -> Tree {
        json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    struct FakeDevices {
        claim: Tree,
        slice: Tree,
        rules: Vec<TaintRule>,
    }

    impl Devices for FakeDevices {
        fn claim(&self, _: &str, _: &str) -> Option<Arc<Claim>> {
            Some(Arc::new(Claim::read(&self.claim)))
        }

        fn slices(&self, _: &str, _: &str) -> Vec<ResourceSlice> {
            vec![ResourceSlice::read(&self.slice)]
        }

        fn rules(&self) -> &[TaintRule] {
            &self.rules
        }
    }

    fn evicted_at(taints: &str, tolerations: &str, rules: &[&str]) -> Option<(i64, usize)> {
        let slice = format!(
            r#"{{"spec":{{"driver":"x","pool":{{"name":"p"}},"devices":[{{"name":"d","taints":{taints}}}]}}}}"#
        );
        let claim = format!(
            r#"{{"metadata":{{"name":"c","uid":"c"}},"status":{{"reservedFor":[{{"resource":"pods","uid":"u"}}],
                "allocation":{{"devices":{{"results":[{{"driver":"x","pool":"p","device":"d",
                "tolerations":{tolerations}}}]}}}}}}}}"#
        );
        let rules = rules.iter().map(|rule| TaintRule::read(&read(rule))).collect();
        let known = FakeDevices { claim: read(&claim), slice: read(&slice), rules };
        let pod = r#"{"metadata":{"uid":"u"},"spec":{"nodeName":"n","resourceClaims":[{"name":"c","resourceClaimName":"c"}]}}"#;
        eviction_of(&read(pod), &known).map(|eviction| (eviction.at, eviction.rules.len()))
    }

    #[test]
    fn untolerated_taints_evict() {
        let taint = |effect: &str| format!(r#"[{{"key":"k","effect":"{effect}","timeAdded":"1970-01-01T00:01:40Z"}}]"#);
        let tolerated = |effect: &str, more: &str| format!(r#"[{{"operator":"Exists","effect":"{effect}"{more}}}]"#);
        let rule = r#"{"metadata":{"name":"r"},"spec":{"deviceSelector":{"driver":"x"},
            "taint":{"key":"k","effect":"NoExecute","timeAdded":"1970-01-01T00:00:50Z"}}}"#;
        assert_eq!(evicted_at("[]", "[]", &[]), None);
        assert_eq!(evicted_at(&taint("NoSchedule"), "[]", &[]), None);
        assert_eq!(evicted_at(&taint("NoExecute"), "[]", &[]), Some((100, 0)));
        assert_eq!(evicted_at(&taint("NoExecute"), &tolerated("NoExecute", ""), &[]), None);
        assert_eq!(evicted_at(&taint("NoExecute"), &tolerated("", ""), &[]), Some((100, 0)));
        let limited = tolerated("NoExecute", r#","tolerationSeconds":30"#);
        assert_eq!(evicted_at(&taint("NoExecute"), &limited, &[]), Some((130, 0)));
        assert_eq!(evicted_at(&taint("NoExecute"), "[]", &[rule]), Some((50, 1)));
    }

    #[test]
    fn rules_tell_what_they_do() {
        let rule = |effect: &str| tree! { "spec" => tree! { "taint" => tree! { "effect" => effect } } };
        let counts = RuleCounts { published: 2, allocated: 1, pending_pods: 1, pending_namespaces: 1, evicted: 0 };
        let check = |effect: &str, counts: RuleCounts, reason: &str, message: &str| {
            let condition = condition_of(&rule(effect), counts);
            assert_eq!((condition.str("reason"), condition.str("message")), (reason, message));
        };
        check("NoExecute", counts, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.");
        check("NoExecute", RuleCounts::default(), "NotStarted", "");
        let evicted = RuleCounts { evicted: 2, ..RuleCounts::default() };
        check("NoExecute", evicted, "Completed", "2 pods evicted since starting the controller.");
        let more = "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
        let none = "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the \
                    effect was NoExecute.";
        check("None", counts, "NoEffect", &format!("{none} {more}"));
        check("NoSchedule", counts, "OtherEffect", "Eviction only happens for the NoExecute effect.");
    }
}
