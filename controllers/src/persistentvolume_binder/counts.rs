//! The metrics of volumes and claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use client::{Metric, Metrics};

use crate::metrics;

pub(super) const GAUGES: [&Metric; 5] =
    [&metrics::PV_BOUND, &metrics::PV_UNBOUND, &metrics::PV_TOTAL, &metrics::PVC_BOUND, &metrics::PVC_UNBOUND];

pub(super) fn show(metrics: &Metrics, volumes: &[Arc<Tree>], claims: &[Arc<Tree>]) {
    let is_bound = |object: &Tree| object.str("status.phase") == "Bound";
    set(metrics, volumes, &metrics::PV_BOUND, |volume| is_bound(volume).then(|| vec![class(volume)]));
    set(metrics, volumes, &metrics::PV_UNBOUND, |volume| (!is_bound(volume)).then(|| vec![class(volume)]));
    set(metrics, volumes, &metrics::PV_TOTAL, |volume| {
        Some(vec![plugin(volume), volume.str("spec.volumeMode").into()])
    });
    let of_claim = |claim: &Tree| {
        let attributes = claim.str("spec.volumeAttributesClassName").to_string();
        vec![claim.str("metadata.namespace").to_string(), class(claim), attributes]
    };
    set(metrics, claims, &metrics::PVC_BOUND, |claim| is_bound(claim).then(|| of_claim(claim)));
    set(metrics, claims, &metrics::PVC_UNBOUND, |claim| (!is_bound(claim)).then(|| of_claim(claim)));
}

fn class(object: &Tree) -> String {
    object.str("spec.storageClassName").to_string()
}

/// Counts objects by their metric labels.
fn set(
    metrics: &Metrics,
    objects: &[Arc<Tree>],
    metric: &'static Metric,
    labels: impl Fn(&Tree) -> Option<Vec<String>>,
) {
    let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for labels in objects.iter().filter_map(|object| labels(object)) {
        *counts.entry(labels).or_default() += 1;
    }
    for (labels, count) in &counts {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        metrics.record(metric, &labels, *count as f64);
    }
}

/// The plugin name of a volume.
fn plugin(volume: &Tree) -> String {
    let spec = volume.at("spec");
    let plugins = [
        ("hostPath", "kubernetes.io/host-path"),
        ("local", "kubernetes.io/local-volume"),
        ("nfs", "kubernetes.io/nfs"),
        ("iscsi", "kubernetes.io/iscsi"),
        ("fc", "kubernetes.io/fc"),
    ];
    match plugins.iter().find(|(field, _)| spec.has(field)) {
        Some((_, name)) => name.to_string(),
        None if spec.has("csi") => format!("kubernetes.io/csi:{}", spec.str("csi.driver")),
        None => "N/A".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn counts_volumes_and_claims() {
        let object = |json: &str| Arc::new(decode(json.as_bytes()).expect("JSON"));
        let volumes = [
            object(
                r#"{"spec":{"storageClassName":"a","hostPath":{},"volumeMode":"Block"},"status":{"phase":"Bound"}}"#,
            ),
            object(r#"{"spec":{"storageClassName":"a","csi":{"driver":"d"}},"status":{"phase":"Available"}}"#),
        ];
        let claims = [object(r#"{"metadata":{"namespace":"n"},"spec":{"storageClassName":"a"},"status":{}}"#)];
        let metrics = Metrics::default();
        show(&metrics, &volumes, &claims);
        let text = metrics.render();
        for line in [
            r#"pv_collector_bound_pv_count{storage_class="a"} 1"#,
            r#"pv_collector_unbound_pv_count{storage_class="a"} 1"#,
            r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/host-path",volume_mode="Block"} 1"#,
            r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/csi:d",volume_mode=""} 1"#,
            r#"pv_collector_unbound_pvc_count{namespace="n",storage_class="a",volume_attributes_class=""} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
