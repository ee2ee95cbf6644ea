//! Requests and limits of pods as metrics: a line for each pod and resource.

use api::Tree;

use podmodel::{Resources, limits, requests};
use stdx::exposition::{Kind, Page, Sample};

/// A metric: name, help, and how it is computed.
type Metric = (&'static str, &'static str, fn(&Tree) -> Resources);

const METRICS: [Metric; 2] = [
    (
        "kube_pod_resource_request",
        "Resources requested by workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
        requests,
    ),
    (
        "kube_pod_resource_limit",
        "Resources limit for workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
        limits,
    ),
];

/// Finished pods are skipped.
pub(crate) fn text<'a>(pods: impl Iterator<Item = &'a Tree> + Clone) -> String {
    let mut page = Page::default();
    for (metric, help, amounts) in METRICS {
        let samples = pods.clone().filter(|pod| !is_over(pod)).flat_map(|pod| {
            let samples: Vec<Sample> = amounts(pod).iter().map(|(name, amount)| sample(pod, name, amount)).collect();
            samples
        });
        page.family(metric, Kind::Gauge, help, samples);
    }
    page.into_text()
}

fn is_over(pod: &Tree) -> bool {
    !pod.str("spec.nodeName").is_empty() && matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

fn sample(pod: &Tree, resource: &str, amount: i64) -> Sample {
    let value = if resource == "cpu" { amount as f64 / 1000.0 } else { amount as f64 };
    let priority = pod.int("spec.priority").map(|priority| priority.to_string()).unwrap_or_default();
    let text = |path: &str| pod.str(path).to_string();
    let labels = vec![
        ("namespace", text("metadata.namespace")),
        ("pod", text("metadata.name")),
        ("node", text("spec.nodeName")),
        ("scheduler", text("spec.schedulerName")),
        ("priority", priority),
        ("resource", resource.to_string()),
        ("unit", unit(resource).to_string()),
    ];
    Sample { labels, value, at: None }
}

fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        _ if resource.starts_with("hugepages-") => "bytes",
        _ if resource.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn each_pod_resource_is_a_line() {
        let resources = r#"[{"name":"c","resources":{"requests":{"cpu":"1500m","example.com/gpu":"2"},
            "limits":{"memory":"1Gi"}}},{"name":"d","resources":{"requests":{"cpu":"500m"}}}]"#;
        let on = pod("p").json("spec.containers", resources).json("spec.overhead", r#"{"cpu":"1","memory":"1Gi"}"#);
        let on = on.on("n").priority(7);
        let over = pod("q").cpu("1").on("n").with("status.phase", "Succeeded");
        let bare = pod("r");
        let text = text([&on.0, &over.0, &bare.0].into_iter());
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels = r#"namespace="default",pod="p",node="n",scheduler="default-scheduler",priority="7""#;
        let want = [
            format!("kube_pod_resource_request{{{labels},resource=\"cpu\",unit=\"cores\"}} 3"),
            format!("kube_pod_resource_request{{{labels},resource=\"memory\",unit=\"bytes\"}} 1073741824"),
            format!("kube_pod_resource_request{{{labels},resource=\"example.com/gpu\",unit=\"\"}} 2"),
            format!("kube_pod_resource_limit{{{labels},resource=\"memory\",unit=\"bytes\"}} 2147483648"),
        ];
        assert_eq!(lines, want);
    }
}
