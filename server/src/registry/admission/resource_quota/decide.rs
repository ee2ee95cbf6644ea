//! Whether a write fits into the quotas of its namespace, and their usage after it.

use std::collections::{BTreeMap, BTreeSet};

use crate::storage::kind::Kind;
use api::quantity::Quantity;
use api::{Map, Tree};
use kinds::quota::{self as usage, Usage, match_object};
use kinds::resources::read;

/// Why a quota rejects a write. The lists are texts such as `requests.cpu=1,pods=2`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaError {
    #[error("failed quota: {quota}: must specify {missing}")]
    Unspecified { quota: String, missing: String },
    #[error("status unknown for quota: {quota}, resources: {resources}")]
    UnknownUsage { quota: String, resources: String },
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded { quota: String, requested: String, used: String, limited: String },
}

/// The quotas that change, by their index, with their new usage.
pub(crate) fn charges(
    quotas: &[Tree],
    kind: &Kind,
    object: &Tree,
    old: Option<&Tree>,
) -> Result<Vec<(usize, Tree)>, QuotaError> {
    let mut used = usage::compute_usage(kind.counted(), object);
    let names: BTreeSet<String> = used.keys().cloned().collect();
    if let Some(old) = old {
        subtract(&mut used, &usage::compute_usage(kind.counted(), old));
    }
    // The quota controller releases decreased usage after the write.
    used.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    let mut charged = Vec::new();
    for (at, quota) in quotas.iter().enumerate().filter(|(_, quota)| match_object(quota, kind.counted(), object)) {
        check_constraints(quota, kind, object)?;
        check_known(quota, &names)?;
        let more = within(quota, &used);
        check_fits(quota, &more)?;
        if !more.is_empty() {
            charged.push((at, charge(quota, &more)));
        }
    }
    Ok(charged)
}

fn subtract(used: &mut Usage, old: &Usage) {
    for (name, amount) in used.iter_mut() {
        if let Some(before) = old.get(name) {
            *amount -= before;
        }
    }
}

/// The status of a quota limits: the spec takes effect once the usage has been counted.
fn hard(quota: &Tree) -> &Map {
    quota.map("status.hard")
}

