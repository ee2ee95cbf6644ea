//! The order of the output: by kind, so that what others need is created first, or as accumulated.

use api::Tree;

use crate::error::Error;
use crate::id::{Gvk, ResId};
use crate::resources::Resources;

const FIRST: &[&str] = &[
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Sorts as `sortOptions` says; without them, in the legacy order.
pub(crate) fn sort(resources: &mut Resources, options: Option<&Tree>) -> Result<(), Error> {
    let order = options.map_or("legacy", |options| options.str("order"));
    let legacy = options.and_then(|options| options.get("legacySortOptions")).filter(|legacy| !legacy.is_null());
    match (order, legacy) {
        ("legacy", _) => {}
        ("fifo", None) => return Ok(()),
        ("fifo", Some(_)) => return Err(Error::LegacySortOptions(order.to_string())),
        _ => return Err(Error::SortOrder),
    }
    let names = |field: &str, defaults: &[&str]| match legacy {
        Some(legacy) => legacy.list(field).iter().filter_map(Tree::as_str).map(str::to_string).collect(),
        None => defaults.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    let (first, last) = (names("orderFirst", FIRST), names("orderLast", LAST));
    let rank = |kind: &str| {
        let last = last.iter().position(|known| known == kind).map(|at| at as i64 + 1);
        let first = first.iter().position(|known| known == kind).map(|at| at as i64 - first.len() as i64);
        last.or(first).unwrap_or(0)
    };
    resources.list.sort_by_cached_key(|resource| {
        let id = resource.id();
        (rank(&id.gvk.kind), gvk_key(&id.gvk), id_key(&id))
    });
    Ok(())
}

/// The order of kinds without options, by which field specs are sorted too.
pub(crate) fn gvk_order(gvk: &Gvk) -> (i64, String) {
    let first = FIRST.iter().position(|kind| *kind == gvk.kind).map(|at| at as i64 - FIRST.len() as i64);
    let last = LAST.iter().position(|kind| *kind == gvk.kind).map(|at| at as i64 + 1);
    (last.or(first).unwrap_or(0), gvk_key(gvk))
}

fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

fn gvk_key(gvk: &Gvk) -> String {
    format!("{}_{}_{}", or(&gvk.group, "~G"), or(&gvk.version, "~V"), or(&gvk.kind, "~K"))
}

fn id_key(id: &ResId) -> String {
    format!("{}|{}|{}", id.gvk, or(&id.namespace, "~X"), or(&id.name, "~N"))
}