fn within(quota: &Tree, used: &Usage) -> Usage {
    used.iter()
        .filter(|(name, _)| hard(quota).contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A quota for compute resources requires that each container sets them.
fn check_constraints(quota: &Tree, kind: &Kind, object: &Tree) -> Result<(), QuotaError> {
    const COMPUTE: &[&str] = &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    if !kind.group().is_empty() || kind.kind() != "Pod" {
        return Ok(());
    }
    let spec = object.at("spec");
    let usage_of = |owner: &Tree| {
        let mut usage = Usage::new();
        usage::compute(owner.map("resources.requests"), owner.map("resources.limits"), &mut usage);
        usage
    };
    let by_pod = usage_of(spec);
    let required: Vec<&str> =
        COMPUTE.iter().copied().filter(|name| hard(quota).contains(name) && !by_pod.contains_key(*name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
        let usage = usage_of(container);
        for name in required.iter().filter(|name| !usage.contains_key(**name)) {
            missing.entry(name).or_default().insert(container.str("name"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    Err(QuotaError::Unspecified { quota: name_of(quota), missing: texts.join("; ") })
}

/// Nothing is decided on usage that has not been counted.
fn check_known(quota: &Tree, names: &BTreeSet<String>) -> Result<(), QuotaError> {
    let limited = names.iter().filter(|name| hard(quota).contains(name));
    let unknown: Vec<&str> =
        limited.filter(|name| !quota.map("status.used").contains(name)).map(String::as_str).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(QuotaError::UnknownUsage { quota: name_of(quota), resources: unknown.join(",") })
}

fn check_fits(quota: &Tree, more: &Usage) -> Result<(), QuotaError> {
    let at = |map: &Map, name: &str| map.get(name).map(read).unwrap_or_default();
    let exceeded: Vec<(&String, &Quantity)> =
        more.iter().filter(|(name, value)| sum(quota, name, value) > at(hard(quota), name)).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let list = |value: &dyn Fn(&str, &Quantity) -> Quantity| {
        let texts: Vec<String> = exceeded.iter().map(|(name, more)| format!("{name}={}", value(name, more))).collect();
        texts.join(",")
    };
    Err(QuotaError::Exceeded {
        quota: name_of(quota),
        requested: list(&|_, more| more.clone()),
        used: list(&|name, _| at(quota.map("status.used"), name)),
        limited: list(&|name, _| at(hard(quota), name)),
    })
}

fn name_of(quota: &Tree) -> String {
    quota.str("metadata.name").to_string()
}

fn sum(quota: &Tree, name: &str, more: &Quantity) -> Quantity {
    let mut sum = quota.map("status.used").get(name).map(read).unwrap_or_default();
    sum += more;
    sum
}

fn charge(quota: &Tree, more: &Usage) -> Tree {
    let mut charged = quota.clone();
    for (name, value) in more {
        let sum = sum(quota, name, value).to_string();
        charged.child("status.used").set(name, sum);
    }
    charged
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::json;
    use super::*;

    fn quota() -> Tree {
        json(
            r#"{"metadata":{"name":"q"},"status":{"hard":{"pods":"2","requests.cpu":"1","limits.memory":"1Gi","services.nodeports":"0","services":"2"},
            "used":{"pods":"1","requests.cpu":"400m","limits.memory":"0","services.nodeports":"0","services":"2"}}}"#,
        )
    }

    fn pod(cpu: &str) -> String {
        format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}},"limits":{{"memory":"100Mi"}}}}}}]}}}}"#
        )
    }

    #[test]
    fn a_pod_fits_or_does_not() {
        let check = |pod: &str, want: Result<&str, &str>| {
            let got = charges(&[quota()], &Kind::built_in(&kinds::core::pod::KIND), &json(pod), None);
            let got = got.map(|charged| charged[0].1.at("status.used").clone());
            assert_eq!(got.map_err(|error| error.to_string()), want.map(json).map_err(str::to_string));
        };
        check(
            &pod("600m"),
            Ok(r#"{"pods":"2","requests.cpu":"1","limits.memory":"100Mi","services.nodeports":"0","services":"2"}"#),
        );
        check(
            &pod("700m"),
            Err("exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=400m, limited: requests.cpu=1"),
        );
        check(
            r#"{"spec":{"containers":[{"name":"c"}]}}"#,
            Err("failed quota: q: must specify limits.memory for: c; requests.cpu for: c"),
        );
    }

    #[test]
    fn update_charges_only_the_increase() {
        let service = |ty: &str| json(&format!(r#"{{"spec":{{"type":"{ty}","ports":[{{}}]}}}}"#));
        let check = |old: &str, new: &str, want: Result<usize, &str>| {
            let got =
                charges(&[quota()], &Kind::built_in(&kinds::core::service::KIND), &service(new), Some(&service(old)));
            let got = got.map(|charged| charged.len()).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_string));
        };
        check("NodePort", "ClusterIP", Ok(0));
        check("ClusterIP", "ClusterIP", Ok(0));
        check(
            "ClusterIP",
            "NodePort",
            Err(
                "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0",
            ),
        );
    }

    #[test]
    fn usage_must_be_known() {
        let quota = json(r#"{"metadata":{"name":"q"},"status":{"hard":{"configmaps":"2"}}}"#);
        let got = charges(&[quota], &Kind::built_in(&kinds::core::config_map::KIND), &json("{}"), None);
        let error = got.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("status unknown for quota: q, resources: configmaps"));
        let new = json(r#"{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"0"}}}"#);
        assert_eq!(
            charges(&[new], &Kind::built_in(&kinds::core::config_map::KIND), &json("{}"), None).map(|c| c.len()),
            Ok(0)
        );
    }
}
